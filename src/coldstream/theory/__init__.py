"""Section 4 of the paper made measurable: its network, its algorithm and its function class.

`network`, `algorithm`, `perturbations`, `examples` and `ntrf` are the objects of the theorem, in float64.
"""
