"""Are `passes=8` and `warm_up=True` of ColdStart worth it at 5 to 50 labels?

    uv run python -m benchmarks.first_labels --root FOLDER

Each arm changes these settings and nothing else; all arms of a seed learn the same stream. Only the training parts of
the data sets are used: some images are streamed, others are held out for the tests.

- digits: 10 classes, 8x8 pixels, grey. 50 images of each class are held out.
- gtsrb: 43 classes, 32x32. One training track of each class is streamed, 12 frames of the other are held out.
- cifar100: the first 20 classes by name, 32x32. 25 images of each class are held out.

There are two orders: 50 images at random ("shuffled"), or 10 classes at random, 5 images of each, one class after
another ("class by class"; of gtsrb, 5 successive frames). Tests are on the held-out images of classes seen so far.
"""

from __future__ import annotations

import argparse
import itertools
import math
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel

from benchmarks.measuring import threads
from coldstream import ColdStart
from coldstream.data import Dataset, load_dataset, select
from coldstream.metrics import accuracy, confidences, hits, log_loss, paired_by_seed, reliability
from coldstream.report.tables import Table, markdown

DEFAULT = "ColdStart()"
ARMS: dict[str, dict[str, Any]] = {
    DEFAULT: {},
    "passes=1": {"passes": 1},
    "warm_up=False": {"warm_up": False},
    "passes=1, warm_up=False": {"passes": 1, "warm_up": False},
}
DATA, ORDERS = ("digits", "gtsrb", "cifar100"), ("shuffled", "class by class")
HELD_OUT = {"digits": 50, "gtsrb": 12, "cifar100": 25}  # images per class
COUNTS = (5, 10, 20, 30, 50)  # labels after which an arm is tested
IN_TURN = 5  # images of one class in a row, class by class
UNITS = {"accuracy": (100, ".1f"), "ece": (100, ".1f"), "log_loss": (1, ".2f")}

Indices = NDArray[np.int64]


class Run(BaseModel):
    """One arm on one stream: CPU milliseconds per label, and metrics by number of labels."""

    data: str
    order: str
    seed: int
    arm: str
    ms: float
    tests: dict[int, dict[str, float]]


def load(name: str, root: Path) -> tuple[Dataset, dict[int, Indices], Indices]:
    """Return the training part, the images of each class that may be streamed, and the held-out images."""
    train, _ = load_dataset(name, root)
    if name == "cifar100":
        train, _ = select(train, train, classes=20)
    rng, count = np.random.default_rng(12345), HELD_OUT[name]
    pool: dict[int, Indices] = {}
    held_out: list[int] = []
    for label in np.unique(train.labels).tolist():
        members = np.flatnonzero(train.labels == label)
        if train.objects is not None:
            streamed, other = (
                members[train.objects[members] == track] for track in np.unique(train.objects[members])
            )
            tested = other[np.linspace(0, len(other) - 1, count).round().astype(int)]
        else:
            tested, streamed = np.split(rng.permutation(members), [count])
        pool[label] = streamed
        held_out += tested.tolist()
    return train, pool, np.array(held_out)


def stream(name: str, order: str, pool: dict[int, Indices], seed: int) -> Indices:
    """Return the images of a stream in order."""
    rng, most = np.random.default_rng([seed, ORDERS.index(order), DATA.index(name)]), max(COUNTS)
    if order == "shuffled":
        return rng.choice(np.concatenate(list(pool.values())), most, replace=False)
    chosen = []
    for label in rng.permutation(list(pool))[: most // IN_TURN].tolist():
        start = int(rng.integers(len(pool[label]) - IN_TURN + 1))
        successive = pool[label][start : start + IN_TURN]
        chosen.append(successive if name == "gtsrb" else rng.choice(pool[label], IN_TURN, replace=False))
    return np.concatenate(chosen)


def evaluate(learner: ColdStart, images: Any, labels: Indices) -> dict[str, float]:
    """Return the metrics on images of classes seen so far."""
    column = {label: place for place, label in enumerate(learner.classes_)}
    truth = np.array([column.get(label, -1) for label in labels.tolist()])
    probabilities, truth = learner.predict_proba_many(images)[truth >= 0], truth[truth >= 0]
    return {
        "accuracy": accuracy(probabilities, truth),
        "ece": reliability(confidences(probabilities), hits(probabilities, truth)).ece,
        "log_loss": log_loss(probabilities, truth),
    }


def measure(out: Path, root: Path, seeds: int, data: Sequence[str] = DATA, counts: Sequence[int] = COUNTS) -> None:
    """Add the runs that `out` lacks, a line each. Arms take turns: what slows the machine slows all of them."""
    done = {(run.data, run.order, run.seed, run.arm) for run in read(out)}
    sets = {name: load(name, root) for name in data}
    for seed, name, order in itertools.product(range(seeds), data, ORDERS):
        (train, pool, held_out), images = sets[name], np.asarray(sets[name][0].images)
        # Class by class, the first labels are all of one class: there is nothing to tell apart.
        tested = [count for count in counts if order == "shuffled" or count > IN_TURN]
        chosen = stream(name, order, pool, seed)[: max(counts)].tolist()
        for arm in np.random.default_rng(seed).permutation(list(ARMS)).tolist():
            if (name, order, seed, arm) in done:
                continue
            learner, tests, taken = ColdStart(seed=seed, prefetch=False, **ARMS[arm]), {}, []
            for number, index in enumerate(chosen, 1):
                begin = time.process_time()
                learner.learn_one(images[index], int(train.labels[index]))
                taken.append(1e3 * (time.process_time() - begin))
                if number in tested:
                    tests[number] = evaluate(learner, images[held_out], train.labels[held_out])
            ms = float(np.mean(taken[1:]))  # the first label builds the network
            with out.open("a") as file:
                run = Run(data=name, order=order, seed=seed, arm=arm, ms=ms, tests=tests)
                file.write(run.model_dump_json() + "\n")


def read(out: Path) -> list[Run]:
    """Return the runs in a file; a last line that was cut off is removed from it."""
    text = out.read_text() if out.exists() else ""
    whole = text[: text.rfind("\n") + 1]
    if whole != text:
        out.write_text(whole)
    return [Run.model_validate_json(line) for line in whole.splitlines()]


def by_seed(runs: Sequence[Run], order: str, arm: str, value: Callable[[Run], float]) -> dict[int, float]:
    """Return the mean of a value over data sets, for each seed that has run on all of them."""
    values: dict[int, list[float]] = {}
    for run in runs:
        if (run.order, run.arm) == (order, arm):
            values.setdefault(run.seed, []).append(value(run))
    sets = len({run.data for run in runs})
    return {seed: float(np.mean(each)) for seed, each in values.items() if len(each) == sets}


def gains(runs: Sequence[Run]) -> Table:
    """Return the default less each arm: means over tests, then over data sets, with 95% intervals over seeds."""
    table = [["order", "ColdStart() less", "accuracy, points", "ECE, points", "log-loss"]]
    for order, arm in itertools.product(ORDERS, list(ARMS)[1:]):
        table.append([order, arm])
        for metric, (factor, digits) in UNITS.items():

            def mean(run: Run, metric: str = metric) -> float:
                return float(np.mean([test[metric] for test in run.tests.values()]))

            gain = paired_by_seed(*(by_seed(runs, order, name, mean) for name in (DEFAULT, arm)))
            table[-1].append("" if gain is None else format(gain.scaled(factor), digits))
    return table


def times(runs: Sequence[Run]) -> Table:
    """Return milliseconds per label, and the ratio of the default to one pass: geometric means over seeds."""
    table = [["data", "order", *(f"{arm}, ms" for arm in ARMS), "ColdStart() / passes=1"]]
    for name, order in itertools.product(dict.fromkeys(run.data for run in runs), ORDERS):
        rows = [run for run in runs if run.data == name]
        logs = {arm: by_seed(rows, order, arm, lambda run: math.log(run.ms)) for arm in ARMS}
        ratio = paired_by_seed(logs[DEFAULT], logs["passes=1"])
        if ratio is not None:
            means = [f"{math.exp(np.mean(list(each.values()))):.1f}" for each in logs.values()]
            table.append([name, order, *means, f"{math.exp(ratio.mean):.2f}"])
    return table


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure what is missing and print both tables."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.first_labels", description=(__doc__ or "").split("\n")[0]
    )
    parser.add_argument("--root", type=Path, required=True, help="folder of the data sets")
    parser.add_argument("--out", type=Path, default=Path("first-labels.jsonl"), help="one line per run; resumed")
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--data", nargs="+", choices=DATA, default=DATA)
    given = parser.parse_args(arguments)
    with threads(1):
        measure(given.out, given.root, given.seeds, given.data)
    runs = [run for run in read(given.out) if run.seed < given.seeds and run.data in given.data]
    print(markdown(gains(runs)))
    print(markdown(times(runs)), end="")


if __name__ == "__main__":
    main()
