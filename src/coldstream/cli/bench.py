"""`coldstream bench`: how long a step takes."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from coldstream.cli.output import complaints, say, show


def bench(
    parts: Annotated[
        list[str] | None,
        typer.Argument(metavar="[PART...]", help="What to measure. Without: default to memory."),
    ] = None,
    peers: Annotated[
        bool, typer.Option("--peers", help="Also measure Avalanche and kornia; needs the extra peers.")
    ] = False,
    quick: Annotated[
        bool, typer.Option("--quick", help="A few rounds at small sizes, to see that it works.")
    ] = False,
    out: Annotated[Path, typer.Option(help="The folder to write.")] = Path("runs/bench"),
    threads: Annotated[int | None, typer.Option(min=1, help="How many threads torch uses. Default: its own.")] = None,
) -> None:
    """Measure how long a step takes, beside the bare arithmetic of the network, and judge it by its targets.

    PART is default, step, networks, parts, sizes, batch, storage, disk, checkpoint, memory, cold, shared, peers,
    buffer, slda, remind, serving, timing or page. Writes bench.json, bench.md and bench.png. Run it on a machine that
    does nothing else.
    """
    find_benchmarks()
    from benchmarks import run_bench
    from benchmarks.report import tables

    results = run_bench(parts or [], out, with_peers=peers, quick=quick, thread_count=threads, console=complaints)
    for title, rows in tables(results).items():
        show(rows, title)
    for note in results.notes:
        say(note)
    say(f"report: {out / 'bench.md'}")


def find_benchmarks() -> None:
    """Make `benchmarks` importable from the clone that this package runs from."""
    root = Path(__file__).parents[3]
    if not (root / "benchmarks" / "run.py").is_file():
        raise ValueError(
            "benchmarks come with the repository, not with the installed package; "
            "clone it and run there: uv run coldstream bench"
        )
    if str(root) not in sys.path:
        sys.path.insert(0, str(root))
