"""An experiment: several learners and seeds on the same data, each a job of its own, and what they come down to."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np
import torch

from coldstream.data import Dataset, load_dataset, select
from coldstream.lab.config import (
    PRETRAINED,
    Config,
    DataConfig,
    Settings,
    asks_for_base_init,
    changes_between,
    learner_settings,
    make_config,
    read_config,
    write_config,
)
from coldstream.lab.environment import describe_environment
from coldstream.lab.jobs import Job, UnitJob
from coldstream.lab.keys import content_of, key_of, learner_version
from coldstream.lab.pretraining import Pretraining, PretrainJob
from coldstream.lab.records import Folder, Record
from coldstream.lab.references import OfflineJob, best, spelled
from coldstream.lab.results import averages, first_steps, task_results, unit_results
from coldstream.lab.tensorboard import Board
from coldstream.learners import CSSL, LEARNERS
from coldstream.streams import Task, TaskStream, make_task_stream, read_class_order, sorted_by_content

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
        self.train: dict[Task, Dataset] = {}
        self.test: dict[Task, Dataset] = {}
        tasks: list[tuple[Task, DataConfig]] = [*config.tasks.items()] or [(None, config.data)]
        for task, data in tasks:
            self.train[task], self.test[task] = _load(data)
        store = path.parent / "store"
        wanted = any(learner_settings(config, name)[1].get("init") == PRETRAINED for name in config.learners)
        self._pretraining = (
            Pretraining(config.pretrain, tasks[0][1], list(self.train.values()), store, self._threads)
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
                compared = config.offline.enabled and seed in (config.offline.seeds or config.seeds)
                self.references[name, seed] = self._offline(name, seed) if compared else []

    @classmethod
    def create(cls, config: Config, path: Path) -> Experiment:
        """Begin in a new folder, or go on in one that has the same config; seeds may have been added."""
        text = write_config(config)
        folder = Folder(path)
        if folder.has("config.yaml"):
            before = read_config(path / "config.yaml")
            if set(before.get("seeds", ())) <= set(config.seeds):
                before["seeds"] = config.seeds
            changed = changes_between(before, _plain(text))
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

    def _make_stream(self, seed: int) -> TaskStream:
        options = self.config.stream.model_dump()
        if isinstance(options["class_order"], str):
            options["class_order"] = read_class_order(options["class_order"])
        parts = dict(make_task_stream(self.train, seed=seed, **options).parts)
        for task, part in parts.items():
            # A class of very few images has none to test with; a test on such classes alone says nothing.
            tested = (event for event in part.events if np.isin(self.test[task].labels, event.classes).any())
            parts[task] = replace(part, events=tuple(tested))
        return TaskStream(parts)

    def _unit(self, name: str, seed: int) -> UnitJob:
        kind, settings = learner_settings(self.config, name)
        if self.config.tasks and not kind.multi_task:
            able = ", ".join(other for other, found in LEARNERS.items() if found.multi_task)
            raise ValueError(f"learner {name!r} ({kind.__name__}) has no tasks; those that have are {able}")
        stream = self.streams[seed]
        if str(settings.get("rate")).startswith("linear"):
            settings["counts"] = self._counts()
        facts = {"kind": kind.__qualname__, "code": learner_version(kind), "settings": settings, "seed": seed}
        facts |= self._threads
        pretrained = self._pretrained(settings, seed)
        facts["weights"] = pretrained.key if pretrained else content_of(settings.get("init"))
        base, recipe = None, self.config.base.recipe()
        if kind(**settings, seed=seed).needs_base_init or asks_for_base_init(self.config, name):
            base = self._base(stream)
            facts["base"] = {"data": base.fingerprint(), "recipe": str(recipe)}
        for part, datasets in (("train", self.train), ("test", self.test)):
            facts[part] = [[task, dataset.fingerprint()] for task, dataset in datasets.items()]
        key = key_of({**facts, "stream": stream.fingerprint(), "preq": self.config.prequential})
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
            tests=self.test,
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

    def _counts(self) -> dict[Any, int]:
        """Return how many examples of each label will come; with tasks, by (task, label)."""
        counts: dict[Any, int] = {}
        for task, train in self.train.items():
            names, numbers = np.unique(np.array(train.names)[train.labels], return_counts=True)
            for name, number in zip(names.tolist(), numbers.tolist(), strict=True):
                counts[name if task is None else (task, name)] = number
        return counts

    def _base(self, stream: TaskStream) -> Dataset:
        """Return the beginning of a stream: the first classes, or the first batch, of its first task."""
        begin = next(iter(stream.parts.values()))
        labels = begin.dataset.labels[begin.order]
        if (classes := self.config.base.classes) is None:
            return begin.dataset.take(begin.order[: begin.batches[0]])
        first = list(dict.fromkeys(labels.tolist()))[:classes]
        return begin.dataset.take(begin.order[np.isin(labels, first)])

    def _offline(self, name: str, seed: int) -> list[OfflineJob]:
        _, settings = learner_settings(self.config, name)
        network = {key: settings[key] for key in _NETWORK if key in settings}
        if network.get("init") == "base":
            network["init"] = "random"
        recipes = self.config.offline.recipes()
        shared = repr((network, seed))
        if shared in self._shared:
            return self._shared[shared]
        jobs = self._shared[shared] = []
        pretrained = self._pretrained(network, seed)
        begun = {**network, "init": str(pretrained.weights)} if pretrained else network
        weights = pretrained.key if pretrained else content_of(network.get("init"))
        # With tasks there is one for the end of each, on its data alone: that of an experiment without tasks.
        last_only = self.config.offline.last_only
        events = [
            (task, part, event)
            for task, part in self.streams[seed].parts.items()
            for event in (part.events[-1:] if last_only or task is not None else part.events)
        ]
        for task, part, event in events:
            # Which examples have come matters to offline training, their order and ours does not.
            which = np.sort(part.order[: event.step])
            test = self.test[task]
            classes = sorted(test.names[label] for label in event.classes)
            facts: Settings = {"network": network, "seed": seed, "classes": classes}
            facts |= {"code": learner_version(CSSL), "weights": weights, **self._threads}
            facts |= {"train": part.dataset.take(which).fingerprint(), "test": test.fingerprint()}
            for recipe in recipes:
                key = key_of({**facts, "recipe": str(recipe)})
                folder = Folder(self.folder.path.parent / "store" / "offline" / key)
                what = f"{len(classes)} classes" if task is None else task
                how = f", {spelled(recipe, recipes)}" if len(recipes) > 1 else ""
                jobs.append(
                    OfflineJob(
                        f"offline, {what}{how}, seed {seed}",
                        key,
                        folder,
                        needs=(pretrained,) if pretrained else (),
                        settings={**begun, "seed": seed},
                        recipe=recipe,
                        train=part.dataset,
                        which=which,
                        test=test,
                        event=event,
                        task=task,
                        may_diverge=len(recipes) > 1,
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
                lines += [{"learner": name, "seed": seed, **event} for event in events]
                runs.append({"seed": seed, **self._found(unit.read("summary.json"), events, name, seed)})
            learners[name] = {"mean": averages(runs), "runs": runs}
            if self.config.tasks:
                each = {task: [run["tasks"][task] for run in runs] for task in self.config.tasks}
                learners[name]["tasks"] = {task: averages(mine) for task, mine in each.items()}
        summary = {
            "name": self.config.name,
            "data": {
                "name": ", then ".join(dict.fromkeys(train.name for train in self.train.values())),
                "train": sum(map(len, self.train.values())),
                "test": sum(map(len, self.test.values())),
            },
            "ordering": self.config.stream.ordering,
            "examples": len(self.streams[self.config.seeds[0]]),
            "learners": learners,
        }
        if self.config.tasks:
            summary["tasks"] = self._tasks()
        self.folder.rewrite("metrics.jsonl", lines)
        self.folder.write("timing.json", self._timing())
        self.folder.write("summary.json", summary)
        return summary

    def _found(self, unit: Record, events: list[Record], name: str, seed: int) -> Record:
        """Return the numbers of one learner and seed, beside its references."""
        stream = self.streams[seed]
        several = groupby(self.references[name, seed], lambda job: (job.task, job.event and job.event.step))
        references = [(task, best(list(jobs))) for (task, _), jobs in several]
        if None in stream.parts:
            return unit_results(unit, events, [found for _, found in references], first_steps(stream.parts[None]))
        ends = {task: stream.ends[task] for task in stream.tasks}
        return task_results(unit, events, {str(task): found for task, found in references}, ends)

    def _tasks(self) -> Record:
        """Return what the tasks are, and after how many examples each begins."""
        stream = self.streams[self.config.seeds[0]]
        return {
            task: {
                "name": self.train[task].name,
                "train": len(self.train[task]),
                "test": len(self.test[task]),
                "classes": len(np.unique(self.train[task].labels)),
                "start": stream.starts[task],
            }
            for task in stream.tasks
        }

    def _timing(self) -> Record:
        units = {
            name: [self.units[name, seed].folder.read("timing.json") for seed in self.config.seeds]
            for name in self.config.learners
        }
        seconds = sum(job.folder.read("timing.json")["seconds"] for job in self.jobs)
        return {"seconds": seconds, "learners": units}


def _load(data: DataConfig) -> tuple[Dataset, Dataset]:
    """Return the training and the test set that the settings choose, each sorted by content."""
    train, test = load_dataset(data.name, data.root, data.download)
    train, test = select(
        train, test, classes=data.classes, per_class=data.per_class, test_per_class=data.test_per_class
    )
    if not len(test):
        raise ValueError(f"data set {test.name!r} has no test images: put some into a folder test/<class>/")
    # Offline training and sums over test images go by the order of storage: no result may depend on it.
    return sorted_by_content(train), sorted_by_content(test)


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
