"""The run loop: stream, test, checkpoint, compare with offline training, summarise.

Stopped at any moment, a run goes on from its last checkpoint to the same bits.
"""

from __future__ import annotations

import time
from functools import partial
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch

from coldstream import metrics
from coldstream.checkpoint import MANIFEST, read_manifest
from coldstream.data import load_dataset
from coldstream.experiments.config import Config, read_config, write_config
from coldstream.experiments.records import Record, RunFolder
from coldstream.learners import CSSL, OfflineRecipe
from coldstream.streams import Event, Stream, make_stream


class Watcher(Protocol):
    """Who shows how far a run is. Any of these may raise to stop it; the next resume goes on."""

    def streaming(self, done: int, total: int, accuracy: float | None) -> None: ...
    def training_offline(self, done: int, total: int) -> None: ...


class Silent:
    """A watcher that shows nothing."""

    def streaming(self, done: int, total: int, accuracy: float | None) -> None: ...
    def training_offline(self, done: int, total: int) -> None: ...


class Run:
    """One learner on one stream, in one folder."""

    def __init__(self, config: Config, folder: RunFolder) -> None:
        self.config = config
        self.folder = folder
        if config.threads:
            torch.set_num_threads(config.threads)
        self.train, self.test = load_dataset(config.data.name)
        self.stream: Stream = make_stream(self.train, config.stream.ordering, config.seed, config.stream.test_every)
        self._settings = self._learner_settings()
        self.learner = CSSL(**self._settings)
        self._preq = metrics.Prequential()
        self._seconds = 0.0

    @classmethod
    def new(cls, config: Config, path: Path) -> Run:
        """Start a run in a new folder."""
        run = cls(config, RunFolder(path))
        run.folder.create(write_config(config))
        return run

    @classmethod
    def resume(cls, path: Path) -> Run:
        """Go on with the run in a folder, from its last checkpoint."""
        folder = RunFolder(path)
        if not (path / "config.yaml").is_file():
            raise ValueError(f"there is no run to resume in {str(path)!r} (no config.yaml in it)")
        run = cls(read_config(path / "config.yaml"), folder)
        if (folder.checkpoint / MANIFEST).exists():
            run.learner = CSSL.load(folder.checkpoint)
            extra = read_manifest(folder.checkpoint)["extra"]
            run._preq = metrics.Prequential.from_dict(extra["prequential"])
            run._seconds = float(extra["seconds"])
        done = [line for line in folder.read_lines("metrics.jsonl") if line["step"] <= run.learner.step]
        folder.rewrite_lines("metrics.jsonl", done)
        folder.rewrite_lines("offline.jsonl", folder.read_lines("offline.jsonl"))
        return run

    def run(self, watcher: Watcher | None = None) -> Record:
        """Do what is left to do, and return the summary."""
        watcher = watcher or Silent()
        self._stream(watcher)
        if self.config.offline.enabled:
            self._offline(watcher)
        summary = self._summary()
        self.folder.write("timing.json", self._timing())
        self.folder.write("summary.json", summary)
        return summary

    def _stream(self, watcher: Watcher) -> None:
        order, every = self.stream.order, self.config.checkpoint_every
        names, images, labels = self.train.names, self.train.images, self.train.labels
        tests = {event.step: event for event in self.stream.events}
        done = {line["step"] for line in self.folder.read_lines("metrics.jsonl")}
        watcher.streaming(self.learner.step, len(order), self._preq.windowed)
        while self.learner.step < len(order):
            index = order[self.learner.step]
            image, label = images[index], names[labels[index]]
            begin = time.perf_counter()
            if self.config.prequential:
                self._preq.update(self.learner.predict_one(image) == label)
            self.learner.learn_one(image, label, id=int(index))
            self._seconds += time.perf_counter() - begin
            step = self.learner.step
            if step in tests and step not in done:
                self.folder.append("metrics.jsonl", self._evaluate(self.learner, tests[step]))
            if step % every == 0 or step == len(order):
                self.save()
            watcher.streaming(step, len(order), self._preq.windowed)

    def save(self) -> Path:
        """Write a checkpoint, and return the folder to resume."""
        extra = {"prequential": self._preq.to_dict(), "seconds": self._seconds}
        self.learner.save(self.folder.checkpoint, extra=extra)
        return self.folder.path

    def _evaluate(self, learner: CSSL, event: Event) -> Record:
        """Test on the images of the event's classes; the learner is not changed by it."""
        subset = self.test.take(np.flatnonzero(np.isin(self.test.labels, event.classes)))
        probabilities = learner.predict_proba_many(subset.images)
        column = {name: i for i, name in enumerate(learner.classes_)}
        truth = np.array([column.get(subset.names[label], -1) for label in subset.labels])
        known = truth >= 0  # an iid stream is tested on all classes, some of which may not have come yet
        predicted = probabilities.argmax(axis=1)
        correct = predicted == truth
        confidence = probabilities.max(axis=1)
        reliability = metrics.reliability(confidence, correct)
        top5 = known & (np.argsort(-probabilities, axis=1, kind="stable")[:, :5] == truth[:, None]).any(axis=1)
        classes = [subset.names[label] for label in event.classes]
        matrix = np.zeros((len(classes), len(column)), int)
        for label, guess in zip(subset.labels, predicted, strict=True):
            matrix[event.classes.index(label), guess] += 1
        return {
            "step": event.step,
            "classes": classes,
            "images": len(subset),
            "accuracy": float(correct.mean()),
            "top5": float(top5.mean()),
            "ece": reliability.ece,
            "ece_debiased": metrics.debiased_ece(confidence, correct),
            "reliability": reliability.to_dict(),
            "confusion": {"columns": list(column), "rows": matrix.tolist()},
        }

    def _offline(self, watcher: Watcher) -> None:
        """Train the same network on everything streamed until each event, as far as not done before."""
        wanted = self.config.offline
        recipe = OfflineRecipe(**wanted.model_dump(exclude={"enabled"}))
        done = {line["step"] for line in self.folder.read_lines("offline.jsonl")}
        total = len(self.stream.events) * recipe.epochs
        for number, event in enumerate(self.stream.events):
            watcher.training_offline(number * recipe.epochs, total)
            if event.step in done:
                continue
            before = number * recipe.epochs
            reference = CSSL(**self._settings)
            progress = partial(_report_epoch, watcher, before, total)
            reference.base_init(self.train.take(self.stream.order[: event.step]), recipe, progress)
            self.folder.append("offline.jsonl", self._evaluate(reference, event))
        watcher.training_offline(total, total)

    def _summary(self) -> Record:
        events = self.folder.read_lines("metrics.jsonl")
        offline = self.folder.read_lines("offline.jsonl")
        accuracies = [event["accuracy"] for event in events]
        reference = [event["accuracy"] for event in offline]
        buffer = self.learner.buffer
        keep = ("step", "images", "accuracy", "top5", "ece", "ece_debiased")
        return {
            "name": self.config.name,
            "seed": self.config.seed,
            "examples": len(self.stream.order),
            "events": [{key: event[key] for key in keep} | {"classes": len(event["classes"])} for event in events],
            "offline": [{key: event[key] for key in keep} for event in offline],
            "final_accuracy": accuracies[-1],
            "omega_per_event": metrics.omega(accuracies, reference) if reference else None,
            "omega_final": metrics.omega(accuracies, reference[-1]) if reference else None,
            "average_ece": metrics.average_ece([event["ece"] for event in events]),
            "average_ece_debiased": metrics.average_ece([event["ece_debiased"] for event in events]),
            "prequential": self._preq.cumulative,
            "buffer": {"examples": len(buffer), "bytes": buffer.nbytes},
            "parameters": self.learner.engine.parameters(),
            "frozen_share": self.learner.frozen_share(),
            "fingerprint": self.learner.fingerprint(),
        }

    def _timing(self) -> Record:
        """Return what may differ between two runs of the same config: times, and memory really allocated."""
        return {
            "seconds": self._seconds,
            "ms_per_example": 1000 * self._seconds / max(1, self.learner.step),
            "index_bytes": self.learner.buffer.overhead_bytes,
        }

    def _learner_settings(self) -> dict[str, Any]:
        settings = {**self.config.learner.model_dump(), "seed": self.config.seed}
        names, counts = np.unique(np.array(self.train.names)[self.train.labels], return_counts=True)
        if str(settings["rate"]).startswith("linear"):
            settings["counts"] = dict(zip(names.tolist(), counts.tolist(), strict=True))
        return settings


def _report_epoch(watcher: Watcher, before: int, total: int, epoch: int) -> None:
    watcher.training_offline(before + epoch, total)
