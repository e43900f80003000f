"""What a prediction of Deep SLDA costs after an update: a Cholesky factorisation against a pseudo-inverse."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray

from benchmarks.measuring import Bench
from coldstream.learners import DeepSLDA

CLASSES = 100


def slda(bench: Bench) -> None:
    """A prediction after an update: a Cholesky factorisation, and the pseudo-inverse of the published code.

    Both begin at the covariance and the means, float64, and end at the scores of one example.
    """
    for features in (64, 512):
        learner = taught(features, 3 * features)
        x = np.random.default_rng(1).normal(size=(1, features)).astype(np.float32)
        one, other = by_pseudo_inverse(learner, x), by_cholesky(learner, x)
        difference = float(np.abs(one - other).max() / np.abs(one).max())
        ways = {
            "pseudo-inverse": lambda learner=learner, x=x: by_pseudo_inverse(learner, x),
            "Cholesky": lambda learner=learner, x=x: by_cholesky(learner, x),
        }
        times = bench.measure(f"Deep SLDA, {features} features", ways)
        group = f"{features} features, {CLASSES} classes"
        bench.rows.append(times.row("slda", group, "Cholesky"))
        note = f"largest difference of scores, relative: {difference:.0e}"
        bench.rows.append(times.row("slda", group, "pseudo-inverse", "Cholesky", note))


def taught(features: int, examples: int) -> DeepSLDA:
    """Return a learner of vectors, which are their own features."""
    rng = np.random.default_rng(0)
    learner = DeepSLDA(model="linear", items="vectors", init="random")
    centres = rng.normal(size=(CLASSES, features))
    for i in range(examples):
        learner.learn_one((centres[i % CLASSES] + rng.normal(size=features)).astype(np.float32), i % CLASSES)
    return learner


def by_pseudo_inverse(learner: DeepSLDA, x: NDArray[np.float32]) -> NDArray[np.float64]:
    """Return the scores of `x` in the way of the published code."""
    epsilon = learner.settings.shrinkage
    task = learner.tasks[None]
    covariance, means = torch.from_numpy(task.covariance), torch.from_numpy(task.means)
    inverse = torch.linalg.pinv(
        (1 - epsilon) * covariance + epsilon * torch.eye(len(covariance), dtype=torch.float64)
    )
    weight = inverse @ means.T
    scores = torch.from_numpy(x).double() @ weight - 0.5 * (means.T * weight).sum(0)
    return np.asarray(scores)


def by_cholesky(learner: DeepSLDA, x: NDArray[np.float32]) -> NDArray[np.float64]:
    """Return the scores of `x` as the learner gives them after an update."""
    learner.tasks[None].linear = None
    return learner._logits(learner.tasks[None], x)
