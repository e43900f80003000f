"""What is measured, by name. A name that is a view of another's runs is listed in `VIEWS`."""

from __future__ import annotations

from coldstream.parsing import unknown
from coldstream.theory.measurements.activations import ACTIVATIONS
from coldstream.theory.measurements.bound import BOUND
from coldstream.theory.measurements.iterates import ITERATES
from coldstream.theory.measurements.neighbourhood import NEIGHBOURHOOD
from coldstream.theory.measurements.order import ORDER
from coldstream.theory.measurements.practice import PRACTICE
from coldstream.theory.measurements.regret import REGRET
from coldstream.theory.points import Measurement

MEASUREMENTS: dict[str, Measurement] = {
    one.name: one for one in (ITERATES, NEIGHBOURHOOD, ACTIVATIONS, REGRET, BOUND, ORDER, PRACTICE)
}
VIEWS = {"linearisation": "neighbourhood", "convexity": "neighbourhood", "gradients": "neighbourhood"}
"""Sections of the page that are made of the runs of another measurement."""


def get_measurement(name: str) -> Measurement:
    """Return the measurement of that name, or the one whose runs it is a view of."""
    name = VIEWS.get(name, name)
    if name not in MEASUREMENTS:
        raise unknown("measurement", name, [*MEASUREMENTS, *VIEWS])
    return MEASUREMENTS[name]
