"""What every batch-incremental learner has in common: examples wait until their batch ends, then are trained on."""

from __future__ import annotations

import copy
from abc import abstractmethod
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from coldstream.augment import Policy
from coldstream.data import Dataset
from coldstream.labels import Classes
from coldstream.learners.base import Example
from coldstream.learners.inputs import id_key, whole
from coldstream.learners.network import NetworkLearner
from coldstream.learners.training.engine import Engine
from coldstream.learners.training.offline import OfflineRecipe, train_offline
from coldstream.models import Classifier
from coldstream.replay import ReplayBuffer
from coldstream.replay.rows import check_storage

Progress = Callable[[int, int], None]
"""(epochs done, epochs in all)."""
Rows = NDArray[np.int64]
_NEVER = -1e30


class TaughtClasses(Classes):
    """Classes of which only those can be predicted that the network was taught: rows in `taught`."""

    def __init__(self, limit: int | None = None) -> None:
        super().__init__(limit)
        self.taught: set[int] = set()

    def seen(self) -> list[int]:
        """Return the rows of the classes that can be predicted."""
        taught = {self.into[row] for row in self.taught}
        return [row for row in super().seen() if row in taught]

    def state(self) -> dict[str, Any]:
        """Return a JSON-ready form."""
        return {**super().state(), "taught": sorted(self.taught)}

    def restore(self, state: dict[str, Any]) -> None:
        """Take over what `state` gave."""
        super().restore(state)
        self.taught = {int(row) for row in state["taught"]}


class Stored:
    """Some rows of a buffer, decoded as they are asked for."""

    def __init__(self, buffer: ReplayBuffer, rows: Rows) -> None:
        self._buffer, self._rows = buffer, rows

    def __len__(self) -> int:
        return len(self._rows)

    def __getitem__(self, which: Rows, /) -> NDArray[Any]:
        return self._buffer.items(self._rows[which])


class BatchLearner(NetworkLearner):
    """A learner whose examples wait, as images at the network's size, until `end_batch` trains the network on them.

    A subclass trains in `_train`. Until its batch has ended a class is not predicted. An example that is relabelled
    waits like a new one. `end_batch` trains a copy of the network and takes it at the end: training that is
    interrupted leaves the learner as it was, its examples still waiting.

    Parameters
    ----------
    own
        The settings of the method itself, by name; they are kept with those below and with the network's.
    epochs, batch, rate
        Of the training at the end of a batch: epochs, examples a step, and the learning rate that it begins with.
    augment
        The policy, such as ``"crop|flip"`` or ``"none"``.
    storage
        ``"memory"``, ``"disk"`` or ``"disk:FOLDER"``, where the examples are kept.
    **network
        As `coldstream.learners.network.NetworkLearner` has them; `init` is ``"random"``, a weights file or the name
        of torchvision's weights, since the first batch does what base initialisation would.
    """

    batch_incremental = True
    classes: TaughtClasses
    buffer: ReplayBuffer

    def __init__(
        self,
        own: dict[str, Any],
        *,
        epochs: int,
        batch: int,
        rate: float,
        augment: str,
        storage: str = "memory",
        **network: Any,
    ) -> None:
        check_storage(storage)
        Policy.parse(augment)
        init = network.get("init", "random")
        if isinstance(init, Dataset) or (isinstance(init, str) and init == "base"):
            raise ValueError(f"{type(self).__name__} has no base initialisation: its first batch is one")
        if network.get("items", "images") != "images":
            raise ValueError(f"{type(self).__name__} learns images, not {network['items']!r}")
        self._until = 0
        self._steps = 0
        mine = {
            "epochs": whole("epochs", epochs, 1),
            "batch": whole("batch", batch, 1),
            "rate": above_zero("rate", rate),
            "augment": augment,
            "storage": storage,
        }
        super().__init__({**own, **mine}, **network)
        self.classes = TaughtClasses(self.classes.limit)

    # Collecting.

    def _learn(self, new: Sequence[Example]) -> None:
        for example in new:
            row, key = self.classes.enter(example.label), id_key(example.id)
            self._open_rows()
            self._uncount(self.buffer.label_of(key))
            self.classes.counts[row] += 1
            self._collect(example.item, row, key)
            self.step += 1

    def _collect(self, item: NDArray[Any], row: int, key: int) -> None:
        """Keep a new example until the batch ends, and after that if the method does."""
        self.buffer.store(self.buffer.compress(item), row, key)

    def _relabel(self, key: int, row: int) -> None:
        super()._relabel(key, row)
        place = self.buffer.index.find(key)
        assert place is not None
        self.buffer.index.renew(place)

    # Training.

    @torch.inference_mode(mode=False)
    def end_batch(self, progress: Progress | None = None) -> None:
        """Train on what has come since the last batch ended, if anything has; `progress` hears of every epoch."""
        with self._lock:
            if not (fresh := self._fresh()):
                return
            engine, steps = self._train(fresh, progress)
            engine.reset_momentum()
            if not engine.is_finite():
                raise FloatingPointError(
                    "the network diverged while it was trained on this batch, and was not taken; its examples wait "
                    "still: begin again with a lower rate"
                )
            found = self._settled(fresh, engine)
            self.engine, self._steps = engine, steps
            vars(self).update(found)
            self._shed()
            self.classes.taught = set(self._present())
            self._until = self.buffer.index.next_serial

    @abstractmethod
    def _train(self, fresh: set[int], progress: Progress | None) -> tuple[Engine, int]:
        """Return an engine trained on what is stored, and the steps made since the learner began.

        `fresh` are the classes of which examples waited.
        """

    def _settled(self, fresh: set[int], engine: Engine) -> dict[str, Any]:
        """Return what else a method has, by attribute, as it belongs to the network that was just trained."""
        return {}

    def _shed(self) -> None:
        """Drop stored examples that the method does not keep after their batch."""

    def _fresh(self) -> set[int]:
        """Return the classes that have examples waiting: those stored since the last batch ended."""
        if self.shape is None:
            return set()
        index = self.buffer.index
        return set(np.unique(index.labels.view[index.serials.view > self._until]).tolist())

    def _present(self) -> list[int]:
        """Return the classes that have examples stored."""
        rows: list[int] = np.unique(self.buffer.index.labels.view).tolist()
        return rows

    def _members(self, row: int) -> Rows:
        """Return where the examples of a class are stored."""
        return np.flatnonzero(self.buffer.index.labels.view == row)

    def _fit(
        self,
        engine: Engine,
        recipe: OfflineRecipe,
        progress: Progress | None,
        *,
        which: Rows | None = None,
        epochs: tuple[int, int] | None = None,
        **how: Any,
    ) -> int:
        """Train an engine on the stored examples, or on some of them, as `train_offline` does.

        `epochs` are those done before and those in all, of a training that has several parts.
        """
        which = np.arange(len(self.buffer)) if which is None else which
        labels = self.buffer.index.labels.view[which].astype(np.int64)
        before, total = epochs or (0, recipe.epochs)

        def told(epoch: int) -> None:
            if progress is not None:
                progress(before + epoch, total)

        return train_offline(engine, Stored(self.buffer, which), labels, recipe, self.seed, told, **how)

    def _copied(self, classifier: Classifier) -> Engine:
        """Return an engine at rest with a copy of a network, a row for every class."""
        engine = self._engine(copy.deepcopy(classifier), self.settings["momentum"], self.settings["weight_decay"])
        engine.grow(self._rows)
        return engine

    def _recipe(self, kind: type[OfflineRecipe] = OfflineRecipe, **changes: Any) -> OfflineRecipe:
        names = ("epochs", "batch", "rate", "weight_decay", "momentum", "augment")
        return kind(**{**{name: self.settings[name] for name in names}, **changes})

    # Asking.

    def _logits(self, items: NDArray[Any]) -> NDArray[np.float64]:
        logits = np.full((len(items), self._rows), _NEVER)
        logits[:, sorted(self.classes.taught)] = self._scores(items)
        return logits

    def _scores(self, items: NDArray[Any]) -> NDArray[np.float64]:
        """Return the logits (N, taught classes) of items, classes in the order of their rows."""
        return self.engine.logits(items)[:, sorted(self.classes.taught)]

    # Keeping.

    def base_init(
        self,
        dataset: Dataset,
        recipe: OfflineRecipe | None = None,
        progress: Callable[[int], None] | None = None,
        task: object = None,
    ) -> None:
        """Refuse: the first batch does what base initialisation would."""
        raise ValueError(f"{type(self).__name__} has no base initialisation: its first batch is one")

    def _build(self, shape: tuple[int, ...]) -> None:
        super()._build(shape)
        self.buffer = self._make_buffer(shape)

    def _make_buffer(self, shape: tuple[int, ...]) -> ReplayBuffer:
        return ReplayBuffer(shape, storage=self.settings["storage"])

    def _buffer(self) -> ReplayBuffer | None:
        return self.__dict__.get("buffer")

    def _forget_network(self) -> None:
        super()._forget_network()
        self.__dict__.pop("buffer", None)

    def _state(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        plain, arrays = super()._state()
        return {**plain, "until": self._until, "steps": self._steps}, arrays

    def _restore(self, plain: dict[str, Any], arrays: dict[str, NDArray[Any]]) -> None:
        super()._restore(plain, arrays)
        self._until, self._steps = int(plain["until"]), int(plain["steps"])


class ScratchLearner(BatchLearner):
    """A network that is trained anew on all that is stored whenever a batch ends, from where `init` lets it begin."""

    _first: Classifier

    def _train(self, fresh: set[int], progress: Progress | None) -> tuple[Engine, int]:
        engine = self._copied(self._first)
        return engine, self._fit(engine, self._recipe(), progress)

    def _build(self, shape: tuple[int, ...]) -> None:
        super()._build(shape)
        self._first = copy.deepcopy(self.engine.classifier)

    def _forget_network(self) -> None:
        super()._forget_network()
        self.__dict__.pop("_first", None)

    def _state(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        plain, arrays = super()._state()
        first = self._first.body.state_dict().items()
        return plain, arrays | {f"first.{name}": value.to("cpu", copy=True).numpy() for name, value in first}

    def _restore(self, plain: dict[str, Any], arrays: dict[str, NDArray[Any]]) -> None:
        super()._restore(plain, arrays)
        body = self._first.body
        body.load_state_dict({name: torch.from_numpy(arrays[f"first.{name}"].copy()) for name in body.state_dict()})


def above_zero(name: str, value: Any) -> float:
    """Return a number above zero, or refuse it."""
    if isinstance(value, bool) or not isinstance(value, (int, float, np.number)) or not 0 < value < float("inf"):
        raise ValueError(f"{name} is a number above 0, not {value!r}")
    return float(value)


def at_shares(epochs: int, shares: Iterable[float]) -> tuple[int, ...]:
    """Return the epochs before which these shares of the training are done; never the first."""
    return tuple(max(1, round(share * epochs)) for share in shares)
