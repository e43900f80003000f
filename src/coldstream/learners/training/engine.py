"""A network that learns and answers: normalise, update, predict. All that touches a device is here."""

from __future__ import annotations

import copy
import math
import os
import types
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from functools import cache
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional as F

from coldstream import native
from coldstream.augment import Policy, compiled
from coldstream.augment.mixing import mix_targets
from coldstream.learners.training.averaging import BORN, Average, completed
from coldstream.learners.training.options import MEMORY_FORMATS, NORMALISATIONS, PRECISIONS, Normalise
from coldstream.learners.training.sgd import SGD
from coldstream.models import Body, Head
from coldstream.models.network import running_statistics_for_single_values, torch_generator

_CHUNK = 64
"""Images per forward pass of a prediction. Activations of larger chunks are new memory each time, and the page faults
make it a third slower (docs/performance.md)."""

Loss = Callable[[Tensor, Tensor], Tensor]
"""(logits, targets) -> the value to minimise."""


@cache
def _one_thread_after_forks() -> None:
    """Let torch have one thread in forked processes: GNU's OpenMP has none of its other threads there, and waits.

    What a forked process computes has other last bits then, as with any other number of threads.
    """
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=lambda: torch.set_num_threads(1))


class TrainedHead(Head):
    """A head with the state of its training: momentum, and the average of its weights."""

    def __init__(self, features: int, seed: int, rows: int = 0) -> None:
        super().__init__(features, seed)
        self.velocity: dict[str, Tensor] = {}
        self.average: dict[str, Tensor] = {}
        self.grow(rows)

    @torch.inference_mode(mode=False)
    def grow(self, rows: int) -> None:
        """Add rows with zero momentum until there are `rows`; those that exist keep their bits."""
        if rows <= self.rows:
            return
        super().grow(rows)
        for name, parameter in self.named_parameters():
            before = self.velocity.get(name)
            if before is not None:
                self.velocity[name] = torch.zeros_like(parameter)
                self.velocity[name][: len(before)] = before

    def averages(self) -> tuple[Tensor, Tensor]:
        """Return averaged weights and biases; rows without an average are as they are."""
        weight, bias = (
            completed(self.average[name], value) if name in self.average else value
            for name, value in self.named_parameters()
        )
        return weight, bias

    def averaged(self, features: Tensor) -> Tensor:
        """Return the logits of the averaged rows."""
        return F.linear(features, *self.averages())

    def state(self) -> dict[str, NDArray[Any]]:
        """Return weights, momentum and average by name."""
        weights: dict[str, Tensor] = dict(self.named_parameters())
        parts = {"model": weights, "momentum": self.velocity, "average": self.average}
        return _arrays({f"{kind}.{name}": value for kind, part in parts.items() for name, value in part.items()})

    def restore(self, arrays: dict[str, NDArray[Any]]) -> None:
        """Restore what `state` returned; the head must have as many rows as then."""
        self.velocity, self.average = {}, {}
        for name, parameter in self.named_parameters():
            _copy_into(parameter.data, arrays.get(f"model.{name}"))
            if (saved := arrays.get(f"momentum.{name}")) is not None:
                self.velocity[name] = _as(parameter.data, saved)
            if (saved := arrays.get(f"average.{name}")) is not None:
                self.average[name] = _as(parameter.data[: len(saved)], saved)
        if (born := arrays.get(f"average.{BORN}")) is not None:
            self.average[BORN] = torch.from_numpy(born.copy())


class Engine:
    """The body of a network with its optimiser, on one device. Heads are given to each call.

    `update` is one SGD step with momentum on the mean soft-target cross-entropy:
    g = grad + decay w;  v = momentum v + g;  w -= rate v. Momentum is never reset, and a new head row's is zero.
    Predictions come from a second module in evaluation mode: one that shares the weights, or with `average`, one that
    holds the average of the latest weights (`coldstream.learners.training.averaging`).
    """

    def __init__(
        self,
        body: Body,
        *,
        momentum: float,
        weight_decay: float,
        normalize: Normalise = "half",
        device: str = "cpu",
        precision: str = "float32",
        memory_format: str = "auto",
        average: bool = False,
    ) -> None:
        _one_thread_after_forks()
        self.device = torch.device(device)
        self.dtype = PRECISIONS[precision]
        self.features = body.features
        self.body = body.module.to(device=self.device, dtype=self.dtype)
        self._autocast = precision == "bfloat16"
        # Convolutions are faster with channels last; a network without any would only rearrange what it gets.
        convolves = any(parameter.ndim == 4 for parameter in self.body.parameters())
        fastest = torch.channels_last if convolves else torch.contiguous_format
        self._format = MEMORY_FORMATS[memory_format] or fastest
        self._compiled: Callable[[Tensor], Tensor] | None = None
        self._compiled_rows = 0
        self._numbers = torch.empty(0)
        self._loss = torch.zeros(())
        self._lines: dict[int, tuple[Tensor, Tensor]] = {}
        for parameter in self.body.parameters():
            if parameter.ndim == 4:
                parameter.data = parameter.data.contiguous(memory_format=self._format)
        self._parameters = dict(self.body.named_parameters())
        self._sgd = SGD(momentum, weight_decay)
        self.velocity: dict[str, Tensor] = {}
        self.answering = _sharing_twin(self.body)
        # The few that are not empty: walking through all modules would take a tenth as long as a small network.
        twins = zip(self.body.modules(), self.answering.modules(), strict=True)
        self._buffers = [(live._buffers, twin._buffers) for live, twin in twins if live._buffers]
        self.average = Average(self.body) if average else None
        self.draws = body.draws
        mean, std = NORMALISATIONS[normalize] if isinstance(normalize, str) else normalize
        self._mean, self._std = np.asarray(mean, np.float64), np.asarray(std, np.float64)

    @torch.inference_mode(mode=False)
    def new_head(self, seed: int, rows: int) -> TrainedHead:
        """Return a new head for this body."""
        return TrainedHead(self.features, seed, rows).to(device=self.device, dtype=self.dtype)

    def copy_body(self) -> Body:
        """Return a copy of the body as it is now."""
        return Body(copy.deepcopy(self.body), self.features, self.draws)

    def to_device(self, items: NDArray[np.generic]) -> Tensor:
        """Return images (N, H, W, C) as a uint8 tensor (N, C, H, W) on the device; vectors as they are."""
        tensor = torch.from_numpy(items).to(self.device)
        return tensor.permute(0, 3, 1, 2) if tensor.ndim == 4 else tensor

    def normalise(self, items: Tensor) -> Tensor:
        """Return what the network takes: pixels scaled to mean 0 and spread 1 by fixed constants."""
        if items.ndim != 4:
            return items.to(self.dtype)
        scale, shift = self.scale_and_shift(items.shape[1])
        return self._laid_out(torch.addcmul(shift, items.to(self.dtype), scale))

    def scale_and_shift(self, channels: int) -> tuple[Tensor, Tensor]:
        """Return scale and shift of each channel's bytes, (channels, 1, 1)."""
        if channels not in self._lines:
            mean, std = (v if len(v) in (1, channels) else v.mean(keepdims=True) for v in (self._mean, self._std))
            kind = np.float64 if self.dtype == torch.float64 else np.float32
            arrays = (np.resize(part.astype(kind), (channels, 1, 1)) for part in (1 / (255 * std), -mean / std))
            scale, shift = (torch.from_numpy(array).to(self.device) for array in arrays)
            self._lines[channels] = scale, shift
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
        scale, shift = (part.numpy().ravel() for part in self.scale_and_shift(channels))
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
        self._compiled, self._compiled_rows = _compiled(self.body), rows

    def update(
        self,
        head: TrainedHead,
        inputs: Tensor,
        targets: Tensor,
        rate: float,
        seed: int,
        step: int,
        *,
        forward: Callable[[Tensor], Tensor] | None = None,
        loss: Loss = F.cross_entropy,
    ) -> None:
        """Make one step on a batch of normalised images and soft targets.

        A method that trains a part of the body says how its inputs become features (`forward`); parameters that
        have no share in it do not change. `loss` takes logits and targets.
        """
        self.gather(head, inputs, targets, seed, step, forward=forward, loss=loss)
        self.descend(head, rate)

    def gather(
        self,
        head: TrainedHead,
        inputs: Tensor,
        targets: Tensor,
        seed: int,
        step: int,
        *,
        more: bool = False,
        forward: Callable[[Tensor], Tensor] | None = None,
        loss: Loss = F.cross_entropy,
    ) -> None:
        """Compute the gradient of a batch, for `descend`; with `more`, add that of the body to what was gathered."""
        single: AbstractContextManager[Any] = (
            running_statistics_for_single_values(self.body) if len(inputs) == 1 else nullcontext()
        )
        drawing: AbstractContextManager[Any] = (
            torch_generator(seed, step, "layers", self.device) if self.draws else nullcontext()
        )
        with torch.enable_grad(), drawing, single, self._cast():
            value = loss(head((forward or self._forward)(inputs)), targets)
        self._refuse_divergence(value.detach())
        for parameter in head.parameters() if more else (*self._parameters.values(), *head.parameters()):
            parameter.grad = None  # an interrupted step may have left some
        value.backward()  # type: ignore[no-untyped-call]

    def _refuse_divergence(self, loss: Tensor) -> None:
        """Refuse a loss that is not finite; on a GPU that of the update before, which is known without waiting."""
        if self.device.type != "cpu":
            loss, self._loss = self._loss, loss
        if not math.isfinite(loss.item()):
            raise FloatingPointError(
                "the network diverged: the loss is not a finite number; load the last checkpoint or begin again, "
                "with a lower rate"
            )

    def descend(self, head: TrainedHead, rate: float) -> None:
        """Make one step along what was gathered."""
        named = dict(head.named_parameters())
        self._sgd.step(rate, (self._parameters, self.velocity), (named, head.velocity))
        if self.average:
            self.average.follow({name: value.data for name, value in named.items()}, head.average)

    def _forward(self, inputs: Tensor) -> Tensor:
        compiled = self._compiled is not None and len(inputs) == self._compiled_rows
        features: Tensor = self._compiled(inputs) if compiled and self._compiled else self.body(inputs)
        return features

    def logits(self, head: TrainedHead, items: NDArray[np.generic]) -> NDArray[np.float64]:
        """Return the logits of items, those of the average where there is one; nothing in the network changes."""

        def averaged(inputs: Tensor) -> Tensor:
            assert self.average is not None
            return head.averaged(self.average.body(inputs))

        part = averaged if self.average and self.average.updates else lambda inputs: head(self.answering(inputs))
        return self.outputs(items, part).to("cpu", torch.float64).numpy()

    def answering_body(self) -> nn.Module:
        """Return the module that answers: the average where there is one, in evaluation mode; it is not a copy."""
        self._share_buffers()
        return self.average.body if self.average and self.average.updates else self.answering

    def features_of(self, items: NDArray[np.generic]) -> Tensor:
        """Return the features (N, d) of items in evaluation mode."""
        return self.outputs(items, self.answering)

    def answering_features(self, items: NDArray[np.generic]) -> NDArray[np.float32]:
        """Return the features (N, d) of items that `logits` is computed from: of the average where there is one."""
        body = self.average.body if self.average and self.average.updates else self.answering
        return self.outputs(items, body).to("cpu", torch.float32).numpy()

    def outputs(self, items: NDArray[np.generic], part: Callable[[Tensor], Tensor]) -> Tensor:
        """Return what a function of normalised inputs makes of items, without gradients, a chunk at a time."""
        self._share_buffers()
        with torch.inference_mode(), self._cast():
            chunks = [items[start : start + _CHUNK] for start in range(0, max(1, len(items)), _CHUNK)]
            answers = [part(self.normalise(self.to_device(chunk))) for chunk in chunks]
            return answers[0] if len(answers) == 1 else torch.cat(answers)

    def _share_buffers(self) -> None:
        """Let the modules that answer have the network's buffers, which a network of the user's own may replace."""
        for live, twin in self._buffers:
            twin |= live
        if self.average:
            self.average.share_buffers()

    def teach(self, head: TrainedHead, inputs: Tensor) -> Tensor:
        """Return the logits of normalised inputs in evaluation mode, as targets for another network."""
        self._share_buffers()
        with torch.no_grad(), self._cast():
            logits: Tensor = head(self.answering(inputs))
        return logits.to(self.dtype)

    def size(self) -> int:
        """Return the number of the body's parameters."""
        return sum(parameter.numel() for parameter in self._parameters.values())

    def _cast(self) -> AbstractContextManager[Any]:
        return torch.autocast(self.device.type, torch.bfloat16) if self._autocast else nullcontext()

    def state(self) -> dict[str, NDArray[Any]]:
        """Return the body's weights, statistics, momentum and average by name."""
        averages = self.average.state() if self.average else {}
        parts = {"model": self.body.state_dict(), "momentum": self.velocity, "average": averages}
        arrays = {f"{kind}.body.{name}": value for kind, part in parts.items() for name, value in part.items()}
        if self.average:
            arrays["averaged"] = torch.tensor([self.average.updates, self.average.since], dtype=torch.float64)
        return _arrays(arrays)

    def restore(self, arrays: dict[str, NDArray[Any]]) -> None:
        """Restore what `state` returned."""
        saved: dict[str, dict[str, NDArray[Any]]] = {"model": {}, "momentum": {}, "average": {}}
        for full, array in arrays.items():
            kind, _, name = full.partition(".body.")
            if name and kind in saved:
                saved[kind][name] = array
        weights = self.body.state_dict()
        if weights.keys() != saved["model"].keys():
            raise ValueError(_UNFIT)
        for name, value in weights.items():
            _copy_into(value, saved["model"][name])
        self.velocity = {name: _as(self._parameters[name].data, array) for name, array in saved["momentum"].items()}
        if self.average and "averaged" in arrays:
            updates, self.average.since = arrays["averaged"].tolist()
            self.average.updates = int(updates)
            averages = self.average.body.state_dict()
            for name, array in saved["average"].items():
                _copy_into(averages[name], array)

    def is_finite(self, head: TrainedHead) -> bool:
        """Return whether all weights and statistics are finite numbers."""
        values = (*self.body.state_dict().values(), *head.parameters())
        return all(bool(value.isfinite().all()) for value in values)


_UNFIT = "the saved weights do not fit this model; pass the model that they were saved with"


def _arrays(tensors: dict[str, Tensor]) -> dict[str, NDArray[Any]]:
    return {name: value.detach().to("cpu", copy=True).numpy() for name, value in tensors.items()}


def _copy_into(tensor: Tensor, array: NDArray[Any] | None) -> None:
    if array is None or tuple(tensor.shape) != array.shape:
        raise ValueError(_UNFIT)
    with torch.no_grad():
        tensor.copy_(torch.from_numpy(array.copy()))


def _sharing_twin(body: nn.Module) -> nn.Module:
    """Return a copy of a module that shares its tensors and is in evaluation mode for good."""
    shared: dict[int, Any] = {id(value): value for value in (*body.parameters(), *body.buffers())}
    return copy.deepcopy(body, shared).eval()


def _as(like: Tensor, array: NDArray[Any]) -> Tensor:
    """Return an array as a tensor with the dtype, device and layout of another."""
    return torch.empty_like(like).copy_(torch.from_numpy(array.copy()))


def _compiled(body: nn.Module) -> Callable[[Tensor], Tensor]:
    """Return the compiled network, in a function of its own.

    Torch gives up compiling a function silently after the eighth network that it was compiled for, and what it
    does then has other bits. It counts by code object; hence a new one for each network.
    """

    def forward(inputs: Tensor) -> Tensor:
        features: Tensor = body(inputs)
        return features

    separate = types.FunctionType(forward.__code__.replace(), globals(), "forward", None, forward.__closure__)
    compiled: Callable[[Tensor], Tensor] = torch.compile(separate, fullgraph=True, dynamic=False)
    return compiled
