"""The contract of every learner: River's verbs, with images as values."""

from __future__ import annotations

import inspect
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Generic, Self, TypeVar

import numpy as np
from numpy.typing import NDArray
from torch import nn

from coldstream.checkpoint import Saving, Segment
from coldstream.data import Dataset
from coldstream.labels import Classes, Label, as_label, spelled
from coldstream.learners import base_init, editing, persistence
from coldstream.learners.changes import Changes, UnusableExample
from coldstream.learners.inputs import Id, Image, Inputs, as_list, check_id, id_key, several, sides, whole
from coldstream.learners.settings import NetworkSettings
from coldstream.learners.tasks import TaskState
from coldstream.learners.training.engine import Engine
from coldstream.learners.training.offline import OfflineRecipe
from coldstream.models import Body, load_weights
from coldstream.randomness import torch_seed

Task = TypeVar("Task", bound=TaskState)
Shape = tuple[int, ...]
Arrays = dict[str, NDArray[Any]]
State = tuple[dict[str, Any], Arrays]
"""JSON-ready values, and arrays that no later step changes."""


@dataclass(frozen=True)
class Example:
    """A new example, checked and brought to the network's size before anything is changed."""

    item: NDArray[Any]
    label: Label
    id: Id

    @property
    def key(self) -> int:
        """The number under which a replay buffer knows the example."""
        return id_key(self.id)


class Learner(ABC, Generic[Task]):
    """Learns from one example at a time, and can be asked at any moment.

    This class has everything that a user can call. It checks its input before it changes anything, so that a
    ValueError leaves the learner exactly as it was. It holds one lock, so that other threads may predict while one
    learns, and see the state between two steps. It knows nothing of a method.

    A method is a subclass. It declares its settings in a class `Settings`, and says how it learns in `_learn` and,
    where it does not answer with its network, how it answers in `_logits`. Both are given the state of the task that
    they are about (`TaskState`). Everything below "What a method is made of" may be replaced, and nothing else.

    State: `engine` is the network, shared by all tasks; `tasks` has a `TaskState` for each, by name, and a single
    one under None on a stream without tasks. Before the first example `built` is False, and there are no tasks.
    """

    Settings: ClassVar[type[NetworkSettings]] = NetworkSettings
    """What can be set, declared once (`coldstream.learners.settings`)."""
    needs_base_init: bool = False
    """Whether `base_init` must be called before anything else; settings may decide."""
    batch_incremental: ClassVar[bool] = False
    """Whether examples wait until `end_batch` before the network learns from them."""
    stores: ClassVar[str] = "images"
    """Kind of the stored examples, in a word or two; empty for a method without replay."""
    multi_task: ClassVar[bool] = False
    """Whether the stream may have tasks."""
    crops_as_tested: ClassVar[bool] = False
    """Whether new images are cropped as for predictions: for methods that learn from a frozen network's features."""

    settings: NetworkSettings

    def __init_subclass__(cls) -> None:
        """Give the class the signature and the documentation of its settings."""
        super().__init_subclass__()
        if cls.__init__ is not Learner.__init__:
            raise TypeError(
                f"{cls.__name__} defines __init__, whose arguments a checkpoint would not keep: declare its settings "
                "in a class Settings inside it, and prepare other things in _set_up(self)"
            )
        inherited = super(cls, cls).Settings  # type: ignore[misc]
        if not (inspect.isclass(cls.Settings) and issubclass(cls.Settings, inherited)):
            raise TypeError(
                f"{cls.__name__}.Settings must derive from {inherited.__name__}, whose settings it adds to"
            )
        cls.__signature__ = cls.Settings.signature()  # type: ignore[attr-defined]
        described = inspect.cleandoc(cls.__dict__.get("__doc__") or "")
        if "Parameters\n----------" not in described:
            before, examples, after = described.partition("Examples\n--------")
            cls.__doc__ = f"{before.rstrip()}\n\n{cls.Settings.documentation()}\n\n{examples}{after}"

    def __init__(self, **settings: Any) -> None:
        self.settings = self.Settings.read(type(self).__name__, settings)
        self.settings.warn_of_weights(trained=not self.crops_as_tested)
        self.seed, self.step, self.prepared = self.settings.seed, 0, False
        self.needs_base_init = self.needs_base_init or self.settings.init == "base"
        self.tasks: dict[Label | None, Task] = {}
        self.shape: Shape | None = None
        self._engine: Engine | None = None
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
        classes, stored = (
            sum(len(task.classes.seen()) for task in tasks),
            sum(self._memory(task)[0] for task in tasks),
        )
        among = "" if None in self.tasks or not tasks else f" in {len(tasks)} tasks"
        known = f"{classes} classes{among}, {stored} stored, step {self.step}"
        return f"<{type(self).__name__}({self.settings.changes()}): {known}>"

    @property
    def built(self) -> bool:
        """Whether there is a network yet: the first image decides its shape."""
        return self._engine is not None

    @property
    def engine(self) -> Engine:
        """The network; an error before there is one."""
        if self._engine is None:
            raise RuntimeError("there is no network before the first example: ask `built` first")
        return self._engine

    # What a method is made of.

    def _set_up(self) -> None:
        """Prepare what the method has before its network; check settings that depend on each other."""

    def _body(self, shape: Shape) -> Body:
        """Return the body of the network for items of `shape`, (channels, height, width), with its first weights."""
        body = Body.build(self.settings.model, shape, self.seed)
        init = self.settings.init
        if isinstance(init, (str, Path)) and init not in ("random", "base"):
            load_weights(body.module, self.settings.model, init)
        return body

    def _build(self, shape: Shape) -> Engine:
        """Return the network for items of `shape`, (height, width, channels)."""
        return self._make_engine(self._body(self._channels_first(shape)))

    @abstractmethod
    def _new_task(self, engine: Engine, shape: Shape, **basics: Any) -> Task:
        """Return the state of a new task: `TaskState(**basics)`, and what else the method keeps for a task."""

    @abstractmethod
    def _learn(self, task: Task, new: Sequence[Example]) -> None:
        """Learn examples that were checked, in one update, and add their number to `step`."""

    def _logits(self, task: Task, items: NDArray[Any]) -> NDArray[np.float64]:
        """Return scores (N, rows of the head) whose softmax is the prediction."""
        return self.engine.logits(task.head, items)

    def _unseen(self, task: Task) -> float:
        """Return the probability that an image is of a class that has not come."""
        return 0.0

    def _check(self, task: Task, example: Example) -> None:
        """Refuse an example for a reason of the method's own, before anything changes."""

    def _after_base_init(self, task: Task, items: NDArray[Any], rows: NDArray[np.int64], keys: list[int]) -> None:
        """Fit what else a method has on the data of base initialisation."""

    def _relabelled(self, task: Task, key: int, row: int) -> None:
        """React: a stored example has another label now."""

    def _forgotten(self, task: Task, key: int) -> None:
        """React: a stored example was removed."""

    def _merged(self, task: Task, old: int, new: int) -> None:
        """React: one class was merged into another."""

    def _renamed(self, task: Task, old: Label, new: Label) -> None:
        """React: a class has another label now."""

    def _state(self) -> State:
        """Return what a checkpoint holds of the network and of what else all tasks share."""
        return {}, self.engine.state()

    def _restore(self, plain: dict[str, Any], arrays: Arrays) -> None:
        """Take over what `_state` gave."""
        self.engine.restore(arrays)

    def _task_state(self, task: Task) -> State:
        """Return what a checkpoint holds of a task, its classes and its replay buffer apart."""
        return {}, task.head.state()

    def _restore_task(self, task: Task, plain: dict[str, Any], arrays: Arrays) -> None:
        """Take over what `_task_state` gave; the head has its rows."""
        task.head.restore(arrays)

    def _frozen(self) -> nn.Module | None:
        """Return the part of the network that streaming never changes."""
        return None

    def _memory(self, task: Task) -> tuple[int, int]:
        """Return how many examples a task keeps for replay, and in how many bytes."""
        buffer = task.replay_buffer
        return (0, 0) if buffer is None else (len(buffer), buffer.nbytes)

    def _overhead(self, task: Task) -> int:
        """Return the bytes of what belongs to a task's replay beside the examples."""
        return 0 if task.replay_buffer is None else task.replay_buffer.overhead_bytes

    # Building.

    def _make_engine(self, body: Body, **changes: Any) -> Engine:
        """Return an engine with the learner's settings."""
        return Engine(body, **{**self._engine_settings(), **changes})

    def _engine_settings(self) -> dict[str, Any]:
        """Return the settings that the engine takes."""
        names = ("momentum", "weight_decay", "normalize", "device", "precision", "memory_format")
        return {name: getattr(self.settings, name) for name in names}

    def _channels_first(self, shape: Shape) -> Shape:
        return shape if self.settings.items == "vectors" else (shape[2], shape[0], shape[1])

    def _open_task(self, engine: Engine, shape: Shape, name: Label | None) -> Task:
        number = len(self.tasks)
        seed = self.seed if number == 0 else torch_seed(self.seed, number, "task")
        limit = self.settings.classes
        classes, head = self._new_classes(limit), engine.new_head(seed, limit or 0)
        return self._new_task(engine, shape, name=name, number=number, seed=seed, classes=classes, head=head)

    def _new_classes(self, limit: int | None) -> Classes:
        return Classes(limit)

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
            A uint8 HWC array, a PIL image, a CHW tensor or encoded bytes, of any size.
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
        name = self._task_name(name)
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

    def _task_name(self, task: object) -> Label | None:
        """Return a task's name in its plain form, or None for no task; refuse one that does not fit the stream."""
        known = self.tasks_
        if task is None:
            if known:
                raise ValueError(f"this learner has tasks; say which one with task= (known: {known[:8]})")
            return None
        if not self.multi_task:
            raise ValueError(f"{type(self).__name__} has no tasks; leave task=None (got {task!r})")
        try:
            name = as_label(task)
        except ValueError as error:
            raise ValueError(f"a task is named as a label is: {error}") from None
        if None in self.tasks:
            raise ValueError(
                f"this learner began without tasks and has none, so leave task=None (got {name!r}); for a stream "
                "with tasks begin a new one"
            )
        same = next((other for other in known if other == name), name)
        if spelled(same) != spelled(name):
            raise ValueError(f"task {name!r} cannot be told from the known task {same!r}; use one of them")
        return name

    def _known_task(self, task: object) -> Task:
        name = self._task_name(task)
        if name in self.tasks:
            return self.tasks[name]
        if name is None:
            raise ValueError("there is no class yet: nothing was learned")
        raise ValueError(f"there is no task {task!r}; known: {self.tasks_[:8]}")

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
            state = self.tasks.get(self._task_name(task))
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
                    return self._answer(items, task)

    def _answer(self, items: Sequence[NDArray[Any]], task: object) -> tuple[list[Label], NDArray[np.float64]]:
        state = self.tasks.get(self._task_name(task))
        self._refuse_unprepared()
        seen = state.classes.seen() if state else []
        if state is None or not seen:
            return [], np.empty((len(items), 0))
        labels = [state.classes.labels[row] for row in seen]
        if not items:
            return labels, np.empty((0, len(seen)))
        logits = self._logits(state, np.stack(items))
        column = {row: i for i, row in enumerate(seen)}
        rows = [row for row, into in enumerate(state.classes.into) if into in column]
        logits = logits[:, rows]
        if not np.isfinite(logits).all():
            raise FloatingPointError(
                "the network's outputs are not finite: it diverged; begin again with a lower rate"
            )
        probabilities: NDArray[np.float64] = np.exp(logits - logits.max(axis=1, keepdims=True))
        if len(rows) > len(seen):  # merged classes: the probability of their rows counts for the class they went into
            summed = np.zeros((len(rows), len(seen)))
            summed[np.arange(len(rows)), [column[state.classes.into[row]] for row in rows]] = 1
            probabilities = probabilities @ summed
        probabilities /= probabilities.sum(axis=1, keepdims=True)
        if unseen := self._unseen(state):
            probabilities = (1 - unseen) * probabilities + unseen / len(seen)
        return labels, probabilities

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
                f"{type(self).__name__} needs base initialisation before it learns or predicts: call "
                "base_init(dataset) first, or give it weights to start from (init=...)"
            )
