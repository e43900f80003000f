"""ResNets for small images: a 3x3 stem, no max-pool, any width and depth."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F


class _Block(nn.Module):
    """Two 3x3 convolutions and a shortcut, which is a 1x1 convolution where the shape changes."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(outputs)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(outputs)
        self.shortcut: nn.Module = nn.Identity()
        if stride != 1 or inputs != outputs:
            self.shortcut = nn.Sequential(nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs))

    def forward(self, x: Tensor) -> Tensor:
        out = F.relu(self.bn1(self.conv1(x)))
        return F.relu(self.bn2(self.conv2(out)) + self.shortcut(x))


class SmallResNet(nn.Module):
    """Features of small images: `len(blocks)` stages, of widths width, 2 width, 4 width, ...

    Parameters
    ----------
    channels
        Channels of the images: 1 for grey, 3 for colour.
    width
        Channels of the first stage.
    blocks
        Residual blocks of each stage. The first stage keeps the resolution, each later one halves it.
    """

    def __init__(self, channels: int, width: int, blocks: tuple[int, ...]) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(channels, width, 3, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        stages, inputs = [], width
        for stage, count in enumerate(blocks):
            outputs = width << stage
            first = _Block(inputs, outputs, stride=1 if stage == 0 else 2)
            stages.append(nn.Sequential(first, *(_Block(outputs, outputs, 1) for _ in range(count - 1))))
            inputs = outputs
        self.stages = nn.Sequential(*stages)
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.stages(F.relu(self.bn1(self.conv1(x))))
        return torch.flatten(F.adaptive_avg_pool2d(out, 1), 1)
