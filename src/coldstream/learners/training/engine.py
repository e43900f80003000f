"""The network at work: normalise, update, predict. All that touches a device is here."""

from __future__ import annotations

import os
import shutil
import types
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional as F

from coldstream import native
from coldstream.augment import Policy, compiled
from coldstream.augment.mixing import mix_targets
from coldstream.learners.training.averaging import BORN, Average
from coldstream.learners.training.sgd import SGD
from coldstream.models import Classifier
from coldstream.models.classifier import running_statistics_for_single_values, torch_generator
from coldstream.parsing import unknown

NORMALISATIONS: dict[str, tuple[tuple[float, ...], tuple[float, ...]]] = {
    "half": ((0.5,), (0.25,)),
    "imagenet": ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)),
    "cifar10": ((0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616)),
    "cifar100": ((0.5071, 0.4865, 0.4409), (0.2673, 0.2564, 0.2762)),
    "none": ((0.0,), (1.0,)),
}
PRECISIONS = {"float32": torch.float32, "float64": torch.float64, "bfloat16": torch.float32}
MEMORY_FORMATS = {"contiguous": torch.contiguous_format, "channels_last": torch.channels_last, "auto": None}
HEAD = ("weight", "bias")
_OF_HEAD = (*HEAD, BORN)
_CHUNK = 256

Normalise = str | tuple[Sequence[float], Sequence[float]]


def check_engine(normalize: Normalise, device: str, precision: str, memory_format: str) -> None:
    """Refuse settings that no engine can be made with."""
    if isinstance(normalize, str):
        if normalize not in NORMALISATIONS:
            raise unknown("normalisation", normalize, NORMALISATIONS)
    elif not _is_mean_and_std(normalize):
        raise ValueError(f"normalize is a name or (mean, std), one number a channel, std above 0; not {normalize!r}")
    if precision not in PRECISIONS:
        raise unknown("precision", precision, PRECISIONS)
    if memory_format not in MEMORY_FORMATS:
        raise unknown("memory format", memory_format, MEMORY_FORMATS)
    try:
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError) as error:
        raise ValueError(f"device {device!r} is not to be had: {str(error).splitlines()[0]}") from error


def check_compile(compile: object) -> None:
    """Refuse a setting of `compile` that cannot be followed."""
    if not isinstance(compile, bool):
        raise ValueError(f"compile is True or False, not {compile!r}")
    if compile and not any(shutil.which(name) for name in (os.environ.get("CXX", "c++"), "g++", "clang++", "cl")):
        raise ValueError("compile=True needs a C++ compiler (g++ or clang++), and none was found; leave it False")


def _is_mean_and_std(value: Any) -> bool:
    try:
        mean, std = (np.asarray(part, np.float64) for part in value)
    except (TypeError, ValueError):
        return False
    return (
        mean.shape in ((1,), (3,)) and std.shape in ((1,), (3,)) and bool((std > 0).all() and np.isfinite(mean).all())
    )


@dataclass(frozen=True)
class Head:
    """A head that can be put away and taken again, with its momentum, its average and the seed of rows to come."""

    weight: nn.Parameter
    bias: nn.Parameter
    velocity: dict[str, Tensor]
    average: dict[str, Tensor]
    seed: int

    @property
    def parameters(self) -> int:
        return self.weight.numel() + self.bias.numel()


class Engine:
    """A classifier with its optimiser, on one device.

    `update` is one SGD step with momentum on the mean soft-target cross-entropy:
    g = grad + decay w;  v = momentum v + g;  w -= rate v. Momentum is never reset, and a new head row's is zero.
    With `average`, predictions are those of the average of the latest weights
    (`coldstream.learners.training.averaging`).
    """

    def __init__(
        self,
        classifier: Classifier,
        *,
        momentum: float,
        weight_decay: float,
        normalize: Normalise = "half",
        device: str = "cpu",
        precision: str = "float32",
        memory_format: str = "auto",
        average: bool = False,
    ) -> None:
        self.device = torch.device(device)
        self.dtype = PRECISIONS[precision]
        self.classifier: Classifier = classifier.to(device=self.device, dtype=self.dtype)
        self._autocast = precision == "bfloat16"
        # Convolutions are faster with channels last; a network without any would only rearrange what it gets.
        convolves = any(parameter.ndim == 4 for parameter in classifier.parameters())
        fastest = torch.channels_last if convolves else torch.contiguous_format
        self._format = MEMORY_FORMATS[memory_format] or fastest
        self._compiled: Callable[[Tensor], Tensor] | None = None
        self._compiled_rows = 0
        self._numbers = torch.empty(0)
        self._lines: dict[int, tuple[NDArray[Any], NDArray[Any]]] = {}
        for parameter in classifier.parameters():
            if parameter.ndim == 4:
                parameter.data = parameter.data.contiguous(memory_format=self._format)
        self._sgd = SGD(self.classifier, momentum, weight_decay)
        self.average = Average(self.classifier, HEAD) if average else None
        self._random_layers = classifier.draws
        mean, std = NORMALISATIONS[normalize] if isinstance(normalize, str) else normalize
        self._mean, self._std = np.asarray(mean, np.float64), np.asarray(std, np.float64)
        self.classifier.train()

    def to_device(self, items: NDArray[np.generic]) -> Tensor:
        """Return images (N, H, W, C) as a uint8 tensor (N, C, H, W) on the device; vectors as they are."""
        tensor = torch.from_numpy(items).to(self.device)
        return tensor.permute(0, 3, 1, 2) if tensor.ndim == 4 else tensor

    def normalise(self, items: Tensor) -> Tensor:
        """Return what the network takes: pixels scaled to mean 0 and spread 1 by fixed constants."""
        if items.ndim != 4:
            return items.to(self.dtype)
        scale, shift = (torch.from_numpy(part).to(self.device)[:, None, None] for part in self._line(items.shape[1]))
        return self._laid_out(torch.addcmul(shift, items.to(self.dtype), scale))

    def _line(self, channels: int) -> tuple[NDArray[Any], NDArray[Any]]:
        """Return scale and shift of each channel's bytes."""
        if channels not in self._lines:
            mean, std = (v if len(v) in (1, channels) else v.mean(keepdims=True) for v in (self._mean, self._std))
            kind = np.float64 if self.dtype == torch.float64 else np.float32
            scale, shift = (1 / (255 * std)).astype(kind), (-mean / std).astype(kind)
            self._lines[channels] = np.resize(scale, channels), np.resize(shift, channels)
        return self._lines[channels]

    def _laid_out(self, images: Tensor) -> Tensor:
        """Return images in the memory format, also where there is one channel and any strides would pass for it."""
        images = images.contiguous(memory_format=self._format)
        channels, height, width = images.shape[1:]
        if channels > 1:
            return images
        last = self._format == torch.channels_last
        return images.as_strided(images.shape, (height * width, 1 if last else height * width, width, 1))

    def prepare(
        self, items: NDArray[Any], targets: NDArray[np.float32], policy: Policy, seed: int, step: int
    ) -> tuple[Tensor, Tensor]:
        """Return what `update` takes: items normalised and mixed as the policy says, and their targets.

        Images are (N, H, W, C) and augmented (`Policy.augment`). Compiled kernels do it where there are some, with
        the bits of `normalise` and `Policy.mix`. The inputs are valid until the next call, which uses their memory
        again: getting new memory from the system takes longer than filling it.
        """
        soft = torch.from_numpy(targets).to(self.device, self.dtype)
        fast = self.device.type == "cpu" and self.dtype == torch.float32 and native.available()
        if items.ndim != 4 or items.shape[3] not in (1, 3) or not fast:
            inputs, soft = policy.mix(self.normalise(self.to_device(items)), soft, seed, step)
            return self._laid_out(inputs) if inputs.ndim == 4 else inputs, soft
        count, height, width, channels = items.shape
        last = self._format == torch.channels_last
        mixture = None if policy.mixing is None else policy.mixing.draw(count, height, width, seed, step)
        scale, shift = self._line(channels)
        shape = (count, height, width, channels) if last else (count, channels, height, width)
        if self._numbers.shape != shape:
            # Torch's own memory, which is aligned: sums may be taken in another order where it is not.
            self._numbers = torch.empty(shape, dtype=torch.float32)
        compiled.normalise(items, scale, shift, mixture, self._numbers.numpy(), channels_last=last)
        images = self._laid_out(self._numbers.permute(0, 3, 1, 2) if last else self._numbers)
        return images, soft if mixture is None else mix_targets(soft, mixture)

    def compile_for(self, rows: int) -> None:
        """Let torch.compile make the network's body faster in updates with batches of `rows` rows.

        Others, such as the first ones of a stream, are not worth the half minute that compiling takes.
        """
        self._compiled, self._compiled_rows = _compiled(self.classifier.body), rows

    @torch.inference_mode(mode=False)
    def grow(self, rows: int) -> None:
        """Give the head `rows` rows; weights and momentum of those that exist keep their bits."""
        if rows > self.classifier.rows:
            self.classifier.grow(rows)
            self._sgd.grow()

    @property
    def head(self) -> Head:
        """The head at work; another one can be put in its place."""
        velocity = {name: self._sgd.velocity[name] for name in HEAD if name in self._sgd.velocity}
        average = self.average.part(_OF_HEAD) if self.average else {}
        return Head(self.classifier.weight, self.classifier.bias, velocity, average, self.classifier.seed)

    @head.setter
    def head(self, head: Head) -> None:
        self.classifier.weight, self.classifier.bias, self.classifier.seed = head.weight, head.bias, head.seed
        self._sgd.exchange(HEAD, head.velocity)
        if self.average:
            self.average.exchange(_OF_HEAD, head.average)

    @torch.inference_mode(mode=False)
    def begin_head(self, seed: int, rows: int) -> None:
        """Take a new head, at rest."""
        self.classifier.begin_head(seed, rows)
        self._sgd.exchange(HEAD, {})
        if self.average:
            self.average.exchange(_OF_HEAD, {})

    def update(
        self,
        inputs: Tensor,
        targets: Tensor,
        rate: float,
        seed: int,
        step: int,
        *,
        forward: Callable[[Tensor], Tensor] | None = None,
        loss: Callable[[Tensor, Tensor], Tensor] = F.cross_entropy,
    ) -> None:
        """Make one step on a batch of normalised images and soft targets.

        A method that trains a part of the network says how its inputs become logits (`forward`); parameters that
        have no share in it do not change. `loss` takes logits and targets.
        """
        self.gather(inputs, targets, seed, step, forward=forward, loss=loss)
        self.descend(rate)

    def gather(
        self,
        inputs: Tensor,
        targets: Tensor,
        seed: int,
        step: int,
        *,
        more: bool = False,
        forward: Callable[[Tensor], Tensor] | None = None,
        loss: Callable[[Tensor, Tensor], Tensor] = F.cross_entropy,
    ) -> None:
        """Find the gradient of a batch, for `descend`; with `more`, add that of the body to what was gathered."""
        single: AbstractContextManager[Any] = (
            running_statistics_for_single_values(self.classifier) if len(inputs) == 1 else nullcontext()
        )
        drawing: AbstractContextManager[Any] = (
            torch_generator(seed, step, "layers", self.device) if self._random_layers else nullcontext()
        )
        with torch.enable_grad(), drawing, single, self._cast():
            value = loss((forward or self._forward)(inputs), targets)
        for part in (self.classifier.weight, self.classifier.bias) if more else self.classifier.parameters():
            part.grad = None  # an interrupted step may have left some
        value.backward()  # type: ignore[no-untyped-call]

    def descend(self, rate: float) -> None:
        """Make one step along what was gathered."""
        self._sgd.step(rate)
        if self.average:
            self.average.follow()

    def _forward(self, inputs: Tensor) -> Tensor:
        if self._compiled is not None and len(inputs) == self._compiled_rows:
            return self.classifier.head(self._compiled(inputs))
        logits: Tensor = self.classifier(inputs)
        return logits

    def logits(self, items: NDArray[np.generic]) -> NDArray[np.float64]:
        """Return the logits of items in evaluation mode, which changes nothing in the network."""
        network = self.average.network if self.average else self.classifier
        return self.outputs(items, network).to("cpu", torch.float64).numpy()

    def features(self, items: NDArray[np.generic]) -> Tensor:
        """Return the features (N, d) of items in evaluation mode."""
        return self.outputs(items, self.classifier.body)

    def outputs(self, items: NDArray[np.generic], part: Callable[[Tensor], Tensor]) -> Tensor:
        """Return what a part of the network makes of items in evaluation mode; nothing in it changes."""
        with torch.inference_mode(), self._evaluating():
            chunks = [items[start : start + _CHUNK] for start in range(0, max(1, len(items)), _CHUNK)]
            return torch.cat([part(self.normalise(self.to_device(chunk))) for chunk in chunks])

    def teach(self, inputs: Tensor) -> Tensor:
        """Return the logits of normalised inputs in evaluation mode, as targets for another network."""
        with torch.no_grad(), self._evaluating():
            logits: Tensor = self.classifier(inputs)
        return logits.to(self.dtype)

    @contextmanager
    def _evaluating(self) -> Iterator[None]:
        self.classifier.eval()
        try:
            with self._cast():
                yield
        finally:
            self.classifier.train()

    def reset_momentum(self) -> None:
        """Forget all momentum."""
        self._sgd.velocity.clear()

    def is_finite(self) -> bool:
        """Return whether all weights and statistics are finite numbers."""
        return all(bool(value.isfinite().all()) for value in self.classifier.state_dict().values())

    def parameters(self) -> int:
        return sum(parameter.numel() for parameter in self.classifier.parameters())

    def _cast(self) -> AbstractContextManager[Any]:
        return torch.autocast(self.device.type, torch.bfloat16) if self._autocast else nullcontext()

    def state(self, head: bool | None = None) -> dict[str, NDArray[Any]]:
        """Return weights, statistics and momentum by name: of the head, of all else, or where None of both."""
        arrays = {f"model.{name}": value for name, value in self._kept(head).items()}
        averages = self.average.values if self.average else {}
        for kind, values in (("momentum", self._sgd.velocity), ("average", averages)):
            arrays |= {f"{kind}.{name}": value for name, value in values.items() if head in (None, name in _OF_HEAD)}
        if self.average and not head:
            arrays["averaged"] = torch.tensor([self.average.updates, self.average.since], dtype=torch.float64)
        return {name: value.detach().to("cpu", copy=True).numpy() for name, value in arrays.items()}

    def restore(self, arrays: dict[str, NDArray[Any]], head: bool | None = None) -> None:
        """Take over what `state` gave; the head must have grown to its size."""
        own = self._kept(head)
        given = {name.removeprefix("model."): a for name, a in arrays.items() if name.startswith("model.")}
        if own.keys() != given.keys() or any(own[name].shape != given[name].shape for name in own):
            raise ValueError("the saved weights do not fit this model; pass the model that they were saved with")
        weights = {name: torch.from_numpy(value.copy()) for name, value in given.items()}
        self.classifier.load_state_dict(weights, strict=False)
        for name, parameter in self.classifier.named_parameters():
            if head in (None, name in HEAD):
                self._sgd.velocity.pop(name, None)
                if (saved := arrays.get(f"momentum.{name}")) is not None:
                    self._sgd.velocity[name] = _as(parameter.data, saved)
        if self.average:
            averages = {name.removeprefix("average."): a for name, a in arrays.items() if name.startswith("average.")}
            if BORN in averages:
                self.average.values[BORN] = torch.from_numpy(averages.pop(BORN).copy())
            # Of rows that were opened and have not learned there is none.
            self.average.values |= {
                name: _as(own[name][: len(value)] if value.ndim else own[name], value)
                for name, value in averages.items()
            }
            if "averaged" in arrays:
                updates, self.average.since = arrays["averaged"].tolist()
                self.average.updates = int(updates)

    def _kept(self, head: bool | None) -> dict[str, Tensor]:
        everything = self.classifier.state_dict()
        return {name: value for name, value in everything.items() if head in (None, name in HEAD)}


def _as(like: Tensor, array: NDArray[Any]) -> Tensor:
    """Return an array as a tensor of another's kind, place and layout."""
    return torch.empty_like(like).copy_(torch.from_numpy(array.copy()))


def _compiled(body: nn.Module) -> Callable[[Tensor], Tensor]:
    """Return the compiled network, in a function of its own.

    Torch gives up compiling a function silently after the eighth network that it was compiled for, and what it
    does then has other bits. It counts by code object; hence a new one for each network.
    """

    def forward(inputs: Tensor) -> Tensor:
        features: Tensor = body(inputs)
        return features

    own = types.FunctionType(forward.__code__.replace(), globals(), "forward", None, forward.__closure__)
    compiled: Callable[[Tensor], Tensor] = torch.compile(own, fullgraph=True, dynamic=False)
    return compiled
