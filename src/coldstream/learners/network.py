"""What every learner with a network has in common: its settings, its engine, base initialisation, checkpoints."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from coldstream.augment import Policy
from coldstream.data import Dataset
from coldstream.data.dataset import numbered
from coldstream.labels import Classes
from coldstream.learners.base import Learner
from coldstream.learners.inputs import id_key, plain
from coldstream.learners.training.engine import Engine, Head, Normalise, check_engine
from coldstream.learners.training.offline import OfflineRecipe, train_offline
from coldstream.models import Classifier, ModelLike, check_init, check_model, load_weights
from coldstream.parsing import unknown


class NetworkLearner(Learner):
    """A learner around one network with a head that grows.

    Parameters
    ----------
    own
        The settings of the method itself, by name; they are kept with those below.
    model
        A name of `coldstream.models.MODELS`, an nn.Module that maps (N, C, H, W) to features (N, d), or a function
        that makes one. The head is the learner's and grows with the classes.
    init
        ``"random"``; ``"base"``, random until `base_init` was called, which must come first; a weights file; the
        name of torchvision's weights for the model (``"IMAGENET1K_V1"``); or a `Dataset` to base-initialise on.
    size, channels
        Of the network's input. None: as the first image has them, at most 64 pixels a side.
    classes
        The number of classes where it is known in advance. None: open, the head grows by a row a class.
    normalize
        ``"half"``, ``"imagenet"``, ``"cifar10"``, ``"cifar100"`` or (mean, std) of pixels in [0, 1].
    zoom
        For predictions: the share of the scaled side that the centre crop keeps (ImageNet's test crop: 0.875).
        Methods that learn from the features of a frozen network crop new images in the same way.
    momentum, weight_decay
        Of SGD.
    seed
        Every draw is a function of (seed, step, what is drawn).
    device, precision, memory_format
        Where and how the network computes: ``"cuda"``; ``"float32"``, ``"float64"``, ``"bfloat16"``;
        ``"auto"``, ``"channels_last"``, ``"contiguous"``.
    items
        ``"images"``, or ``"vectors"`` of numbers (for `coldstream.ColdStreamClassifier`).
    """

    engine: Engine
    _averages = False
    """Whether predictions are those of the average of the latest weights."""
    _OWN = (*Learner._OWN, "_head")

    def __init__(
        self,
        own: dict[str, Any],
        *,
        model: ModelLike = "resnet8-16",
        init: str | Path | Dataset = "random",
        size: int | tuple[int, int] | None = None,
        channels: int | None = None,
        classes: int | None = None,
        normalize: Normalise = "half",
        zoom: float = 1.0,
        momentum: float = 0.9,
        weight_decay: float = 1e-5,
        seed: int = 0,
        device: str = "cpu",
        precision: str = "float32",
        memory_format: str = "auto",
        items: str = "images",
        **others: Any,
    ) -> None:
        given = {name: value for name, value in locals().items() if name not in _NOT_SETTINGS}
        settings = {name: plain(value) for name, value in {**given, **own}.items()}
        if others:
            raise unknown(f"setting of {type(self).__name__}", next(iter(others)), settings)
        check_model(model)
        check_init(init)
        check_engine(normalize, str(device), precision, memory_format)
        for name, value in (("momentum", momentum), ("weight_decay", weight_decay)):
            if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value < 1:
                raise ValueError(f"{name} is a number from 0 to below 1, not {value!r}")
        super().__init__(settings, items=items, size=size, channels=channels, zoom=zoom, classes=classes, seed=seed)
        self.needs_base_init = isinstance(init, str) and init == "base"
        if isinstance(init, Dataset):
            self.base_init(init)

    @torch.inference_mode(mode=False)
    def _build(self, shape: tuple[int, ...]) -> None:
        order = shape if self.settings["items"] == "vectors" else (shape[2], shape[0], shape[1])
        sgd = self.settings["momentum"], self.settings["weight_decay"]
        self.engine = self._engine(self._network(order), *sgd, average=self._averages)

    def _network(self, shape: tuple[int, ...]) -> Classifier:
        """Return the network for items of `shape`, (channels, height, width), with the weights to begin from."""
        model, init = self.settings["model"], self.settings["init"]
        classifier = Classifier(model, shape, self.seed, self.classes.limit or 0)
        if isinstance(init, (str, Path)) and init not in ("random", "base"):
            load_weights(classifier.body, model, init)
        return classifier

    def _engine(self, classifier: Classifier, momentum: float, weight_decay: float, average: bool = False) -> Engine:
        compute = {name: self.settings[name] for name in ("normalize", "device", "precision", "memory_format")}
        return Engine(classifier, momentum=momentum, weight_decay=weight_decay, average=average, **compute)

    def _build_own(self, shape: tuple[int, ...]) -> None:
        self.engine.begin_head(self.seed, self.classes.limit or 0)

    @property
    def _head(self) -> Head:
        return self.engine.head

    @_head.setter
    def _head(self, head: Head) -> None:
        self.engine.head = head

    def _forget_network(self) -> None:
        super()._forget_network()
        self.__dict__.pop("engine", None)

    @property
    def _rows(self) -> int:
        """Rows of the head: one a class, or as many as were said to come."""
        return self.classes.limit or len(self.classes)

    def _open_rows(self) -> None:
        self.engine.grow(self._rows)

    def base_init(
        self,
        dataset: Dataset,
        recipe: OfflineRecipe | None = None,
        progress: Callable[[int], None] | None = None,
        task: object = None,
    ) -> None:
        """Train the network offline on a first batch of data, then stream on from its weights.

        The classes of `dataset` are known afterwards, and momentum starts from zero. What a method keeps of the
        examples is its own; kept ones bear the data set's identities as ids, numbered where they come twice, so
        that streaming them again with those replaces them. A recipe of 0 epochs leaves the weights as they are.
        On a stream with tasks the data are those of `task`, the first; others begin when they come.
        """
        recipe = recipe or OfflineRecipe()
        if recipe.epochs and self.settings["items"] == "vectors" and str(Policy.parse(recipe.augment)) != "none":
            raise ValueError(f"augment={recipe.augment!r} is for images; for vectors: OfflineRecipe(augment='none')")
        with self._lock:
            if self.step:
                raise ValueError(f"base initialisation comes before streaming; {self.step} examples were learned")
            if self.prepared:
                raise ValueError("base initialisation was done already")
            name = self._tasks.check(self, task)
            if not len(dataset):
                raise ValueError("base initialisation needs at least one example")
            labels = [dataset.names[label] for label in dataset.labels]
            self.classes.check(labels)
            items: list[NDArray[Any]] = []
            for image in dataset.images:
                items.append(self._intake.admit(image, items[0].shape if items else None))
            try:
                self._tasks.clear(self)
                self._tasks.enter(self, name)
                self._build(items[0].shape)
                self.shape = items[0].shape
                rows = np.array([self.classes.enter(label) for label in labels])
                for row in rows:
                    self.classes.counts[row] += 1
                self._open_rows()
                images = np.stack(items)
                trainer = self._engine(self.engine.classifier, recipe.momentum, recipe.weight_decay)
                train_offline(trainer, images, rows, recipe, self.seed, progress)
                self.engine.reset_momentum()
                if self.as_tested and self.settings["zoom"] != 1:
                    images = np.stack([self._intake.admit(image, self.shape, test=True) for image in dataset.images])
                self._after_base_init(images, rows, [id_key(id) for id in numbered(dataset.identities())])
                self.prepared = True
            except BaseException:  # nothing was learned before, so that nothing is what to go back to
                self._forget_network()
                self._tasks.clear(self)
                self.classes = Classes(self.classes.limit)
                raise

    def _after_base_init(self, items: NDArray[Any], rows: NDArray[np.int64], ids: list[int]) -> None:
        """Fit what else a method has on the data of base initialisation."""

    def parameters(self) -> int:
        """Return the number of the network's parameters as it is now; 0 before there is one."""
        with self._lock:
            if self.shape is None:
                return 0
            body = self.engine.parameters() - self.engine.head.parameters
            return body + sum(self.engine.head.parameters for _ in self._tasks.each(self))

    def frozen_share(self) -> float:
        """Return the share of the network's parameters that streaming never changes."""
        frozen = None if self.shape is None else self._frozen()
        return 0.0 if frozen is None else sum(p.numel() for p in frozen.parameters()) / self.parameters()

    def _frozen(self) -> nn.Module | None:
        """Return the part of the network that streaming never changes."""
        return None

    def _features(self, items: NDArray[Any]) -> NDArray[np.float32]:
        """Return the features (N, d) of items, for methods that learn from those."""
        features = self.engine.features(items).to("cpu", torch.float32).numpy()
        if not np.isfinite(features).all():
            raise FloatingPointError(
                "the network's features are not finite: it diverged; begin again with other weights or a lower rate"
            )
        return features

    def _logits(self, items: NDArray[Any]) -> NDArray[np.float64]:
        return self.engine.logits(items)

    def _state(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        return {}, self.engine.state(head=False)

    def _restore(self, plain: dict[str, Any], arrays: dict[str, NDArray[Any]]) -> None:
        self.engine.restore(arrays, head=False)

    def _own_state(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        return {}, self.engine.state(head=True)

    def _restore_own(self, plain: dict[str, Any], arrays: dict[str, NDArray[Any]]) -> None:
        self.engine.restore(arrays, head=True)

    def _settings_to_json(self) -> dict[str, Any]:
        own = not isinstance(self.settings["model"], str)
        # A checkpoint holds the weights, so that it does not matter any more where they began.
        init = "base" if self.needs_base_init else "random"
        return {**self.settings, "init": init} | ({"model": None} if own else {})


_NOT_SETTINGS = ("self", "own", "others", "__class__")
