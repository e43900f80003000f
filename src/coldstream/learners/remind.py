"""REMIND (Hayes et al., 2020): frozen early layers, a plastic end, and replay of product-quantised feature maps."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import BeforeValidator
from torch import Tensor, nn

from coldstream.augment.crops import ResizedCrop
from coldstream.augment.maps import Taps
from coldstream.augment.mixing import Mixing
from coldstream.data import Dataset
from coldstream.labels import Label
from coldstream.learners.base import Learner
from coldstream.learners.method import Arrays, Example, Shape, State
from coldstream.learners.replaying import Rates, ReplaySettings, check_capacity, store, store_base
from coldstream.learners.settings import Flag, checked, optional, whole_from
from coldstream.learners.tasks import TaskBatch, TaskState, others, update_tasks
from coldstream.learners.training.engine import Engine
from coldstream.learners.training.schedules import get_schedule
from coldstream.models import Body, ModelLike, Split, check_init, check_split, split, with_extra
from coldstream.models.network import torch_generator
from coldstream.replay import one_hot
from coldstream.replay.eviction import get_evictor
from coldstream.replay.quantiser import POINTS_PER_CENTROID, ProductQuantiser

_CROP = ResizedCrop(2 / 7)
_IMAGES = 256


def _centroids(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= 256:
        raise ValueError(f"centroids is a whole number from 1 to 256, so that a code is a byte; not {value!r}")
    return value


def _mixup(value: Any) -> Any:
    if value is not None:
        Mixing(mixup=value)
    return value


def _evictor(value: Any) -> Any:
    if str(value).startswith("consolidate"):
        raise ValueError(f"evict={value!r} averages what is stored, and codes have no average; use another")
    get_evictor(value)
    return value


class REMINDSettings(ReplaySettings):
    """Settings of REMIND."""

    model: Annotated[ModelLike, checked(check_split)] = "resnet14-16"
    """A network that `coldstream.models.split` can split."""
    init: Annotated[str | Path | Dataset, checked(check_init)] = "base"
    """``"base"``, or weights for `base_init` to start from. Either way `base_init` must come first, for the quantiser
    is fitted there; with ``OfflineRecipe(epochs=0)`` it does only that."""
    codebooks: Annotated[int | None, optional(whole_from(1))] = None
    """Bytes for one position of a map; a divisor of its channels. None: the paper's 32, or the next smaller power of
    two that divides the channels and keeps an example below half the bytes of its image, which is about what
    ``resize(0.66)|quantize(6)`` leaves of it."""
    centroids: Annotated[int, BeforeValidator(_centroids)] = 256
    """Centroids per codebook, at most 256, and at most the number of positions in the base data."""
    crop: Flag = True
    """Whether every decoded map is cropped at random (2/7 to all of its area) and stretched back, the new one too."""
    mixup: Annotated[float | None, BeforeValidator(_mixup)] = 0.1
    """Mixup's α: each replayed map mixes two stored ones, with a share drawn from Beta(α, α) once per step. None: B
    maps as they are."""
    extra_params: Flag = False
    """Whether two more layers come before F and learn with it ("REMIND + Extra Params"): a residual block,
    wide enough that the network trains as many parameters as it would with nothing frozen."""
    rate: Annotated[str | float, checked(get_schedule)] = "remind(0.1)"
    """``"remind(0.1)"``, ``"inverse-sqrt(0.1)"``, ``"constant(0.01)"``, or with `counts` ``"linear(0.1, 0.001)"``."""
    evict: Annotated[str, checked(_evictor)] = "largest-class"
    """``"largest-class"``, ``"uniform"`` or ``"reservoir"``."""
    capacity: Annotated[str | int | None, BeforeValidator(check_capacity)] = None
    """Capacity of the buffer of codes: ``"30MB"``, a number of examples, or None for no bound."""


class SplitEngine(Engine):
    """A network in two parts: G, frozen after base initialisation, and F, which goes on learning.

    `parts_of` splits the body, and its twin in evaluation mode (`answering_split`).
    """

    def __init__(self, body: Body, parts_of: Callable[[nn.Module], Split], codebooks: int, **settings: Any) -> None:
        super().__init__(body, **settings)
        self.split, self.answering_split = parts_of(self.body), parts_of(self.answering)
        self.codebooks = codebooks
        self.quantiser: ProductQuantiser | None = None


class REMIND(Learner[TaskState]):
    """Train the last layers of a network on replayed feature maps, each stored as a few hundred bytes of codes.

    G, the network up to the first block of its last stage, is frozen after base initialisation. Its maps are
    quantised position by position, and all that F, the rest, ever sees are maps that were encoded and decoded: new,
    replayed and test ones.
    """

    Settings = REMINDSettings
    settings: REMINDSettings
    stores = "codes"
    multi_task = True
    crops_as_tested = True
    needs_base_init = True
    advice = (
        "call base_init(dataset) first, to fit its quantiser "
        "(with OfflineRecipe(epochs=0) where init= gave it trained weights)"
    )

    def _set_up(self) -> None:
        self.rates = Rates(self.settings)

    @property
    def engine(self) -> SplitEngine:
        """The network in its two parts."""
        engine = super().engine
        assert isinstance(engine, SplitEngine)
        return engine

    @torch.inference_mode(mode=False)
    def _learn(self, task: TaskState, new: Sequence[Example]) -> None:
        rate = self.rates.mean(task, (example.label for example in new))
        rows = task.enter(example.label for example in new)

        # Quantise the new example's map; from here on it is what the quantiser leaves of it
        fresh = self.engine.outputs(np.stack([example.item for example in new]), self._encode).numpy()

        # Update F and the head over it and B mixtures of what is stored
        strategy = self.settings.strategy if len(self.tasks) > 1 else "full+separate"
        batches = self._batches(task, fresh, rows)
        update_tasks(self.engine, strategy, batches, rate, self.step, forward=self._plastic)

        for example, row, code in zip(new, rows, fresh, strict=True):
            store(task, code, row, example.key, self.step)
            self.step += 1

    def _batches(self, task: TaskState, fresh: NDArray[np.uint8], rows: list[int]) -> Iterator[TaskBatch]:
        """Yield the batch with the new codes, then a batch of replayed codes for each other task."""
        tasks = len(self.tasks)
        yield self._mixtures(task, fresh, rows, self.settings.beside(task, tasks, len(fresh)))
        shares = self.settings.shares_of(task, tasks)
        for other in others(self.tasks, task):
            if shares[other.number] and len(other.buffer):
                yield self._mixtures(other, fresh[:0], [], shares[other.number])

    def _mixtures(self, task: TaskState, fresh: NDArray[np.uint8], rows: list[int], count: int) -> TaskBatch:
        """Return the maps of new codes and of `count` mixtures of replayed ones, and their targets."""
        # Draw 2B codes, for B mixtures of two
        wanted = count if self.settings.mixup is None else 2 * count
        order, buffer = task.draw(self.step, "order"), task.buffer
        replayed = order.permutation(buffer.sample(wanted, task.draw(self.step, "sample")))
        buffer.count(replayed)
        codes = np.concatenate([fresh, buffer.items(replayed)])
        y = np.concatenate([one_hot(rows, task.rows), buffer.targets(replayed, task.rows)])

        # Decode, crop every map and mix the first half of the replayed ones with the second
        first, second, share = self._pairs(task, len(fresh), len(replayed))
        maps = self._maps(self._crops(task, len(codes)).mixed(first, second, share)(self._decode(codes)))
        targets = share[:, None] * y[first] + (1 - share[:, None]) * y[second]
        return TaskBatch(task, maps, torch.from_numpy(targets).to(self.engine.device, self.engine.dtype))

    def _pairs(
        self, task: TaskState, new: int, replayed: int
    ) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.float64]]:
        """Return which rows are mixed, and the share of the first; a row that is not mixed is paired with itself."""
        mixup = self.settings.mixup
        rows = np.arange(new + replayed)
        if mixup is None:
            return rows, rows, np.ones(len(rows))
        half = -(-replayed // 2)  # of an odd number the middle one is in both halves
        first = rows[: new + half]
        second = np.concatenate([rows[:new], rows[len(rows) - half :]])
        share = np.full(len(first), task.draw(self.step, "mixup").beta(mixup, mixup))
        share[:new] = 1
        return first, second, share

    def _crops(self, task: TaskState, count: int) -> Taps:
        _, height, width = self.engine.split.shape
        if not self.settings.crop:
            return Taps.whole(count, height, width)
        return Taps.cropped(_CROP.draw(count, height, width, task.seed, self.step), height, width)

    # Maps (N, c, h, w), their vectors (N h w, c) position by position, and their codes (N, h w codebooks).

    def _plastic(self, maps: Tensor) -> Tensor:
        features: Tensor = self.engine.split.plastic(maps)
        return features

    def _vectors(self, images: Tensor) -> Tensor:
        maps: Tensor = self.engine.answering_split.frozen(images)
        return maps.permute(0, 2, 3, 1).flatten(0, 2)

    def _maps(self, vectors: Tensor) -> Tensor:
        channels, height, width = self.engine.split.shape
        return vectors.view(-1, height, width, channels).permute(0, 3, 1, 2)

    @property
    def quantiser(self) -> ProductQuantiser:
        """The quantiser that base initialisation fitted."""
        assert self.engine.quantiser is not None
        return self.engine.quantiser

    def _encode(self, images: Tensor) -> Tensor:
        return self.quantiser.encode(self._vectors(images)).view(len(images), -1)

    def _decode(self, codes: NDArray[np.uint8]) -> Tensor:
        return self.quantiser.decode(codes.reshape(-1, self.quantiser.codebooks)).to(self.engine.dtype)

    def _logits(self, task: TaskState, items: NDArray[Any]) -> NDArray[np.float64]:
        def answer(images: Tensor) -> Tensor:
            maps = self._maps(self._decode(self._encode(images).numpy()))
            logits: Tensor = task.head(self.engine.answering_split.plastic(maps))
            return logits

        return self.engine.outputs(items, answer).to("cpu", torch.float64).numpy()

    # Base initialisation and what else belongs to the network.

    def _after_base_init(
        self, task: TaskState, items: NDArray[Any], rows: NDArray[np.int64], keys: list[int]
    ) -> None:
        engine = self.engine
        _, height, width = engine.split.shape
        positions, centroids = height * width, self.settings.centroids
        total = len(items) * positions
        most = min(total, POINTS_PER_CENTROID * centroids)
        picked = np.sort(task.draw(0, "positions").choice(total, most, replace=False))
        vectors = []
        for start in range(0, len(items), _IMAGES):
            within = picked[(picked >= start * positions) & (picked < (start + _IMAGES) * positions)]
            computed = engine.outputs(items[start : start + _IMAGES], self._vectors)
            vectors.append(computed[torch.from_numpy(within - start * positions)].to("cpu", torch.float32).numpy())
        seed = int(task.draw(0, "codebooks").integers(1 << 31))
        sample = np.concatenate(vectors)
        engine.quantiser = ProductQuantiser.fit(sample, engine.codebooks, centroids, seed, engine.device)
        store_base(task, engine.outputs(items, self._encode).numpy(), rows, keys)

    def _build(self, shape: Shape) -> SplitEngine:
        image = self._channels_first(shape)
        body = self._body(image)
        parts = split(body.module, image)
        codebooks, settings = self._choose_codebooks(parts, image), self._engine_settings()
        if not self.settings.extra_params:
            return SplitEngine(body, lambda body: split(body, image), codebooks, **settings)
        with torch_generator(self.seed, 0, "extra layers"):
            parts = with_extra(parts)
        body = Body(nn.Sequential(parts.frozen, parts.plastic), body.features, body.draws)

        def halves(body: nn.Module) -> Split:
            frozen, plastic = body.children()
            return Split(frozen, plastic, parts.shape)

        return SplitEngine(body, halves, codebooks, **settings)

    def _new_task(self, engine: Engine, shape: Shape, **basics: Any) -> TaskState:
        assert isinstance(engine, SplitEngine)
        code_bytes = math.prod(engine.split.shape[1:]) * engine.codebooks
        return TaskState(**basics, replay_buffer=self.settings.new_buffer((code_bytes,)))

    def _choose_codebooks(self, parts: Split, image: Shape) -> int:
        channels, height, width = parts.shape
        given = self.settings.codebooks
        if given is not None:
            if channels % given:
                raise ValueError(f"codebooks={given} does not divide the {channels} channels of this network's maps")
            return given
        most = math.prod(image) / 2 / (height * width)
        return max(n for n in (1, 2, 4, 8, 16, 32) if n == 1 or (n < most and channels % n == 0))

    def overhead(self) -> int:
        """Return the bytes of ids, labels, indexes and centroids."""
        quantiser = self.engine.quantiser if self.built else None
        return super().overhead() + (0 if quantiser is None else quantiser.table.nbytes)

    def _check(self, task: TaskState, example: Example) -> None:
        self.rates.of(task, example.label)

    def _renamed(self, task: TaskState, old: Label, new: Label) -> None:
        self.settings = self.rates.rename(task, old, new, self.settings)

    def _frozen(self) -> nn.Module:
        return self.engine.split.frozen

    def _state(self) -> State:
        plain, arrays = super()._state()
        quantiser = self.engine.quantiser
        return plain, arrays if quantiser is None else {**arrays, "centroids": quantiser.table}

    def _restore(self, plain: dict[str, Any], arrays: Arrays) -> None:
        super()._restore(plain, arrays)
        if "centroids" in arrays:
            self.engine.quantiser = ProductQuantiser(arrays["centroids"], self.engine.device)
