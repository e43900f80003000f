"""Weights that learners with `init: pretrained` begin from: their own network, trained offline on other classes."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import safetensors.torch

from coldstream.checkpoint import write_atomically
from coldstream.data import Dataset, load_dataset, select
from coldstream.lab.config import DataConfig, PretrainConfig, Settings
from coldstream.lab.environment import describe_environment
from coldstream.lab.jobs import Job, Stopped, Watch
from coldstream.lab.keys import code_version, key_of
from coldstream.lab.records import Folder
from coldstream.learners.cssl import CSSL
from coldstream.learners.training.offline import OfflineRecipe
from coldstream.streams import sorted_by_content


@dataclass
class PretrainJob(Job):
    """A network trained offline, whose body's weights are left in a file."""

    settings: dict[str, Any] | None = None
    recipe: OfflineRecipe = OfflineRecipe()  # noqa: RUF009 - frozen
    train: Dataset | None = None
    test: Dataset | None = None

    unit: str = "epochs"

    @property
    def weights(self) -> Path:
        """The file; it is there when the job is finished."""
        return self.folder.path / "weights.safetensors"

    def progress(self) -> tuple[int, int]:
        return (self.recipe.epochs if self.finished else 0), self.recipe.epochs

    def _run(self, watch: Watch) -> None:
        assert self.train is not None and self.test is not None
        begin = time.perf_counter()

        def watched(epoch: int) -> None:
            if watch(epoch, self.recipe.epochs, "") and epoch < self.recipe.epochs:
                raise Stopped

        watched(0)
        learner = CSSL(**(self.settings or {}))
        learner.base_init(self.train, self.recipe, watched)
        body = learner.engine.classifier.body
        summary = {
            "data": self.train.name,
            "classes": list(learner.classes_),
            "images": len(self.train),
            "test_images": len(self.test),
            "train_accuracy": _accuracy(learner, self.train),
            "test_accuracy": _accuracy(learner, self.test),
            "parameters": sum(parameter.numel() for parameter in body.parameters()),
        }
        state = {name: value.to("cpu").contiguous() for name, value in body.state_dict().items()}
        write_atomically(self.weights, safetensors.torch.save(state))
        seconds = time.perf_counter() - begin
        self.folder.write("timing.json", {"seconds": seconds, "environment": describe_environment()})
        self.folder.write("summary.json", summary)


def _accuracy(learner: CSSL, part: Dataset) -> float | None:
    """Return the share of images that get their own label; None where there is none to ask about."""
    if not len(part):
        return None
    truth = [part.names[label] for label in part.labels]
    return float(np.mean([one == other for one, other in zip(learner.predict_many(part.images), truth, strict=True)]))


class Pretraining:
    """What is trained on before the stream, and a job for each network and seed that asks for it.

    Parameters
    ----------
    config
        The data and the recipe.
    fallback
        The stream's data, whose root and download hold where the pre-training's say nothing.
    streamed
        What comes in the stream: its classes of the same data set are not to be trained on before, unless the
        config says so.
    store
        Where jobs are kept.
    facts
        What else their keys contain.
    """

    def __init__(
        self,
        config: PretrainConfig,
        fallback: DataConfig,
        streamed: Sequence[Dataset],
        store: Path,
        facts: Settings,
    ) -> None:
        self._recipe, self._store, data = config.recipe(), store, config.data
        train, test = load_dataset(data.name, data.root or fallback.root, data.download or fallback.download)
        train, test = select(
            train, test, classes=data.classes, per_class=data.per_class, test_per_class=data.test_per_class
        )
        if not config.overlap:
            _refuse_overlap(train, streamed)
        self._train, self._test = sorted_by_content(train), sorted_by_content(test) if len(test) else test
        self._facts = {
            **facts,
            "train": self._train.fingerprint(),
            "test": self._test.fingerprint(),
            "recipe": str(self._recipe),
            "code": code_version(__name__),
        }
        self.jobs: dict[str, PretrainJob] = {}

    def job(self, network: Settings, seed: int) -> PretrainJob:
        """Return the job that trains a network of these settings; its own beginning is random."""
        settings = {**network, "init": "random", "seed": seed}
        key = key_of({**self._facts, "network": settings})
        if key not in self.jobs:
            folder = Folder(self._store / "pretrained" / key)
            title = f"pre-training, {len(self._train.names)} classes, seed {seed}"
            made = PretrainJob(
                title, key, folder, settings=settings, recipe=self._recipe, train=self._train, test=self._test
            )
            self.jobs[key] = made
        return self.jobs[key]


def _refuse_overlap(train: Dataset, streamed: Sequence[Dataset]) -> None:
    for stream in streamed:
        both = sorted({*train.names} & {*stream.names}) if stream.name == train.name else []
        if both:
            shown = ", ".join(both[:5]) + (", ..." if len(both) > 5 else "")
            raise ValueError(
                f"pre-training on classes of {train.name!r} that come in the stream too ({shown}); choose others "
                "with pretrain.data.classes, or say that it is meant with pretrain.overlap: true"
            )
