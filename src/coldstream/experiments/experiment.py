"""An experiment: several learners and seeds on one data set, each a job of its own, and what they come down to."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from coldstream.data import Dataset, load_dataset, select
from coldstream.experiments.board import Board
from coldstream.experiments.config import (
    PRETRAINED,
    Config,
    Settings,
    asks_for_base_init,
    changes_between,
    learner_settings,
    make_config,
    read_config,
    write_config,
)
from coldstream.experiments.environment import describe_environment
from coldstream.experiments.jobs import Job, UnitJob
from coldstream.experiments.keys import content_of, key_of, learner_version
from coldstream.experiments.pretraining import Pretraining, PretrainJob
from coldstream.experiments.records import Folder, Record
from coldstream.experiments.references import OfflineJob
from coldstream.experiments.results import averages, first_steps, unit_results
from coldstream.learners import CSSL
from coldstream.streams import Stream, make_stream, read_class_order, sorted_by_content

_NETWORK = ("model", "init", "size", "channels", "normalize", "zoom", "device", "precision", "memory_format")


class Experiment:
    """A config, its folder, and the jobs that it takes.

    Jobs are kept in ``store`` beside the folder, by what they depend on: experiments share those that are the same.
    """

    def __init__(self, config: Config, path: Path) -> None:
        self.config = config
        self.folder = Folder(path)
        self._threads: Settings = {}  # in keys, for they decide about the last bits
        if config.threads:
            torch.set_num_threads(config.threads)
            self._threads["threads"] = config.threads
        data = config.data
        train, test = load_dataset(data.name, data.root, data.download)
        train, test = select(
            train, test, classes=data.classes, per_class=data.per_class, test_per_class=data.test_per_class
        )
        if not len(test):
            raise ValueError(f"data set {test.name!r} has no test images: put some into a folder test/<class>/")
        # Offline training and sums over test images go by the order of storage: no result may depend on it.
        self.train, self.test = sorted_by_content(train), sorted_by_content(test)
        self._data = {"train": self.train.fingerprint(), "test": self.test.fingerprint()}
        store = path.parent / "store"
        wanted = any(learner_settings(config, name)[1].get("init") == PRETRAINED for name in config.learners)
        self._pretraining = (
            Pretraining(config.pretrain, data, [self.train], store, self._threads)
            if config.pretrain and wanted
            else None
        )
        self.streams = {seed: self._make_stream(seed) for seed in config.seeds}
        self.units: dict[tuple[str, int], UnitJob] = {}
        self.references: dict[tuple[str, int], list[OfflineJob]] = {}
        self._shared: dict[str, list[OfflineJob]] = {}
        for name in config.learners:
            for seed in config.seeds:
                self.units[name, seed] = self._unit(name, seed)
                self.references[name, seed] = self._offline(name, seed) if config.offline.enabled else []

    @classmethod
    def create(cls, config: Config, path: Path) -> Experiment:
        """Begin in a new folder, or go on in one that has the same config."""
        text = write_config(config)
        folder = Folder(path)
        if folder.has("config.yaml"):
            changed = changes_between(read_config(path / "config.yaml"), _plain(text))
            if changed and _has_begun(path):
                raise ValueError(
                    f"folder {str(path)!r} is of another config; choose another --out or name. Changed:\n  "
                    + "\n  ".join(changed)
                )
        elif path.is_dir() and any(path.iterdir()):
            raise ValueError(f"folder {str(path)!r} is not empty and not a run's; choose another --out")
        experiment = cls(config, path)
        folder.make()
        folder.write("environment.json", describe_environment())
        folder.write("config.yaml", text)
        return experiment

    @classmethod
    def open(cls, path: Path) -> Experiment:
        """Return the experiment in a folder."""
        if not (path / "config.yaml").is_file():
            raise ValueError(f"there is no run in {str(path)!r} (no config.yaml in it)")
        return cls(make_config(read_config(path / "config.yaml")), path)

    @property
    def jobs(self) -> list[Job]:
        """All jobs, each once: what others begin with, then units, then the offline references."""
        references = (job for several in self.references.values() for job in several)
        first = self._pretraining.jobs.values() if self._pretraining else ()
        return list({job.key: job for job in (*first, *self.units.values(), *references)}.values())

    @property
    def finished(self) -> bool:
        return all(job.finished for job in self.jobs)

    def _make_stream(self, seed: int) -> Stream:
        options = self.config.stream.model_dump()
        if isinstance(options["class_order"], str):
            options["class_order"] = read_class_order(options["class_order"])
        stream = make_stream(self.train, seed=seed, **options)
        # A class of very few images has none to test with; a test on such classes alone says nothing.
        tested = tuple(e for e in stream.events if np.isin(self.test.labels, e.classes).any())
        return replace(stream, events=tested)

    def _unit(self, name: str, seed: int) -> UnitJob:
        kind, settings = learner_settings(self.config, name)
        stream = self.streams[seed]
        if str(settings.get("rate")).startswith("linear"):
            names, counts = np.unique(np.array(self.train.names)[self.train.labels], return_counts=True)
            settings["counts"] = dict(zip(names.tolist(), counts.tolist(), strict=True))
        facts = {"kind": kind.__qualname__, "code": learner_version(kind), "settings": settings, "seed": seed}
        facts |= self._threads
        pretrained = self._pretrained(settings, seed)
        facts["weights"] = pretrained.key if pretrained else content_of(settings.get("init"))
        base, recipe = None, self.config.base.recipe()
        if kind(**settings, seed=seed).needs_base_init or asks_for_base_init(self.config, name):
            base = self._base(stream)
            facts["base"] = {"data": base.fingerprint(), "recipe": str(recipe)}
        key = key_of({**facts, **self._data, "stream": stream.fingerprint(), "preq": self.config.prequential})
        model = settings.get("model")
        begun = {**settings, "init": str(pretrained.weights)} if pretrained else settings
        return UnitJob(
            f"{name}, seed {seed}",
            key,
            Folder(self.folder.path.parent / "store" / "units" / key),
            needs=(pretrained,) if pretrained else (),
            make=partial(kind, **begun, seed=seed),
            load=partial(kind.load) if isinstance(model, str) or model is None else partial(kind.load, model=model),
            stream=stream,
            test=self.test,
            base=base,
            recipe=recipe,
            prequential=self.config.prequential,
            checkpoint_every=self.config.checkpoint_every,
            beside=self.config.evaluate == "beside",
            board=Board(self.folder.path / "tensorboard" / f"{name}-{seed}") if self.config.tensorboard else None,
        )

    def _pretrained(self, settings: Settings, seed: int) -> PretrainJob | None:
        """Return the job that makes the weights a learner begins from, where these are pre-trained."""
        if self._pretraining is None or settings.get("init") != PRETRAINED:
            return None
        return self._pretraining.job({key: settings[key] for key in _NETWORK if key in settings}, seed)

    def _base(self, stream: Stream) -> Dataset:
        """Return the beginning of a stream: its first classes, or its first batch."""
        labels = self.train.labels[stream.order]
        if (classes := self.config.base.classes) is None:
            return self.train.take(stream.order[: stream.batches[0]])
        first = list(dict.fromkeys(labels.tolist()))[:classes]
        return self.train.take(stream.order[np.isin(labels, first)])

    def _offline(self, name: str, seed: int) -> list[OfflineJob]:
        _, settings = learner_settings(self.config, name)
        network = {key: settings[key] for key in _NETWORK if key in settings}
        if network.get("init") == "base":
            network["init"] = "random"
        recipe = self.config.offline.recipe()
        shared = repr((network, seed))
        if shared in self._shared:
            return self._shared[shared]
        jobs = self._shared[shared] = []
        pretrained = self._pretrained(network, seed)
        begun = {**network, "init": str(pretrained.weights)} if pretrained else network
        weights = pretrained.key if pretrained else content_of(network.get("init"))
        for event in self.streams[seed].events:
            # Which examples have come matters to offline training, their order and ours does not.
            which = np.sort(self.streams[seed].order[: event.step])
            classes = sorted(self.test.names[label] for label in event.classes)
            facts: Settings = {"network": network, "recipe": str(recipe), "seed": seed, "classes": classes}
            facts |= {"code": learner_version(CSSL), "weights": weights, **self._threads}
            key = key_of({**facts, "train": self.train.take(which).fingerprint(), "test": self._data["test"]})
            folder = Folder(self.folder.path.parent / "store" / "offline" / key)
            title = f"offline, {len(classes)} classes, seed {seed}"
            jobs.append(
                OfflineJob(
                    title,
                    key,
                    folder,
                    needs=(pretrained,) if pretrained else (),
                    settings={**begun, "seed": seed},
                    recipe=recipe,
                    train=self.train,
                    which=which,
                    test=self.test,
                    event=event,
                )
            )
        return jobs

    def results(self) -> Record:
        """Return everything that the finished jobs found, and write it down as summary.json and metrics.jsonl."""
        learners: Record = {}
        lines = []
        for name in self.config.learners:
            runs = []
            for seed in self.config.seeds:
                unit = self.units[name, seed].folder
                events = unit.lines("metrics.jsonl")
                offline = [job.folder.read("summary.json") for job in self.references[name, seed]]
                lines += [{"learner": name, "seed": seed, **event} for event in events]
                found = unit_results(unit.read("summary.json"), events, offline, first_steps(self.streams[seed]))
                runs.append({"seed": seed, **found})
            learners[name] = {"mean": averages(runs), "runs": runs}
        stream = self.streams[self.config.seeds[0]]
        summary = {
            "name": self.config.name,
            "data": {"name": self.train.name, "train": len(self.train), "test": len(self.test)},
            "ordering": self.config.stream.ordering,
            "examples": len(stream.order),
            "learners": learners,
        }
        self.folder.rewrite("metrics.jsonl", lines)
        self.folder.write("timing.json", self._timing())
        self.folder.write("summary.json", summary)
        return summary

    def _timing(self) -> Record:
        units = {
            name: [self.units[name, seed].folder.read("timing.json") for seed in self.config.seeds]
            for name in self.config.learners
        }
        seconds = sum(job.folder.read("timing.json")["seconds"] for job in self.jobs)
        return {"seconds": seconds, "learners": units}


def _has_begun(path: Path) -> bool:
    """Whether anything was computed for the experiment in a folder; a config that never worked may be replaced."""
    if (path / "summary.json").exists():
        return True
    try:
        return any(job.progress()[0] for job in Experiment.open(path).jobs)
    except ValueError:
        return False


def _plain(text: str) -> dict[str, Any]:
    import yaml

    tree: dict[str, Any] = yaml.safe_load(text)
    return tree
