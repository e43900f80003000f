"""What stands in the tables of an experiment: numbers as text."""

from __future__ import annotations

from coldstream.lab.records import Record
from coldstream.metrics import Summary

Rows = list[list[str]]


def spread(found: Record | None) -> str:
    """Return mean ± standard deviation of what `averages` found, or a dash if it found nothing.

    Examples
    --------
    >>> spread({"mean": 0.5, "sd": 0.25, "n": 2}), spread({"mean": 0.5, "sd": None, "n": 1}), spread(None)
    ('0.500 ± 0.250', '0.500', '–')
    """
    if found is None:
        return "–"
    value = Summary.from_dict(found)
    return f"{value.mean:.3f}" + (f" ± {value.sd:.3f}" if value.sd is not None else "")


def cost_names(*, short: bool) -> list[str]:
    """Return the columns of `costs`."""
    return ["ms", "seeds"] if short else ["ms an example", "buffer", "parameters", "seeds"]


def costs(runs: list[Record], timing: list[Record], *, short: bool) -> list[str]:
    """Return what a learner takes: time, memory and parameters, and over how many seeds that is."""
    times = [run["ms_per_example"] for run in timing]
    last = runs[-1]
    buffer = f"{last['buffer']['examples']:,} / {last['buffer']['bytes']:,} B" if last["buffer"] else "–"
    facts = [] if short else [buffer, f"{last['parameters']:,}"]
    return [f"{sum(times) / len(times):.1f}", *facts, str(len(runs))]


def cost_rows(run: Record, timing: Record) -> Rows:
    """Return what one learner and seed take, as (name, value)."""
    rows = [["time an example", f"{timing['ms_per_example']:.1f} ms"]]
    if run["buffer"]:
        rows += [
            ["replay buffer", f"{run['buffer']['examples']:,} examples, {run['buffer']['bytes']:,} bytes"],
            ["beside it: ids, labels, tables", f"{timing['index_bytes']:,} bytes"],
        ]
    return [*rows, ["parameters", f"{run['parameters']:,}, {run['frozen_share']:.0%} frozen"]]
