"""The settings of CSSL in the paper's experiments (its section 5 and appendix A)."""

from __future__ import annotations

from typing import Any

from coldstream.parsing import unknown

_MIX = "mixup(0.1)/cutmix(0.8)"
PAPER_POLICY = f"crop|flip|autoaugment(cifar10)|{_MIX}"
"""The paper's augmentation of small images."""
_COMMON: dict[str, Any] = {"replay": 100, "momentum": 0.9, "evict": "largest-class", "sample": "uniform"}
_LARGE: dict[str, Any] = {
    "model": "resnet18",
    "normalize": "imagenet",
    "augment": f"resizedcrop|flip|autoaugment(imagenet)|{_MIX}",
    "channels": 3,
}

PAPER: dict[str, dict[str, Any]] = {
    # Class-incremental CIFAR-100: 100 classes known in advance, 30 Mb of images at 6 bits and 66% of the area.
    "cifar100": {
        **_COMMON,
        "model": "resnet18-cifar",
        "size": 32,
        "channels": 3,
        "classes": 100,
        "codec": "resize(0.66)|quantize(6)",
        "capacity": "30MB",
        "augment": PAPER_POLICY,
        "normalize": "cifar100",
        "rate": "linear(0.1, 0.001)",
        "weight_decay": 1e-5,
    },
    # Class-incremental ImageNet at 1.5 Gb: 4 bits (found better than 6 there) and 75% of the area.
    "imagenet": {
        **_COMMON,
        **_LARGE,
        "size": 224,
        "zoom": 0.875,
        "classes": 1000,
        "codec": "resize(0.75)|quantize(4)",
        "capacity": "1.5GB",
        "rate": "linear(0.1, 0.001)",
        "weight_decay": 1e-5,
    },
    # CORe50 at 100 Mb; a constant rate, so no counts are needed. 200 Mb is quantize(4), 300 Mb is raw.
    "core50": {
        **_COMMON,
        **_LARGE,
        "size": 128,
        "classes": 10,
        "codec": "resize(0.75)|quantize(4)",
        "capacity": "100MB",
        "rate": "constant(0.01)",
        "weight_decay": 1e-4,
    },
    # One data set of the multi-task sequence; all examples may be kept.
    "multi-task": {
        **_COMMON,
        **_LARGE,
        "size": 224,
        "zoom": 0.875,
        "codec": "raw",
        "capacity": None,
        "rate": "linear(0.1, 0.001)",
        "weight_decay": 1e-5,
    },
}


def paper_recipe(name: str) -> dict[str, Any]:
    """Return the settings of one of the paper's experiments."""
    if name not in PAPER:
        raise unknown("recipe of the paper", name, PAPER)
    return dict(PAPER[name])
