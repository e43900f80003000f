"""The networks by name. Each maps (N, C, H, W) images to (N, d) features; the head is the learner's."""

from __future__ import annotations

import copy
import inspect
import math
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from coldstream.models.resnet import SmallResNet
from coldstream.parsing import unknown

Shape = tuple[int, ...]
"""(channels, height, width) of an image, (features,) of a vector."""
ModelLike = str | nn.Module | Callable[[], nn.Module]


def _small(width: int, *blocks: int) -> Callable[[Shape], nn.Module]:
    return lambda shape: SmallResNet(shape[0], width, blocks)


def _torchvision(name: str, head: str) -> Callable[[Shape], nn.Module]:
    def build(shape: Shape) -> nn.Module:
        import torchvision  # takes seconds, which those who use our own networks need not wait

        network: nn.Module = torchvision.models.get_model(name, weights=None)
        _replace(network, head, nn.Identity())
        if shape[0] != 3:
            stem, first = next((n, m) for n, m in network.named_modules() if isinstance(m, nn.Conv2d))
            _replace(network, stem, _with_channels(first, shape[0]))
        return network

    return build


def _mobilenet_small(shape: Shape) -> nn.Module:
    """MobileNetV2 at a quarter of its width, the image halved three times instead of five."""
    from torchvision.models import MobileNetV2

    # Expansion, channels, blocks and stride of each stage, as torchvision has them but for two strides of 1.
    stages = (
        (1, 16, 1, 1),
        (6, 24, 2, 2),
        (6, 32, 3, 2),
        (6, 64, 4, 2),
        (6, 96, 3, 1),
        (6, 160, 3, 1),
        (6, 320, 1, 1),
    )
    network: nn.Module = MobileNetV2(width_mult=0.25, inverted_residual_setting=[list(stage) for stage in stages])
    _replace(network, "classifier.1", nn.Identity())
    _replace(network, "features.0.0", _stem(shape[0], 8))
    return network


def _densenet_small(shape: Shape) -> nn.Module:
    """DenseNet of three blocks of four layers that add 8 channels each, for images that are not halved first."""
    from torchvision.models import DenseNet

    network: nn.Module = DenseNet(growth_rate=8, block_config=(4, 4, 4), num_init_features=16)
    _replace(network, "classifier", nn.Identity())
    _replace(network, "features.conv0", _stem(shape[0], 16))
    _replace(network, "features.pool0", nn.Identity())
    return network


def _stem(channels: int, outputs: int) -> nn.Conv2d:
    return _with_channels(nn.Conv2d(channels, outputs, 3, padding=1), channels)


def _replace(network: nn.Module, path: str, module: nn.Module) -> None:
    parent, _, name = path.rpartition(".")
    setattr(network.get_submodule(parent), name, module)


def _with_channels(conv: nn.Conv2d, channels: int) -> nn.Conv2d:
    size: Any = conv.kernel_size
    other = nn.Conv2d(channels, conv.out_channels, size, conv.stride, conv.padding, bias=False)  # type: ignore[arg-type]
    nn.init.kaiming_normal_(other.weight, mode="fan_out", nonlinearity="relu")
    return other


def _mlp(shape: Shape) -> nn.Module:
    inputs = math.prod(shape)
    return nn.Sequential(
        nn.Flatten(),
        nn.BatchNorm1d(inputs, affine=False),
        nn.Linear(inputs, 64),
        nn.ReLU(),
        nn.Linear(64, 64),
        nn.ReLU(),
    )


MODELS: dict[str, Callable[[Shape], nn.Module]] = {
    "linear": lambda shape: nn.Flatten(),
    "mlp": _mlp,
    "resnet8-16": _small(16, 1, 1, 1),
    "resnet10-16": _small(16, 1, 1, 2),  # the smallest of which a part can be frozen and a part learn
    "resnet14-16": _small(16, 2, 2, 2),
    "resnet20-16": _small(16, 3, 3, 3),
    "resnet10-32": _small(32, 1, 1, 2),
    "resnet18-20": _small(20, 2, 2, 2, 2),
    "resnet18-cifar": _small(64, 2, 2, 2, 2),
    "mobilenet-small": _mobilenet_small,
    "densenet-small": _densenet_small,
    "resnet18": _torchvision("resnet18", "fc"),
    "resnet101": _torchvision("resnet101", "fc"),
    "mobilenet_v2": _torchvision("mobilenet_v2", "classifier.1"),
    "densenet121": _torchvision("densenet121", "classifier"),
    "wide_resnet50_2": _torchvision("wide_resnet50_2", "fc"),
}


def check_model(model: ModelLike) -> None:
    """Refuse what cannot become a network, before any image has come."""
    if isinstance(model, str):
        if model not in MODELS:
            raise unknown("model", model, MODELS)
    elif inspect.isclass(model) or not (isinstance(model, nn.Module) or callable(model)):
        raise ValueError(f"model is a name, an nn.Module or a function that makes one (lambda: Net()), not {model!r}")


def build_body(model: ModelLike, shape: Shape) -> tuple[nn.Module, int]:
    """Return the network for items of `shape`, and the number of features that it gives.

    Weights are drawn from torch's global generator: the caller seeds and restores it.
    """
    check_model(model)
    if isinstance(model, str):
        body = MODELS[model](shape)
    else:
        body = copy.deepcopy(model) if isinstance(model, nn.Module) else model()
        if not isinstance(body, nn.Module):
            raise ValueError(f"model: the function returned {type(body).__name__}, not an nn.Module")
    return body, _feature_count(body, shape, model)


def _feature_count(body: nn.Module, shape: Shape, model: ModelLike) -> int:
    try:
        features = on_blank(body, shape)
    except (RuntimeError, ValueError, TypeError, IndexError) as error:
        name = model if isinstance(model, str) else type(body).__name__
        raise ValueError(f"model {name} cannot take input of shape {shape}: {error}") from error
    if not isinstance(features, torch.Tensor) or features.ndim != 2:
        came = tuple(features.shape) if isinstance(features, torch.Tensor) else type(features).__name__
        raise ValueError(f"a model maps (N, *{shape}) to features (N, d); this one gave {came}")
    return int(features.shape[1])


def on_blank(network: nn.Module, shape: Shape) -> Any:
    """Return the output of a network for one blank item, in evaluation mode so that nothing in it changes."""
    training = {module: module.training for module in network.modules()}
    parameter = next(network.parameters(), torch.empty(0))
    network.eval()
    try:
        with torch.no_grad():
            return network(torch.zeros((1, *shape), dtype=parameter.dtype, device=parameter.device))
    finally:
        for module, mode in training.items():
            module.training = mode
