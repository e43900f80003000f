"""What an experiment is: one typed tree, YAML on disk, ``--set learner.replay=50`` on the command line."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class DataConfig(_Part):
    """Which data set."""

    name: str = "digits"


class StreamConfig(_Part):
    """In which order it comes, and when the learner is tested."""

    ordering: str = "class-incremental"
    test_every: int = Field(2, ge=1, description="classes between two tests")


class LearnerConfig(_Part):
    """Settings of `coldstream.CSSL`; those of the main job are chosen for small grey digits."""

    model: str = "resnet8-16"
    init: str = "random"
    size: int | tuple[int, int] | None = None
    channels: int | None = None
    classes: int | None = None
    codec: str = "quantize(4)"
    capacity: str | int | None = "1MB"
    storage: str = "memory"
    replay: int = 100
    sample: str = "uniform"
    evict: str = "largest-class"
    augment: str = "crop"
    normalize: str = "half"
    zoom: float = 1.0
    rate: str | float = "inverse-sqrt(0.1)"
    momentum: float = 0.9
    weight_decay: float = 1e-5
    device: str = "cpu"
    precision: str = "float32"
    memory_format: str = "channels_last"


class OfflineConfig(_Part):
    """How the same network is trained offline for comparison, once per test event."""

    enabled: bool = True
    epochs: int = Field(30, ge=1)
    batch: int = Field(64, ge=1)
    rate: float = Field(0.1, gt=0)
    weight_decay: float = 5e-4
    momentum: float = 0.9
    augment: str = "crop"
    drops: tuple[int, ...] = ()


class Config(_Part):
    """An experiment: data, stream, learner, offline reference, seed."""

    name: str = Field("digits", pattern=r"^[\w.-]+$")
    seed: int = Field(0, ge=0)
    data: DataConfig = DataConfig()
    stream: StreamConfig = StreamConfig()
    learner: LearnerConfig = LearnerConfig()
    offline: OfflineConfig = OfflineConfig()
    prequential: bool = Field(True, description="predict each example before learning it")
    checkpoint_every: int = Field(200, ge=1, description="examples between two checkpoints")
    threads: int | None = Field(None, ge=1, description="torch threads; None: as torch chooses")
    kind: Literal["cssl"] = "cssl"


def read_config(path: Path) -> Config:
    """Read a YAML file."""
    try:
        tree = yaml.safe_load(path.read_text())
    except yaml.YAMLError as error:
        raise ValueError(f"{path} is not YAML: {error}") from error
    return make_config(tree or {})


def make_config(tree: dict[str, Any], changes: Sequence[str] = ()) -> Config:
    """Return the config of a tree of settings with ``key=value`` changes on top."""
    if not isinstance(tree, dict):
        raise ValueError(f"a config is a tree of settings, not {type(tree).__name__}")
    for change in changes:
        key, equals, text = change.partition("=")
        if not equals or not key.strip():
            raise ValueError(f"--set takes key=value, such as learner.replay=50, not {change!r}")
        tree = _with(tree, key.strip().split("."), yaml.safe_load(text))
    try:
        return Config.model_validate(tree)
    except ValidationError as error:
        raise ValueError("\n".join(_explain(one) for one in error.errors())) from None


def _with(tree: dict[str, Any], path: list[str], value: Any) -> dict[str, Any]:
    inner = tree.get(path[0])
    if len(path) > 1:
        value = _with(inner if isinstance(inner, dict) else {}, path[1:], value)
    return {**tree, path[0]: value}


def _explain(error: Any) -> str:
    path = [str(part) for part in error["loc"]]
    if error["type"] != "extra_forbidden":
        return f"setting {'.'.join(path)!r}: {error['msg'].lower()}, got {error['input']!r}"
    part: Any = Config
    for name in path[:-1]:
        part = part.model_fields[name].annotation
    valid = list(part.model_fields)
    near = difflib.get_close_matches(path[-1], valid, n=1, cutoff=0.5)
    elsewhere = [f"{n}.{path[-1]}" for n, f in Config.model_fields.items() if path[-1] in _fields(f.annotation)]
    hint = elsewhere or near
    return f"unknown setting {'.'.join(path)!r};" + (
        f" did you mean {hint[0]!r}?" if hint else f" valid: {', '.join(valid)}"
    )


def _fields(annotation: Any) -> list[str]:
    return list(getattr(annotation, "model_fields", ()))


def write_config(config: Config) -> str:
    """Return the config as YAML, every setting spelled out."""
    return yaml.safe_dump(config.model_dump(mode="json"), sort_keys=False)
