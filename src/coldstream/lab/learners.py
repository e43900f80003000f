"""The learners of a config: their classes, and all their settings."""

from __future__ import annotations

import importlib
import inspect
import sys
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError

from coldstream.lab.config import OF_THE_LAB, BaseConfig, Config, Settings
from coldstream.lab.records import LearnerSettings
from coldstream.learners import LEARNERS
from coldstream.parsing import plain, unknown

if TYPE_CHECKING:
    from coldstream.learners import Learner


def load_object(what: str, place: str) -> Any:
    """Return the object ``module:name`` from the current folder or the path; `what` names its kind in errors."""
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


def all_settings(kind: type[Learner[Any]]) -> Settings:
    """Return all settings of a learner and their defaults."""
    fields = kind.Settings.model_fields.items()
    return {name: field.get_default(call_default_factory=True) for name, field in fields}


def learner_settings(config: Config, name: str) -> tuple[type[Learner[Any]], Settings]:
    """Return a learner's class and all its settings, defaults spelled out."""
    special = {key: value for key, value in config.learners[name].items() if key not in OF_THE_LAB}
    kind = learner_class(kind_of(config, name))
    defaults = all_settings(kind)
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
    """Return the settings of a learner that differ from its class's defaults, and those that belong to the lab."""
    kind, settings = learner_settings(config, name)
    defaults = all_settings(kind)
    changed = {key: value for key, value in settings.items() if value != defaults[key]}
    if asks_for_base_init(config, name):
        changed["base_init"] = True
    if (number := per_update(config, name)) > 1:
        changed["per_update"] = number
    changed |= {f"base.{key}": value for key, value in config.learners[name].get("base", {}).items()}
    return LearnerSettings(kind=kind_of(config, name), changed={key: plain(value) for key, value in changed.items()})


def kind_of(config: Config, name: str) -> str:
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
        wrong = error.errors()[0]
        where = f"learners.{name}.base.{wrong['loc'][0]}"
        raise ValueError(f"setting {where!r}: {wrong['msg'].lower()}, got {wrong['input']!r}") from None


def per_update(config: Config, name: str) -> int:
    """Return how many new examples a learner takes into one update: its `per_update`, or that of all, or 1."""
    number = {**config.learner, **config.learners[name]}.get("per_update", 1)
    if not isinstance(number, int) or isinstance(number, bool) or number < 1:
        raise ValueError(f"setting 'learners.{name}.per_update': a whole number from 1, not {number!r}")
    return number
