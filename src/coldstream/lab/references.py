"""Offline references: what the same network reaches that is trained on everything at once."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from coldstream.data import Dataset
from coldstream.lab.environment import describe_environment
from coldstream.lab.evaluation import evaluate
from coldstream.lab.jobs import Job, Stopped, Watch
from coldstream.lab.records import Record
from coldstream.learners.cssl import CSSL
from coldstream.learners.training.offline import OfflineRecipe
from coldstream.streams import Event, Task


@dataclass
class OfflineJob(Job):
    """The same network trained offline on everything streamed until a test, and tested then.

    One of several of which the `best` counts may diverge; it says so in its summary.
    """

    settings: dict[str, Any] | None = None
    recipe: OfflineRecipe = OfflineRecipe()  # noqa: RUF009 - frozen
    train: Dataset | None = None
    which: NDArray[np.int64] | None = None
    test: Dataset | None = None
    event: Event | None = None
    task: Task = None
    may_diverge: bool = False

    unit: str = "epochs"

    def progress(self) -> tuple[int, int]:
        return (self.recipe.epochs if self.finished else 0), self.recipe.epochs

    def _run(self, watch: Watch) -> None:
        assert self.train is not None and self.which is not None and self.test is not None and self.event is not None
        begin = time.perf_counter()

        def watched(epoch: int) -> None:
            if watch(epoch, self.recipe.epochs, "") and epoch < self.recipe.epochs:
                raise Stopped

        watched(0)
        reference = CSSL(**(self.settings or {}))
        reference.base_init(self.train.take(self.which), self.recipe, watched)
        try:
            found = evaluate(reference, self.test, self.event)
        except FloatingPointError as error:
            if not self.may_diverge:
                raise
            found = {"diverged": str(error)}
        self.folder.write(
            "timing.json", {"seconds": time.perf_counter() - begin, "environment": describe_environment()}
        )
        self.folder.write("summary.json", found)


def differences(recipes: Sequence[OfflineRecipe]) -> list[str]:
    """Return in which of rate and policy some recipes differ."""
    return [name for name in ("rate", "augment") if len({getattr(recipe, name) for recipe in recipes}) > 1]


def spelled(recipe: OfflineRecipe, among: Sequence[OfflineRecipe]) -> str:
    """Return what tells a recipe from others."""
    words = {"rate": f"rate {recipe.rate:g}", "augment": recipe.augment}
    return ", ".join(words[name] for name in differences(among))


def best(jobs: Sequence[OfflineJob]) -> Record:
    """Return what the best of finished jobs found, which differ in rate and policy alone.

    That is the best on the test images; of equals, the first. Where there are several, what tells it apart is said.
    """
    names = differences([job.recipe for job in jobs])
    found = [
        {**job.folder.read("summary.json"), **{name: getattr(job.recipe, name) for name in names}} for job in jobs
    ]
    able = [record for record in found if "diverged" not in record]
    if not able:
        rates = ", ".join(f"{job.recipe.rate:g}" for job in jobs)
        raise ValueError(f"{jobs[0].title}: it diverged with rate {rates}; give offline.rates lower ones")
    return max(able, key=lambda record: float(record["accuracy"]))
