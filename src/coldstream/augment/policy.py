"""A whole augmentation policy as one short string."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from coldstream import native
from coldstream.augment import compiled
from coldstream.augment.crops import Crop, Flip, Part, ResizedCrop
from coldstream.augment.mixing import Mixing
from coldstream.augment.policies import AutoAugment, RandAugment
from coldstream.parsing import Call, parse_call, unknown

Stage = Crop | ResizedCrop | Flip | AutoAugment | RandAugment

_WHAT = "augmentation"


@dataclass(frozen=True)
class _Entry:
    """How a stage is written: its place in the chain, its arguments, and an example for error messages."""

    place: int
    build: Callable[..., Stage | Mixing]
    at_least: int
    at_most: int
    example: str


_ENTRIES: dict[str, _Entry] = {
    "crop": _Entry(0, Crop, 0, 1, "crop or crop(4)"),
    "resizedcrop": _Entry(0, ResizedCrop, 0, 1, "resizedcrop or resizedcrop(0.2)"),
    "flip": _Entry(1, Flip, 0, 1, "flip or flip(0.3)"),
    "autoaugment": _Entry(2, AutoAugment, 1, 1, "autoaugment(cifar10) or autoaugment(imagenet)"),
    "randaugment": _Entry(2, RandAugment, 0, 2, "randaugment or randaugment(2, 9)"),
    "mixup": _Entry(3, lambda alpha: Mixing(mixup=alpha), 1, 1, "mixup(0.1)"),
    "cutmix": _Entry(3, lambda alpha: Mixing(cutmix=alpha), 1, 1, "cutmix(0.8)"),
}


@dataclass(frozen=True)
class Policy:
    """The augmentation of a batch: each example by itself, all of them at once.

    A policy is written as stages joined by ``|``, in this order, each at most once:

    ================================  =====================================================================
    ``crop``, ``crop(4)``             surround with zeros (an eighth of the side, or 4 pixels) and cut back
    ``resizedcrop(0.08)``             instead: a piece of at least this area, stretched to the whole
    ``flip``, ``flip(0.3)``           mirror left to right with probability 0.5, or 0.3
    ``autoaugment(cifar10)``          AutoAugment with the sub-policies of cifar10 or imagenet
    ``randaugment(2, 9)``             instead: 2 operations of magnitude 9 (of 0 to 30)
    ``mixup(0.1)/cutmix(0.8)``        mix with another example of the batch; either one alone, or a fair coin
    ================================  =====================================================================

    ``none`` is no augmentation at all. Every draw is a function of (seed, step) and of the stage alone, so that
    switching one stage on or off leaves the draws of the others as they are.

    Attributes
    ----------
    stages : tuple
        What `augment` does to each image, in order.
    mixing : Mixing or None
        What `mix` does to the batch.

    Examples
    --------
    >>> policy = Policy.parse("crop|flip|autoaugment(cifar10)|mixup(0.1)/cutmix(0.8)")
    >>> policy.augment(np.zeros((4, 32, 32, 3), np.uint8), seed=0, step=7).shape
    (4, 32, 32, 3)
    >>> mixed, targets = policy.mix(torch.zeros(4, 3, 32, 32), torch.eye(4), seed=0, step=7)
    >>> targets.sum(dim=1)
    tensor([1., 1., 1., 1.])
    """

    stages: tuple[Stage, ...] = ()
    mixing: Mixing | None = None

    @classmethod
    def parse(cls, text: str) -> Policy:
        """Read a policy from its string.

        Raises
        ------
        ValueError
            If the string is not a policy; the message says what is wrong and what to write instead.

        Examples
        --------
        >>> str(Policy.parse("crop | flip(0.5) | randaugment"))
        'crop|flip|randaugment(2, 9)'
        """
        if not text.strip():
            raise ValueError(
                f"{_WHAT}: the policy is empty; write none for no augmentation, or for example crop|flip"
            )
        if text.strip() == "none":
            return cls()
        parts = [[parse_call(call, _WHAT) for call in part.split("/")] for part in text.split("|")]
        for calls in parts:
            _check_names(calls, text)
        _check_order(parts, text)
        stages: list[Stage] = []
        mixing: Mixing | None = None
        for calls in parts:
            for call in calls:
                stage = _build(call)
                if not isinstance(stage, Mixing):
                    stages.append(stage)
                elif mixing is None:
                    mixing = stage
                else:
                    mixing = Mixing(mixing.mixup, stage.cutmix)
        return cls(tuple(stages), mixing)

    def __str__(self) -> str:
        parts = [str(stage) for stage in (*self.stages, self.mixing) if stage is not None]
        return "|".join(parts) or "none"

    def at(self, strength: float) -> Self:
        """Return the policy whose strong stages, those after crops and flips, change only a share of the images.

        The images left alone are the same for all stages (`spared`). The draws of the others do not change.
        """
        stages = (replace(s, share=strength) if isinstance(s, AutoAugment | RandAugment) else s for s in self.stages)
        mixing = None if self.mixing is None else replace(self.mixing, share=strength)
        return replace(self, stages=tuple(stages), mixing=mixing)

    def augment(self, images: NDArray[Any], seed: int, step: int, part: Part | None = None) -> NDArray[Any]:
        """Crop, flip and change each image by itself.

        Compiled kernels do it where there are any (`coldstream.native`), torch elsewhere, with the same bits.

        Parameters
        ----------
        images : array
            uint8 images (N, H, W, C) with C = 1 or 3; not modified. Without stages, items of any kind.
        seed, step : int
            What the draws are a function of.
        part : (int, int), optional
            For images that are a part of a batch: the row of the first one, and how many rows the batch has. They get
            the draws of their rows.

        Returns
        -------
        array
            Images of the same shape; the input itself if there are no stages.
        """
        stages = self.stages
        if not stages:
            return images
        if images.dtype != np.uint8 or images.ndim != 4 or images.shape[3] not in (1, 3):
            raise ValueError(
                f"{_WHAT}: augment takes uint8 images (N, H, W, C) with C = 1 or 3, "
                f"not {images.dtype} of shape {images.shape}"
            )
        if not native.available():
            return self._by_torch(images, stages, seed, step, part)
        if isinstance(stages[0], ResizedCrop):
            images, stages = self._by_torch(images, stages[:1], seed, step, part), stages[1:]
        return compiled.augment(images, stages, seed, step, part) if stages else images  # type: ignore[arg-type]

    @staticmethod
    def _by_torch(
        images: NDArray[np.uint8], stages: tuple[Stage, ...], seed: int, step: int, part: Part | None
    ) -> NDArray[np.uint8]:
        tensor = torch.from_numpy(images).permute(0, 3, 1, 2)
        for stage in stages:
            tensor = stage(tensor, seed, step, part)
        return np.ascontiguousarray(tensor.permute(0, 2, 3, 1).numpy())

    def mix(self, images: Tensor, targets: Tensor, seed: int, step: int) -> tuple[Tensor, Tensor]:
        """Mix each image and its target with those of another row, or return both as they are.

        Parameters
        ----------
        images : Tensor
            Normalised floating images (N, C, H, W); not modified.
        targets : Tensor
            Floating targets (N, K), one-hot or soft; not modified.
        seed, step : int
            What the draws are a function of.
        """
        if self.mixing is None:
            return images, targets
        if not images.is_floating_point() or images.ndim != 4:
            raise ValueError(
                f"{_WHAT}: mix takes floating images (N, C, H, W), after normalisation, "
                f"not {images.dtype} of shape {tuple(images.shape)}"
            )
        if not targets.is_floating_point() or targets.ndim != 2 or len(targets) != len(images):
            raise ValueError(
                f"{_WHAT}: mix takes floating targets (N, K), one row for each of the {len(images)} images, "
                f"not {targets.dtype} of shape {tuple(targets.shape)}"
            )
        return self.mixing(images, targets, seed, step)


def _check_names(calls: list[Call], text: str) -> None:
    for call in calls:
        if call.name == "none":
            raise ValueError(f"{_WHAT}: in {text!r} none stands with other stages; write it alone or leave it out")
        if call.name not in _ENTRIES:
            raise unknown(_WHAT, call.name, [*_ENTRIES, "none"])
    names = [call.name for call in calls]
    if len(calls) > 1 and names != ["mixup", "cutmix"]:
        raise ValueError(
            f"{_WHAT}: in {text!r} {'/'.join(names)} is not a choice; "
            "/ only joins mixup and cutmix, as in mixup(0.1)/cutmix(0.8)"
        )


def _check_order(parts: list[list[Call]], text: str) -> None:
    names = [call.name for calls in parts for call in calls]
    for name in names:
        if names.count(name) > 1:
            raise ValueError(f"{_WHAT}: in {text!r} {name} appears more than once; write it once")
    for first, second in (("crop", "resizedcrop"), ("autoaugment", "randaugment")):
        if first in names and second in names:
            raise ValueError(f"{_WHAT}: in {text!r} {first} and {second} exclude each other; write one of them")
    places = [_ENTRIES[calls[0].name].place for calls in parts]
    if places.count(3) > 1:
        raise ValueError(
            f"{_WHAT}: in {text!r} mixup and cutmix follow each other; "
            "join them by / so that a coin decides for each example: mixup(0.1)/cutmix(0.8)"
        )
    if places != sorted(places):
        written = [part.strip() for part in text.split("|")]
        ordered = [written[i] for i in sorted(range(len(places)), key=places.__getitem__)]
        raise ValueError(f"{_WHAT}: in {text!r} the stages are out of order; write {'|'.join(ordered)!r}")


def _build(call: Call) -> Stage | Mixing:
    entry = _ENTRIES[call.name]
    if call.kwargs:
        raise ValueError(f"{_WHAT}: {call.name} takes no named arguments; write {entry.example}")
    if not entry.at_least <= len(call.args) <= entry.at_most:
        takes = str(entry.at_least) if entry.at_least == entry.at_most else f"up to {entry.at_most}"
        raise ValueError(
            f"{_WHAT}: {call.name} takes {takes} argument{'s' if entry.at_most > 1 else ''}, not {len(call.args)}; "
            f"write {entry.example}"
        )
    return entry.build(*call.args)
