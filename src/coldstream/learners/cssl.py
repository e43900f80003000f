"""Cold Start Streaming Learning, Algorithm 1 of the paper: sample, augment, update, compress and store, evict."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from coldstream.augment import Policy
from coldstream.data import Dataset
from coldstream.labels import Label, as_label, from_json
from coldstream.learners.base import Example, Learner
from coldstream.learners.engine import Engine, Normalise, check_engine
from coldstream.learners.intake import id_key, plain, whole
from coldstream.learners.offline import OfflineRecipe, train_offline
from coldstream.learners.recipes import paper_recipe
from coldstream.learners.schedules import get_schedule
from coldstream.models import Classifier, ModelLike, check_init, check_model, load_weights
from coldstream.phrases import unknown
from coldstream.replay import Capacity, ReplayBuffer, one_hot
from coldstream.replay.codecs import check_chain
from coldstream.replay.eviction import get_evictor
from coldstream.replay.rows import check_storage
from coldstream.replay.sampling import get_sampler


class CSSL(Learner):
    """Learns a deep network from one image at a time, from nothing: random weights, no classes, no data.

    Parameters
    ----------
    model
        A name of `coldstream.models.MODELS`, an nn.Module that maps (N, C, H, W) to features (N, d), or a function
        that makes one. The head is the learner's and grows with the classes.
    init
        ``"random"``; a weights file; the name of torchvision's weights for the model (``"IMAGENET1K_V1"``); or a
        `Dataset` to base-initialise on.
    size, channels
        Of the network's input. None: as the first image has them, at most 64 pixels a side.
    classes
        The number of classes where it is known in advance. None: open, the head grows by a row a class.
    codec
        How stored examples are compressed, such as ``"resize(0.66)|quantize(6)"``, ``"jpeg(90)"`` or ``"raw"``.
    capacity
        Of the replay buffer: ``"30MB"``, a number of examples, or None for no bound.
    storage
        ``"memory"``, ``"disk"`` or ``"disk:FOLDER"``, for buffers larger than main memory.
    replay
        B, the examples replayed in each update beside the new one.
    sample
        ``"uniform"`` or ``"class-balanced"``.
    evict
        ``"largest-class"``, ``"uniform"``, ``"reservoir"``, or ``"consolidate-mixup(1.0, limit=2)"`` (``-cutmix``,
        ``-samplepairing``).
    augment
        The policy, such as ``"crop|flip|autoaugment(cifar10)|mixup(0.1)/cutmix(0.8)"``, or ``"none"``.
    normalize
        ``"half"``, ``"imagenet"``, ``"cifar10"``, ``"cifar100"`` or (mean, std) of pixels in [0, 1].
    zoom
        For predictions: the share of the scaled side that the centre crop keeps (ImageNet's test crop: 0.875).
    rate
        ``"inverse-sqrt(0.1)"``, ``"constant(0.01)"``, ``"linear(0.1, 0.001)"`` (needs `counts`) or ``"remind(0.1)"``.
    counts
        Examples of each label that will come, where known.
    momentum, weight_decay
        Of SGD.
    seed
        Every draw is a function of (seed, step, what is drawn).
    device, precision, memory_format
        Where and how the network computes: ``"cuda"``; ``"float32"``, ``"float64"``, ``"bfloat16"``;
        ``"channels_last"``, ``"contiguous"``.
    items
        ``"images"``, or ``"vectors"`` of numbers (for `coldstream.ColdStreamClassifier`).

    Examples
    --------
    >>> import numpy as np
    >>> learner = CSSL(replay=8, size=8)
    >>> learner.predict_one(np.zeros((8, 8, 3), np.uint8)) is None
    True
    >>> for shade, label in [(0, "dark"), (255, "bright")] * 4:
    ...     id = learner.learn_one(np.full((8, 8, 3), shade, np.uint8), label)
    >>> learner.predict_one(np.full((8, 8, 3), 250, np.uint8)), id
    ('bright', 7)
    """

    def __init__(
        self,
        *,
        model: ModelLike = "resnet8-16",
        init: str | Path | Dataset = "random",
        size: int | tuple[int, int] | None = None,
        channels: int | None = None,
        classes: int | None = None,
        codec: str = "raw",
        capacity: str | int | None = "1GB",
        storage: str = "memory",
        replay: int = 100,
        sample: str = "uniform",
        evict: str = "largest-class",
        augment: str = "crop|flip",
        normalize: Normalise = "half",
        zoom: float = 1.0,
        rate: str | float = "inverse-sqrt(0.1)",
        counts: Mapping[Any, int] | None = None,
        momentum: float = 0.9,
        weight_decay: float = 1e-5,
        seed: int = 0,
        device: str = "cpu",
        precision: str = "float32",
        memory_format: str = "channels_last",
        items: str = "images",
        **others: Any,
    ) -> None:
        given = {name: value for name, value in locals().items() if name not in ("self", "others", "__class__")}
        settings = {name: plain(value) for name, value in given.items()}
        if others:
            raise unknown("setting of CSSL", next(iter(others)), settings)
        check_model(model)
        check_init(init)
        check_chain(codec)
        check_engine(normalize, str(device), precision, memory_format)
        check_storage(storage)
        Capacity.parse(capacity)
        for name, value in (("momentum", momentum), ("weight_decay", weight_decay)):
            if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value < 1:
                raise ValueError(f"{name} is a number from 0 to below 1, not {value!r}")
        get_evictor(evict)
        get_sampler(sample)
        self.replay = whole("replay", replay, 0)
        self.policy = Policy.parse(augment)
        if items == "vectors" and str(self.policy) != "none":
            raise ValueError(f"augment={augment!r} is for images; vectors take augment='none'")
        self._schedule = get_schedule(rate)
        self._counts = {as_label(label): whole("counts", n, 1) for label, n in (counts or {}).items()}
        if counts is None:
            self._schedule(0, None)
        super().__init__(settings, items=items, size=size, channels=channels, zoom=zoom, classes=classes, seed=seed)
        if isinstance(init, Dataset):
            self.base_init(init)

    engine: Engine
    buffer: ReplayBuffer

    @torch.inference_mode(mode=False)
    def _learn(self, new: Sequence[Example]) -> None:
        rate = float(np.mean([self._rate(example.label) for example in new]))
        labels = [self.classes.enter(example.label) for example in new]
        self._open_rows()

        # Sample data from the replay buffer to combine with new data
        replayed = self.buffer.sample(self.replay, self._draw("sample"))
        x = np.concatenate([np.stack([example.item for example in new]), self.buffer.items(replayed)])
        y = np.concatenate([one_hot(labels, self._rows), self.buffer.targets(replayed, self._rows)])

        # Update all model parameters over augmented new and replayed data
        self.engine.update(*self._augment(x, y), rate, self.seed, self.step)

        for example, label in zip(new, labels, strict=True):
            # Compress and store the new data example for replay
            self._count(label, id_key(example.id))
            self.buffer.store(self.buffer.compress(example.item), label, id_key(example.id))
            # Evict data from the replay buffer to maintain capacity
            self.buffer.evict(self._draw("evict"))
            self.step += 1

    def _augment(self, x: NDArray[Any], y: NDArray[np.float32]) -> tuple[torch.Tensor, torch.Tensor]:
        images = self.engine.to_device(x)
        if self.policy.stages:
            images = self.policy.transform(images, self.seed, self.step)
        targets = torch.from_numpy(y).to(self.engine.device, self.engine.dtype)
        return self.policy.mix(self.engine.normalise(images), targets, self.seed, self.step)

    def _rate(self, label: Label) -> float:
        row = self.classes.row(label)
        try:
            return self._schedule(0 if row is None else self.classes.updates[row], self._counts.get(label))
        except ValueError:
            raise ValueError(f"label {label!r} is not among the counts that the learning rate follows") from None

    def _count(self, row: int, key: int) -> None:
        """Count an example that was learned; one that is learned anew under its id counts once."""
        self._uncount(self.buffer.label_of(key))
        self.classes.counts[row] += 1
        self.classes.updates[row] += 1

    @property
    def _rows(self) -> int:
        """Rows of the head: one a class, or as many as were said to come."""
        return self.classes.limit or len(self.classes)

    def _open_rows(self) -> None:
        self.engine.grow(self._rows)

    def _check(self, example: Example) -> None:
        if self.buffer.codec.row_bytes is None:
            self.buffer.compress(example.item)
        self._rate(example.label)

    @torch.inference_mode(mode=False)
    def _build(self, shape: tuple[int, ...]) -> None:
        setting = self.settings
        keep = {name: setting[name] for name in ("codec", "capacity", "evict", "sample", "storage")}
        vectors = setting["items"] == "vectors"
        self.buffer = ReplayBuffer(shape, "float32" if vectors else "uint8", **keep)
        order = shape if vectors else (shape[2], shape[0], shape[1])
        classifier = Classifier(setting["model"], order, self.seed, self.classes.limit or 0)
        if isinstance(setting["init"], (str, Path)) and setting["init"] != "random":
            load_weights(classifier.body, setting["model"], setting["init"])
        self.engine = self._engine(classifier, setting["momentum"], setting["weight_decay"])

    def _engine(self, classifier: Classifier, momentum: float, weight_decay: float) -> Engine:
        compute = {name: self.settings[name] for name in ("normalize", "device", "precision", "memory_format")}
        return Engine(classifier, momentum=momentum, weight_decay=weight_decay, **compute)

    def _forget_network(self) -> None:
        super()._forget_network()
        self.__dict__.pop("engine", None)
        self.__dict__.pop("buffer", None)

    def base_init(
        self,
        dataset: Dataset,
        recipe: OfflineRecipe | None = None,
        progress: Callable[[int], None] | None = None,
    ) -> None:
        """Train the network offline on a first batch of data, then stream on from its weights.

        The classes of `dataset` are known afterwards; its examples are not stored, and momentum starts from zero.
        """
        recipe = recipe or OfflineRecipe()
        Policy.parse(recipe.augment)
        with self._lock:
            if self.step:
                raise ValueError(f"base initialisation comes before streaming; {self.step} examples were learned")
            if not len(dataset):
                raise ValueError("base initialisation needs at least one example")
            labels = [dataset.names[label] for label in dataset.labels]
            self.classes.check(labels)
            items: list[NDArray[Any]] = []
            for image in dataset.images:
                items.append(self._intake.admit(image, self.shape or (items[0].shape if items else None)))
            if self.shape is None:
                self._build(items[0].shape)
                self.shape = items[0].shape
            rows = np.array([self.classes.enter(label) for label in labels])
            for row in rows:
                self.classes.counts[row] += 1
            self._open_rows()
            trainer = self._engine(self.engine.classifier, recipe.momentum, recipe.weight_decay)
            train_offline(trainer, np.stack(items), rows, recipe, self.seed, progress)
            self.engine.reset_momentum()

    def rename_class(self, old: object, new: object) -> None:
        """Give a class another label, one that no class has."""
        with self._lock:
            super().rename_class(old, new)
            if as_label(old) in self._counts:
                self._counts[as_label(new)] = self._counts.pop(as_label(old))

    def parameters(self) -> int:
        """Return the number of the network's parameters as it is now; 0 before there is one."""
        return 0 if self.shape is None else self.engine.parameters()

    def _buffer(self) -> ReplayBuffer | None:
        return None if self.shape is None else self.buffer

    def _logits(self, items: NDArray[Any]) -> NDArray[np.float64]:
        return self.engine.logits(items)

    def _state(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        return {}, self.engine.state()

    def _restore(self, plain: dict[str, Any], arrays: dict[str, NDArray[Any]]) -> None:
        self.engine.restore({name: value for name, value in arrays.items() if not name.startswith("buffer.")})

    def _settings_to_json(self) -> dict[str, Any]:
        own = not isinstance(self.settings["model"], str)
        counts = None if self.settings["counts"] is None else [list(pair) for pair in self._counts.items()]
        # A checkpoint holds the weights, so that it does not matter any more where they began.
        return {**self.settings, "init": "random", "counts": counts} | ({"model": None} if own else {})

    @classmethod
    def _settings_from_json(cls, settings: dict[str, Any]) -> dict[str, Any]:
        counts = settings["counts"]
        return {**settings, "counts": None if counts is None else {from_json(label): n for label, n in counts}}

    @classmethod
    def paper(cls, name: str, *, counts: Mapping[Any, int] | None = None, **changes: Any) -> CSSL:
        """Return the paper's fixed recipe: ``cifar100``, ``imagenet``, ``core50`` or ``multi-task``.

        Parameters
        ----------
        name
            Which experiment's settings (`coldstream.learners.recipes`).
        counts
            Examples of each class that will come; the paper's learning rate falls along them (not on CORe50).
        **changes
            Settings to replace, such as ``capacity="60MB"`` or ``device="cuda"``.
        """
        return cls(**{**paper_recipe(name), "counts": counts, **changes})
