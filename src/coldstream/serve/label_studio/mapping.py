"""What Label Studio sends and expects, as plain values: label configs, annotations, predictions. No I/O."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any
from xml.etree import ElementTree

from coldstream.serve.text import check_label

MAX_CONFIG = 1_000_000
"""Characters of a label config."""
MAX_ID = 2**63 - 1
UNDEFINED = "$undefined$"
"""The field of a task's data that Label Studio uses for files uploaded before there is a label config."""

Json = dict[str, Any]


@dataclass(frozen=True)
class Config:
    """The part of a label config that is used: one `Choices` about one `Image`."""

    control: str
    """Name of the `Choices`."""
    image: str
    """Name of the `Image`."""
    field: str
    """Field of a task's data with the image's address."""
    choices: tuple[str, ...]


@dataclass(frozen=True)
class Annotation:
    """One annotation, as it was at one time. Label Studio may give the id of a deleted one to a new one."""

    id: int
    task: int
    updated: str
    """ISO 8601 in UTC with microseconds, so that text order is order in time."""
    label: str | None
    """None where nothing usable was chosen."""
    skipped: bool = False
    by_model: bool = False
    """Made from a prediction without a person: our own output."""


@dataclass(frozen=True)
class Task:
    """One task: its image's address, None where it has none."""

    id: int
    url: str | None
    annotations: tuple[Annotation, ...] = ()


@dataclass(frozen=True)
class Changes:
    """What a webhook says: annotations as they are now, ids of those deleted, and whether more must be asked for."""

    annotations: tuple[Annotation, ...] = ()
    tasks: tuple[Task, ...] = ()
    deleted: tuple[int, ...] = ()
    deleted_tasks: tuple[int, ...] = ()
    ask: bool = False


def read_config(text: object, control: str | None = None) -> Config:
    """Return the `Choices` of a label config and the `Image` that it is about.

    Parameters
    ----------
    text
        The label config: XML.
    control
        Name of the `Choices`, needed where there are several about an image.

    Examples
    --------
    >>> read_config(
    ...     '<View><Image name="i" value="$photo"/>'
    ...     '<Choices name="c" toName="i"><Choice value="cat"/><Choice value="dog"/></Choices></View>'
    ... )
    Config(control='c', image='i', field='photo', choices=('cat', 'dog'))
    """
    if not isinstance(text, str) or len(text) > MAX_CONFIG:
        raise ValueError(f"the label config is not a text of at most {MAX_CONFIG:,} characters")
    if "<!DOCTYPE" in text or "<!ENTITY" in text:
        raise ValueError("the label config declares a document type or an entity; remove the declaration")
    try:
        tags = [*ElementTree.fromstring(text).iter()]
    except (ElementTree.ParseError, ValueError) as error:
        raise ValueError(f"the label config is not XML: {error}") from error
    images = {tag.get("name"): tag.get("value", "") for tag in tags if tag.tag == "Image"}
    usable = [tag for tag in tags if tag.tag == "Choices" and tag.get("toName") in images and _whole_image(tag)]
    named = [tag for tag in usable if control in (None, tag.get("name"))]
    if len(named) != 1:
        names = ", ".join(repr(tag.get("name")) for tag in usable) or "none"
        wanted = f"a <Choices> named {control!r}" if control is not None else "exactly one <Choices>"
        raise ValueError(
            f'the label config needs {wanted} with toName of an <Image> and choice="single"; there is {names}. '
            'Where there are several, choose one with the extra parameter {"control": "NAME"}'
        )
    (choices,) = named
    image, name = choices.get("toName"), choices.get("name")
    field = re.fullmatch(r"\$([^$\s]{1,200})", images[image])
    if field is None or not image or not name:
        raise ValueError(f'the <Image> of the label config needs a name and value="$FIELD", not {images[image]!r}')
    labels = (tag.get("alias") or tag.get("value") or "" for tag in choices.iter("Choice"))
    return Config(name, image, field[1], tuple(dict.fromkeys(label for label in labels if label)))


def _whole_image(tag: ElementTree.Element) -> bool:
    """Return whether a `Choices` gives one label to a whole image."""
    single = tag.get("choice", "single") in ("single", "single-radio")
    return single and not any(tag.get(name, "false").lower() == "true" for name in ("perRegion", "perItem"))


def read_project_id(value: object) -> int:
    """Return the project's id from what /setup and /predict send.

    Examples
    --------
    >>> read_project_id("12.1795125379")
    12
    """
    match = re.fullmatch(r"([0-9]{1,18})(?:\.[0-9]{1,18})?", value) if isinstance(value, str) else None
    if match is None:
        raise ValueError(f"expected a project such as '1.1795125379', not {_shown(value)}")
    return int(match[1])


def read_uid(settings: Json) -> str:
    """Return a project's id as /setup gives it, with the time at which it was created.

    Examples
    --------
    >>> read_uid({"id": 1, "created_at": "2026-11-19T21:56:19.006610Z"})
    '1.1795125379'
    """
    created = read_moment(settings.get("created_at"), "project.created_at")
    return f"{read_id(settings.get('id'), 'project.id')}.{int(created.timestamp())}"


def read_task(value: object, config: Config) -> Task:
    """Return a task with its annotations. Drafts and predictions are left out."""
    task = _table(value, "task")
    number = read_id(task.get("id"), "task.id")
    data = task.get("data")
    url = (data.get(config.field) or data.get(UNDEFINED)) if isinstance(data, dict) else None
    annotations = task.get("annotations") or []
    if not isinstance(annotations, list):
        raise ValueError(f"task.annotations: expected a list, not {_shown(annotations)}")
    return Task(
        number,
        url if isinstance(url, str) and url else None,
        tuple(read_annotation(one, config, number) for one in annotations),
    )


def read_annotation(value: object, config: Config, task: int | None = None) -> Annotation:
    """Return an annotation; `task` is the id of its task where the annotation does not say."""
    annotation = _table(value, "annotation")
    skipped = annotation.get("was_cancelled") is True
    # A person who submits a prediction unchanged has taken time over it; the action that turns predictions into
    # annotations by the hundred has not.
    by_model = annotation.get("parent_prediction") is not None and not annotation.get("lead_time")
    return Annotation(
        id=read_id(annotation.get("id"), "annotation.id"),
        task=read_id(annotation.get("task") or task, "annotation.task"),
        updated=read_moment(annotation.get("updated_at"), "annotation.updated_at").isoformat(timespec="microseconds"),
        label=None if skipped else chosen_label(annotation.get("result"), config),
        skipped=skipped,
        by_model=by_model,
    )


def chosen_label(result: object, config: Config) -> str | None:
    """Return the one label that a result gives to the image; None for none or several."""
    chosen = [
        choice
        for region in (result if isinstance(result, list) else [])
        if isinstance(region, dict) and region.get("type") == "choices" and region.get("from_name") == config.control
        for choice in _choices(region.get("value"))
    ]
    return _label(chosen[0]) if len(chosen) == 1 else None


def _label(choice: object) -> str | None:
    try:
        return check_label(choice) if isinstance(choice, str) else None
    except ValueError:
        return None


def _choices(value: object) -> list[Any]:
    choices = value.get("choices") if isinstance(value, dict) else None
    return choices if isinstance(choices, list) else []


def read_webhook(payload: object, config: Config) -> Changes:
    """Return what a webhook's payload says; nothing for actions that change no label.

    Examples
    --------
    >>> config = Config("c", "i", "photo", ("cat",))
    >>> read_webhook({"action": "ANNOTATIONS_DELETED", "annotations": [{"id": 3}]}, config).deleted
    (3,)
    >>> read_webhook({"action": "START_TRAINING"}, config) == Changes()
    True
    """
    table = _table(payload, "payload")
    action = table.get("action")
    if len(table) == 1:  # a webhook that was set to send no payload
        return Changes(ask=isinstance(action, str) and action != "START_TRAINING")
    if action in ("ANNOTATION_CREATED", "ANNOTATION_UPDATED"):
        return _changes([table.get("annotation")], [table.get("task")], config)
    if action == "ANNOTATIONS_CREATED":
        return _changes(_list(table, "annotation"), _list(table, "task"), config)
    if action == "ANNOTATIONS_DELETED":
        return Changes(deleted=tuple(_ids(table, "annotations")))
    if action == "TASKS_DELETED":
        return Changes(deleted_tasks=tuple(_ids(table, "tasks")))
    # Tasks come without their annotations, and a changed label config may change what an annotation means.
    return Changes(ask=action in ("TASKS_CREATED", "PROJECT_UPDATED"))


def _changes(annotations: list[Any], tasks: list[Any], config: Config) -> Changes:
    return Changes(
        annotations=tuple(read_annotation(one, config) for one in annotations),
        tasks=tuple(read_task(one, config) for one in tasks if one is not None),
    )


def _list(table: Json, name: str) -> list[Any]:
    value = table.get(name)
    if not isinstance(value, list):
        raise ValueError(f"{name}: expected a list, not {_shown(value)}")
    return value


def _ids(table: Json, name: str) -> Iterator[int]:
    return (read_id(_table(one, f"{name}[]").get("id"), f"{name}[].id") for one in _list(table, name))


def result(config: Config, guess: str | None, confidence: float) -> Json:
    """Return a prediction for Label Studio: empty where there is no guess, or none that the project knows.

    Examples
    --------
    >>> config = Config("c", "i", "photo", ("cat",))
    >>> result(config, "cat", 0.75)["score"], result(config, "dog", 0.75)["result"]
    (0.75, [])
    """
    choice = next((one for one in config.choices if guess is not None and _label(one) == guess), None)
    if choice is None or not (math.isfinite(confidence) and 0 <= confidence <= 1):
        return {"result": [], "score": 0.0}
    region = {"from_name": config.control, "to_name": config.image, "type": "choices", "value": {"choices": [choice]}}
    return {"result": [region], "score": float(confidence)}


def decide(annotations: Sequence[Annotation]) -> Annotation | None:
    """Return the annotation that says what an image is: the latest label by a person, else the latest skip.

    Examples
    --------
    >>> first = Annotation(1, 7, "2026-01-01", "cat")
    >>> decide([first, Annotation(2, 7, "2026-01-02", None, skipped=True)]) == first
    True
    """
    by_people = [one for one in annotations if not one.by_model]
    for candidates in ([one for one in by_people if one.label], [one for one in by_people if one.skipped]):
        if candidates:
            return max(candidates, key=lambda one: (one.updated, one.id))
    return None


def _table(value: object, name: str) -> Json:
    if not isinstance(value, Mapping):
        raise ValueError(f"{name}: expected an object, not {_shown(value)}")
    return dict(value)


def read_id(value: object, name: str) -> int:
    """Return a number that Label Studio gives to something."""
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= MAX_ID:
        raise ValueError(f"{name}: expected a whole number from 1 on, not {_shown(value)}")
    return value


def read_moment(value: object, name: str = "updated_at") -> datetime:
    """Return a time that Label Studio gives."""
    try:
        moment = datetime.fromisoformat(value) if isinstance(value, str) else None
        if moment is None or moment.tzinfo is None:
            raise ValueError
        return moment.astimezone(UTC)
    except (ValueError, OverflowError):
        raise ValueError(f"{name}: expected a time such as 2026-01-31T12:00:00Z, not {_shown(value)}") from None


def _shown(value: object) -> str:
    """Return a short form of a value for an error message."""
    return type(value).__name__ if isinstance(value, dict | list) else repr(value)[:80]
