"""Measuring in turns: every way gets a short block of calls in each round, so that what slows one slows all."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray

if TYPE_CHECKING:
    from rich.progress import Progress

Action = Callable[[], object]
Item = TypeVar("Item")


@dataclass(frozen=True)
class Scale:
    """How much is measured, and at which sizes.

    Parameters
    ----------
    seconds, least, most
        A group of ways is measured for about `seconds`, in `least` to `most` rounds.
    block
        Seconds of one way in one round: as many calls as fit, at least one.
    stored, replay
        Examples in the buffer, and replayed of them, wherever it is not these that are varied.
    sizes, networks, replays
        What the parts of those names vary.
    kept, saves, around
        Examples stored while checkpoints are taken, how many are, and steps before and after each.
    filled
        Examples of the buffer whose memory is measured.
    streamed
        Labels of a stream that is measured from its cold start, a multiple of twenty.
    compiled
        Whether networks are compiled too, which takes up to a minute each.
    """

    seconds: float = 30.0
    least: int = 5
    most: int = 60
    block: float = 0.1
    stored: int = 10_000
    replay: int = 100
    sizes: tuple[int, ...] = (1_000, 10_000, 100_000, 1_000_000)
    networks: tuple[str, ...] = ("resnet18-20", "resnet18-cifar", "resnet18")
    replays: tuple[int, ...] = (0, 20, 50, 100)
    kept: int = 100_000
    saves: int = 10
    around: int = 20
    filled: int = 1_000_000
    streamed: int = 500
    compiled: bool = True


QUICK = Scale(
    *(1.0, 2, 3, 0.02),
    sizes=(1_000, 10_000),
    networks=("resnet18-20", "resnet18"),
    kept=10_000,
    saves=2,
    filled=50_000,
    streamed=60,
    compiled=False,
)


@dataclass(frozen=True)
class Row:
    """One result: a median with the 16th and 84th percentile over rounds, and its ratio to another one.

    The ratio is that of two ways in the same round; its median and percentiles are over rounds. `ratios` has all.
    """

    part: str
    group: str
    name: str
    value: float
    low: float
    high: float
    unit: str = "ms"
    ratio: float | None = None
    ratio_low: float | None = None
    ratio_high: float | None = None
    to: str | None = None
    note: str = ""
    ratios: tuple[float, ...] = ()

    def compared(self, ratios: NDArray[np.float64], to: str) -> Row:
        """Return the result with its ratios to another one, round by round."""
        ratio, low, high = spread(ratios)
        return replace(self, ratio=ratio, ratio_low=low, ratio_high=high, to=to, ratios=tuple(ratios.tolist()))


def spread(values: NDArray[np.float64]) -> tuple[float, float, float]:
    """Return the median, the 16th and the 84th percentile."""
    median, low, high = np.percentile(values, [50, 16, 84]).tolist()
    return median, low, high


@dataclass
class Times:
    """Milliseconds per call of each way, one number per round."""

    taken: dict[str, NDArray[np.float64]]

    def fastest(self, names: Iterable[str]) -> str:
        return min(names, key=lambda name: float(np.median(self.taken[name])))

    def row(self, part: str, group: str, name: str, to: str | None = None, note: str = "") -> Row:
        """Return one way as a result, as a ratio to the way `to`."""
        values = self.taken[name]
        plain = Row(part, group, name, *spread(values), note=note)
        if to is None:
            return plain
        return plain.compared(values / self.taken[to], to)


@dataclass
class Bench:
    """A run of the benchmark: its scale, its results and its notes."""

    folder: Path
    scale: Scale = field(default_factory=Scale)
    progress: Progress | None = None
    rows: list[Row] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def track(self, what: str, items: Sequence[Item]) -> Iterator[Item]:
        """Yield items, with a bar for the time that is left. It is drawn between items: a thread would disturb."""
        if self.progress is None:
            yield from items
            return
        task = self.progress.add_task(what, total=len(items))
        for item in items:
            self.progress.refresh()
            yield item
            self.progress.advance(task)
        self.progress.update(task, visible=False)

    def note(self, text: str) -> None:
        """Keep a remark for the report, once."""
        if text not in self.notes:
            self.notes.append(text)

    def measure(self, what: str, ways: Mapping[str, Action]) -> Times:
        """Measure ways in turns."""
        calls = {}
        expected = 0.0
        for name in self.track(f"{what}: warming up", list(ways)):
            ways[name]()  # may compile, and fills caches
            once = timed(ways[name], 1)
            calls[name] = max(1, min(100, round(self.scale.block / once)))
            # Where a call is short, one more that does not count brings its own data back into the caches.
            expected += once * (calls[name] + (once < 0.3))
        rounds = round(max(self.scale.least, min(self.scale.most, self.scale.seconds / expected)))
        taken: dict[str, list[float]] = {name: [] for name in ways}
        order = list(ways)
        for turn in self.track(f"{what}: measuring", range(rounds)):
            first = turn % len(order)
            for name in order[first:] + order[:first]:
                if calls[name] > 1:
                    ways[name]()
                taken[name].append(1e3 * timed(ways[name], calls[name]))
        return Times({name: np.array(values) for name, values in taken.items()})


def timed(action: Action, calls: int) -> float:
    """Return the seconds of one call, as the mean of `calls` in a row."""
    begin = time.perf_counter()
    for _ in range(calls):
        action()
    return (time.perf_counter() - begin) / calls


@contextmanager
def threads(count: int | None) -> Iterator[None]:
    """Let torch use `count` threads (None: as many as before), and restore the number afterwards."""
    before = torch.get_num_threads()
    torch.set_num_threads(count or before)
    try:
        yield
    finally:
        torch.set_num_threads(before)
