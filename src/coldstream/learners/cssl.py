"""Cold Start Streaming Learning, Algorithm 1 of the paper: sample, augment, update, compress and store, evict."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from coldstream.augment import Policy
from coldstream.data import Dataset
from coldstream.learners.base import Example
from coldstream.learners.confidence.temperature import Calibration
from coldstream.learners.inputs import id_key, whole
from coldstream.learners.recipes import AUTO, FIXED, paper_recipe
from coldstream.learners.replaying import ReplayLearner
from coldstream.learners.training.engine import Normalise, check_compile
from coldstream.learners.training.prefetch import Ahead, check_prefetch, prefetches
from coldstream.models import ModelLike
from coldstream.randomness import generator, torch_seed
from coldstream.replay import ReplayBuffer, one_hot
from coldstream.replay.codecs import check_chain


class Replayed(NamedTuple):
    """What a step replays: rows of the buffer, and what is in them, augmented."""

    rows: NDArray[np.int64]
    items: NDArray[Any]


STRONG = "crop|flip|autoaugment(cifar10)"
"""What augment="auto" does to half of the examples; to the others, only what it begins with, crops and flips.

Not the paper's Mixup and CutMix: on short streams and small networks they cost accuracy (docs/first-labels.md).
"""
SHARE = 0.5
LOOK_AT = 0.1
"""For each replayed example so many that are kept back are looked at, for each new one at least one."""


def read_policy(augment: str, items: str) -> tuple[bool, Policy]:
    """Return whether settings are those that come with "auto", and the policy."""
    if items == "vectors":
        if augment not in ("auto", "none"):
            raise ValueError(f"augment={augment!r} is for images; vectors take augment='none'")
        return False, Policy.parse("none")
    text = augment.strip()
    if text == "auto":
        return True, Policy.parse(STRONG).at(SHARE)
    if text.startswith("auto(") and text.endswith(")"):
        return True, Policy.parse(text[5:-1]).at(SHARE)
    return False, Policy.parse(augment)


class CSSL(ReplayLearner):
    """Learns a deep network from one image at a time, from nothing: random weights, no classes, no data.

    Parameters
    ----------
    model
        A name of `coldstream.models.MODELS`, an nn.Module that maps (N, C, H, W) to features (N, d), or a function
        that makes one. The head is the learner's and grows with the classes.
    init
        ``"random"``; a weights file; the name of torchvision's weights for the model (``"IMAGENET1K_V1"``); a
        `Dataset` to base-initialise on, or ``"base"``, for one that `base_init` will be given.
    size, channels
        Of the network's input. None: as the first image has them, at most 64 pixels a side.
    classes
        The number of classes (of each task) where it is known in advance. None: open, the head grows by a row a
        class.
    codec
        How stored examples are compressed, such as ``"resize(0.66)|quantize(6)"``, ``"jpeg(90)"`` or ``"raw"``.
    capacity
        Of the replay buffer: ``"30MB"``, a number of examples, or None for no bound. With tasks, of each one's.
    storage
        ``"memory"``, ``"disk"`` or ``"disk:FOLDER"``, for buffers larger than main memory.
    replay
        B, the examples replayed in each update beside the new one. With tasks, the new one is among the B.
    sample
        ``"uniform"``; ``"class-balanced"``; or ``"least-replayed"``, balanced too, and within a class the more the
        less often an example was replayed. None, here and for the other settings whose default that is: as
        augment="auto" has it, or with a fixed policy, and for vectors, as the paper has it
        (`coldstream.learners.recipes`).
    evict
        ``"largest-class"``, ``"uniform"``, ``"reservoir"``, or ``"consolidate-mixup(1.0, limit=2)"`` (``-cutmix``,
        ``-samplepairing``).
    augment
        ``"auto"``, our recipe for every length of stream; ``"auto(crop|randaugment|mixup(0.1))"``, the same with a
        policy of your own, of which what comes after crops and flips is done to half of the examples. Or a fixed
        policy, such as ``"crop|flip|autoaugment(cifar10)|mixup(0.1)/cutmix(0.8)"`` or ``"none"``: the paper's
        algorithm as it is.
    average
        Whether predictions are made with the average of the latest weights
        (`coldstream.learners.training.averaging`).
    calibrate
        Whether the temperature of predictions is found on examples that are kept back from replay, or where
        neighbours in the stream are near-duplicates, on some before they are learned
        (`coldstream.learners.confidence.temperature`), and predictions leave room for classes that have not come
        (`coldstream.learners.confidence.unseen`).
    passes
        At most so many updates a new example, as long as all that is known is stored and fits several times into a
        batch.
    warm_up
        Whether `rate` is that of a full batch: one of fewer rows, as the first ones are, has so much less of it.
    normalize
        ``"half"``, ``"imagenet"``, ``"cifar10"``, ``"cifar100"`` or (mean, std) of pixels in [0, 1].
    zoom
        For predictions: the share of the scaled side that the centre crop keeps (ImageNet's test crop: 0.875).
    rate
        ``"inverse-sqrt(0.1)"``, ``"constant(0.01)"``, ``"linear(0.1, 0.001)"`` (needs `counts`) or ``"remind(0.1)"``.
    counts
        Examples of each label that will come, where known; with tasks, of each (task, label).
    strategy
        With tasks, how an update is shared among them: ``"full+separate"``, ``"full+sum"``, ``"split+separate"`` or
        ``"split+sum"`` (`coldstream.learners.replaying`).
    momentum, weight_decay
        Of SGD.
    seed
        Every draw is a function of (seed, step, what is drawn).
    device, precision, memory_format
        Where and how the network computes: ``"cuda"``; ``"float32"``, ``"float64"``, ``"bfloat16"``;
        ``"auto"``, ``"channels_last"``, ``"contiguous"``.
    compile
        Whether full batches go through torch.compile: half a minute at first, then faster steps on small networks,
        with other last bits (docs/performance.md).
    prefetch
        Whether the next replayed examples are decoded and augmented while the network learns, with the same bits.
        ``"auto"``: where that is free, on a GPU, from disk, or with a core to spare.
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

    _OWN = (*ReplayLearner._OWN, "_calibration")

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
        sample: str | None = None,
        evict: str = "largest-class",
        augment: str = "auto",
        average: bool | None = None,
        calibrate: bool | None = None,
        passes: int | None = None,
        warm_up: bool | None = None,
        normalize: Normalise = "half",
        zoom: float = 1.0,
        rate: str | float = "inverse-sqrt(0.1)",
        counts: Mapping[Any, int] | None = None,
        strategy: str = "full+separate",
        momentum: float = 0.9,
        weight_decay: float | None = None,
        seed: int = 0,
        device: str = "cpu",
        precision: str = "float32",
        memory_format: str = "auto",
        compile: bool = False,
        prefetch: str | bool = "auto",
        items: str = "images",
        **others: Any,
    ) -> None:
        given = {name: value for name, value in locals().items() if name not in ("self", "others", "__class__")}
        check_chain(codec)
        self._auto, self.policy = read_policy(augment, items)
        usual = AUTO if self._auto else FIXED
        given |= {name: value for name, value in usual.items() if given[name] is None}
        self.passes = whole("passes", given["passes"], 1)
        for name in ("average", "calibrate", "warm_up"):
            if not isinstance(given[name], bool):
                raise ValueError(f"{name} is True, False or None, not {given[name]!r}")
        self._averages, self._calibrates = given["average"], given["calibrate"]
        self._warms_up = given["warm_up"]
        check_compile(compile)
        check_prefetch(prefetch)
        self._ahead: Ahead[Replayed] = Ahead()
        mine = ("codec", "augment", "average", "calibrate", "passes", "warm_up", "compile", "prefetch")
        own = {name: given.pop(name) for name in mine}
        super().__init__(own, **given, **others)

    @torch.inference_mode(mode=False)
    def _learn(self, new: Sequence[Example]) -> None:
        known = len(self.classes)
        rate, labels = self._begin(new)
        for row in range(known, len(self.classes)):
            self._hurry(row)
        step, items, policy = self.step, np.stack([example.item for example in new]), self._policy

        # Sample data from the replay buffer to combine with new data, augmented
        replayed, x = self._ahead.take((step, len(new))) or self._replay(step, len(new), items)
        if len(x) == len(replayed):  # this was done ahead, when the new data had not come
            x = np.concatenate([policy.augment(items, self.seed, step, (0, len(new) + len(x))), x])
        y = np.concatenate([one_hot(labels, self._rows), self.buffer.targets(replayed, self._rows)])
        self.buffer.count(replayed)
        if self._warms_up:
            rate *= len(x) / (len(new) + self._beside(len(new)))

        # Neither of the next two depends on the update: they come first, so that what the next step will replay
        # can be made ready meanwhile.
        stored: list[tuple[int, int]] = []
        try:
            for example, label in zip(new, labels, strict=True):
                # Compress and store the new data example for replay
                key, packed = id_key(example.id), self.buffer.compress(example.item)
                hold = self._meet(example.item, label, key, label < known)
                self._count(label, key)
                stored.append((key, label))
                self.buffer.store(packed, label, key, held_out=hold)
                if hold:
                    self._calibration.hold(self.buffer, key)
                # Evict data from the replay buffer to maintain capacity
                self.buffer.evict(self._draw("evict"))
                self.step += 1
            if self._prefetches and not self._tasks:
                following, count = self.step, len(new)
                self._ahead.begin((following, count), lambda: self._replay(following, count))

            # Update all model parameters over augmented new and replayed data
            inputs, targets = self.engine.prepare(x, y, policy, self.seed, step)
            self._update(inputs, targets, rate, step)
            self._practise(rate, step)
            self._look()
        except BaseException:  # not learned, so not kept
            self._take_back(stored, step)
            raise

    @property
    def _policy(self) -> Policy:
        """The policy as it is now: strong for all where half a batch of near-duplicates would be learned by heart."""
        return self.policy.at(1.0) if self._auto and self._calibration.duplicates else self.policy

    def _meet(self, item: NDArray[Any], label: int, key: int, known: bool) -> bool:
        """Test the network on a new example where that is a fair test; return whether to keep it back from replay."""
        if not (self._auto or self._calibrates):
            return False
        mine, row = self._calibration, self.buffer.index.find(key)
        if row is not None:  # learned before
            return self.buffer.index.is_held_out(row)
        fair = mine.meet(self.buffer, item, label, key, self._draw("likeness"), known)
        if not self._calibrates:
            return False
        if fair and known:
            mine.hear(*self._answers(item[None], [label]))
        if mine.duplicates and mine.held:
            mine.release(self.buffer)
        return mine.wants(self.classes.counts[label])

    def _answers(self, items: NDArray[Any], labels: Sequence[int]) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
        """Return logits of all that can be predicted, and the right column: of merged classes, the likeliest one."""
        seen, columns = set(self.classes.seen()), dict[int, list[int]]()
        rows = [row for row, into in enumerate(self.classes.into) if into in seen]
        for column, row in enumerate(rows):
            columns.setdefault(self.classes.into[row], []).append(column)
        logits = self.engine.logits(items)[:, rows]
        right = [
            max(columns[label], key=lambda column: each[column]) for each, label in zip(logits, labels, strict=True)
        ]
        return logits, np.array(right, np.int64)

    def _hurry(self, row: int) -> None:
        """Let the average follow closely: this row's class is new."""
        if self.engine.average:
            self.engine.average.hurry(row, self._tasks.count_classes(self))

    def _practise(self, rate: float, step: int) -> None:
        """Go over all that is stored, again and again, while that is so little that a batch has room for it.

        Not where the network knows more than what is stored, which it would forget: other tasks, or classes of which
        nothing is stored, as after base initialisation.
        """
        stored = len(self.buffer) - self.buffer.index.held_out
        times = min(self.passes, self.replay // max(1, stored))
        known, here = len(self.classes.seen()), np.count_nonzero(self.buffer.index.sizes.view)
        if times < 2 or known < 2 or here < known or len(self._tasks) > 1:
            return
        rows = self.buffer.sample(stored, self._draw("practise"))
        items, y = self.buffer.items(rows), self.buffer.targets(rows, self._rows)
        for number in range(1, times):
            seed = torch_seed(self.seed, step, f"pass {number}")
            x = self._policy.augment(items, seed, step)
            self.engine.update(*self.engine.prepare(x, y, self._policy, seed, step), rate, seed, step)

    def _look(self) -> None:
        """Find on the examples that were kept back, of each task, how sure predictions may be."""
        here, shares = self._tasks.at, self._shares() if self._tasks else {}
        try:
            for task in self._tasks.each(self):
                if self._calibration.earns(max(1.0, LOOK_AT * shares.get(task, self.replay))):
                    rows = np.array([*self._calibration.rows(self.buffer).values()], np.int64)
                    if len(rows):
                        labels = self.buffer.index.labels.view[rows].tolist()
                        self._calibration.fit(*self._answers(self.buffer.items(rows), labels))
        finally:
            self._tasks.turn_to(self, here)

    def _logits(self, items: NDArray[Any]) -> NDArray[np.float64]:
        return super()._logits(items) / self._calibration.temperature

    def _novelty(self) -> float:
        if not self._calibrates or self.classes.limit == len(self.classes):
            return 0.0
        return self._calibration.novelty.chance(set(self.classes.seen()))

    def _replay(self, step: int, new: int, items: NDArray[Any] | None = None, count: int | None = None) -> Replayed:
        """Sample, decode and augment what is replayed in a step beside `new` new items, and those where given."""
        count = self._beside(new) if count is None else count
        rows = self.buffer.sample(count, generator(self.seed, step, "sample"))
        x = self.buffer.items(rows)
        if items is not None:
            x, new = np.concatenate([items, x]), 0
        return Replayed(rows, self._policy.augment(x, self.seed, step, (new, new + len(x))))

    def _rehearse(self, count: int, step: int) -> tuple[Tensor, Tensor] | None:
        rows, x = self._replay(step, 0, count=count)
        y = self.buffer.targets(rows, self._rows)
        self.buffer.count(rows)
        return self.engine.prepare(x, y, self._policy, self.seed, step) if len(rows) else None

    def _take_back(self, stored: list[tuple[int, int]], step: int) -> None:
        """Forget new examples whose update failed; what was evicted for them does not come back."""
        self.step = step
        if self._last is not None and id_key(self._last[0]) in dict(stored):
            self._last = None
        for key, label in stored:
            self._forget(key)
            self._uncount(label)
            self.classes.updates[label] -= 1

    # Edits change what the next step would replay.

    def _relabel(self, key: int, row: int) -> None:
        self._ahead.drop()
        if self.classes.counts[row] == 1:
            self._hurry(row)
        super()._relabel(key, row)

    def _forget(self, key: int) -> None:
        self._ahead.drop()
        super()._forget(key)
        self._calibration.drop(self.buffer, key)

    def _merge(self, old: int, new: int) -> None:
        self._ahead.drop()
        super()._merge(old, new)
        self._calibration.merge(old, new)

    def _check(self, example: Example) -> None:
        self.buffer.check(example.item)
        super()._check(example)

    def _build_own(self, shape: tuple[int, ...]) -> None:
        super()._build_own(shape)
        self._calibration = Calibration()

    def _forget_network(self) -> None:
        self._ahead.drop()
        self._calibration = Calibration()
        super()._forget_network()

    def _own_state(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        plain, arrays = super()._own_state()
        return {**plain, "calibration": self._calibration.state()}, arrays

    def _restore_own(self, plain: dict[str, Any], arrays: dict[str, NDArray[Any]]) -> None:
        super()._restore_own(plain, arrays)
        self._calibration.restore(plain["calibration"])

    def _build(self, shape: tuple[int, ...]) -> None:
        super()._build(shape)
        if self.settings["compile"]:
            self.engine.compile_for(self.replay + (0 if self._tasks else 1))
        self._prefetches = prefetches(self.settings["prefetch"], self.engine.device, self.settings["storage"])

    def _new_buffer(self, shape: tuple[int, ...]) -> ReplayBuffer:
        dtype = "float32" if self.settings["items"] == "vectors" else "uint8"
        return self._make_buffer(shape, dtype, self.settings["codec"])

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
