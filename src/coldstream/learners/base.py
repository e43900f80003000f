"""The contract of every learner: River's verbs, with images as values."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from coldstream.checkpoint import Saving, Segment
from coldstream.data import Dataset
from coldstream.labels import Classes, Label, as_label
from coldstream.learners import answering, base_init, editing, exporting, persistence
from coldstream.learners.changes import Changes, UnusableExample
from coldstream.learners.inputs import Id, Image, Inputs, as_list, check_id, several, sides, whole
from coldstream.learners.method import Example, Method
from coldstream.learners.settings import declare_settings
from coldstream.learners.tasks import Task, task_name
from coldstream.learners.training.engine import Engine
from coldstream.learners.training.offline import OfflineRecipe
from coldstream.randomness import torch_seed


class Learner(Method[Task]):
    """Learns from one example at a time, and can be asked at any moment.

    This class has everything that a user can call. It checks its input before it changes anything, so that a
    ValueError leaves the learner exactly as it was. It holds one lock, so that other threads may predict while one
    learns, and see the state between two steps. It knows nothing of a method: what a subclass fills in is in
    `Method`.
    """

    def __init_subclass__(cls) -> None:
        """Check the class, and give it the signature and the documentation of its settings."""
        super().__init_subclass__()
        if cls.__init__ is not Learner.__init__:
            raise TypeError(
                f"{cls.__name__} defines __init__, whose arguments a checkpoint would not keep: declare its settings "
                "in a class Settings inside it, and prepare other things in _set_up(self)"
            )
        declare_settings(cls, super(cls, cls).Settings)

    def __init__(self, **settings: Any) -> None:
        self.settings = self.Settings.read(type(self).__name__, settings)
        self.settings.warn_of_weights(trained=not self.crops_as_tested)
        self.seed, self.step, self.prepared = self.settings.seed, 0, False
        self.needs_base_init = self.needs_base_init or self.settings.init == "base"
        self.tasks, self.shape, self._engine = {}, None, None
        self._inputs = Inputs(
            self.settings.items, sides(self.settings.size), self.settings.channels, self.settings.zoom
        )
        self._lock = threading.RLock()
        self._changes = Changes()
        self._next_id = 0
        self._last: tuple[Id, int, int] | None = None
        self._segments: dict[str, list[Segment]] = {}
        self._saving: Saving | None = None
        self._set_up()
        if isinstance(self.settings.init, Dataset):
            self.base_init(self.settings.init)

    def __repr__(self) -> str:
        # Without the lock: a debugger must be able to show a learner at any moment.
        tasks = [*self.tasks.values()]
        classes = sum(len(task.classes.seen()) for task in tasks)
        stored = sum(self._memory(task)[0] for task in tasks)
        among = "" if None in self.tasks or not tasks else f" in {len(tasks)} tasks"
        known = f"{classes} classes{among}, {stored} stored, step {self.step}"
        return f"<{type(self).__name__}({self.settings.changes()}): {known}>"

    def _open_task(self, engine: Engine, shape: tuple[int, ...], name: Label | None) -> Task:
        number = len(self.tasks)
        seed = self.seed if number == 0 else torch_seed(self.seed, number, "task")
        limit = self.settings.classes
        classes, head = self._new_classes(limit), engine.new_head(seed, limit or 0)
        return self._new_task(engine, shape, name=name, number=number, seed=seed, classes=classes, head=head)

    # Sizes.

    def parameters(self) -> int:
        """Return the number of the network's parameters as it is now; 0 before there is one."""
        with self._lock:
            if not self.built:
                return 0
            return self.engine.size() + sum(task.head.size for task in self.tasks.values())

    def frozen_share(self) -> float:
        """Return the share of the network's parameters that streaming never changes."""
        with self._lock:
            frozen = self._frozen() if self.built else None
            return 0.0 if frozen is None else sum(p.numel() for p in frozen.parameters()) / self.parameters()

    def memory(self) -> tuple[int, int]:
        """Return how many examples are kept for replay, and in how many bytes, those of `overhead` apart."""
        with self._lock:
            sizes = [self._memory(task) for task in self.tasks.values()]
            return sum(count for count, _ in sizes), sum(size for _, size in sizes)

    def overhead(self) -> int:
        """Return the bytes of what belongs to replay beside the examples: ids, labels, indexes, tables."""
        with self._lock:
            return sum(self._overhead(task) for task in self.tasks.values())

    # Learning.

    def learn_one(self, image: Image, label: object, *, task: object = None, id: Id | None = None) -> Id:
        """Learn one example now. Return its id: the one given, or a new number.

        Parameters
        ----------
        image
            A uint8 HWC array, a PIL image, a CHW tensor, or a file as bytes or as a pathlib.Path; of any size.
        label
            A str, int or bool, or a tuple of these; a new one opens a new class.
        task
            For streams with tasks, each with its own classes: the name of the example's task, of the kinds that a
            label has. A new name opens a new task. None on streams without.
        id
            A number from 0 or a str. An example whose id is stored already replaces it, in whatever task it is.
        """
        return self._learn_several([image], [label], [id], task, 1)[0]

    def learn_many(
        self,
        images: Sequence[Image] | NDArray[Any],
        labels: Iterable[object],
        *,
        ids: Iterable[Id | None] | None = None,
        task: object = None,
        per_update: int = 1,
    ) -> list[Id]:
        """Learn examples in order; with `per_update=1` bit for bit as `learn_one` on each.

        With k above 1 every update takes k new examples beside the replayed ones: for streams faster than one
        update an example. All examples are checked before the first one is learned. Ctrl-C takes effect between two
        updates: what was learned until then stays learned.
        """
        images, labels = several(images), as_list("labels", labels)
        ids = [None] * len(labels) if ids is None else as_list("ids", ids)
        if not len(images) == len(labels) == len(ids):
            raise ValueError(f"{len(images)} images, {len(labels)} labels and {len(ids)} ids: must be as many")
        return self._learn_several(images, labels, ids, task, whole("per_update", per_update, 1))

    def _learn_several(
        self,
        images: Sequence[Image] | NDArray[Any],
        labels: Sequence[object],
        ids: Sequence[Id | None],
        name: object,
        k: int,
    ) -> list[Id]:
        """Decode images, then take the lock, check everything and learn."""
        plain = [as_label(label) for label in labels]
        known = [None if id is None else check_id(id, limit=1 << 61) for id in ids]
        while True:
            decided = shape = self.shape
            items = []
            for image in images:
                items.append(self._inputs.admit(image, shape, test=self.crops_as_tested))
                shape = items[0].shape
            with self._lock:
                self._changes.check()
                if self.shape == decided:  # else another thread's first image has decided the shape meanwhile
                    return self._learn_checked(items, plain, known, name, k)

    def _learn_checked(
        self, items: Sequence[NDArray[Any]], labels: Sequence[Label], ids: Sequence[Id | None], name: object, k: int
    ) -> list[Id]:
        """Check everything, then learn k examples at a time."""
        name = task_name(self, name)
        self._refuse_unprepared()
        task = self.tasks.get(name)
        (task.classes if task else Classes(self.settings.classes)).check(labels)
        next_id, examples, ends = self._next_id, [], []
        for item, label, id in zip(items, labels, ids, strict=True):
            number = next_id if id is None else id
            if not isinstance(number, str):
                next_id = max(next_id, number + 1)
            examples.append(Example(item, label, number))
            ends.append(next_id)
        if not examples:
            return []
        shape = examples[0].item.shape
        engine = self._engine or self._build(shape)
        task = task or self._open_task(engine, shape, name)
        for example in examples:
            self._check(task, example)

        for start in range(0, len(examples), k):
            new = examples[start : start + k]
            before = self._engine, self.shape, {**self.tasks}
            with self._changes.change("learning"):
                self._engine, self.shape, self.tasks[name] = engine, shape, task
                try:
                    self._learn(task, new)
                except UnusableExample:
                    self._engine, self.shape, self.tasks = before
                    self._changes.undone()
                    raise
                self._next_id = ends[start + len(new) - 1]
                self._last = new[-1].id, task.classes.enter(new[-1].label), task.number
                if len(self.tasks) > 1:
                    editing.forget_elsewhere(self, task, [example.key for example in new])
        return [example.id for example in examples]

    def rehearse(self, updates: int = 1) -> None:
        """Make updates on replayed examples alone, for time in which no new example comes.

        Nothing is stored, and `step` stays. Where nothing is stored nothing happens. Each update is all or nothing;
        Ctrl-C takes effect between two, and those made until then stay. Only of methods whose updates replay stored
        images (`rehearses`).
        """
        updates = whole("updates", updates, 1)
        with self._lock:
            self._changes.check()
            if not self.rehearses:
                raise ValueError(f"{type(self).__name__} has no updates on replayed images alone: do not rehearse it")
            self._refuse_unprepared()
            for _ in range(updates if self.tasks else 0):
                with self._changes.change("rehearsing"):
                    self._rehearse()

    def base_init(
        self,
        dataset: Dataset,
        recipe: OfflineRecipe | None = None,
        progress: Callable[[int], None] | None = None,
        task: object = None,
    ) -> None:
        """Train the network offline on a first batch of data, then stream on from its weights.

        The classes of `dataset` are known afterwards, and momentum starts from zero. Methods that store what they
        learned from keep the examples under the data set's identities as ids, numbered where they come twice, so
        that streaming them again with those replaces them. A recipe of 0 epochs leaves the weights as they are. On a
        stream with tasks the data are those of `task`, the first; others begin when they come. `progress` is called
        with the number of epochs done.
        """
        with self._lock:
            self._changes.check()
            base_init.run(self, dataset, recipe or OfflineRecipe(), progress, task)

    def end_batch(self, progress: Callable[[int, int], None] | None = None) -> None:
        """End a batch of the stream; only batch-incremental methods do anything then.

        `progress` is called after every epoch that they train: with the epochs done, and the epochs in all.
        """

    # Asking.

    @property
    def classes_(self) -> list[Label]:
        """The classes that can be predicted, in the order in which they were first seen."""
        with self._lock:
            if self.tasks_:
                raise ValueError(f"each task has its own classes: classes_of(task) (known: {self.tasks_[:8]})")
            return self.classes_of(None)

    @property
    def tasks_(self) -> list[Label]:
        """The tasks, in the order in which they were first seen; none on a stream without."""
        with self._lock:
            return [name for name in self.tasks if name is not None]

    def classes_of(self, task: object) -> list[Label]:
        """Return the classes of a task, in the order in which they were first seen; none of one not seen yet."""
        with self._lock:
            state = self.tasks.get(task_name(self, task))
            return [] if state is None else [state.classes.labels[row] for row in state.classes.seen()]

    def predict_proba_many(
        self, images: Sequence[Image] | NDArray[Any], *, task: object = None
    ) -> NDArray[np.float64]:
        """Return probabilities (N, classes), columns in `classes_` order; no column before anything was learned.

        With tasks, of the classes of `task`, in the order of `classes_of(task)`.
        """
        return self._ask(images, task)[1]

    def _ask(self, images: Any, task: object) -> tuple[list[Label], NDArray[np.float64]]:
        """Decode images, then take the lock; return the classes of a task and the probabilities of one moment."""
        images = several(images)
        while True:
            shape = self.shape
            items = [self._inputs.admit(image, shape, test=True) for image in images]
            with self._lock:
                self._changes.check()
                if self.shape == shape:  # else another thread's first image has decided the shape meanwhile
                    name = task_name(self, task)
                    self._refuse_unprepared()
                    return answering.answer(self, self.tasks.get(name), items)

    def features(self, images: Sequence[Image] | NDArray[Any]) -> NDArray[np.float32]:
        """Return the features (N, d) that the body of the network computes of images, as it answers now.

        With `average`, of the average of the latest weights. Before anything was learned there is no feature, (N, 0).
        """
        images = several(images)
        while True:
            shape = self.shape
            items = [self._inputs.admit(image, shape, test=True) for image in images]
            with self._lock:
                self._changes.check()
                if self.shape == shape:  # else another thread's first image has decided the shape meanwhile
                    self._refuse_unprepared()
                    return answering.features(self, items)

    def predict_many(self, images: Sequence[Image] | NDArray[Any], *, task: object = None) -> list[Label | None]:
        """Return the most probable label of each image; None before anything was learned."""
        labels, probabilities = self._ask(images, task)
        if not labels:
            return [None] * len(probabilities)
        return [labels[best] for best in probabilities.argmax(axis=1)]

    def predict_proba_one(self, image: Image, *, task: object = None) -> dict[Label, float]:
        """Return the probability of each label; empty before anything was learned."""
        labels, probabilities = self._ask([image], task)
        return dict(zip(labels, probabilities[0].tolist(), strict=True))

    def predict_one(self, image: Image, *, task: object = None) -> Label | None:
        """Return the most probable label; None before anything was learned."""
        return self.predict_many([image], task=task)[0]

    # Editing: the replay buffer changes at once, the weights only as later updates replay it.

    def relabel(self, id: Id, label: object) -> bool:
        """Correct the label of a stored example. Return whether it was still stored.

        The weights are not changed; later updates replay the example under its new label.
        """
        with self._lock:
            self._changes.check()
            return editing.relabel(self, id, label)

    def forget(self, id: Id) -> bool:
        """Remove an example from the replay buffer. Return whether it was still stored.

        The weights are not changed: what the network learned from it fades only as it learns on.
        """
        with self._lock:
            self._changes.check()
            return editing.forget(self, id)

    def undo(self) -> Id:
        """Take the last label back: forget the example that was learned last, and return its id.

        A class that it opened is not predicted until the label is given again. The weights are not changed, and
        what was evicted to make room for the example does not come back.
        """
        with self._lock:
            self._changes.check()
            return editing.undo(self)

    def rename_class(self, old: object, new: object, *, task: object = None) -> None:
        """Give a class another label, one that no class (of the task) has."""
        with self._lock:
            self._changes.check()
            editing.rename_class(self, old, new, task)

    def merge_classes(self, source: object, into: object, *, task: object = None) -> None:
        """Let class `source` be class `into` from now on: stored examples, predictions and later labels.

        The probability of the merged class is the sum of both, also where all examples of one were taken back.
        """
        with self._lock:
            self._changes.check()
            editing.merge_classes(self, source, into, task)

    def __reduce_ex__(self, protocol: Any) -> Any:
        """Refuse copies and pickles, which would share a network and a buffer, or run code on loading."""
        raise TypeError("a learner is not copied or pickled: use save(path) and load(path)")

    # Persistence.

    def save(
        self, path: str | Path, *, extra: dict[str, Any] | None = None, wait: bool = True, verify: bool = False
    ) -> Saving:
        """Write a checkpoint into the folder `path`; a crash meanwhile leaves the one that was there.

        Parameters
        ----------
        path
            A folder: a new one, or one with a checkpoint, which is replaced.
        extra
            A JSON-ready dict of the caller's, kept with it (`coldstream.checkpoint.read_manifest`).
        wait
            Whether to return only when all is on disk. With False it is written in the background, as the learner
            is now, while that one learns on; the `result` of what is returned waits, and raises what went wrong.
            So does the next `save`.
        verify
            Whether to read again the files that are there from earlier saves, and to write anew what was damaged
            since (`coldstream.checkpoint.verify` reads all). What is missing is always written anew.
        """
        with self._lock:
            self._changes.check()
            return persistence.save(self, Path(path), extra or {}, wait, verify)

    @classmethod
    def load(cls, path: str | Path, *, model: Any = None, **changes: Any) -> Self:
        """Return the learner that was saved in the folder `path`; it resumes bit for bit.

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

    def export(self, path: str | Path, *, task: object = None) -> None:
        """Write the network as it answers now into a file that needs no Coldstream to run.

        uint8 images (N, height, width, channels) go in, calibrated probabilities (N, classes) come out. `path` is
        ``NAME.onnx`` (needs the extra ``onnx``), or ``NAME.pt2`` for `torch.export.load`; `task` the task that is
        answered for. docs/take-away.md says what else is in the file. Stored examples are not.
        """
        exporting.check_target(Path(path))
        with self._lock:
            self._changes.check()
            network = exporting.answer(self, task)
        exporting.write(*network, Path(path))

    def snapshot(self) -> Self:
        """Return a copy that answers with the same bits as this learner does now, however that one learns on.

        It is in memory, shares nothing with this learner that changes, and has none of the replay buffer: it only
        answers, and refuses to learn, to be edited and to be saved.
        """
        with self._lock:
            self._changes.check()
            return persistence.snapshot(self)

    def fingerprint(self) -> str:
        """Return a hash of everything that later predictions and updates depend on, stored bytes included."""
        with self._lock:
            self._changes.check()
            return persistence.fingerprint(self)

    def _refuse_unprepared(self) -> None:
        if self.needs_base_init and not self.prepared:
            raise ValueError(
                f"{type(self).__name__} needs base initialisation before it learns or predicts: {self.advice}"
            )
