"""The contract of every learner: River's verbs, with images as values."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from coldstream.checkpoint import Saving, Segment
from coldstream.data import Dataset
from coldstream.labels import Classes, Label, as_label
from coldstream.learners import persistence
from coldstream.learners.inputs import Id, Image, Intake, check_id, id_key, sides, whole
from coldstream.learners.tasks import Tasks
from coldstream.learners.training.offline import OfflineRecipe
from coldstream.randomness import generator
from coldstream.replay import ReplayBuffer


@dataclass(frozen=True)
class Example:
    """A new example, checked and brought to the network's size before anything is changed."""

    item: NDArray[Any]
    label: Label
    id: Id


class Learner(ABC):
    """Learns from one example at a time, and can be asked at any moment.

    A subclass names its network's parts in `_build`, learns checked examples in `_learn`, scores items in
    `_logits`, and lists its state in `_state`. Everything that a user can call is here: it checks its input before
    it changes anything, so that a ValueError leaves the learner exactly as it was, and it holds one lock, so that
    other threads may predict while one learns and see the state between two steps.

    A stream may have tasks, each with classes of its own: the first example, or base initialisation, decides, by
    naming a task or none. A subclass that takes tasks (`multi_task`) names in `_OWN` what each has of its own beside
    its classes, makes it in `_build_own`, and lists it in `_own_state` (`coldstream.learners.tasks`).

    Facts for tables: `needs_base_init`, `stores`, `batch_incremental`, `multi_task`, `frozen_share()`, `memory()`.
    """

    needs_base_init: bool = False
    """Whether `base_init` must be called before anything else; settings may decide."""
    batch_incremental: ClassVar[bool] = False
    """Whether examples wait until `end_batch` before the network learns from them."""
    stores: ClassVar[str] = "images"
    """What is kept for replay, in a word or two; empty for a method without replay."""
    multi_task: ClassVar[bool] = False
    """Whether the stream may have tasks."""

    _OWN: ClassVar[tuple[str, ...]] = ("seed", "classes")

    as_tested: ClassVar[bool] = False
    """Whether images are cropped for learning as they are for predictions: where a frozen network sees them first."""

    def __init__(
        self,
        settings: dict[str, Any],
        *,
        items: str = "images",
        size: int | tuple[int, int] | None = None,
        channels: int | None = None,
        zoom: float = 1.0,
        classes: int | None = None,
        seed: int = 0,
    ) -> None:
        self._intake = Intake(items, sides(size), channels, zoom)
        if classes is not None:
            whole("classes", classes, 1)
        self.settings = settings
        self.seed = whole("seed", seed, 0)
        self.step = 0
        self.prepared = False
        self.classes = Classes(classes)
        self._lock = threading.RLock()
        self._next_id = 0
        self._last: tuple[Id, int, int] | None = None
        self._tasks = Tasks(self.seed)
        self._segments: dict[str, list[Segment]] = {}
        self._saving: Saving | None = None
        self._forget_network()

    # What a method is made of.

    shape: tuple[int, ...] | None
    """Of one item, (height, width, channels): given, or taken from the first image."""
    seed: int
    """Of all draws; with tasks, of those of the task at work."""

    @abstractmethod
    def _build(self, shape: tuple[int, ...]) -> None:
        """Make the network and what belongs to it, for items of `shape`."""

    def _build_own(self, shape: tuple[int, ...]) -> None:  # noqa: B027
        """Make what a later task has of its own beside its classes; `_build` makes the first one's."""

    @abstractmethod
    def _forget_network(self) -> None:
        """Go back to before `_build`; subclasses call this one too."""
        self.shape = None

    @abstractmethod
    def _learn(self, new: Sequence[Example]) -> None:
        """Learn examples that were checked, in one update."""

    @abstractmethod
    def _logits(self, items: NDArray[Any]) -> NDArray[np.float64]:
        """Return scores (N, rows of the head) whose softmax is the prediction."""

    def _novelty(self) -> float:
        """Return the chance that an image is of a class that has not come, of which any known one is as likely."""
        return 0.0

    @abstractmethod
    def _state(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        """Return what a checkpoint holds of this method, all tasks' own apart.

        JSON-ready values, and arrays that no later step changes.
        """

    @abstractmethod
    def _restore(self, plain: dict[str, Any], arrays: dict[str, NDArray[Any]]) -> None:
        """Take over what `_state` gave, after `_build`."""

    def _own_state(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        """Return the same of what the task at work has of its own, its classes and its buffer apart."""
        return {}, {}

    def _restore_own(self, plain: dict[str, Any], arrays: dict[str, NDArray[Any]]) -> None:  # noqa: B027
        """Take over what `_own_state` gave."""

    def _buffer(self) -> ReplayBuffer | None:
        """Return the replay buffer of the task at work, whose rows a checkpoint keeps apart."""
        return None

    def _check(self, example: Example) -> None:  # noqa: B027 - most methods have nothing to add
        """Refuse an example for a reason of the method's own, before anything changes."""

    def parameters(self) -> int:
        """Return the number of the network's parameters as it is now; 0 before there is one."""
        return 0

    def frozen_share(self) -> float:
        """Return the share of the network's parameters that streaming never changes."""
        return 0.0

    def memory(self) -> tuple[int, int]:
        """Return how many examples are kept for replay, and in how many bytes, those of `overhead` apart."""
        with self._lock:
            kept, size = zip(*(self._memory() for _ in self._tasks.each(self)), strict=True)
            return sum(kept), sum(size)

    def overhead(self) -> int:
        """Return the bytes of what belongs to replay beside the examples: ids, labels, indexes, tables."""
        with self._lock:
            return sum(self._overhead() for _ in self._tasks.each(self))

    def _memory(self) -> tuple[int, int]:
        buffer = self._buffer()
        return (0, 0) if buffer is None else (len(buffer), buffer.nbytes)

    def _overhead(self) -> int:
        buffer = self._buffer()
        return 0 if buffer is None else buffer.overhead_bytes

    # Learning.

    def learn_one(self, image: Image, label: object, *, task: object = None, id: Id | None = None) -> Id:
        """Learn one example now. Return its id: the one given, or a new number.

        Parameters
        ----------
        image
            A uint8 HWC array, a PIL image, a CHW tensor or encoded bytes, of any size.
        label
            A str, int or bool, or a tuple of these; a new one opens a new class.
        task
            For streams with tasks, each with classes of its own: the name of this one's, of the kinds that a label
            has. A new name opens a new task. None on streams without.
        id
            A number from 0 or a str. An example whose id is stored already replaces it, in whatever task it is.
        """
        with self._lock:
            return self._learn_checked([image], [label], [id], task, 1)[0]

    def learn_many(
        self,
        images: Sequence[Image] | NDArray[Any],
        labels: Iterable[object],
        *,
        ids: Iterable[Id | None] | None = None,
        task: object = None,
        per_update: int = 1,
    ) -> list[Id]:
        """Learn examples in order; with `per_update=1` the same, to the bit, as `learn_one` on each.

        With k above 1 every update takes k new examples beside the replayed ones: for streams faster than one
        update an example. All examples are checked before the first one is learned.
        """
        labels = list(labels)
        images = images if hasattr(images, "__len__") else list(images)
        _check_several(images)
        ids = [None] * len(labels) if ids is None else list(ids)
        if not len(images) == len(labels) == len(ids):
            raise ValueError(f"{len(images)} images, {len(labels)} labels and {len(ids)} ids: must be as many")
        with self._lock:
            return self._learn_checked(images, labels, ids, task, whole("per_update", per_update, 1))

    def _learn_checked(
        self,
        pictures: Sequence[Image] | NDArray[Any],
        labels: Sequence[object],
        ids: Sequence[Id | None],
        task: object,
        k: int,
    ) -> list[Id]:
        name = self._tasks.check(self, task)
        self._refuse_unprepared()
        fresh = self.shape is None
        next_id = self._next_id
        opened = self._tasks.enter(self, name)
        try:
            plain = [as_label(label) for label in labels]
            self.classes.check(plain)
            examples = []
            for picture, label, id in zip(pictures, plain, ids, strict=True):
                number = self._next_id if id is None else check_id(id, limit=1 << 61)
                if not isinstance(number, str):
                    self._next_id = max(self._next_id, number + 1)
                item = self._intake.admit(picture, self.shape, test=self.as_tested)
                examples.append(Example(item, label, number))
                if self.shape is None:
                    self._build(item.shape)
                    self.shape = item.shape
                self._check(examples[-1])
        except BaseException:
            self._next_id = next_id
            if fresh:
                self._forget_network()
            if opened is not None:
                self._tasks.close(self, opened)
            raise
        here = self._tasks.at
        for start in range(0, len(examples), k):
            new = examples[start : start + k]
            self._learn(new)
            self._last = new[-1].id, self.classes.enter(new[-1].label), here
            if len(self._tasks) > 1 and self._buffer() is not None:
                self._tasks.forget_elsewhere(self, [id_key(example.id) for example in new])
        return [example.id for example in examples]

    def base_init(
        self,
        dataset: Dataset,
        recipe: OfflineRecipe | None = None,
        progress: Callable[[int], None] | None = None,
        task: object = None,
    ) -> None:
        """Train offline on a first batch of data, where a method wants that; `progress` hears of every epoch."""
        raise ValueError(f"{type(self).__name__} has no base initialisation")

    def end_batch(self, progress: Callable[[int, int], None] | None = None) -> None:  # noqa: B027
        """Hear that a batch of the stream ended; only batch-incremental methods do anything then.

        `progress` hears of every epoch that they train: how many are done, and how many there will be.
        """

    # Asking.

    @property
    def classes_(self) -> list[Label]:
        """The classes that can be predicted, in the order in which they were first seen."""
        with self._lock:
            if self._tasks:
                raise ValueError(f"each task has its own classes: classes_of(task) (known: {self._tasks.names[:8]})")
            return self._labels(None)

    @property
    def tasks_(self) -> list[Label]:
        """The tasks, in the order in which they were first seen; none on a stream without."""
        with self._lock:
            return self._tasks.names

    def classes_of(self, task: object) -> list[Label]:
        """Return the classes of a task, in the order in which they were first seen; none of one not seen yet."""
        with self._lock:
            return self._labels(task)

    def _labels(self, task: object) -> list[Label]:
        if not self._tasks.find(self, task):
            return []
        return [self.classes.labels[row] for row in self.classes.seen()]

    def predict_proba_many(
        self, images: Sequence[Image] | NDArray[Any], *, task: object = None
    ) -> NDArray[np.float64]:
        """Return probabilities (N, classes), columns in `classes_` order; no column before anything was learned.

        With tasks, of the classes of `task`, in the order of `classes_of(task)`.
        """
        with self._lock:
            known = self._tasks.find(self, task)
            self._refuse_unprepared()
            _check_several(images)
            items = [self._intake.admit(image, self.shape, test=True) for image in images]
            seen = self.classes.seen() if known else []
            if not seen or self.shape is None:
                return np.empty((len(items), 0))
            if not items:
                return np.empty((0, len(seen)))
            logits = self._logits(np.stack(items))
            column = {row: i for i, row in enumerate(seen)}
            rows = [row for row, into in enumerate(self.classes.into) if into in column]
            logits = logits[:, rows]
            if not np.isfinite(logits).all():
                raise FloatingPointError(
                    "the network's outputs are not finite: it diverged; begin again with a lower rate"
                )
            probabilities: NDArray[np.float64] = np.exp(logits - logits.max(axis=1, keepdims=True))
            if len(rows) > len(seen):  # merged classes: what their rows say counts for the class they went into
                own = np.zeros((len(rows), len(seen)))
                own[np.arange(len(rows)), [column[self.classes.into[row]] for row in rows]] = 1
                probabilities = probabilities @ own
            probabilities /= probabilities.sum(axis=1, keepdims=True)
            if unknown := self._novelty():
                probabilities = (1 - unknown) * probabilities + unknown / len(seen)
            return probabilities

    def predict_many(self, images: Sequence[Image] | NDArray[Any], *, task: object = None) -> list[Label | None]:
        """Return the most probable label of each image; None before anything was learned."""
        with self._lock:
            probabilities = self.predict_proba_many(images, task=task)
            labels = self._labels(task)
        if not labels:
            return [None] * len(probabilities)
        return [labels[best] for best in probabilities.argmax(axis=1)]

    def predict_proba_one(self, image: Image, *, task: object = None) -> dict[Label, float]:
        """Return the probability of each label; empty before anything was learned."""
        with self._lock:
            probabilities = self.predict_proba_many([image], task=task)[0]
            return dict(zip(self._labels(task), probabilities.tolist(), strict=True))

    def predict_one(self, image: Image, *, task: object = None) -> Label | None:
        """Return the most probable label; None before anything was learned."""
        return self.predict_many([image], task=task)[0]

    # Editing: the replay buffer changes at once, the weights only as later updates replay it.

    def relabel(self, id: Id, label: object) -> bool:
        """Correct the label of a stored example. Return whether it was still stored.

        The weights are not changed; later updates replay the example under its new label.
        """
        with self._lock:
            key, new = id_key(check_id(id)), as_label(label)
            old = self._tasks.stored_label(self, key)
            if old is None:
                return False
            self.classes.check([new])
            if self.classes.row(new) == old:
                return True
            row = self.classes.enter(new)
            self._open_rows()
            self._uncount(old)
            self.classes.counts[row] += 1
            self._relabel(key, row)
            return True

    def forget(self, id: Id) -> bool:
        """Remove an example from the replay buffer. Return whether it was still stored.

        The weights are not changed: what the network learned from it fades only as it learns on.
        """
        with self._lock:
            key = id_key(check_id(id))
            old = self._tasks.stored_label(self, key)
            if old is None:
                return False
            self._uncount(old)
            self._forget(key)
            if self._last is not None and id_key(self._last[0]) == key:
                self._last = None
            return True

    def undo(self) -> Id:
        """Take the last label back: forget the example that was learned last, and return its id.

        A class that it opened is not predicted until the label is given again. The weights are not changed, and
        what was evicted to make room for the example does not come back.
        """
        with self._lock:
            if self._last is None:
                raise ValueError("there is nothing to undo: no example was learned, or the last one was undone")
            id, row, task = self._last
            if not self.forget(id):  # it may have been evicted at once
                self._tasks.turn_to(self, task)
                self._uncount(self.classes.into[row])
            self._last = None
            return id

    def rename_class(self, old: object, new: object, *, task: object = None) -> None:
        """Give a class another label, one that no class (of the task) has."""
        with self._lock:
            self._tasks.need(self, task)
            self.classes.rename(as_label(old), as_label(new))

    def merge_classes(self, source: object, into: object, *, task: object = None) -> None:
        """Let class `source` be class `into` from now on: stored examples, predictions and later labels.

        The probability of the merged class is the sum of both, also where all examples of one were taken back.
        """
        with self._lock:
            self._tasks.need(self, task)
            self._merge(*self.classes.merge(as_label(source), as_label(into)))

    def __reduce_ex__(self, protocol: Any) -> Any:
        """Refuse copies and pickles, which would share a network and a buffer, or run code on loading."""
        raise TypeError("a learner is not copied or pickled: use save(path) and load(path)")

    def _uncount(self, row: int | None) -> None:
        """Take one example off a class's count: it was forgotten, relabelled or learned anew."""
        if row is not None:
            self.classes.counts[row] = max(0, self.classes.counts[row] - 1)

    def _stored_label(self, key: int) -> int | None:
        buffer = self._buffer()
        return None if buffer is None else buffer.label_of(key)

    def _relabel(self, key: int, row: int) -> None:
        buffer = self._buffer()
        if buffer is not None:
            buffer.relabel(key, row)

    def _forget(self, key: int) -> None:
        buffer = self._buffer()
        if buffer is not None:
            buffer.forget(key)

    def _merge(self, old: int, new: int) -> None:
        """Let what is stored of one class be the other's."""
        buffer = self._buffer()
        if buffer is not None:
            buffer.relabel_class(old, new)

    @abstractmethod
    def _open_rows(self) -> None:
        """Give the head a row for every class."""

    # Keeping.

    def save(self, path: str | Path, *, extra: dict[str, Any] | None = None, wait: bool = True) -> Saving:
        """Write a checkpoint into the folder `path`; a crash meanwhile leaves the one that was there.

        Parameters
        ----------
        path
            A folder: a new one, or one with a checkpoint, which is replaced.
        extra
            A JSON-ready dict of the caller's own, kept with it (`coldstream.checkpoint.read_manifest`).
        wait
            Whether to return only when all is on disk. With False it is written in the background, as the learner
            is now, while that one learns on; the `result` of what is returned waits, and raises what went wrong.
            So does the next `save`.
        """
        with self._lock:
            return persistence.save(self, Path(path), extra or {}, wait)

    @classmethod
    def load(cls, path: str | Path, *, model: Any = None, **changes: Any) -> Self:
        """Return the learner that was saved in the folder `path`; it goes on exactly as if never stopped.

        Parameters
        ----------
        path
            The folder given to `save`. Nothing in it is executed.
        model
            For a learner with an nn.Module of your own: the function that makes it.
        **changes
            Settings that may differ from the saved ones: ``device``, ``storage``, ``memory_format``
            and ``prefetch``.
        """
        return persistence.load(cls, Path(path), model, changes)

    def snapshot(self) -> Self:
        """Return a copy that answers with the same bits as this learner does now, however that one learns on.

        It is in memory, shares nothing with this learner that changes, and has none of the replay buffer: it only
        answers, and refuses to learn, to be edited and to be saved.
        """
        with self._lock:
            return persistence.snapshot(self)

    def fingerprint(self) -> str:
        """Return a hash of everything that later predictions and updates depend on, stored bytes included."""
        with self._lock:
            return persistence.fingerprint(self)

    def _settings_to_json(self) -> dict[str, Any]:
        return dict(self.settings)

    @classmethod
    def _settings_from_json(cls, settings: dict[str, Any]) -> dict[str, Any]:
        return settings

    # Checks.

    def _draw(self, role: str) -> np.random.Generator:
        return generator(self.seed, self.step, role)

    def _refuse_unprepared(self) -> None:
        if self.needs_base_init and not self.prepared:
            raise ValueError(
                f"{type(self).__name__} needs base initialisation before it learns or predicts: call "
                "base_init(dataset) first, or give it weights to start from (init=...)"
            )


def _check_several(images: Any) -> None:
    """Refuse a single image where several are expected: its rows would be taken for grey images."""
    shape = tuple(getattr(images, "shape", ()))
    if len(shape) == 3 and (shape[2] if isinstance(images, np.ndarray) else shape[0]) in (1, 3, 4):
        raise ValueError(f"expected several images, got one of shape {shape}; use the method that ends in _one")
