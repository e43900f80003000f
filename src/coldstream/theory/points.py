"""A point of a measurement: the sizes and settings at which something is measured, once per seed."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from coldstream.lab.files import Record
from coldstream.parsing import unknown
from coldstream.theory.algorithm import Algorithm
from coldstream.theory.examples import NAMES, Examples, stream_and_test
from coldstream.theory.network import Network, check_size
from coldstream.theory.perturbations import KINDS, Kind

WIDTHS = (64, 128, 256, 512, 1024)
SEEDS = (0, 1, 2, 3, 4)
MORE_SEEDS = tuple(range(10))
"""For measurements that take little time."""


class Point(Record):
    """Where to measure. A measurement reads what concerns it and leaves the rest at its default.

    `sweep` names the curve that the point is on. `omega`, `direction` are of pairs W, W′; `radius` is R.
    """

    sweep: str
    data: str = "digits"
    width: int = 512
    depth: int = 3
    steps: int = 200
    replay: int = 10
    capacity: int | None = None
    kappa: float = 1.0
    order: str = "iid"
    perturbation: Kind = "none"
    size: float = 0.0
    radius: float = 1.0
    omega: float = 0.1
    direction: str = "random"
    model: str = "theory"

    @property
    def label(self) -> str:
        """The point as JSON, without what is at its default."""
        return json.dumps(self.model_dump(exclude_defaults=True), ensure_ascii=False)

    @classmethod
    def of_label(cls, label: str) -> Point:
        return cls.model_validate_json(label)

    def check(self) -> None:
        """Refuse values that nothing can be measured at."""
        check_size(self.width, self.depth)
        if self.data not in NAMES:
            raise unknown("data of the theory", self.data, NAMES)
        if self.perturbation not in KINDS:
            raise unknown("perturbation", self.perturbation, KINDS)
        for name in ("kappa", "radius", "omega"):
            if not 0 < (value := getattr(self, name)) < float("inf"):
                symbol = {"kappa": "κ", "radius": "R", "omega": "ω"}[name]
                raise ValueError(f"{name} ({symbol}) is {value:g}; it must be above 0 and finite")
        if not 0 <= self.size < float("inf"):
            raise ValueError(f"size (‖ξ‖²) is {self.size:g}; it must be finite and not below 0")
        if self.replay < 0 or (self.capacity is not None and self.capacity < 1):
            raise ValueError(f"replay is {self.replay} and capacity {self.capacity}; they must be ≥ 0 and ≥ 1")

    def algorithm(self) -> Algorithm:
        return Algorithm(self.kappa, self.replay, self.capacity, self.perturbation, self.size)

    def examples(self, tested: int, seed: int, root: Path | None) -> tuple[Examples, Examples]:
        """Return the stream and fresh examples of one seed."""
        return stream_and_test(self.data, self.steps, tested, self.order, seed, root)

    def network(self, inputs: int, seed: int) -> Network:
        """Return W⁰ of one seed."""
        return Network.initial(self.width, self.depth, inputs, seed)


Numbers = dict[str, float]


@dataclass(frozen=True)
class Measurement:
    """What is measured at which points.

    Attributes
    ----------
    name, title : str
    points : callable
        widths -> points.
    measure : callable
        (point, seed, folder of data sets) -> numbers by name.
    seeds : tuple of int
        The seeds where none are asked for.
    """

    name: str
    title: str
    points: Callable[[Sequence[int]], list[Point]]
    measure: Callable[[Point, int, Path | None], Numbers]
    seeds: tuple[int, ...] = SEEDS

    @property
    def module(self) -> str:
        """The module whose code the numbers depend on."""
        return self.measure.__module__
