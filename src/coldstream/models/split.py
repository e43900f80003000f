"""A network in two parts: frozen G, from images to maps of features, and plastic F, from these to features."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from coldstream.models.registry import ModelLike, Shape, check_model, on_blank
from coldstream.models.resnet import SmallResNet

_WITHOUT_PARTS = (
    "cannot be split into a frozen and a plastic part; use a convolutional network such as 'resnet14-16' or "
    "'resnet18', or give your own the attributes `frozen` (a module from images to maps) and `plastic` (from maps to "
    "features)"
)
_SINGLE_BLOCK = (
    "cannot be split: its last stage has a single block, which would be frozen, so that nothing but the head would "
    "learn; use one with two or more, such as 'resnet14-16'"
)
UNSPLIT = {"linear": _WITHOUT_PARTS, "mlp": _WITHOUT_PARTS, "resnet8-16": _SINGLE_BLOCK}
"""Networks that cannot be split, and why."""


@dataclass(frozen=True)
class Split:
    """The two parts share their layers with the network: F(G(x)) equals the network bit for bit.

    Attributes
    ----------
    frozen
        G: normalised images to maps.
    plastic
        F: maps to features (N, d).
    shape
        (channels, height, width) of a map.
    """

    frozen: nn.Module
    plastic: nn.Module
    shape: tuple[int, int, int]


def split(body: nn.Module, shape: Shape) -> Split:
    """Split a network for images of `shape`, or say why it cannot be.

    ==============================  =====================================  ========================================
    network                         frozen G                               plastic F
    ==============================  =====================================  ========================================
    ResNets, ours and torchvision's to the first block of the last stage   the last stage's other blocks
    MobileNetV2                     to the last inverted residual          that block and the 1x1 convolution
    DenseNet121                     to the last transition                 the last dense block
    your own                        its attribute `frozen`                 its attribute `plastic`
    ==============================  =====================================  ========================================

    F also has the pooling, and whatever comes between it and the head.
    """
    frozen, plastic = _parts(body)
    maps = on_blank(frozen, shape)
    if maps.ndim != 4:
        raise ValueError(f"the frozen part maps images to maps (N, c, h, w); this one gave {tuple(maps.shape)}")
    _, channels, height, width = maps.shape
    both = nn.Sequential(frozen, plastic)
    if not torch.equal(on_blank(both, shape), on_blank(body, shape)):
        raise ValueError("the plastic part of the frozen part of an image must be what the network makes of it")
    return Split(frozen, plastic, (channels, height, width))


def check_split(model: ModelLike) -> None:
    """Refuse a network that is known by name and cannot be split, before any image has come."""
    check_model(model)
    if isinstance(model, str) and model in UNSPLIT:
        raise ValueError(f"model {model!r} {UNSPLIT[model]}")


def _parts(body: nn.Module) -> tuple[nn.Module, nn.Module]:
    frozen, plastic = getattr(body, "frozen", None), getattr(body, "plastic", None)
    if isinstance(frozen, nn.Module) and isinstance(plastic, nn.Module):
        return frozen, plastic
    if isinstance(body, SmallResNet):
        return _resnet([body.conv1, body.bn1, nn.ReLU()], body.stages, [])
    if type(body).__module__.startswith("torchvision."):
        from torchvision import models

        if isinstance(body, models.ResNet):
            stem = [body.conv1, body.bn1, body.relu, body.maxpool]
            return _resnet(stem, [body.layer1, body.layer2, body.layer3, body.layer4], [body.fc])
        if isinstance(body, models.MobileNetV2):
            return body.features[:-2], nn.Sequential(body.features[-2:], *_pooled(body.classifier))
        if isinstance(body, models.DenseNet):
            return body.features[:-2], nn.Sequential(body.features[-2:], nn.ReLU(), *_pooled(body.classifier))
    raise ValueError(f"model {type(body).__name__} {_WITHOUT_PARTS}")


def _resnet(
    stem: list[nn.Module], stages: Iterable[nn.Module], rest: list[nn.Module]
) -> tuple[nn.Sequential, nn.Sequential]:
    *before, last = stages
    first, *others = last.children()
    if not others:
        raise ValueError(f"this ResNet {_SINGLE_BLOCK}")
    return nn.Sequential(*stem, *before, first), nn.Sequential(*others, *_pooled(*rest))


def _pooled(*rest: nn.Module) -> tuple[nn.Module, ...]:
    return nn.AdaptiveAvgPool2d(1), nn.Flatten(1), *rest


class Extra(nn.Module):
    """Two more layers for maps: a residual block of 3x3 convolutions that begins as the identity.

    So a network whose weights were given still does what it did, until the block has learned something. Beside its
    `middle` channels there can be a few that see one position only, where whole ones are too coarse a measure.
    """

    def __init__(self, channels: int, middle: int, pointwise: int = 0) -> None:
        super().__init__()
        self.narrow: nn.Module | None = None
        if pointwise:
            back = nn.Conv2d(pointwise, channels, 1, bias=False)
            nn.init.zeros_(back.weight)
            self.narrow = nn.Sequential(nn.Conv2d(channels, pointwise, 1, bias=False), nn.ReLU(), back)
        self.conv1 = nn.Conv2d(channels, middle, 3, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(middle)
        self.conv2 = nn.Conv2d(middle, channels, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(channels)
        for conv in (self.conv1, self.conv2):
            nn.init.kaiming_normal_(conv.weight, mode="fan_out", nonlinearity="relu")
        nn.init.zeros_(self.bn2.weight)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.bn2(self.conv2(F.relu(self.bn1(self.conv1(x)))))
        return x + out if self.narrow is None else x + out + self.narrow(x)


def with_extra(parts: Split) -> Split:
    """Put as many parameters before the plastic part as the frozen part has.

    The trainable parameters are then as many as if the whole network were trained: within 0.1%, by the width of the
    block alone where that is fine enough, else by a few channels of 1x1 convolutions beside it.
    """
    channels = parts.shape[0]
    frozen, plastic = (sum(p.numel() for p in part.parameters()) for part in (parts.frozen, parts.plastic))
    wanted, each = frozen - 2 * channels, 18 * channels + 2
    middle, pointwise = max(1, round(wanted / each)), 0
    if abs(wanted - middle * each) > 0.001 * (frozen + plastic):
        middle = max(1, wanted // each)
        pointwise = max(0, round((wanted - middle * each) / (2 * channels)))
    extra = Extra(channels, middle, pointwise)
    return Split(parts.frozen, nn.Sequential(extra, parts.plastic), parts.shape)
