"""What can be set on an engine: normalisation, device, precision, memory format, compilation."""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

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

Normalise = str | tuple[Sequence[float], Sequence[float]]


def check_normalisation(normalize: Normalise) -> None:
    """Refuse what is neither the name of a normalisation nor a mean and a spread."""
    if isinstance(normalize, str):
        if normalize not in NORMALISATIONS:
            raise unknown("normalisation", normalize, NORMALISATIONS)
    elif not _is_mean_and_std(normalize):
        raise ValueError(f"normalize is a name or (mean, std), a number per channel, std above 0; not {normalize!r}")


def check_device(device: str) -> None:
    """Refuse a device that is unknown, that this machine does not have, or that stores no values (`meta`)."""
    try:
        kind = torch.device(device).type
    except RuntimeError:
        kind = "meta"
    if kind == "meta":
        raise ValueError(f"unknown device {device!r}; use 'cpu' or 'cuda'")
    try:
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError) as error:
        raise ValueError(f"device {device!r} is not available: {str(error).splitlines()[0]}") from error


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
