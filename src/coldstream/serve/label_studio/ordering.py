"""Let Label Studio show the tasks in doubt first, where its project asks for uncertainty sampling.

Label Studio orders tasks by the score of the prediction whose model version is the project's own, and by no other. So
each task that nobody has annotated keeps one such prediction, which is changed as the learner learns. Its score is
the confidence of the guess.
"""

from __future__ import annotations

import time
from typing import Any, NamedTuple

from coldstream.serve.label_studio import mapping
from coldstream.serve.label_studio.client import LabelStudio
from coldstream.serve.label_studio.mapping import Config
from coldstream.serve.label_studio.mirror import Mirror
from coldstream.serve.label_studio.transport import LabelStudioError
from coldstream.serve.project import Project

SAMPLING = "Uncertainty sampling"
SECONDS = 15.0
"""Seconds between two rounds."""
AT_ONCE = 50
"""Predictions that one round changes, those in doubt first."""
CHANGE = 0.05
"""Changes of a score below this are left out."""
Json = dict[str, Any]


class Stored(NamedTuple):
    """A prediction that Label Studio has."""

    id: int
    label: str | None
    score: float


class Ordering:
    """The predictions by which Label Studio orders the tasks of one project."""

    def __init__(self, project: Project, studio: LabelStudio) -> None:
        self._project, self._studio = project, studio
        self._version: str | None = None
        self._stored: dict[int, Stored] = {}
        self._due = 0.0

    def begin(self, settings: Json, backend: Json | None) -> None:
        """Take over the settings of the Label Studio project."""
        version = settings.get("model_version")
        # Another model version is other predictions, imported or of another backend.
        wanted = settings.get("sampling") == SAMPLING and backend is not None and version == backend.get("title")
        if not wanted or version != self._version:
            self._stored.clear()
        self._version = version if wanted and isinstance(version, str) and version else None

    def see(self, task: Json, config: Config) -> None:
        """Take over the predictions of a listed task."""
        if self._version is None:
            return
        self._stored.pop(task["id"], None)
        for one in task.get("predictions") or []:
            if isinstance(one, dict) and one.get("model_version") == self._version and isinstance(one.get("id"), int):
                score = one.get("score")
                value = float(score) if isinstance(score, int | float) else -1.0
                self._stored[task["id"]] = Stored(one["id"], mapping.chosen_label(one.get("result"), config), value)

    def step(self, mirror: Mirror, config: Config | None) -> float:
        """Change what is out of date, as far as one round goes; return seconds until the next."""
        now = time.monotonic()
        if self._version is None or config is None:
            return SECONDS
        if now >= self._due:
            changes = self._changes(mirror, config)
            for task, prediction in changes[:AT_ONCE]:
                self._save(task, prediction, config)
            self._due = time.monotonic() + (0.0 if len(changes) > AT_ONCE else SECONDS)
        return self._due - now

    def _changes(self, mirror: Mirror, config: Config) -> list[tuple[int, Json]]:
        """Return (task, prediction) where Label Studio's is missing or out of date, those in doubt first."""
        project, changes = self._project, list[tuple[int, Json]]()
        with project.lock:
            for task, image in mirror.unlabelled():
                score = project.scores.score_of(image)
                if score is None:
                    continue
                prediction = mapping.result(config, project.records.name_of(score.label), score.confidence)
                stored = self._stored.get(task)
                label = mapping.chosen_label(prediction["result"], config)
                if stored is None or stored.label != label or abs(stored.score - prediction["score"]) > CHANGE:
                    changes.append((task, prediction))
        return sorted(changes, key=lambda change: (change[1]["score"], change[0]))

    def _save(self, task: int, prediction: Json, config: Config) -> None:
        stored = self._stored.get(task)
        try:
            if stored is None:
                number = self._studio.create_prediction({"task": task, "model_version": self._version, **prediction})
            else:
                number = stored.id
                self._studio.change_prediction(number, prediction)
        except LabelStudioError as error:
            if error.status not in (400, 404):
                raise
            self._stored.pop(task, None)  # the task, or the prediction, was deleted
            return
        self._stored[task] = Stored(number, mapping.chosen_label(prediction["result"], config), prediction["score"])
