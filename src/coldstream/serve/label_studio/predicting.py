"""Guesses for the tasks that Label Studio asks about."""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence

from coldstream.serve import looking
from coldstream.serve.label_studio.mapping import Task
from coldstream.serve.label_studio.sync import Sync
from coldstream.serve.label_studio.transport import LabelStudioError
from coldstream.serve.scores import CHUNK

log = logging.getLogger("coldstream.serve")

Guess = tuple[str | None, float]
FETCH_SECONDS = 60.0
"""Seconds that may be spent on reading images; Label Studio waits 100."""
_NONE: Guess = None, 0.0


def predict(sync: Sync, tasks: Sequence[Task]) -> list[Guess]:
    """Return (label, confidence) for each task, in order; the label is None where nothing can be said."""
    until = time.monotonic() + FETCH_SECONDS
    images = [sync.known_image(task) for task in tasks]
    known: dict[str, Guess] = {}
    ids = list(dict.fromkeys(image for image in images if image is not None))
    for start in range(0, len(ids), CHUNK):
        guesses = looking.guesses_of(sync.project, ids[start : start + CHUNK])
        known |= {id: (guess.label, guess.confidence) for id, guess in guesses.items()}
    return [
        _fetched(sync, task, until) if image is None else known.get(image, _NONE)
        for task, image in zip(tasks, images, strict=True)
    ]


def _fetched(sync: Sync, task: Task, until: float) -> Guess:
    """Return the guess about an image that was not read before."""
    if task.url is None or time.monotonic() > until:
        return _NONE
    try:
        guess = looking.predict(sync.project, sync.studio.image(task.url))
    except (ValueError, LabelStudioError) as error:
        log.warning("Label Studio: no guess for task %s: %s", task.id, error)
        return _NONE
    return _NONE if guess is None else (str(guess["label"]), float(guess["confidence"]))
