"""What the learner predicts for the images of a project: scored in chunks, remembered with the learner's version."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from coldstream.images import Pixels
from coldstream.serve.images import Images, Unreadable
from coldstream.serve.live import Answering
from coldstream.serve.records import Records

CHUNK = 32
"""Images scored at once: what a request may have to wait for."""
RANKED = 9


class Score(NamedTuple):
    """The likeliest class of an image, for one version of the learner."""

    version: int
    label: int
    confidence: float


@dataclass(frozen=True)
class Guess:
    """A prediction for people: names of classes with their probabilities, the likeliest first."""

    label: str
    confidence: float
    ranked: list[tuple[str, float]]
    version: int

    def json(self) -> dict[str, object]:
        """Return it as the API gives it."""
        return {"label": self.label, "confidence": self.confidence, "ranked": [list(one) for one in self.ranked]}


class Scores:
    """Asks the copy of the learner that answers, and remembers what it said."""

    def __init__(self, records: Records, images: Images) -> None:
        self._records = records
        self._images = images
        self._scores: dict[str, Score] = {}
        self._guesses: dict[str, Guess] = {}
        self._lock = threading.Lock()
        self.unreadable: set[str] = set()

    def score_of(self, id: str) -> Score | None:
        """Return the last score of an image."""
        return self._scores.get(id)

    def guess_of(self, id: str) -> Guess | None:
        """Return the last guess that was made for people."""
        return self._guesses.get(id)

    def drop(self, id: str) -> None:
        """Forget the guess of an image that needs none any more."""
        with self._lock:
            self._guesses.pop(id, None)

    def probabilities(
        self, answering: Answering, ids: Iterable[str]
    ) -> tuple[list[str], NDArray[np.float64], NDArray[np.int64]]:
        """Return which of the images can be read, their probabilities, and the class of each column."""
        kept, items = self._sized(answering, ids)
        values = answering.probabilities(np.stack(items)) if items else np.empty((0, len(answering.columns)))
        return kept, *self.merged(values, answering.columns)

    def features(self, answering: Answering, ids: Iterable[str]) -> NDArray[np.float32]:
        """Return the features of those images that can be read."""
        assert answering.learner is not None
        return answering.learner.features(self._sized(answering, ids)[1])

    def _sized(self, answering: Answering, ids: Iterable[str]) -> tuple[list[str], list[Pixels]]:
        """Return which of the images can be read, and their pixels at the network's size."""
        kept, items = list[str](), list[Pixels]()
        for id in ids:
            record = self._records.images[id]
            try:
                assert answering.shape is not None
                items.append(self._images.sized(id, record.path, answering.shape))
                kept.append(id)
            except Unreadable:
                self.unreadable.add(id)
        return kept, items

    def merged(
        self, values: NDArray[np.float64], columns: Sequence[int]
    ) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
        """Add up columns of classes that were merged since the learner was copied."""
        numbers = [self._records.resolve(number) for number in columns]
        names = list(dict.fromkeys(numbers))
        if len(names) == len(columns):
            return values, np.array(names, np.int64)
        summed = np.zeros((len(columns), len(names)))
        summed[np.arange(len(columns)), [names.index(number) for number in numbers]] = 1
        return values @ summed, np.array(names, np.int64)

    def score(self, answering: Answering, ids: Sequence[str]) -> NDArray[np.float64]:
        """Score images and remember their likeliest class; return the probabilities of those that can be read."""
        if answering.learner is None or not answering.columns:
            return np.empty((0, 0))
        kept, values, numbers = self.probabilities(answering, ids)
        if len(kept):
            best = values.argmax(axis=1)
            with self._lock:
                for id, row, column in zip(kept, values, best, strict=True):
                    self._scores[id] = Score(answering.version, int(numbers[column]), float(row[column]))
        return values

    def guess(self, answering: Answering, ids: Sequence[str]) -> None:
        """Make guesses for people, and remember them."""
        if answering.learner is None or not answering.columns:
            return
        kept, values, numbers = self.probabilities(answering, ids)
        for id, row in zip(kept, values, strict=True):
            one = self.named(row, numbers, answering.version)
            with self._lock:
                self._guesses[id] = one
                best = int(row.argmax())
                self._scores[id] = Score(answering.version, int(numbers[best]), float(row[best]))

    def named(self, row: NDArray[np.float64], numbers: NDArray[np.int64], version: int) -> Guess:
        """Return a row of probabilities with the names of the classes."""
        order = np.argsort(-row, kind="stable")[:RANKED]
        ranked = [(self._records.name_of(int(numbers[i])), round(float(row[i]), 6)) for i in order]
        return Guess(ranked[0][0], ranked[0][1], ranked, version)
