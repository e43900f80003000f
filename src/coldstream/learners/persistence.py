"""Persistence: checkpoints, snapshots and fingerprints of learners."""

from __future__ import annotations

import hashlib
import json
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from coldstream import checkpoint
from coldstream.checkpoint import CheckpointError, Saving
from coldstream.labels import from_json
from coldstream.replay import ReplayBuffer

if TYPE_CHECKING:
    from coldstream.learners.base import Learner

Kind = TypeVar("Kind", bound="Learner[Any]")
_ONLY_SPEED = ("prefetch", "storage")
MAY_CHANGE = {"device", "storage", "memory_format", "prefetch"}
_INITS = ("random", "base")
"""What `init` is in a checkpoint, which has the weights."""
_OF_THE_LEARNER = {"step", "prepared", "shape", "next_id", "last", "method", "tasks"}
_CHANGING = (
    *("learn_one", "learn_many", "rehearse", "base_init", "end_batch"),
    *("relabel", "forget", "undo", "rename_class", "merge_classes", "save"),
)


def save(learner: Learner[Any], folder: Path, extra: dict[str, Any], wait: bool, verify: bool) -> Saving:
    """Write a checkpoint; rows that are in the folder already, by this learner, are not written again.

    What is written is the state at the call, also where the writing itself is left to another thread. Writing to a
    place waits for what other threads are writing there, and a learner has one checkpoint under way at most.
    """
    if learner._saving is not None:
        learner._saving.settle()
    if not all(learner.engine.is_finite(task.head) for task in learner.tasks.values()):
        raise FloatingPointError(
            "the network's weights are not finite: it diverged; nothing was saved, so that the last checkpoint with "
            "finite weights stays; load that one, or begin again with a lower rate"
        )
    folder, place = folder.absolute(), str(folder.resolve())
    plain, arrays = everything(learner)
    plain = _through_json({**plain, "extra": extra})
    known = learner._segments.get(place, [])
    plan, saving = checkpoint.plan(folder, plain, arrays, _buffers(learner), known, verify=verify), Saving()

    def work() -> None:
        try:
            learner._segments[place] = plan.write(folder)
        finally:
            plan.close()

    try:
        if wait:
            saving.run(work)
        else:
            learner._saving = saving
            saving.start(work, plan.lock)
    except BaseException:
        if saving.call_off():
            plan.close()
        raise
    return saving


def _through_json(plain: dict[str, Any]) -> dict[str, Any]:
    try:
        copied: dict[str, Any] = json.loads(json.dumps(plain, indent=1))
    except RecursionError:
        raise ValueError("extra, a label or a setting is nested too deeply to be saved") from None
    return copied


def load(kind: type[Kind], folder: Path, model: Any, changes: dict[str, Any]) -> Kind:
    """Return the learner that a checkpoint holds; whatever is wrong with the files is a CheckpointError."""
    if wrong := changes.keys() - MAY_CHANGE:
        raise ValueError(f"{min(wrong)!r} cannot be changed on loading; {', '.join(sorted(MAY_CHANGE))} can")
    checkpoint.wait_for_threads(folder)
    return _load(kind, folder, model, changes)


def _load(kind: type[Kind], folder: Path, model: Any, changes: dict[str, Any]) -> Kind:
    stored = checkpoint.read(folder)
    manifest = stored.manifest
    if manifest.kind != kind.__name__:
        raise CheckpointError(f"checkpoint {str(folder)!r} is of a {manifest.kind!r} learner, not {kind.__name__!r}")
    if different := checkpoint.differences(manifest.environment):
        warnings.warn(f"results may differ in the last bits: {'; '.join(different)}", stacklevel=4)
    settings = {**manifest.settings, **changes}
    if "model" in settings and settings["model"] is None and model is None:
        raise ValueError(f"checkpoint {str(folder)!r} has a model of your own: load(path, model=factory)")
    if model is not None:
        settings["model"] = model
    try:
        if settings["init"] not in _INITS:  # nothing is fetched or read from elsewhere
            raise CheckpointError(f"checkpoint {str(folder)!r} is damaged: its init is {settings['init']!r}")
        learner = kind(**kind.Settings.from_json(settings))
        _take_over(learner, manifest.model_dump(include=_OF_THE_LEARNER), stored.arrays)
        for number, buffer in enumerate(_buffers(learner)):
            plain = manifest.tasks[number].buffer
            if plain is None:
                raise CheckpointError(f"checkpoint {str(folder)!r} is damaged: it lacks a buffer")
            index, classes = _part(stored.arrays, f"{number}.buffer."), len(manifest.tasks[number].classes.labels)
            checkpoint.check_index(folder, index, classes, plain["next_serial"])
            buffer.restore(plain, index)
            checkpoint.read_rows(folder, buffer, stored.blocks(number))
    except ValueError:
        raise
    except Exception as error:  # of whatever kind: what is restored may be forged
        raise CheckpointError(f"checkpoint {str(folder)!r} cannot be restored: {error!r}") from error
    learner._segments[str(folder.resolve())] = manifest.segments
    return learner


def fingerprint(learner: Learner[Any]) -> str:
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
            buffer.rows.prefetch(rows)
            for row in buffer.rows.get(rows):
                digest.update(row)
    return digest.hexdigest()


def snapshot(learner: Kind) -> Kind:
    """Return a learner that answers as this one does now and shares nothing with it that changes.

    It goes the way of a checkpoint, in memory. Only what a checkpoint cannot hold, such as a user's model, is taken
    from the settings as they are.
    """
    kind = type(learner)
    plain, arrays = everything(learner, buffer=False)
    plain = json.loads(json.dumps(plain))
    settings = {
        name: getattr(learner.settings, name) if value is None else value
        for name, value in kind.Settings.from_json(plain["settings"]).items()
    }
    if "storage" in settings:  # its buffer stays empty and needs no files
        settings["storage"] = "memory"
    twin = kind(**settings)
    _take_over(twin, plain, {name: array.copy() for name, array in arrays.items()})
    for name in _CHANGING:
        setattr(twin, name, _refuse)
    return twin


def _refuse(*arguments: Any, **named: Any) -> None:
    raise ValueError("a snapshot only answers: learn, edit and save with the learner that it was taken of")


def everything(learner: Learner[Any], *, buffer: bool = True) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
    """Return what later predictions and updates depend on, without the buffers' bytes, or without the buffers."""
    plain: dict[str, Any] = {
        "kind": type(learner).__name__,
        "settings": _settings(learner),
        "step": learner.step,
        "prepared": learner.prepared,
        "shape": learner.shape,
        "next_id": learner._next_id,
        "last": learner._last,
        "tasks": [],
    }
    plain["method"], arrays = learner._state() if learner.built else ({}, {})
    for number, task in enumerate(learner.tasks.values()):
        method, parts = learner._task_state(task)
        plain["tasks"].append({"name": task.name, "classes": task.classes.state(), "method": method})
        if buffer and task.replay_buffer is not None:
            plain["tasks"][-1]["buffer"], index = task.replay_buffer.state()
            parts |= {f"buffer.{name}": value for name, value in index.items()}
        arrays |= {f"{number}.{name}": value for name, value in parts.items()}
    return plain, arrays


def _settings(learner: Learner[Any]) -> dict[str, Any]:
    """Return the settings for a checkpoint: it has the weights, so that their origin does not matter any more."""
    return {**learner.settings.to_json(), "init": "base" if learner.needs_base_init else "random"}


def _buffers(learner: Learner[Any]) -> list[ReplayBuffer]:
    """Return the replay buffers of all tasks, in their order."""
    return [task.replay_buffer for task in learner.tasks.values() if task.replay_buffer is not None]


def _part(arrays: dict[str, NDArray[Any]], prefix: str) -> dict[str, NDArray[Any]]:
    return {name.removeprefix(prefix): a for name, a in arrays.items() if name.startswith(prefix)}


def _take_over(learner: Learner[Any], plain: dict[str, Any], arrays: dict[str, NDArray[Any]]) -> None:
    """Restore into a new learner what `everything` returned, except the replay buffers."""
    learner.step, learner._next_id = int(plain["step"]), int(plain["next_id"])
    learner.prepared = bool(plain["prepared"])
    if plain["last"] is not None:
        id, row, number = plain["last"]
        learner._last = id, int(row), int(number)
    if plain["shape"] is None:
        return
    shape, limit = tuple(int(side) for side in plain["shape"]), learner.settings.classes
    for number, saved in enumerate(plain["tasks"]):
        if (limit or len(saved["classes"]["labels"])) > len(arrays[f"{number}.model.weight"]):
            raise CheckpointError("the checkpoint is damaged: it has more classes than rows of its head")
    learner._engine, learner.shape = learner._build(shape), shape
    learner._restore(plain["method"], arrays)
    for number, saved in enumerate(plain["tasks"]):
        name = None if saved["name"] is None else from_json(saved["name"])
        task = learner.tasks[name] = learner._open_task(learner.engine, shape, name)
        task.classes.restore(saved["classes"])
        task.grow()
        learner._restore_task(task, saved["method"], _part(arrays, f"{number}."))
    if len(learner.tasks) < len(plain["tasks"]):
        raise CheckpointError("the checkpoint is damaged: two of its tasks have the same name")
