"""Settings of learners, declared once: the signature, the checks, the JSON form and the documentation follow."""

from __future__ import annotations

import inspect
import json
import math
import textwrap
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, Self

import numpy as np
import torch
from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, ValidationError, ValidationInfo
from torch import nn

from coldstream.augment import Policy
from coldstream.data import Dataset
from coldstream.labels import MAX_DEPTH, Label, as_label, from_json, shown
from coldstream.learners.inputs import sides, warn, whole
from coldstream.learners.training.options import (
    MEMORY_FORMATS,
    PRECISIONS,
    Normalise,
    check_device,
    check_normalisation,
)
from coldstream.models import ModelLike, check_init, check_model, is_published
from coldstream.parsing import unknown

_COUNTS = "counts"
_NOT_JSON = {"model", "init", _COUNTS}  # these have a form of their own
MAX_CLASSES = 100_000
"""Of a head whose rows are made in advance."""


class Settings(BaseModel):
    """Settings of a learner. A field's docstring is its documentation; unknown settings are refused.

    A method of your own declares its settings in a class `Settings` inside its own, derived from that of the learner
    it derives from. They are then checked, saved and restored with the others.
    """

    model_config = ConfigDict(
        extra="forbid", frozen=True, arbitrary_types_allowed=True, use_attribute_docstrings=True
    )

    @classmethod
    def read(cls, owner: str, given: Mapping[str, Any]) -> Self:
        """Return checked settings; a ValueError says which one is wrong, and what it may be."""
        try:
            settings = cls(**{name: _plain(name, value) for name, value in given.items()})
            settings._check_kept(owner)
            return settings
        except ValidationError as error:
            first = error.errors(include_url=False)[0]
            name = str(first["loc"][0]) if first["loc"] else ""
            if first["type"] == "extra_forbidden":
                raise unknown(f"setting of {owner}", name, cls.model_fields) from None
            if first["type"] == "missing" and len(first["loc"]) == 1:
                raise ValueError(f"{owner} needs setting {name!r}, which has no default") from None
            if isinstance(cause := first.get("ctx", {}).get("error"), ValueError):
                raise cause from None
            problem = first["msg"][0].lower() + first["msg"][1:]
            raise ValueError(f"{name} is wrong: {problem}, not {shown(first['input'])}") from None

    def _check_kept(self, owner: str) -> None:
        """Refuse settings that a checkpoint would not keep."""
        for name in type(self).model_fields.keys() - _NOT_JSON:
            try:
                kept = json.loads(json.dumps(self.model_dump(mode="json", include={name})[name]))
                restored = type(self).__pydantic_validator__.validate_assignment(self.model_copy(), name, kept)
                equal = bool(getattr(self, name) == getattr(restored, name))
            except (TypeError, ValueError) as error:
                raise ValueError(f"{owner} has a setting {name!r} that a checkpoint cannot keep: {error}") from None
            if not equal:
                raise ValueError(f"{owner} has a setting {name!r} that a checkpoint would not keep as it is")

    def to_json(self) -> dict[str, Any]:
        """Return the settings as JSON can keep them: counts as pairs, a model of the user's own as None."""
        names = type(self).model_fields
        written = self.model_dump(mode="json", exclude=_NOT_JSON)
        values = {name: getattr(self, name) for name in names}
        values |= {name: _sorted_sets(values[name], written[name]) for name in written}
        if values.get(_COUNTS) is not None:
            values[_COUNTS] = [list(pair) for pair in values[_COUNTS].items()]
        return {**values, **({} if isinstance(values["model"], str) else {"model": None})}

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> dict[str, Any]:
        """Return keyword arguments from what `to_json` gave."""
        counts = values.get(_COUNTS)
        return {**values, **({} if counts is None else {_COUNTS: {from_json(label): n for label, n in counts}})}

    def changes(self) -> str:
        """Return the settings that differ from their defaults, abbreviated, in the form of keyword arguments."""
        defaults = {
            name: field.get_default(call_default_factory=True) for name, field in type(self).model_fields.items()
        }
        values = {name: getattr(self, name) for name in defaults}
        return ", ".join(
            f"{name}={_named(value)}" for name, value in values.items() if not _same(value, defaults[name])
        )

    @classmethod
    def signature(cls) -> inspect.Signature:
        """Return the signature of a learner with these settings."""
        parameters = []
        for name, field in cls.model_fields.items():
            required, kind = field.is_required(), inspect.Parameter.KEYWORD_ONLY
            default = inspect.Parameter.empty if required else field.get_default(call_default_factory=True)
            parameters.append(inspect.Parameter(name, kind, default=default, annotation=field.annotation))
        return inspect.Signature(parameters)

    @classmethod
    def documentation(cls) -> str:
        """Return the section of a docstring that describes the settings."""
        lines = ["Parameters", "----------"]
        for name, field in cls.model_fields.items():
            lines += [name, textwrap.indent(inspect.cleandoc(field.description or ""), "    ")]
        return "\n".join(lines)


def declare_settings(kind: Any, inherited: type[NetworkSettings]) -> None:
    """Check the `Settings` of a learner's class, and give the class their signature and documentation."""
    if not (inspect.isclass(kind.Settings) and issubclass(kind.Settings, inherited)):
        raise TypeError(f"{kind.__name__}.Settings must derive from {inherited.__name__}, whose settings it adds to")
    kind.__signature__ = kind.Settings.signature()
    described = inspect.cleandoc(kind.__dict__.get("__doc__") or "")
    if "Parameters\n----------" not in described:
        before, examples, after = described.partition("Examples\n--------")
        kind.__doc__ = f"{before.rstrip()}\n\n{kind.Settings.documentation()}\n\n{examples}{after}"


def _same(value: Any, default: Any) -> bool:
    return type(value) is type(default) and bool(value == default)


def _sorted_sets(value: Any, written: Any) -> Any:
    """Return `written`, the JSON form of `value`, with its sets in an order that does not depend on their hashes."""
    if isinstance(value, (set, frozenset)):
        return sorted(map(_sorted_sets, value, written), key=json.dumps)
    if isinstance(value, (list, tuple)) and isinstance(written, list):
        return [*map(_sorted_sets, value, written)]
    if isinstance(value, Mapping) and isinstance(written, dict):
        return dict(zip(written, map(_sorted_sets, value.values(), written.values()), strict=True))
    return written


def _named(value: Any) -> str:
    """Return a setting in short; a network or a data set by its name."""
    if isinstance(value, Dataset):
        return f"<data set {value.name!r}>"
    if isinstance(value, nn.Module) or callable(value):
        return f"<{getattr(value, '__qualname__', type(value).__qualname__)}>"
    return shown(value)


def _plain(name: str, value: Any, depth: int = 0) -> Any:
    """Return a setting as JSON can keep it: arrays of NumPy and torch, paths and devices in plain form."""
    if isinstance(value, (np.generic, np.ndarray, torch.Tensor)):
        try:
            value = value.tolist()
        except (RuntimeError, NotImplementedError) as error:
            raise ValueError(f"{name} is a tensor without values: {error}") from None
    if isinstance(value, int) and value.bit_length() > 64:
        raise ValueError(f"{name} has a number of {value.bit_length():,} bits; numbers have at most 64")
    if isinstance(value, (tuple, list)):
        if depth == MAX_DEPTH:
            raise ValueError(f"{name} has more than {MAX_DEPTH} levels of lists in lists: {shown(value)}")
        return [_plain(name, part, depth + 1) for part in value]
    return str(value) if isinstance(value, (Path, torch.device)) else value


def whole_from(least: int, most: int = (1 << 63) - 1) -> BeforeValidator:
    """Return the check that a setting is a whole number from `least` to `most`."""

    def check(value: Any, info: ValidationInfo) -> int | None:
        return whole(str(info.field_name), value, least, most)

    return BeforeValidator(check)


def number(
    *, above: float = -math.inf, least: float = -math.inf, below: float = math.inf, most: float = math.inf
) -> BeforeValidator:
    """Return the check that a setting is a number within bounds."""
    words = [f"{word} {bound:g}" for word, bound in (("above", above), ("from", least)) if bound > -math.inf]
    words += [f"{word} {bound:g}" for word, bound in (("below", below), ("at most", most)) if bound < math.inf]

    def check(value: Any, info: ValidationInfo) -> Any:
        fits = isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)
        if not fits or not (above < value < below and least <= value <= most):
            raise ValueError(f"{info.field_name} is a number {' and '.join(words)}, not {shown(value)}")
        return value

    return BeforeValidator(check)


def one_of(choices: Any, what: str) -> BeforeValidator:
    """Return the check that a setting is one of some names."""

    def check(value: Any) -> Any:
        if value not in [*choices]:
            raise unknown(what, value, choices)
        return value

    accepted: Any = Literal.__getitem__(tuple(choices))
    return BeforeValidator(check, json_schema_input_type=accepted)


def checked(check: Any) -> BeforeValidator:
    """Return a validator that refuses a setting where `check` raises."""

    def keep(value: Any, info: ValidationInfo) -> Any:
        try:
            check(value)
        except (TypeError, AttributeError):  # checks of text do not expect numbers or lists
            raise ValueError(f"{info.field_name} is of the wrong type: {value!r}") from None
        return value

    return BeforeValidator(keep)


def optional(check: BeforeValidator) -> BeforeValidator:
    """Return a check that lets None pass."""

    def keep(value: Any, info: ValidationInfo) -> Any:
        return None if value is None else _call(check.func, value, info)

    return BeforeValidator(keep)


def _call(check: Any, value: Any, info: ValidationInfo) -> Any:
    return check(value, info) if len(inspect.signature(check).parameters) == 2 else check(value)


def _flag(value: Any, info: ValidationInfo) -> bool:
    if not isinstance(value, bool):
        raise ValueError(f"{info.field_name} is True or False, not {value!r}")
    return value


def _policy(text: Any) -> str:
    if not isinstance(text, str):
        raise ValueError(f"augment is a policy such as 'crop|flip', not {text!r}")
    Policy.parse(text)
    return text


def _channels(value: Any) -> Any:
    if isinstance(value, bool) or value not in (None, 1, 3):
        raise ValueError(f"channels is 1 (grey), 3 (colour) or None (as the first image), not {value!r}")
    return value


def _zoom(value: Any) -> Any:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 < value <= 1:
        raise ValueError(f"zoom is above 0 and at most 1, not {value!r}")
    return value


def _items(value: Any) -> Any:
    if value not in ("images", "vectors"):
        raise ValueError(f"items is 'images' or 'vectors', not {value!r}")
    return value


def _counts(counts: Any) -> dict[Label, int] | None:
    if counts is None:
        return None
    if not isinstance(counts, Mapping):
        raise ValueError(f"counts gives the number of examples of each label, {{label: number}}, not {counts!r}")
    return {as_label(label): whole("counts", n, 1) for label, n in counts.items()}


Flag = Annotated[bool, BeforeValidator(_flag)]
"""True or False."""
Share = Annotated[float, number(least=0, most=1)]
"""A number from 0 to 1."""
BelowOne = Annotated[float, number(least=0, below=1)]
"""A number from 0 to below 1."""
PolicyText = Annotated[str, BeforeValidator(_policy)]
"""A policy of augmentation, such as ``"crop|flip"``."""
Counts = Annotated[Any, AfterValidator(_counts)]
"""Examples of each label."""


class NetworkSettings(Settings):
    """Settings of the network and of what it takes."""

    model: Annotated[ModelLike, checked(check_model)] = "resnet8-16"
    """A name of `coldstream.models.MODELS`, an nn.Module that maps (N, C, H, W) to features (N, d), or a function
    that makes one. The head is the learner's and grows with the classes."""
    init: Annotated[str | Path | Dataset, checked(check_init)] = "random"
    """``"random"``; ``"base"``, random until `base_init` is called, which must come first; a weights file; the name
    of torchvision's weights for the model (``"IMAGENET1K_V1"``), which want ``normalize="imagenet"`` and, where they
    are trained further, a low rate such as ``rate=0.01``; or a `Dataset` to base-initialise on."""
    size: Annotated[Any, checked(sides)] = None
    """Side of the network's input, or (height, width). None: as the first image has them, at most 64 pixels."""
    channels: Annotated[int | None, BeforeValidator(_channels)] = None
    """1 for grey, 3 for colour, None for what the first image has."""
    classes: Annotated[int | None, optional(whole_from(1, most=MAX_CLASSES))] = None
    """The number of classes (of each task) where it is known in advance, at most 100,000. None: open, the head grows
    by a row for each class."""
    normalize: Annotated[Normalise, checked(check_normalisation)] = "half"
    """Pixels in [0, 1] become (pixel - mean) / std. ``"half"`` is mean 0.5 and std 0.25, for any images;
    ``"imagenet"``, ``"cifar10"`` and ``"cifar100"`` are those of the data set, by channel; ``"none"`` is mean 0 and
    std 1; or (mean, std), each of one number or of one for each channel. Published weights (`init`) were trained with
    ``"imagenet"``."""
    zoom: Annotated[float, BeforeValidator(_zoom)] = 1.0
    """For predictions: the share of the scaled side that the centre crop keeps (ImageNet's test crop: 0.875).
    Methods that learn from the features of a frozen network crop new images in the same way."""
    momentum: BelowOne = 0.9
    """Momentum of SGD."""
    weight_decay: BelowOne = 1e-5
    """Weight decay of SGD."""
    seed: Annotated[int, whole_from(0)] = 0
    """Every draw is a function of (seed, step, what is drawn)."""
    device: Annotated[str, checked(check_device)] = "cpu"
    """Where the network computes, such as ``"cuda"``."""
    precision: Annotated[str, one_of(PRECISIONS, "precision")] = "float32"
    """``"float32"``, ``"float64"`` or ``"bfloat16"``."""
    memory_format: Annotated[str, one_of(MEMORY_FORMATS, "memory format")] = "auto"
    """``"auto"``, ``"channels_last"`` or ``"contiguous"``."""
    items: Annotated[str, BeforeValidator(_items)] = "images"
    """``"images"``, or ``"vectors"`` of numbers (for `coldstream.ColdStreamClassifier`)."""

    def warn_of_weights(self, *, trained: bool) -> None:
        """Warn of defaults for random weights that are left beside published ones.

        Parameters
        ----------
        trained
            Whether the learner trains the network further, so that its learning rate matters too.
        """
        if not is_published(self.init):
            return
        wanted = {"normalize": "'imagenet'"}
        if trained and isinstance(getattr(self, "rate", None), str):  # a number is a method's own, of its publication
            wanted["rate"] = "0.01"
        missing = {
            name: value
            for name, value in wanted.items()
            if name in type(self).model_fields.keys() - self.model_fields_set
        }
        if missing:
            left = " and ".join(f"{name}={shown(getattr(self, name))}" for name in missing)
            given = " and ".join(f"{name}={value}" for name, value in missing.items())
            warn(
                f"init={self.init!r} are weights trained on images normalised as ImageNet's; with them give {given} "
                f"(now {left}, for random weights), or whatever you want of each, also where that is the default"
            )
