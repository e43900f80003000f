"""Weights to start from: a torchvision name or a file. Nothing in a file is ever executed."""

from __future__ import annotations

import os
from pathlib import Path

import safetensors
import safetensors.torch
import torch
from torch import Tensor, nn

from coldstream.parsing import unknown

_HEADS = ("fc.", "classifier.", "head.")
_SUFFIXES = (".safetensors", ".pt", ".pth", ".bin")


def check_init(source: object) -> None:
    """Refuse a file that does not exist, before anything is learned."""
    if (
        isinstance(source, (str, Path))
        and source != "random"
        and _looks_like_a_file(source)
        and not os.path.isfile(source)
    ):
        raise ValueError(f"weights file {str(source)[:200]!r} does not exist")


def is_published(source: object) -> bool:
    """Return whether a source of weights is the name of published ones, rather than a file or none."""
    return (
        isinstance(source, str)
        and source not in ("random", "base")
        and not (_looks_like_a_file(source) or os.path.isfile(source))
    )


def _looks_like_a_file(source: str | Path) -> bool:
    path = Path(source)
    return isinstance(source, Path) or path.suffix in _SUFFIXES or len(path.parts) > 1


def load_weights(body: nn.Module, model: object, source: str | Path) -> None:
    """Put the weights named by `source` into a network; all of them or, with a ValueError, none.

    `source` is a file (.safetensors, or a .pt/.pth state dict) or the name of torchvision's weights for this
    network, such as ``IMAGENET1K_V1`` or ``DEFAULT``, which torchvision downloads once. The head is not taken.
    """
    path = Path(source)
    if os.path.isfile(path):
        state = _read(path)
    elif _looks_like_a_file(source):
        raise ValueError(f"weights file {str(source)[:200]!r} does not exist")
    else:
        state = _published(model, str(source))
    _fill(body, state, str(source))


def _read(path: Path) -> dict[str, Tensor]:
    try:
        if path.suffix == ".safetensors":
            return safetensors.torch.load_file(path)
        state = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # a file that is no weights makes the unpickler raise whatever it meets
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        reason = reason.partition(". ")[0]  # torch goes on to recommend loading that runs code
        raise ValueError(
            f"weights file {str(path)!r} cannot be read as plain tensors (it is truncated, of another format, or "
            f"holds code, which is never run): {reason}"
        ) from error
    if isinstance(state, dict) and isinstance(state.get("state_dict"), dict):
        state = state["state_dict"]
    if not isinstance(state, dict) or not all(isinstance(value, Tensor) for value in state.values()):
        raise ValueError(f"weights file {str(path)!r} does not hold a state dict (names to tensors)")
    return {name.removeprefix("module."): value for name, value in state.items()}


def _published(model: object, name: str) -> dict[str, Tensor]:
    import torchvision

    try:
        choices = torchvision.models.get_model_weights(model) if isinstance(model, str) else None
    except ValueError:
        choices = None
    if choices is None:
        raise ValueError(f"there are no published weights {name!r} for this model; give a weights file")
    if name not in choices.__members__:
        raise unknown(f"weights for {model}", name, [*choices.__members__])
    try:
        state: dict[str, Tensor] = choices[name].get_state_dict(check_hash=True)
    except OSError as error:
        raise ValueError(
            f"weights {name!r} of {model} could not be downloaded ({error}); fetch the file from "
            f"{choices[name].url} elsewhere and pass its path as init="
        ) from error
    return state


def _fill(body: nn.Module, state: dict[str, Tensor], source: str) -> None:
    expected = body.state_dict()
    given = {name: value for name, value in state.items() if name in expected or not name.startswith(_HEADS)}
    missing = sorted(expected.keys() - given.keys())
    extra = sorted(given.keys() - expected.keys())
    wrong = [
        f"{name} {tuple(given[name].shape)}, not {tuple(expected[name].shape)}"
        for name in expected.keys() & given.keys()
        if expected[name].shape != given[name].shape
    ]
    for what, names in (("lacks", missing), ("has unknown", extra), ("has the wrong shape:", sorted(wrong))):
        if names:
            raise ValueError(f"weights {source!r} do not fit this network: it {what} {', '.join(names[:3])}")
    body.load_state_dict(given)
