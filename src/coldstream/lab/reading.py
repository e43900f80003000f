"""Read and write configs: changes on top, errors that suggest what was meant, every setting written out."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from typing import Any, get_args, get_origin

import yaml
from pydantic import ValidationError

from coldstream.lab.config import PRETRAINED, Config, Settings, with_value
from coldstream.lab.learners import (
    all_settings,
    asks_for_base_init,
    base_of,
    kind_of,
    learner_class,
    learner_settings,
    per_update,
)
from coldstream.lab.yaml_files import Loader
from coldstream.learners import LEARNERS
from coldstream.parsing import unknown


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
        tree = with_value(tree, key.strip().split("."), value)
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
            learner = kind(**settings, seed=0)
        except (TypeError, AttributeError) as error:
            raise ValueError(f"learner {name!r}: a setting is of the wrong kind: {error}") from error
        if config.learners[name].get("base") and not (learner.needs_base_init or asks_for_base_init(config, name)):
            raise ValueError(f"learner {name!r} ({kind.__name__}) has no base initialisation; leave base out")
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


def _check_common(config: Config) -> None:
    """Refuse a common setting that no learner has; learners that do not have it are not given it."""
    kinds = {learner_class(str(one.get("kind", "cold-start"))) for one in (config.learner, *config.learners.values())}
    known = {key for kind in (*kinds, *LEARNERS.values()) for key in all_settings(kind)} | {"kind", "per_update"}
    for key in config.learner:
        if key == "seed":
            raise ValueError("setting 'learner.seed': seeds are the experiment's; write seeds: [0, 1, 2]")
        if key not in known:
            raise unknown("setting of a learner", key, sorted(known - {"seed"}))


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
        return list(all_settings(LEARNERS["cold-start"]))
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
        if base := config.learners[name].get("base"):
            beside["base"] = base
        tree["learners"][name] = {"kind": kind_of(config, name), **beside, **settings}
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
