"""Which image to show next: accuracy over labels, and labels until every class was seen, by policy.

    uv run python -m benchmarks.next_image --root FOLDER

Each run labels images of a pool one by one, as the live service shows them: one in five is drawn at random (the
audit), the others follow the policy. It chooses `READY` of `SAMPLE` unlabelled images at a time. All policies of a
seed begin with the same `FIRST` images. Pools have as many images of each class, or are long-tailed: the largest
class has 50 times as many as the smallest. The tests are on held-out images, as many of each class.
"""

from __future__ import annotations

import argparse
import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np
from pydantic import BaseModel

from benchmarks.labelling import SETS, Pool, gain, mean, read, write
from benchmarks.measuring import threads
from coldstream import ColdStart
from coldstream.report.tables import Table, markdown
from coldstream.serve.choosing import NEEDS_FEATURES, POLICIES, choose

LABELS, EVERY = 100, 20
FIRST, READY, SAMPLE, AUDIT = 5, 8, 96, 0.2
CENTERS = 256
"""Labelled images that coverage compares with, drawn at random from more."""
POOLS = ("balanced", "long-tailed")
RANDOM = "random"
REACHED = (40, 80)
"""A policy is to reach the accuracy that random order has after so many labels."""


class Run(BaseModel):
    """One policy on one pool: the tests after so many labels, and when the last class was seen for the first time."""

    data: str
    pool: str
    seed: int
    policy: str
    tests: dict[int, dict[str, float]]
    classes: dict[int, int]
    all_classes: int | None


def label_all(pool: Pool, kind: str, seed: int, policy: str, labels: int = LABELS, every: int = EVERY) -> Run:
    """Label images in the order of a policy."""
    rng = np.random.default_rng([seed, 11])
    left = list(range(len(pool.labels)) if kind == "balanced" else pool.long_tailed(seed).tolist())
    present = len(set(pool.labels[left].tolist()))
    labels = min(labels, len(left))
    learner = ColdStart(seed=seed, prefetch=False)
    done, ready, seen, tests, classes, complete = list[int](), list[int](), set[int](), {}, {}, None
    rng.shuffle(left)
    for number in range(1, labels + 1):
        if number > FIRST and not ready:
            sample = rng.choice(left, min(SAMPLE, len(left)), replace=False)
            features = centers = None
            if policy in NEEDS_FEATURES:
                some = rng.permutation(done)[:CENTERS]
                both = learner.features(pool.images[np.concatenate([sample, some])])
                features, centers = both[: len(sample)], both[len(sample) :]
            probabilities = learner.predict_proba_many(pool.images[sample])
            picks = choose(policy, probabilities, features, centers, READY, rng)
            ready = [int(sample[pick.place]) for pick in picks]
        index = left[0] if number <= FIRST or rng.random() < AUDIT else ready.pop(0)
        left.remove(index)
        ready = [one for one in ready if one != index]
        done.append(index)
        learner.learn_one(pool.images[index], int(pool.labels[index]))
        seen.add(int(pool.labels[index]))
        if complete is None and len(seen) == present:
            complete = number
        if number % every == 0:
            tests[number], classes[number] = pool.test(learner), len(seen)
    return Run(
        data=pool.name, pool=kind, seed=seed, policy=policy, tests=tests, classes=classes, all_classes=complete
    )


def measure(out: Path, root: Path, seeds: int, data: Sequence[str], labels: int = LABELS, every: int = EVERY) -> None:
    """Add the runs that `out` lacks, a line each."""
    done = {(run.data, run.pool, run.seed, run.policy) for run in read(out, Run)}
    sets = {name: Pool(name, root) for name in data}
    for seed, name, kind, policy in itertools.product(range(seeds), data, POOLS, POLICIES):
        if (name, kind, seed, policy) not in done:
            write(out, label_all(sets[name], kind, seed, policy, labels, every))


def labels_to(run: Run, accuracy: float) -> float:
    """Return after how many labels a run has an accuracy for the first time, between two tests in proportion.

    A run that never has it counts with all its labels.
    """
    before, had = 0, 0.0
    for number, test in sorted(run.tests.items()):
        if test["accuracy"] >= accuracy:
            return before + (number - before) * (accuracy - had) / (test["accuracy"] - had)
        before, had = number, test["accuracy"]
    return before


def seen_all(run: Run) -> float:
    """Return the labels until every class was seen; all its labels for a run that has not seen them."""
    return max(run.tests) if run.all_classes is None else run.all_classes


def _labels_as(first: Mapping[int, Run], count: int) -> Callable[[Run], float]:
    """Return the labels that a run takes to the accuracy that random order of its seed has after `count`."""
    return lambda run: labels_to(run, first[run.seed].tests[count]["accuracy"])


def _logs(runs: Sequence[Run], value: Callable[[Run], float]) -> dict[str, dict[int, float]]:
    values: dict[str, dict[int, float]] = {}
    for run in runs:
        values.setdefault(run.policy, {})[run.seed] = math.log(max(1.0, value(run)))
    return values


def _ratio(values: dict[str, dict[int, float]], policy: str) -> str:
    """Return the geometric mean of the ratio to random order, with its 95% interval."""
    from coldstream.metrics import paired_by_seed

    interval = paired_by_seed(values.get(policy, {}), values.get(RANDOM, {}))
    if interval is None:
        return ""
    if interval.half is None:
        return f"{math.exp(interval.mean):.2f}"
    return f"{math.exp(interval.mean):.2f} ({math.exp(interval.low):.2f}-{math.exp(interval.high):.2f})"


def table(runs: Sequence[Run], kind: str) -> Table:
    """Return, for each set and policy: labels, as ratios to random order; and the gain of accuracy in points."""
    last = max(max(run.tests) for run in runs)
    reached = [count for count in REACHED if count <= last]
    lines = [
        [
            "data",
            "policy",
            *(f"labels to random's accuracy at {count}" for count in reached),
            "labels to see all classes",
        ]
    ]
    lines[0] += [f"accuracy at {last}", "gain over random, points", "gain, mean of all tests"]
    for name in dict.fromkeys(run.data for run in runs):
        some = [run for run in runs if (run.data, run.pool) == (name, kind)]
        first = {run.seed: run for run in some if run.policy == RANDOM}
        some = [run for run in some if run.seed in first]
        complete = _logs(some, seen_all)
        reach = {count: _logs(some, _labels_as(first, count)) for count in reached}
        at_end, over_all = dict[str, dict[int, float]](), dict[str, dict[int, float]]()
        for run in some:
            at_end.setdefault(run.policy, {})[run.seed] = run.tests[max(run.tests)]["accuracy"]
            tested = [test["accuracy"] for test in run.tests.values()]
            over_all.setdefault(run.policy, {})[run.seed] = mean(tested)
        for policy in POLICIES:
            if policy not in at_end:
                continue
            ratios = [_ratio(reach[count], policy) for count in reached]
            number = f"{math.exp(mean(list(complete[policy].values()))):.0f}"
            gains = [gain(values, policy, RANDOM, 100, ".1f") for values in (at_end, over_all)]
            if policy == RANDOM:
                ratios, complete_cell, gains = ["1"] * len(reached), number, ["", ""]
            else:
                complete_cell = f"{number}: {_ratio(complete, policy)}"
            lines.append(
                [name, policy, *ratios, complete_cell, f"{100 * mean(list(at_end[policy].values())):.1f}%", *gains]
            )
    return lines


def draw(runs: Sequence[Run], out: Path) -> None:
    """Draw accuracy over labels: a panel for each set and kind of pool, a line for each policy."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    names = list(dict.fromkeys(run.data for run in runs))
    figure, axes = pyplot.subplots(
        len(POOLS), len(names), figsize=(3.1 * len(names), 5.2), squeeze=False, sharey="col"
    )
    for (row, kind), (column, name) in itertools.product(enumerate(POOLS), enumerate(names)):
        panel = axes[row][column]
        for policy in POLICIES:
            some = [run for run in runs if (run.data, run.pool, run.policy) == (name, kind, policy)]
            counts = sorted(set.intersection(*(set(run.tests) for run in some))) if some else []
            curve = [100 * mean([run.tests[count]["accuracy"] for run in some]) for count in counts]
            panel.plot(counts, curve, label=policy, linewidth=1.2, color="black" if policy == RANDOM else None)
        panel.set_title(f"{name}, {kind}", fontsize=9)
        panel.grid(alpha=0.3)
    axes[-1][0].set_xlabel("labels")
    axes[0][0].set_ylabel("accuracy, %")
    axes[0][0].legend(fontsize=7)
    figure.tight_layout()
    figure.savefig(out, dpi=80)
    pyplot.close(figure)


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure what is missing, print both tables and draw the curves."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.next_image", description=(__doc__ or "").split("\n")[0]
    )
    parser.add_argument("--root", type=Path, required=True, help="folder of the data sets")
    parser.add_argument("--out", type=Path, default=Path("next-image.jsonl"), help="one line per run; resumed")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--labels", type=int, default=LABELS)
    parser.add_argument("--data", nargs="+", choices=SETS, default=SETS)
    parser.add_argument("--picture", type=Path, default=None, help="where to draw the curves")
    parser.add_argument("--only-report", action="store_true", help="measure nothing")
    given = parser.parse_args(arguments)
    if not given.only_report:
        with threads(1):
            measure(given.out, given.root, given.seeds, given.data, given.labels)
    runs = [run for run in read(given.out, Run) if run.seed < given.seeds and run.data in given.data]
    for kind in POOLS:
        print(f"{kind}:\n\n{markdown(table(runs, kind))}")
    if given.picture is not None:
        draw(runs, given.picture)


if __name__ == "__main__":
    main()
