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

import difflib
import importlib
import inspect
import re
import sys
from collections.abc import Sequence
from dataclasses import fields, replace
from functools import reduce
from itertools import product
from typing import TYPE_CHECKING, Annotated, Any, Literal, get_args, get_origin

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from coldstream.lab.records import LearnerSettings
from coldstream.lab.yaml_files import Loader
from coldstream.learners import LEARNERS
from coldstream.parsing import plain, unknown

if TYPE_CHECKING:
    from coldstream.learners import Learner, OfflineRecipe

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
    classes: int | list[str] | None = Field(None, description="only the first so many classes, or these")
    per_class: int | None = Field(None, ge=1, description="only so many training images a class")
    test_per_class: int | None = Field(None, ge=1, description="only so many test images a class")
    validation: int | None = Field(
        None,
        ge=1,
        description="test on so many training images a class, which are not learned, instead of the test set",
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
    """In which order it comes, and when the learner is tested."""

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

    classes: int | None = Field(None, ge=1, description="the first so many classes; None: the stream's first batch")
    epochs: int = Field(50, ge=0)
    batch: int = Field(128, ge=1)
    augment: str = "crop|flip"


class PretrainConfig(RecipeConfig):
    """On what the network of learners with `init: pretrained` is trained before the stream, and how."""

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
    threads: int | None = Field(None, ge=1, description="torch threads a job; None: as torch chooses")
    tensorboard: bool = False

    @model_validator(mode="before")
    @classmethod
    def _every_point_of_a_grid(cls, tree: Any) -> Any:
        """Replace a learner that has a `grid` by one for each combination of its values."""
        if not isinstance(tree, dict) or not isinstance(learners := tree.get("learners"), dict):
            return tree
        return {**tree, "learners": {point: arm for name in learners for point, arm in points(name, learners[name])}}

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
    others = {key: value for key, value in learner.items() if key != "grid"}
    return [
        (
            ", ".join([name, *(f"{key}={value}" for key, value in zip(grid, values, strict=True))]),
            reduce(lambda arm, one: _with(arm, one[0].split("."), one[1]), zip(grid, values, strict=True), others),
        )
        for values in product(*grid.values())
    ]


DIGITS: Settings = {
    "name": "digits",
    "stream": {"test_every": 2},
}
"""The main job: `ColdStart()`, as a user gets it, on small grey digits."""


def load_object(what: str, place: str) -> Any:
    """Return what a user names by ``module:name``, from the current folder or the path; `what` is for errors."""
    module, _, name = place.partition(":")
    sys.path.insert(0, "")
    try:
        return getattr(importlib.import_module(module), name)
    except Exception as error:  # whatever a user's file does when it is loaded
        raise ValueError(f"{what} {place!r} cannot be imported: {type(error).__name__}: {error}") from error
    finally:
        sys.path.remove("")


def learner_class(kind: str) -> type[Learner[Any]]:
    """Return the learner of a registered name, or of ``module:Class`` in the current folder or on the path."""
    if ":" not in kind:
        if kind not in LEARNERS:
            raise unknown("learner", kind, LEARNERS)
        return LEARNERS[kind]
    from coldstream.learners import Learner

    loaded = load_object("learner", kind)
    if not (inspect.isclass(loaded) and issubclass(loaded, Learner)):
        raise ValueError(f"learner {kind!r} is not a class derived from coldstream.Learner")
    return loaded


def _settings_of(kind: type[Learner[Any]]) -> Settings:
    """Return all settings of a learner and their defaults."""
    fields = kind.Settings.model_fields.items()
    return {name: field.get_default(call_default_factory=True) for name, field in fields}


def _check_common(config: Config) -> None:
    """Refuse a common setting that no learner has; one that some have is for those."""
    kinds = {learner_class(str(one.get("kind", "cold-start"))) for one in (config.learner, *config.learners.values())}
    known = {key for kind in (*kinds, *LEARNERS.values()) for key in _settings_of(kind)} | {"kind", "per_update"}
    for key in config.learner:
        if key == "seed":
            raise ValueError("setting 'learner.seed': seeds are the experiment's; write seeds: [0, 1, 2]")
        if key not in known:
            raise unknown("setting of a learner", key, sorted(known - {"seed"}))


def learner_settings(config: Config, name: str) -> tuple[type[Learner[Any]], Settings]:
    """Return a learner's class and all its settings, defaults spelled out."""
    special = {key: value for key, value in config.learners[name].items() if key not in OF_THE_LAB}
    kind = learner_class(_kind_of(config, name))
    defaults = _settings_of(kind)
    given = {**{key: value for key, value in config.learner.items() if key in defaults}, **special}
    for key in given:
        if key == "seed":
            raise ValueError(f"setting 'learners.{name}.seed': seeds are the experiment's; write seeds: [0, 1, 2]")
        if key not in defaults:
            raise unknown(f"setting of learner {name!r} ({kind.__name__})", key, [d for d in defaults if d != "seed"])
    settings = {**defaults, **given}
    settings.pop("seed", None)
    for key, field in kind.Settings.model_fields.items():
        if field.is_required() and key not in given:
            raise ValueError(f"learner {name!r} ({kind.__name__}) needs setting {key!r}, which has no default")
    return kind, settings


def ran_with(config: Config, name: str) -> LearnerSettings:
    """Return what a learner runs with that its class does not say."""
    kind, settings = learner_settings(config, name)
    defaults = _settings_of(kind)
    changed = {key: value for key, value in settings.items() if value != defaults[key]}
    if asks_for_base_init(config, name):
        changed["base_init"] = True
    if (number := per_update(config, name)) > 1:
        changed["per_update"] = number
    changed |= {f"base.{key}": value for key, value in config.learners[name].get("base", {}).items()}
    return LearnerSettings(kind=_kind_of(config, name), changed={key: plain(value) for key, value in changed.items()})


def _kind_of(config: Config, name: str) -> str:
    return str({**config.learner, **config.learners[name]}.get("kind", "cold-start"))


def asks_for_base_init(config: Config, name: str) -> bool:
    """Return whether a learner is base-initialised although `init` gives it weights: its `base_init: true`."""
    asked = config.learners[name].get("base_init", False)
    if not isinstance(asked, bool):
        raise ValueError(f"setting 'learners.{name}.base_init': true or false, not {asked!r}")
    kind, _ = learner_settings(config, name)
    if asked and kind.batch_incremental:
        raise ValueError(f"learner {name!r} ({kind.__name__}) has no base initialisation; leave base_init out")
    return asked


def base_of(config: Config, name: str) -> BaseConfig:
    """Return how a learner is base-initialised: as the experiment says, with the changes of its own `base`."""
    given = config.learners[name].get("base", {})
    allowed = BaseConfig.model_fields.keys() - {"classes"}
    if not isinstance(given, dict) or not given.keys() <= allowed:
        raise ValueError(f"setting 'learners.{name}.base': some of {', '.join(sorted(allowed))}, not {given!r}")
    try:
        return BaseConfig.model_validate({**config.base.model_dump(), **given})
    except ValidationError as error:
        raise ValueError(f"learner {name!r}, base: " + "\n".join(_explain(one) for one in error.errors())) from None


def per_update(config: Config, name: str) -> int:
    """Return how many new examples a learner takes into one update: its `per_update`, or that of all, or 1."""
    number = {**config.learner, **config.learners[name]}.get("per_update", 1)
    if not isinstance(number, int) or isinstance(number, bool) or number < 1:
        raise ValueError(f"setting 'learners.{name}.per_update': a whole number from 1, not {number!r}")
    return number


def make_config(tree: Settings, changes: Sequence[str] = ()) -> Config:
    """Return the config of a tree of settings with ``key=value`` changes on top, checked down to the learners."""
    for change in changes:
        key, equals, text = change.partition("=")
        if not equals or not key.strip():
            raise ValueError(f"--set takes key=value, such as learner.replay=50, not {change!r}")
        try:
            value = yaml.load(text, Loader)
        except (yaml.YAMLError, ValueError, RecursionError):
            raise ValueError(f"--set {change!r}: the value is not YAML; quote it: --set '{key}=\"...\"'") from None
        tree = _with(tree, key.strip().split("."), value)
    try:
        config = Config.model_validate(tree)
    except ValidationError as error:
        raise ValueError("\n".join(_explain(one) for one in error.errors())) from None
    from coldstream.augment import Policy

    recipes = [config.offline, config.base, *([config.pretrain] if config.pretrain else [])]
    for policy in (*(recipe.augment for recipe in recipes), *config.offline.augments):
        Policy.parse(policy)
    _check_common(config)
    for name in config.learners:
        kind, settings = learner_settings(config, name)
        asks_for_base_init(config, name)
        per_update(config, name)
        Policy.parse(base_of(config, name).augment)
        if settings.get("init") == PRETRAINED and config.pretrain is None:
            raise ValueError(
                f"learner {name!r} has init: {PRETRAINED}, and nothing says on what; add a section pretrain: "
                "{data: {name: ..., classes: [...]}}"
            )
        if str(settings.get("rate")).startswith("linear"):  # a unit is given the counts of its data
            settings["counts"] = {("any", "any") if config.tasks else "any": 1}
        try:
            kind(**settings, seed=0)
        except (TypeError, AttributeError) as error:
            raise ValueError(f"learner {name!r}: a setting is of the wrong kind: {error}") from error
    return config


def learner_changes(kinds: Sequence[str], *, default: bool) -> list[str]:
    """Return the changes that put these learners into an experiment, by the name of the kind or of the class.

    The default experiment's network is too small for REMIND, which gets the next larger one there.
    """
    from coldstream.learners import REMIND

    names = [kind.rpartition(":")[2].lower() for kind in kinds]
    if len(set(names)) < len(names):
        raise ValueError(f"--learner: two of {', '.join(kinds)} have the same name; put them into a file under two")
    changes = [f"learners.{name}.kind={kind}" for name, kind in zip(names, kinds, strict=True)]
    splits = [name for name, kind in zip(names, kinds, strict=True) if issubclass(learner_class(kind), REMIND)]
    return changes + [f"learners.{name}.model=resnet14-16" for name in splits if default]


def _with(tree: Settings, path: list[str], value: Any) -> Settings:
    inner = tree.get(path[0])
    if len(path) > 1:
        value = _with(inner if isinstance(inner, dict) else {}, path[1:], value)
    return {**tree, path[0]: value}


def _explain(error: Any) -> str:
    path = [str(part) for part in error["loc"]]
    if not path:  # about several settings together
        return str(error["msg"]).removeprefix("Value error, ")
    if error["type"] != "extra_forbidden":
        return f"setting {'.'.join(path)!r}: {error['msg'].lower()}, got {error['input']!r}"
    part: Any = Config
    for name in path[:-1]:
        inner = get_args(part)[1] if get_origin(part) is dict else part.model_fields[name].annotation
        part = _without_none(inner)
    valid = list(part.model_fields)
    near = difflib.get_close_matches(path[-1], valid, n=1, cutoff=0.5)
    elsewhere = [f"{n}.{path[-1]}" for n, f in Config.model_fields.items() if path[-1] in _fields(n, f.annotation)]
    hint = elsewhere or near
    return f"unknown setting {'.'.join(path)!r};" + (
        f" did you mean {hint[0]!r}?" if hint else f" valid: {', '.join(valid)}"
    )


def _fields(name: str, annotation: Any) -> list[str]:
    if name == "learner":
        return list(_settings_of(LEARNERS["cold-start"]))
    return list(getattr(_without_none(annotation), "model_fields", ()))


def _without_none(annotation: Any) -> Any:
    """Return what a setting is when it is given."""
    if get_origin(annotation) is dict:
        return annotation
    return next((one for one in get_args(annotation) if one is not type(None)), annotation)


def write_config(config: Config) -> str:
    """Return the config as YAML, every setting spelled out, down to each learner's."""
    tree = config.model_dump(mode="json")
    for name in config.learners:
        _, settings = learner_settings(config, name)
        beside: Settings = {"base_init": True} if asks_for_base_init(config, name) else {}
        if (number := per_update(config, name)) > 1:
            beside["per_update"] = number
        if own := config.learners[name].get("base"):
            beside["base"] = own
        tree["learners"][name] = {"kind": _kind_of(config, name), **beside, **settings}
    tree["learner"] = {}
    return yaml.safe_dump(tree, sort_keys=False)


def changes_between(old: Settings, new: Settings, path: str = "") -> list[str]:
    """Return what differs between two trees of settings, a line each."""
    lines = []
    for key in [*old, *(key for key in new if key not in old)]:
        where = f"{path}{key}"
        one, two = old.get(key), new.get(key)
        if isinstance(one, dict) and isinstance(two, dict):
            lines += changes_between(one, two, f"{where}.")
        elif one != two:
            lines.append(f"{where}: {one!r} → {two!r}")
    return lines
