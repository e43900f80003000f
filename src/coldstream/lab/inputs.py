"""The data sets and streams of an experiment, each opened on first use."""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property
from typing import Any

import numpy as np

from coldstream.data import Dataset, load_dataset, select
from coldstream.lab.config import Config, DataConfig, PretrainConfig
from coldstream.lab.learners import load_object
from coldstream.streams import Task, TaskStream, make_task_stream, read_class_order, sorted_by_content


class ExperimentInputs:
    """The data sets of an experiment, and the stream of each seed; those of one process share them."""

    def __init__(self, config: Config) -> None:
        self._config = config
        self._streams: dict[int, TaskStream] = {}

    @cached_property
    def datasets(self) -> dict[Task, tuple[Dataset, Dataset]]:
        """The training and the test set of each task, sorted by content; one task, None, without tasks."""
        tasks: list[tuple[Task, DataConfig]] = [*self._config.tasks.items()] or [(None, self._config.data)]
        return {task: _load_both(data) for task, data in tasks}

    @property
    def train(self) -> dict[Task, Dataset]:
        return {task: train for task, (train, _) in self.datasets.items()}

    @property
    def test(self) -> dict[Task, Dataset]:
        return {task: test for task, (_, test) in self.datasets.items()}

    @cached_property
    def pretraining(self) -> tuple[Dataset, Dataset]:
        """Training and test set of pre-training, sorted by content; the test set may be empty."""
        config = self._config.pretrain
        assert config is not None
        place = self._config.data if not self._config.tasks else next(iter(self._config.tasks.values()))
        data = config.data.model_copy(
            update={"root": config.data.root or place.root, "download": config.data.download or place.download}
        )
        train, test = _load(data)
        _refuse_overlap(config, train, list(self.train.values()))
        return sorted_by_content(train), sorted_by_content(test) if len(test) else test

    def stream(self, seed: int) -> TaskStream:
        """Return the stream of a seed."""
        if seed not in self._streams:
            options = self._config.stream.model_dump()
            if isinstance(options["class_order"], str):
                options["class_order"] = read_class_order(options["class_order"])
            parts = dict(make_task_stream(self.train, seed=seed, **options).parts)
            for task, part in parts.items():
                # A class of very few images has none to test with; a test on such classes alone says nothing.
                labels = self.test[task].labels
                tested = (event for event in part.events if np.isin(labels, event.classes).any())
                parts[task] = replace(part, events=tuple(tested))
            self._streams[seed] = TaskStream(parts)
        return self._streams[seed]

    def base(self, seed: int) -> Dataset:
        """Return the beginning of a stream: the first classes, or the first batch, of its first task."""
        begin = next(iter(self.stream(seed).parts.values()))
        labels = begin.dataset.labels[begin.order]
        if (classes := self._config.base.classes) is None:
            return begin.dataset.take(begin.order[: begin.batches[0]])
        first = list(dict.fromkeys(labels.tolist()))[:classes]
        return begin.dataset.take(begin.order[np.isin(labels, first)])

    def counts(self) -> dict[Any, int]:
        """Return how many examples of each label are streamed; with tasks, by (task, label)."""
        counts: dict[Any, int] = {}
        for task, train in self.train.items():
            names, numbers = np.unique(np.array(train.names)[train.labels], return_counts=True)
            for name, number in zip(names.tolist(), numbers.tolist(), strict=True):
                counts[name if task is None else (task, name)] = number
        return counts


def _load(data: DataConfig) -> tuple[Dataset, Dataset]:
    """Return the training and the test set that the settings choose."""
    if data.is_function:
        train, test = _call(data.name)
    else:
        train, test = load_dataset(data.name, data.root, data.download)
    keys = ("classes", "per_class", "test_per_class", "validation")
    return select(train, test, **{key: getattr(data, key) for key in keys})


def _load_both(data: DataConfig) -> tuple[Dataset, Dataset]:
    train, test = _load(data)
    if not len(test):
        raise ValueError(f"data set {test.name!r} has no test images: put some into a folder test/<class>/")
    # Offline training and sums over test images go by the order of storage: no result may depend on it.
    return sorted_by_content(train), sorted_by_content(test)


def _call(name: str) -> tuple[Dataset, Dataset]:
    """Return the data sets of a user's function."""
    function = load_object("data", name)
    if not callable(function):
        raise ValueError(f"data {name!r} is not a function that returns a training and a test set")
    try:
        both = function()
    except Exception as error:  # whatever a user's function does
        raise ValueError(f"data {name!r} failed: {type(error).__name__}: {error}") from error
    if not (isinstance(both, tuple) and len(both) == 2 and all(isinstance(one, Dataset) for one in both)):
        raise ValueError(f"data {name!r} must return two coldstream.data.Dataset, train and test; got {both!r:.80}")
    return both


def _refuse_overlap(config: PretrainConfig, train: Dataset, streamed: list[Dataset]) -> None:
    for stream in streamed if not config.overlap else ():
        both = sorted({*train.names} & {*stream.names}) if stream.name == train.name else []
        if both:
            shown = ", ".join(both[:5]) + (", ..." if len(both) > 5 else "")
            raise ValueError(
                f"pre-training on classes of {train.name!r} that come in the stream too ({shown}); choose others "
                "with pretrain.data.classes, or say that it is meant with pretrain.overlap: true"
            )
