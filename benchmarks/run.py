"""A run of the benchmark: which parts there are, and measuring them one after the other."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from benchmarks import parts, report
from benchmarks.buffer import buffer
from benchmarks.default import default
from benchmarks.disk import disk
from benchmarks.measuring import QUICK, Bench, Scale, threads
from benchmarks.page import page
from benchmarks.peers import check_peers, peers
from benchmarks.remind import remind
from benchmarks.serving import serving
from benchmarks.shared import shared
from benchmarks.slda import slda
from benchmarks.timing import pieces, timing
from coldstream.parsing import unknown

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress

PARTS: dict[str, Callable[[Bench], None]] = {
    "default": default,
    "step": parts.step,
    "networks": parts.networks,
    "parts": parts.ladder,
    "sizes": parts.sizes,
    "batch": parts.batch,
    "storage": parts.storage,
    "disk": disk,
    "checkpoint": parts.checkpoint,
    "memory": parts.memory,
    "cold": parts.cold,
    "shared": shared,
    "peers": peers,
    "buffer": buffer,
    "slda": slda,
    "remind": remind,
    "serving": serving,
    "timing": timing,
    "page": page,
}
_ASKED_FOR = ("cold", "shared", "peers", "buffer", "slda", "remind", "serving", "timing", "page")


def run_bench(
    names: Sequence[str],
    out: Path,
    *,
    with_peers: bool = False,
    scale: Scale | None = None,
    quick: bool = False,
    thread_count: int | None = None,
    console: Console | None = None,
) -> Bench:
    """Measure parts by name (none: all but those on request) and write bench.json, bench.md and bench.png.

    The first two are written after every part, so that an interrupted run keeps what it has.
    """
    for name in names:
        if name not in PARTS:
            raise unknown("part", name, PARTS)
    chosen = list(dict.fromkeys(names or [name for name in PARTS if name not in _ASKED_FOR]))
    if with_peers and "peers" not in chosen:
        chosen.append("peers")
    if "peers" in chosen:
        check_peers()
    out.mkdir(parents=True, exist_ok=True)
    flags = {"--peers": with_peers, "--quick": quick, f"--threads {thread_count}": thread_count is not None}
    command = " ".join(["coldstream bench", *names, *(flag for flag, given in flags.items() if given)])
    questions = {name: PARTS[name].__doc__ or "" for name in chosen}
    progress = None if console is None else _bars(console)
    bench = Bench(out, scale or (QUICK if quick else Scale()), progress)
    with progress or nullcontext(), threads(thread_count):
        for name in bench.track("all parts", chosen):
            PARTS[name](bench)
            report.write(bench, command, questions)
    report.draw(out / "bench.png", bench.rows)
    return bench


def time_pieces(console: Console, **settings: Any) -> dict[str, dict[str, NDArray[np.float64]]]:
    """Measure the pieces of a step as `benchmarks.timing.pieces` does, with a bar on a console."""
    with TemporaryDirectory() as folder, _bars(console) as progress:
        return pieces(Bench(Path(folder), progress=progress), **settings)


def _bars(console: Console) -> Progress:
    # rich draws from Python's generator when it is imported, which importing this package must not.
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    bars = (TextColumn("{task.description}"), BarColumn(bar_width=14), MofNCompleteColumn())
    left = TimeRemainingColumn(compact=True, elapsed_when_finished=True)
    return Progress(*bars, left, console=console, auto_refresh=False)
