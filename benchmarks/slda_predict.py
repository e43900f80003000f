"""What a prediction of Deep SLDA costs after an update: a Cholesky factorisation against a pseudo-inverse.

    uv run python benchmarks/slda_predict.py

Both begin at the covariance and the means as an update left them, float64, and end at the scores of one example; the
published code takes the pseudo-inverse. Measured in turns in one process, so that what slows one slows the other;
medians. Then the largest difference between the scores, relative to the largest score.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable

import numpy as np
import torch
from rich.console import Console
from rich.progress import track
from rich.table import Table

from coldstream.learners import DeepSLDA


def taught(features: int, classes: int, examples: int) -> DeepSLDA:
    """Return a learner of vectors, which are their own features."""
    rng = np.random.default_rng(0)
    learner = DeepSLDA(model="linear", items="vectors", init="random")
    centres = rng.normal(size=(classes, features))
    for i in range(examples):
        learner.learn_one((centres[i % classes] + rng.normal(size=features)).astype(np.float32), i % classes)
    return learner


def by_pseudo_inverse(learner: DeepSLDA, x: np.ndarray) -> np.ndarray:
    """Return the scores of `x` in the way of the published code."""
    epsilon = learner.settings["shrinkage"]
    covariance, means = torch.from_numpy(learner.covariance), torch.from_numpy(learner.means)
    inverse = torch.linalg.pinv(
        (1 - epsilon) * covariance + epsilon * torch.eye(len(covariance), dtype=torch.float64)
    )
    weight = inverse @ means.T
    scores = torch.from_numpy(x).double() @ weight - 0.5 * (means.T * weight).sum(0)
    return np.asarray(scores)


def by_cholesky(learner: DeepSLDA, x: np.ndarray) -> np.ndarray:
    """Return the scores of `x` as the learner gives them after an update."""
    learner._linear = None
    return learner._logits(x)


def timed(action: Callable[[], object]) -> float:
    """Return the milliseconds of one call."""
    begin = time.perf_counter()
    action()
    return 1e3 * (time.perf_counter() - begin)


def main() -> None:
    """Measure and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--features", type=int, nargs="+", default=[64, 512])
    parser.add_argument("--classes", type=int, default=100)
    parser.add_argument("--turns", type=int, default=30)
    given = parser.parse_args()
    table = Table(title=f"milliseconds a prediction after an update, {given.classes} classes, {given.turns} turns")
    for column in ("features", "pseudo-inverse", "Cholesky", "ratio", "difference of scores"):
        table.add_column(column, justify="right")
    for features in given.features:
        learner = taught(features, given.classes, 3 * features)
        x = np.random.default_rng(1).normal(size=(1, features)).astype(np.float32)
        one, other = by_pseudo_inverse(learner, x), by_cholesky(learner, x)
        slow, fast = [], []
        for _ in track(range(given.turns), f"{features} features", transient=True):
            slow.append(timed(lambda: by_pseudo_inverse(learner, x)))  # noqa: B023 - called at once
            fast.append(timed(lambda: by_cholesky(learner, x)))  # noqa: B023
        medians = float(np.median(slow)), float(np.median(fast))
        difference = np.abs(one - other).max() / np.abs(one).max()
        table.add_row(
            str(features), *(f"{m:.2f}" for m in medians), f"{medians[0] / medians[1]:.1f} ×", f"{difference:.0e}"
        )
    Console(width=110).print(table)


if __name__ == "__main__":
    main()
