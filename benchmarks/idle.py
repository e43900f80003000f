"""How many updates on replayed images alone are worth it after each label, and when do they harm?

    uv run python -m benchmarks.idle --root FOLDER

All arms of a seed learn the same images in the same order: shuffled, or class by class, as many of each class in a
row. The tests are on held-out images of the classes seen so far.
"""

from __future__ import annotations

import argparse
import itertools
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from pydantic import BaseModel

from benchmarks.labelling import SETS, Pool, gain, mean, read, write
from benchmarks.measuring import threads
from coldstream import ColdStart
from coldstream.report.tables import Table, markdown

UPDATES = (0, 1, 3, 8)
"""Arms: updates on replayed images after each label."""
COUNTS = (5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000)
"""Labels after which an arm is tested, up to the last label."""
ORDERS = ("shuffled", "class by class")


class Run(BaseModel):
    """One arm on one stream: CPU milliseconds per label, and metrics after so many labels."""

    data: str
    order: str
    labels: int
    seed: int
    updates: int
    ms: float
    tests: dict[int, dict[str, float]]


def stream(pool: Pool, order: str, labels: int, seed: int) -> list[int]:
    """Return the images of a stream in order, as many of each class."""
    rng = np.random.default_rng([seed, 13])
    each = labels // pool.classes
    parts = [rng.permutation(np.flatnonzero(pool.labels == label))[:each] for label in rng.permutation(pool.classes)]
    chosen: list[int] = np.concatenate(parts).tolist()
    if order == "shuffled":
        rng.shuffle(chosen)
    return chosen


def learn(pool: Pool, order: str, labels: int, seed: int, updates: int, counts: Sequence[int] = COUNTS) -> Run:
    """Learn a stream with so many updates after each label."""
    chosen = stream(pool, order, labels, seed)
    learner, tests, taken = ColdStart(seed=seed, prefetch=False, rehearse=updates), {}, []
    for number, index in enumerate(chosen, 1):
        begin = time.process_time()
        learner.learn_one(pool.images[index], int(pool.labels[index]))
        taken.append(1e3 * (time.process_time() - begin))
        # Class by class, the first labels are all of one class: there is nothing to tell apart.
        if number == len(chosen) or (number in counts and len(learner.classes_) > 1):
            tests[number] = pool.test(learner, seen=True)
    ms = float(np.mean(taken[1:]))
    return Run(data=pool.name, order=order, labels=labels, seed=seed, updates=updates, ms=ms, tests=tests)


def measure(
    out: Path,
    root: Path,
    labels: int,
    seeds: int,
    data: Sequence[str],
    updates: Sequence[int] = UPDATES,
    orders: Sequence[str] = ORDERS,
) -> None:
    """Add the runs that `out` lacks, a line each."""
    done = {(run.data, run.order, run.labels, run.seed, run.updates) for run in read(out, Run)}
    sets = {name: Pool(name, root, labels // 10) for name in data}
    for seed, name, order, count in itertools.product(range(seeds), data, orders, updates):
        if (name, order, labels, seed, count) not in done:
            write(out, learn(sets[name], order, labels, seed, count))


def table(runs: Sequence[Run], order: str, labels: int) -> Table:
    """Return, for each set, arm and number of labels: accuracy, ECE and what they gain, with 95% intervals."""
    lines = [
        ["data", "labels", "updates", "accuracy", "gain, points", "ECE", "change of ECE, points", "ms per label"]
    ]
    some = [run for run in runs if (run.order, run.labels) == (order, labels)]
    for name in dict.fromkeys(run.data for run in some):
        ours = [run for run in some if run.data == name]
        for count in sorted({count for run in ours for count in run.tests}):
            values = {
                metric: {
                    str(updates): {
                        run.seed: run.tests[count][metric]
                        for run in ours
                        if run.updates == updates and count in run.tests
                    }
                    for updates in sorted({run.updates for run in ours})
                }
                for metric in ("accuracy", "ece")
            }
            for updates, each in values["accuracy"].items():
                if not each:
                    continue
                errors = values["ece"]
                ms = mean([run.ms for run in ours if str(run.updates) == updates])
                gains = ["", ""]
                if updates != "0":
                    gains = [gain(values[metric], updates, "0", 100, ".1f") for metric in ("accuracy", "ece")]
                lines.append(
                    [
                        name,
                        f"{count:,}",
                        updates,
                        f"{100 * mean(list(each.values())):.1f}%",
                        gains[0],
                        f"{mean(list(errors[updates].values())):.3f}",
                        gains[1],
                        f"{ms:.0f}",
                    ]
                )
    return lines


def draw(runs: Sequence[Run], out: Path) -> None:
    """Draw accuracy over labels: a panel for each set and order, a line for each number of updates."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    names = list(dict.fromkeys(run.data for run in runs))
    size = (3.1 * len(names), 5.2)
    figure, axes = pyplot.subplots(len(ORDERS), len(names), figsize=size, squeeze=False, sharey="col")
    for (row, order), (column, name) in itertools.product(enumerate(ORDERS), enumerate(names)):
        panel = axes[row][column]
        for updates in sorted({run.updates for run in runs}):
            some = [run for run in runs if (run.data, run.order, run.updates) == (name, order, updates)]
            counts = sorted(set.intersection(*(set(run.tests) for run in some))) if some else []
            curve = [100 * mean([run.tests[count]["accuracy"] for run in some]) for count in counts]
            panel.plot(counts, curve, marker=".", linewidth=1.2, label=f"{updates} updates")
        panel.set_xscale("log")
        panel.set_title(f"{name}, {order}", fontsize=9)
        panel.grid(alpha=0.3)
    axes[-1][0].set_xlabel("labels")
    axes[0][0].set_ylabel("accuracy on seen classes, %")
    axes[0][0].legend(fontsize=7)
    figure.tight_layout()
    figure.savefig(out, dpi=80)
    pyplot.close(figure)


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure what is missing, print the tables and draw the curves."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.idle", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--root", type=Path, required=True, help="folder of the data sets")
    parser.add_argument("--out", type=Path, default=Path("idle.jsonl"), help="one line per run; resumed")
    parser.add_argument("--labels", type=int, default=200)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--updates", type=int, nargs="+", default=UPDATES)
    parser.add_argument("--orders", nargs="+", choices=ORDERS, default=ORDERS)
    parser.add_argument("--data", nargs="+", choices=SETS, default=SETS)
    parser.add_argument("--picture", type=Path, default=None, help="where to draw the curves")
    parser.add_argument("--only-report", action="store_true", help="measure nothing")
    given = parser.parse_args(arguments)
    if not given.only_report:
        with threads(1):
            measure(given.out, given.root, given.labels, given.seeds, given.data, given.updates, given.orders)
    runs = [run for run in read(given.out, Run) if run.seed < given.seeds and run.data in given.data]
    for order in ORDERS:
        for labels in sorted({run.labels for run in runs}):
            print(f"{order}, {labels:,} labels:\n\n{markdown(table(runs, order, labels))}")
    if given.picture is not None:
        draw([run for run in runs if run.labels == given.labels], given.picture)


if __name__ == "__main__":
    main()
