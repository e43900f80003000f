"""What an experiment is: one typed tree, YAML on disk, ``--set learner.replay=50`` on the command line.

`learner` holds what all learners have in common, `learners` what each has of its own:

    name: policies
    data: {name: digits}
    learner: {replay: 100, capacity: 1MB}
    learners:
      crop: {augment: crop}
      full: {augment: "crop|autoaugment(cifar10)|mixup(0.1)/cutmix(0.8)"}
    seeds: [0, 1, 2]

`tasks` instead of `data` streams several data sets one after another, each with its own head and its own test:

    tasks:
      flowers: {name: flowers102, classes: 10}
      birds: {name: cub200, classes: 10}
    data: {root: DATA}                  # for all tasks that have no root of their own
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import fields, replace
from itertools import product
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

if TYPE_CHECKING:
    from coldstream.learners import OfflineRecipe

Settings = dict[str, Any]
PRETRAINED = "pretrained"
"""The `init` of learners that begin from the weights of the section `pretrain`."""
NETWORK = ("model", "init", "size", "channels", "normalize", "zoom", "device", "precision", "memory_format")
"""The settings of a learner that are its network's."""
OF_THE_LAB = ("kind", "base_init", "base", "per_update")
"""Settings of a learner that belong to the lab, not to its class."""


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class DataConfig(_Part):
    """Which data set, and how much of it."""

    name: str = Field(
        "digits",
        description="a name of `coldstream data list`, a folder or zip, hf:NAME, or MODULE:FUNCTION of your own, "
        "which returns two `coldstream.data.Dataset`, train and test",
    )
    root: str | None = Field(None, description="where data sets are; None: COLDSTREAM_DATA or the user's cache")
    download: bool = Field(False, description="whether a set that is not there may be downloaded")
    classes: int | list[str] | None = Field(None, description="only the first N classes, or the named ones")
    per_class: int | None = Field(None, ge=1, description="maximum training images per class")
    test_per_class: int | None = Field(None, ge=1, description="maximum test images per class")
    validation: int | None = Field(
        None,
        ge=1,
        description="test on this many held-out training images per class, instead of the test set",
    )

    @model_validator(mode="before")
    @classmethod
    def _may_be_a_name(cls, tree: Any) -> Any:
        """Read ``data: NAME`` as ``data: {name: NAME}``."""
        return {"name": tree} if isinstance(tree, str) else tree

    @property
    def is_function(self) -> bool:
        """Whether the name is ``MODULE:FUNCTION``."""
        return bool(re.fullmatch(r"[\w.]+:\w+", self.name)) and self.name.partition(":")[0] not in ("hf", "folder")


_PLACE = ("root", "download")
"""Settings of the data that may be given once for all tasks."""


class StreamConfig(_Part):
    """The order of the examples, and when the learner is tested."""

    ordering: str = "class-incremental"
    test_every: int | None = Field(None, ge=1, description="classes between two tests, for class-incremental")
    batches: int | None = Field(None, ge=1, description="batches, for iid and instance")
    classes_per_batch: int | None = Field(None, ge=1, description="for class-iid and class-instance")
    class_order: list[str] | str | None = Field(None, description="names of the classes, or a file that has them")


class RecipeConfig(_Part):
    """How a network is trained offline."""

    epochs: int = Field(30, ge=0)
    batch: int = Field(64, ge=1)
    rate: float = Field(0.1, gt=0)
    weight_decay: float = Field(5e-4, ge=0, lt=1)
    momentum: float = Field(0.9, ge=0, lt=1)
    augment: str = "crop"
    drops: tuple[int, ...] = ()

    def recipe(self) -> OfflineRecipe:
        """Return what the learners take."""
        from coldstream.learners import OfflineRecipe

        return OfflineRecipe(**{field.name: getattr(self, field.name) for field in fields(OfflineRecipe)})


class OfflineConfig(RecipeConfig):
    """How the same network is trained offline for comparison: once per test event, with tasks once per task.

    Where `rates` or `augments` are given, a network is trained with each in the place of `rate` and `augment`, and
    the best on the test images counts: a reference that is chosen on what it is tested on, as the paper's multi-task
    references are.
    """

    enabled: bool = True
    last_only: bool = Field(False, description="one network, of all that was streamed, for all tests")
    epochs: int = Field(30, ge=1)
    rates: tuple[Annotated[float, Field(gt=0)], ...] = ()
    augments: tuple[str, ...] = ()
    seeds: tuple[Annotated[int, Field(ge=0)], ...] = Field((), description="only of these; none: of all")

    def recipes(self) -> list[OfflineRecipe]:
        """Return the recipes of which the best counts."""
        every = product(self.augments or (self.augment,), self.rates or (self.rate,))
        return [replace(self.recipe(), augment=augment, rate=rate) for augment, rate in every]


class BaseConfig(RecipeConfig):
    """How learners with `init: base` are base-initialised, on the beginning of the stream, which then comes again.

    With tasks that is the beginning of the first one.
    """

    classes: int | None = Field(None, ge=1, description="the first N classes of the stream; None: its first batch")
    epochs: int = Field(50, ge=0)
    batch: int = Field(128, ge=1)
    augment: str = "crop|flip"


class PretrainConfig(RecipeConfig):
    """Data and recipe of pre-training, for learners with `init: pretrained`."""

    data: DataConfig = Field(description="root and download are those of the stream's data where not given")
    overlap: bool = Field(False, description="whether its classes may come in the stream too")
    batch: int = Field(128, ge=1)
    epochs: int = Field(50, ge=1)
    augment: str = "crop|flip"


class Config(_Part):
    """An experiment: data or tasks, stream, learners, seeds, offline reference."""

    name: str = Field("digits", pattern=r"^[\w.-]+$")
    data: DataConfig = DataConfig()
    tasks: dict[Annotated[str, Field(min_length=1)], DataConfig] = Field(
        default_factory=dict, description="the data of each task, in the order in which they come"
    )
    stream: StreamConfig = StreamConfig()
    learner: Settings = Field(default_factory=dict, description="settings that all learners have in common")
    learners: dict[str, Settings] = Field({"cold-start": {}}, min_length=1)
    seeds: list[Annotated[int, Field(ge=0)]] = Field([0], min_length=1)
    offline: OfflineConfig = OfflineConfig()
    base: BaseConfig = BaseConfig()
    pretrain: PretrainConfig | None = None
    prequential: bool = Field(True, description="predict each example before learning it")
    evaluate: Literal["between", "beside"] = Field(
        "between", description="test between two steps, or a snapshot beside them while the stream goes on"
    )
    checkpoint_every: int = Field(200, ge=1, description="examples between two checkpoints")
    threads: int | None = Field(None, ge=1, description="torch threads per job; None: as torch chooses")
    tensorboard: bool = False

    @model_validator(mode="before")
    @classmethod
    def _every_point_of_a_grid(cls, tree: Any) -> Any:
        """Replace a learner that has a `grid` by one for each combination of its values."""
        if not isinstance(tree, dict) or not isinstance(learners := tree.get("learners"), dict):
            return tree
        arms = [arm for name in learners for arm in points(name, learners[name])]
        if twice := [name for name, count in Counter(name for name, _ in arms).items() if count > 1]:
            raise ValueError(
                f"two learners have the name {twice[0]!r}: a value comes twice in a grid, or is named so"
            )
        return {**tree, "learners": dict(arms)}

    @model_validator(mode="before")
    @classmethod
    def _place_for_all_tasks(cls, tree: Any) -> Any:
        """Copy `root` and `download` of `data` to the tasks that do not set them."""
        tasks, data = (tree.get(part) if isinstance(tree, dict) else None for part in ("tasks", "data"))
        if not isinstance(tasks, dict) or not isinstance(data, dict):
            return tree
        common = {key: data[key] for key in _PLACE if key in data}
        named = {task: {"name": one} if isinstance(one, str) else one for task, one in tasks.items()}
        return {
            **tree,
            "tasks": {task: {**common, **one} if isinstance(one, dict) else one for task, one in named.items()},
        }

    @model_validator(mode="after")
    def _has_one_kind_of_data(self) -> Config:
        given = [key for key, value in self.data if key not in _PLACE and value != getattr(DataConfig(), key)]
        if self.tasks and given:
            raise ValueError(
                f"data.{given[0]} is of an experiment without tasks: each of the tasks has its own data; beside "
                f"tasks, only {' and '.join(f'data.{key}' for key in _PLACE)} can be given, for all of them"
            )
        return self

    @field_validator("name")
    @classmethod
    def _is_free(cls, name: str) -> str:
        if name == "store":
            raise ValueError("runs/store is where the results of all experiments are; choose another name")
        return name

    @field_validator("seeds")
    @classmethod
    def _are_distinct(cls, seeds: list[int]) -> list[int]:
        if len(set(seeds)) < len(seeds):
            raise ValueError("the same seed twice is not two runs; write each once")
        return seeds


def with_value(tree: Settings, path: list[str], value: Any) -> Settings:
    """Return a tree of settings with a value at a path."""
    inner = tree.get(path[0])
    if len(path) > 1:
        value = with_value(inner if isinstance(inner, dict) else {}, path[1:], value)
    return {**tree, path[0]: value}


def points(name: str, learner: Any) -> list[tuple[str, Any]]:
    """Return the learners that one with a `grid` stands for, each with its name; without a grid, that learner.

    Examples
    --------
    >>> points("er", {"kind": "er", "grid": {"rate": [0.1, 0.3]}})
    [('er, rate=0.1', {'kind': 'er', 'rate': 0.1}), ('er, rate=0.3', {'kind': 'er', 'rate': 0.3})]
    """
    if not isinstance(learner, dict) or "grid" not in learner:
        return [(name, learner)]
    grid = learner["grid"]
    if not isinstance(grid, dict) or not grid or not all(isinstance(one, list) and one for one in grid.values()):
        raise ValueError(
            f"setting 'learners.{name}.grid': settings with a list of values each, such as {{replay: [5, 10]}}"
        )
    arms = []
    for values in product(*grid.values()):
        arm, place = {key: value for key, value in learner.items() if key != "grid"}, [name]
        for key, value in zip(grid, values, strict=True):
            arm = with_value(arm, key.split("."), value)
            place.append(f"{key}={value}")
        arms.append((", ".join(place), arm))
    return arms


DIGITS: Settings = {
    "name": "digits",
    "stream": {"test_every": 2},
}
"""The main job: `ColdStart()`, as a user gets it, on small grey digits."""
