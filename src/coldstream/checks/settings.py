"""Settings other than the defaults are saved and loaded."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from typing import Any, get_args

from pydantic.fields import FieldInfo

from coldstream.checks.fixtures import LOOK, SIDE, Factory, fresh, load, stream, teach

_LEFT = {"seed", "size", "channels", "classes", "device", "precision", "compile", "zoom", "storage", "model", "init"}
_TEXTS = {
    "augment": ("crop", "crop|flip"),
    "codec": ("quantize(6)", "raw"),
    "evict": ("uniform", "largest-class"),
    "normalize": ("cifar10", "half"),
    "rate": ("constant(0.05)", "constant(0.1)"),
    "sample": ("class-balanced", "uniform"),
}
"""Two values of each of the package's text settings: one of them differs from the current value."""


def check_settings_are_kept(factory: Factory) -> None:
    """Settings other than the defaults are saved and loaded, and a resumed stream follows them.

    It needs a factory that takes settings; one without arguments is checked with its settings as they are.
    """
    images, labels = stream(12)
    changed = changed_settings(factory)
    straight, stopped = (fresh(lambda: factory(**changed)) for _ in range(2))
    with tempfile.TemporaryDirectory() as folder:
        teach(straight, images, labels)
        teach(stopped, images[:7], labels[:7])
        stopped.save(folder)
        stopped = load(stopped, factory, folder)
        teach(stopped, images[7:], labels[7:])
    for name in type(straight).Settings.model_fields:
        if name not in ("model", "init"):
            values = getattr(straight.settings, name), getattr(stopped.settings, name)
            assert values[0] == values[1], f"setting {name!r} was {values[0]!r} and is {values[1]!r} after loading"
    straight.end_batch()
    stopped.end_batch()
    assert straight.fingerprint() == stopped.fingerprint(), (
        f"with {changed} a stopped and resumed stream went another way: {LOOK}"
    )


def changed_settings(factory: Factory) -> dict[str, Any]:
    """Return settings that differ from those of the factory's learner, where it accepts them.

    Changed are flags, numbers, tuples of numbers, settings declared with `one_of`, None where a number may be given,
    and the texts of `_TEXTS`. Any other text of a method of your own is left as it is.
    """
    settings, changed = factory().settings, dict[str, Any]()
    for name, field in type(settings).model_fields.items():
        value = getattr(settings, name)
        for other in () if name in _LEFT else _others(name, value, field):
            try:
                factory(**{**changed, name: other})._build((SIDE, SIDE, 3))  # some are refused for the network
            except (ValueError, TypeError):
                continue
            changed[name] = other
            break
    return changed


def _others(name: str, value: Any, field: FieldInfo) -> Iterator[Any]:
    """Return other values that a setting may have by its declaration."""
    if isinstance(value, bool):
        yield not value
    elif isinstance(value, (int, float)):
        yield value + 1 if isinstance(value, int) else value * 0.75 or 0.5
    elif isinstance(value, tuple) and value:
        yield value[:-1]
    elif isinstance(value, tuple):
        yield from ((kind(1),) for kind in get_args(field.annotation)[:1] if kind in (int, float))
    elif value is None:
        yield from (kind(8) for kind in get_args(field.annotation) if kind in (int, float))
    else:
        accepted = [get_args(getattr(check, "json_schema_input_type", None)) for check in field.metadata]
        choices = (*_TEXTS.get(name, ()), *(one for several in accepted for one in several))
        yield from (one for one in choices if one != value)
