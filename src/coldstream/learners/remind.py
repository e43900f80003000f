"""REMIND (Hayes et al., 2020): frozen early layers, a plastic end, and replay of product-quantised feature maps."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from coldstream.augment.crops import ResizedCrop
from coldstream.augment.maps import Taps
from coldstream.augment.mixing import Mixing
from coldstream.learners.base import Example
from coldstream.learners.inputs import id_key, whole
from coldstream.learners.replaying import ReplayLearner
from coldstream.models import Classifier, ModelLike, Split, check_split, split, with_extra
from coldstream.models.classifier import torch_generator
from coldstream.replay import ReplayBuffer, one_hot
from coldstream.replay.quantiser import POINTS_PER_CENTROID, ProductQuantiser

_CROP = ResizedCrop(2 / 7)
_IMAGES = 256


class REMIND(ReplayLearner):
    """A network whose end goes on learning, from maps of features that are replayed out of a few hundred bytes each.

    G, the network up to the first block of its last stage, is frozen after base initialisation. Its maps are
    quantised position by position, and all that F, the rest, ever sees are maps that were encoded and decoded: new,
    replayed and test ones.

    Parameters
    ----------
    model
        A network that `coldstream.models.split` can split.
    init
        ``"base"``, or weights for `base_init` to start from. Either way `base_init` must come first, for the
        quantiser is fitted there; with ``OfflineRecipe(epochs=0)`` it does only that.
    codebooks
        Bytes for one position of a map; a divisor of its channels. None: the paper's 32, or the next smaller power of
        two that divides the channels and keeps an example below half the bytes of its image, which is about what
        ``resize(0.66)|quantize(6)`` leaves of it.
    centroids
        Of each codebook, at most 256; as many as there are positions in the base data where these are fewer.
    replay
        B, the maps replayed in each update beside the new one; each is a mixture of two that were stored.
    crop
        Whether every decoded map is cropped at random (2/7 to all of its area) and stretched back, the new one too.
    mixup
        Of the Beta distribution from which the share of mixtures is drawn, once a step. None: B maps as they are.
    extra_params
        Whether two more layers come before F and learn with it ("REMIND + Extra Params"): a residual block as wide as
        it takes for the trainable parameters to be as many as if nothing were frozen.
    capacity
        Of the buffer of codes.
    **settings
        Those of `coldstream.learners.replaying.ReplayLearner` and of the network.
    """

    stores = "codes"
    as_tested = True
    split: Split
    codebooks: int
    quantiser: ProductQuantiser | None

    def __init__(
        self,
        *,
        model: ModelLike = "resnet14-16",
        init: Any = "base",
        codebooks: int | None = None,
        centroids: int = 256,
        replay: int = 100,
        crop: bool = True,
        mixup: float | None = 0.1,
        extra_params: bool = False,
        rate: str | float = "remind(0.1)",
        evict: str = "largest-class",
        capacity: str | int | None = None,
        **settings: Any,
    ) -> None:
        check_split(model)
        if codebooks is not None:
            whole("codebooks", codebooks, 1)
        if whole("centroids", centroids, 1) > 256:
            raise ValueError(f"centroids is at most 256, so that a code is a byte; not {centroids}")
        if mixup is not None:
            Mixing(mixup=mixup)
        if str(evict).startswith("consolidate"):
            raise ValueError(f"evict={evict!r} averages what is stored, and codes have no average; use another")
        own = {"codebooks": codebooks, "centroids": centroids, "crop": crop, "mixup": mixup}
        kept = {"model": model, "init": init, "replay": replay, "rate": rate, "evict": evict, "capacity": capacity}
        super().__init__({**own, "extra_params": extra_params}, **kept, **settings)
        self.needs_base_init = True

    @torch.inference_mode(mode=False)
    def _learn(self, new: Sequence[Example]) -> None:
        rate, labels = self._begin(new)

        # Quantise the new example's map; from here on it is what the quantiser leaves of it
        fresh = self.engine.outputs(np.stack([example.item for example in new]), self._encode).numpy()

        # Update F and the head over it and B mixtures of what is stored
        maps, targets = self._mixtures(fresh, labels, self._beside(len(new)))
        self._update(maps, targets, rate, self.step, forward=self._answer)

        for example, label, code in zip(new, labels, fresh, strict=True):
            self._keep(code, label, id_key(example.id))
            self.step += 1

    def _mixtures(self, fresh: NDArray[np.uint8], labels: list[int], count: int) -> tuple[Tensor, Tensor]:
        """Return the maps of new codes and of `count` mixtures of replayed ones, and their targets."""
        # Draw 2B codes, for B mixtures of two
        wanted = count if self.settings["mixup"] is None else 2 * count
        replayed = self._draw("order").permutation(self.buffer.sample(wanted, self._draw("sample")))
        self.buffer.count(replayed)
        codes = np.concatenate([fresh, self.buffer.items(replayed)])
        y = np.concatenate([one_hot(labels, self._rows), self.buffer.targets(replayed, self._rows)])

        # Decode, crop every map and mix the first half of the replayed ones with the second
        first, second, share = self._pairs(len(fresh), len(replayed))
        maps = self._maps(self._crops(len(codes)).mixed(first, second, share)(self._decode(codes)))
        targets = share[:, None] * y[first] + (1 - share[:, None]) * y[second]
        return maps, torch.from_numpy(targets).to(self.engine.device, self.engine.dtype)

    def _rehearse(self, count: int, step: int) -> tuple[Tensor, Tensor] | None:
        none = np.empty((0, self._code_bytes), np.uint8)
        return self._mixtures(none, [], count) if len(self.buffer) else None

    def _pairs(self, new: int, replayed: int) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.float64]]:
        """Return which rows are mixed, and the share of the first; a row that is not mixed is paired with itself."""
        mixup = self.settings["mixup"]
        rows = np.arange(new + replayed)
        if mixup is None:
            return rows, rows, np.ones(len(rows))
        half = -(-replayed // 2)  # of an odd number the middle one is in both halves
        first = rows[: new + half]
        second = np.concatenate([rows[:new], rows[len(rows) - half :]])
        share = np.full(len(first), self._draw("mixup").beta(mixup, mixup))
        share[:new] = 1
        return first, second, share

    def _crops(self, count: int) -> Taps:
        _, height, width = self.split.shape
        if not self.settings["crop"]:
            return Taps.whole(count, height, width)
        return Taps.cropped(_CROP.draw(count, height, width, self.seed, self.step), height, width)

    # Maps (N, c, h, w), their vectors (N h w, c) position by position, and their codes (N, h w codebooks).

    def _vectors(self, images: Tensor) -> Tensor:
        maps: Tensor = self.split.frozen(images)
        return maps.permute(0, 2, 3, 1).flatten(0, 2)

    def _maps(self, vectors: Tensor) -> Tensor:
        channels, height, width = self.split.shape
        return vectors.view(-1, height, width, channels).permute(0, 3, 1, 2)

    def _encode(self, images: Tensor) -> Tensor:
        assert self.quantiser is not None
        return self.quantiser.encode(self._vectors(images)).view(len(images), -1)

    def _decode(self, codes: NDArray[np.uint8]) -> Tensor:
        assert self.quantiser is not None
        return self.quantiser.decode(codes.reshape(-1, self.quantiser.codebooks)).to(self.engine.dtype)

    def _answer(self, maps: Tensor) -> Tensor:
        return self.engine.classifier.head(self.split.plastic(maps))

    def _logits(self, items: NDArray[Any]) -> NDArray[np.float64]:
        def answer(images: Tensor) -> Tensor:
            return self._answer(self._maps(self._decode(self._encode(images).numpy())))

        return self.engine.outputs(items, answer).to("cpu", torch.float64).numpy()

    # Base initialisation and what else belongs to the network.

    def _after_base_init(self, items: NDArray[Any], rows: NDArray[np.int64], ids: list[int]) -> None:
        _, height, width = self.split.shape
        positions, centroids = height * width, self.settings["centroids"]
        total = len(items) * positions
        most = min(total, POINTS_PER_CENTROID * centroids)
        picked = np.sort(self._draw("positions").choice(total, most, replace=False))
        vectors = []
        for start in range(0, len(items), _IMAGES):
            mine = picked[(picked >= start * positions) & (picked < (start + _IMAGES) * positions)]
            found = self.engine.outputs(items[start : start + _IMAGES], self._vectors)
            vectors.append(found[torch.from_numpy(mine - start * positions)].to("cpu", torch.float32).numpy())
        seed = int(self._draw("codebooks").integers(1 << 31))
        sample = np.concatenate(vectors)
        self.quantiser = ProductQuantiser.fit(sample, self.codebooks, centroids, seed, self.engine.device)
        self._keep_base(self.engine.outputs(items, self._encode).numpy(), rows, ids)

    def _network(self, shape: tuple[int, ...]) -> Classifier:
        classifier = super()._network(shape)
        self.split = split(classifier.body, shape)
        if self.settings["extra_params"]:
            with torch_generator(self.seed, 0, "extra layers"):
                self.split = with_extra(self.split)
            classifier.body = nn.Sequential(self.split.frozen, self.split.plastic)
        self.codebooks = self._choose_codebooks(shape)
        return classifier

    def _new_buffer(self, shape: tuple[int, ...]) -> ReplayBuffer:
        return self._make_buffer((self._code_bytes,), "uint8")

    @property
    def _code_bytes(self) -> int:
        """Of one example."""
        return math.prod(self.split.shape[1:]) * self.codebooks

    def _choose_codebooks(self, image: tuple[int, ...]) -> int:
        channels, height, width = self.split.shape
        given: int | None = self.settings["codebooks"]
        if given is not None:
            if channels % given:
                raise ValueError(f"codebooks={given} does not divide the {channels} channels of this network's maps")
            return given
        most = math.prod(image) / 2 / (height * width)
        return max(n for n in (1, 2, 4, 8, 16, 32) if n == 1 or (n < most and channels % n == 0))

    def overhead(self) -> int:
        """Return the bytes of ids, labels, indexes and centroids."""
        return super().overhead() + (0 if self.quantiser is None else self.quantiser.table.nbytes)

    def _forget_network(self) -> None:
        super()._forget_network()
        self.quantiser = None
        self.__dict__.pop("split", None)

    def _frozen(self) -> nn.Module:
        return self.split.frozen

    def _refuse_unprepared(self) -> None:
        if not self.prepared:
            raise ValueError(
                "REMIND needs base initialisation before it learns or predicts, to fit its quantiser: call "
                "base_init(dataset) first (with OfflineRecipe(epochs=0) where init= gave it trained weights)"
            )

    def _state(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        plain, arrays = super()._state()
        return plain, arrays if self.quantiser is None else {**arrays, "centroids": self.quantiser.table}

    def _restore(self, plain: dict[str, Any], arrays: dict[str, NDArray[Any]]) -> None:
        super()._restore(plain, arrays)
        if "centroids" in arrays:
            self.quantiser = ProductQuantiser(arrays["centroids"], self.engine.device)
