"""Section 4 of the paper made measurable: its network, its algorithm, its function class, and every statement.

`network`, `algorithm`, `perturbations`, `examples` and `ntrf` are the objects of the theorem, in float64.
`measurements` measures at points (`points`), which `runs` keeps. `statements` judges them by fits (`fits`); `page`
writes docs/theory.md.
"""
