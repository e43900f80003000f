"""What is measured: pictures, learners with a full buffer, and the bare step that is the floor."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional as F

from benchmarks.measuring import Action, Bench
from coldstream import native
from coldstream.data import load_dataset
from coldstream.learners import CSSL
from coldstream.learners.training.sgd import SGD
from coldstream.models import Body, Head
from coldstream.replay import ReplayBuffer

SIDE, CLASSES = 32, 10
RATE, MOMENTUM, DECAY = 0.01, 0.9, 1e-5
CODEC = "resize(0.66)|quantize(6)"
FULL = "crop|flip|autoaugment(cifar10)|mixup(0.1)/cutmix(0.8)"
_PICTURES = 1000


@functools.cache
def pictures() -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """Return 1,000 colour images (N, 32, 32, 3) that compress as photographs do, and labels 0..9 in turn.

    They are digits, smoothly enlarged, in two colours each and with some noise.
    """
    digits = load_dataset("digits")[0]
    rank = np.zeros(len(digits), np.int64)
    for label in range(CLASSES):
        rank[digits.labels == label] = np.arange((digits.labels == label).sum())
    order = np.lexsort((digits.labels, rank))[:_PICTURES]
    small = torch.from_numpy(np.stack([digits.images[i] for i in order])).permute(0, 3, 1, 2).float() / 255
    shape = F.interpolate(small, (SIDE, SIDE), mode="bicubic").clamp(0, 1).permute(0, 2, 3, 1).numpy()
    rng = np.random.default_rng(0)
    ink, paper = rng.uniform(0, 255, (2, len(order), 1, 1, 3))
    noise = rng.normal(0, 5, (len(order), SIDE, SIDE, 3))
    images = np.clip(shape * ink + (1 - shape) * paper + noise, 0, 255).astype(np.uint8)
    return images, digits.labels[order]


def fill(bench: Bench, buffer: ReplayBuffer, count: int) -> None:
    """Store examples with ids from 0 until there are `count`."""
    images, labels = pictures()
    ready = [(buffer.compress(image), int(label)) for image, label in zip(images, labels, strict=True)]
    missing = count - len(buffer)
    for start in bench.track(f"filling {count:,}", range(0, missing, len(ready))):
        for id, (packed, label) in enumerate(ready[: missing - start], start):
            buffer.store(packed, label, id)


def filled_learner(bench: Bench, stored: int, **settings: Any) -> CSSL:
    """Return a learner of ten classes with a full buffer; full policy and 6-bit/66% codec unless said otherwise."""
    given = {"codec": CODEC, "augment": FULL, "replay": bench.scale.replay, **settings}
    rate, decay = f"constant({RATE})", DECAY
    learner = CSSL(classes=CLASSES, capacity=stored, rate=rate, momentum=MOMENTUM, weight_decay=decay, **given)
    images, labels = pictures()
    first = range(min(CLASSES, stored))
    learner.learn_many(images[first], labels[first].tolist(), ids=[stored + i for i in first], per_update=CLASSES)
    fill(bench, learner.tasks[None].buffer, stored)
    return learner


def learning(learner: CSSL) -> Action:
    """Return the step that is measured: one new image is learned."""
    images, labels = pictures()
    stream = itertools.cycle(zip(images, labels.tolist(), strict=True))
    return lambda: learner.learn_one(*next(stream))


def without_kernels(action: Action) -> Action:
    """Return a step on the torch path, as where there is no C compiler."""

    def step() -> None:
        kept = native.available
        native.available = lambda: False
        try:
            action()
        finally:
            native.available = kept

    return step


def variants(*, compiled: bool) -> dict[str, dict[str, Any]]:
    """Return the settings under which the learner is measured beside its defaults, by name."""
    settings: dict[str, dict[str, Any]] = {
        "learn_one": {},
        "learn_one, prefetch": {"prefetch": True},
        "learn_one, no prefetch": {"prefetch": False},
    }
    return {**settings, "learn_one, compiled": {"compile": True}} if compiled else settings


def ready_batch(count: int, side: int = SIDE) -> tuple[Tensor, Tensor]:
    """Return normalised images (N, 3, side, side) and soft targets (N, 10)."""
    images, labels = pictures()
    pixels = torch.from_numpy(images[:count]).permute(0, 3, 1, 2).float()
    inputs = F.adaptive_avg_pool2d(pixels, side).div(255).sub(0.5).div(0.25).contiguous()
    hard = F.one_hot(torch.from_numpy(labels[:count]), CLASSES).float()
    return inputs, 0.7 * hard + 0.3 * hard.roll(1, 0)


class Network(nn.Module):
    """A network of ten classes as the learners have it: a body and a head."""

    def __init__(self, model: str, side: int = SIDE) -> None:
        super().__init__()
        body = Body.build(model, (3, side, side), 0)
        self.body, self.head = body.module, Head(body.features, 0, CLASSES)

    def forward(self, inputs: Tensor) -> Tensor:
        logits: Tensor = self.head(self.body(inputs))
        return logits


class BareStep:
    """Forward, backward and the optimiser's step on a batch that is ready: what no learner can do without.

    Parameters
    ----------
    model
        A name of `coldstream.models.MODELS`.
    replay
        B: the batch has B + 1 images.
    layout
        ``"contiguous"`` or ``"channels_last"``, of the batch and of the weights.
    optimiser
        ``"ours"``; ``"fused"`` or ``"plain"`` for torch's.
    compiled
        Whether the network up to its head is compiled.
    side
        Pixels a side.
    """

    def __init__(
        self,
        model: str,
        replay: int,
        layout: str = "contiguous",
        optimiser: str = "ours",
        compiled: bool = False,
        side: int = SIDE,
    ) -> None:
        self.classifier = Network(model, side)
        self.inputs, self.targets = ready_batch(replay + 1, side)
        form = torch.channels_last if layout == "channels_last" else torch.contiguous_format
        self.inputs = self.inputs.contiguous(memory_format=form)
        for parameter in self.classifier.parameters():
            if parameter.ndim == 4:
                parameter.data = parameter.data.contiguous(memory_format=form)
        self._body: Callable[[Tensor], Tensor] = self.classifier.body
        if compiled:
            self._body = torch.compile(self.classifier.body, dynamic=False)
        if optimiser == "ours":
            ours, group = SGD(MOMENTUM, DECAY), (dict(self.classifier.named_parameters()), dict[str, Tensor]())
            self._step: Action = lambda: ours.step(RATE, group)
        else:
            fused = True if optimiser == "fused" else None
            parameters = self.classifier.parameters()
            theirs = torch.optim.SGD(parameters, RATE, MOMENTUM, weight_decay=DECAY, fused=fused)
            self._step = theirs.step

    def __call__(self) -> None:
        self.classifier.zero_grad()
        loss = F.cross_entropy(self.classifier.head(self._body(self.inputs)), self.targets)
        loss.backward()  # type: ignore[no-untyped-call]
        self._step()


def floors(bench: Bench, model: str, replay: int, *, compiled: bool) -> Iterator[tuple[str, Action]]:
    """Yield the forms of the bare step, the fastest of which is the floor."""
    yield "floor, contiguous", BareStep(model, replay)
    yield "floor, contiguous, torch's fused SGD", BareStep(model, replay, optimiser="fused")
    if not has_convolutions(model):  # neither the layout nor a compiler has anything to change
        return
    yield "floor, channels-last", BareStep(model, replay, "channels_last")
    if not compiled:
        return
    torch.compiler.reset()  # torch stops compiling, silently, after eight forms of one class
    for layout in bench.track(f"compiling {model}", ("contiguous", "channels_last")):
        step = BareStep(model, replay, layout, compiled=True)
        try:
            step()
        except Exception as error:
            bench.note(f"{model} could not be compiled ({type(error).__name__}: {str(error).splitlines()[0]}).")
            return
        yield f"floor, compiled, {layout.replace('_', '-')}", step


def has_convolutions(model: str) -> bool:
    """Tell whether a network is more than its head."""
    return model != "linear"
