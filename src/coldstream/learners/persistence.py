"""A learner kept on disk, taken up again, and told apart from another."""

from __future__ import annotations

import hashlib
import json
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from coldstream import checkpoint
from coldstream.checkpoint import Saving
from coldstream.labels import from_json
from coldstream.replay import ReplayBuffer

if TYPE_CHECKING:
    from coldstream.learners.base import Learner

Kind = TypeVar("Kind", bound="Learner")
_ONLY_SPEED = ("prefetch", "storage")
MAY_CHANGE = {"device", "storage", "memory_format", "prefetch"}
_CHANGING = (
    *("learn_one", "learn_many", "base_init", "end_batch"),
    *("relabel", "forget", "undo", "rename_class", "merge_classes", "save"),
)


def save(learner: Learner, folder: Path, extra: dict[str, Any], wait: bool) -> Saving:
    """Write a checkpoint; rows that this learner wrote to the folder before are not written again.

    What is written is the state at the call, also where the writing itself is left to another thread. Writing to a
    place waits for what is being written there, and a learner has one checkpoint under way at most.
    """
    if learner._saving is not None:
        learner._saving.settle()
    folder, place, segments = folder.absolute(), str(folder.resolve()), learner._segments
    lock = checkpoint.PLACES[place]
    lock.acquire()
    try:
        plain, arrays = everything(learner)
        plain = json.loads(json.dumps({**plain, "extra": extra}))
        plan = checkpoint.plan(folder, plain, arrays, _buffers(learner), segments.get(place, []))
    except BaseException:
        lock.release()
        raise

    def work() -> None:
        try:
            segments[place] = plan.write(folder)
        finally:
            plan.close()
            lock.release()

    learner._saving = saving = Saving()
    if wait:
        saving.run(work)
        saving.result()
    else:
        saving.start(work)
    return saving


def load(kind: type[Kind], folder: Path, model: Any, changes: dict[str, Any]) -> Kind:
    """Return the learner that a checkpoint holds; whatever is wrong with the files is a CheckpointError."""
    if wrong := changes.keys() - MAY_CHANGE:
        raise ValueError(f"{min(wrong)!r} cannot be changed on loading; {', '.join(sorted(MAY_CHANGE))} can")
    with checkpoint.PLACES[str(folder.resolve())]:
        return _load(kind, folder, model, changes)


def _load(kind: type[Kind], folder: Path, model: Any, changes: dict[str, Any]) -> Kind:
    plain, arrays, segments = checkpoint.read(folder)
    if plain.get("kind") != kind.__name__:
        raise checkpoint.CheckpointError(
            f"checkpoint {str(folder)!r} is of a {plain.get('kind')!r} learner, not {kind.__name__!r}"
        )
    try:
        if different := checkpoint.differences(plain["environment"]):
            warnings.warn(f"results may differ in the last bits: {'; '.join(different)}", stacklevel=4)
        settings = {**plain["settings"], **changes}
        if "model" in settings and settings["model"] is None and model is None:
            raise ValueError(f"checkpoint {str(folder)!r} has a model of your own: load(path, model=factory)")
        if model is not None:
            settings["model"] = model
        learner = kind(**kind._settings_from_json(settings))
        _take_over(learner, plain, arrays)
        for number, buffer in enumerate(_buffers(learner)):
            buffer.restore(plain["own"][number]["buffer"], _part(arrays, f"{number}.buffer."))
            checkpoint.read_rows(folder, buffer, [segment for segment in segments if segment.buffer == number])
    except (KeyError, TypeError, IndexError) as error:
        raise checkpoint.CheckpointError(f"checkpoint {str(folder)!r} is damaged: {error!r}") from error
    learner._segments[str(folder.resolve())] = segments
    return learner


def fingerprint(learner: Learner) -> str:
    """Return a hash of everything that a checkpoint holds."""
    plain, arrays = everything(learner)
    plain["settings"] = {name: value for name, value in plain["settings"].items() if name not in _ONLY_SPEED}
    digest = hashlib.sha256(json.dumps(plain, sort_keys=True).encode())
    for name in sorted(arrays):
        digest.update(name.encode())
        digest.update(np.ascontiguousarray(arrays[name]).tobytes())
    for buffer in _buffers(learner):
        for start in range(0, len(buffer), 1024):
            rows = np.arange(start, min(len(buffer), start + 1024))
            buffer.rows.ahead(rows)
            for row in buffer.rows.get(rows):
                digest.update(row)
    return digest.hexdigest()


def snapshot(learner: Kind) -> Kind:
    """Return a learner that answers as this one does now and shares nothing with it that changes.

    It goes the way of a checkpoint, in memory. Only what a checkpoint cannot hold, such as a model of the user's
    own, is taken from the settings as they are.
    """
    kind = type(learner)
    plain, arrays = everything(learner, buffer=False)
    plain = json.loads(json.dumps(plain))
    settings = {
        name: learner.settings.get(name) if value is None else value for name, value in plain["settings"].items()
    }
    if "storage" in settings:  # its buffer stays empty and needs no files
        settings["storage"] = "memory"
    twin = kind(**kind._settings_from_json(settings))
    _take_over(twin, plain, {name: array.copy() for name, array in arrays.items()})
    for name in _CHANGING:
        setattr(twin, name, _refuse)
    return twin


def _refuse(*arguments: Any, **named: Any) -> None:
    raise ValueError("a snapshot only answers: learn, edit and save with the learner that it was taken of")


def everything(learner: Learner, *, buffer: bool = True) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
    """Return all that later predictions and updates depend on, but the buffer's rows; or without the buffer."""
    plain: dict[str, Any] = {
        "kind": type(learner).__name__,
        "settings": learner._settings_to_json(),
        "step": learner.step,
        "prepared": learner.prepared,
        "shape": learner.shape,
        "next_id": learner._next_id,
        "last": learner._last,
        "tasks": learner._tasks.names,
        "own": [],
    }
    plain["method"], arrays = ({}, {}) if learner.shape is None else learner._state()
    for number in learner._tasks.each(learner):
        own: dict[str, Any] = {"classes": learner.classes.state()}
        plain["own"].append(own)
        if learner.shape is None:
            continue
        own["method"], parts = learner._own_state()
        stored = learner._buffer() if buffer else None
        if stored is not None:
            own["buffer"], index = stored.state()
            parts |= {f"buffer.{name}": value for name, value in index.items()}
        arrays |= {f"{number}.{name}": value for name, value in parts.items()}
    return plain, arrays


def _buffers(learner: Learner) -> list[ReplayBuffer]:
    """Return the replay buffers of all tasks, in their order."""
    found = [learner._buffer() for _ in learner._tasks.each(learner)]
    return [buffer for buffer in found if buffer is not None]


def _part(arrays: dict[str, NDArray[Any]], prefix: str) -> dict[str, NDArray[Any]]:
    return {name.removeprefix(prefix): a for name, a in arrays.items() if name.startswith(prefix)}


def _take_over(learner: Learner, plain: dict[str, Any], arrays: dict[str, NDArray[Any]]) -> None:
    """Give a new learner all but the replay buffers of what `everything` had."""
    learner.step, learner._next_id = int(plain["step"]), int(plain["next_id"])
    learner.prepared = bool(plain["prepared"])
    if plain["last"] is not None:
        id, row, task = plain["last"]
        learner._last = id, int(row), int(task)
    names: list[Any] = plain["tasks"] or [None]
    for number, (name, own) in enumerate(zip(names, plain["own"], strict=True)):
        learner._tasks.enter(learner, None if name is None else from_json(name))
        learner.classes.restore(own["classes"])
        if plain["shape"] is None:
            return
        if number == 0:
            shape = tuple(int(side) for side in plain["shape"])
            learner._build(shape)
            learner.shape = shape
            learner._restore(plain["method"], arrays)
        learner._open_rows()
        learner._restore_own(own["method"], _part(arrays, f"{number}."))
