"""Which image is next: a share drawn at random for the audit, the others as the project's policy chooses.

A thread scores a sample of the unlabelled images whenever the learner has changed, and keeps a few images ready with
fresh guesses, so that nobody waits for a prediction.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Collection
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from coldstream.randomness import generator
from coldstream.serve import choosing
from coldstream.serve.journal import CannotWrite
from coldstream.serve.scores import CHUNK

if TYPE_CHECKING:
    from coldstream.serve.live import Answering
    from coldstream.serve.project import Project

log = logging.getLogger("coldstream.serve")

LEASE_SECONDS = 60.0
"""How long an image that was handed out is not handed out again."""
READY = 8
_SAMPLE = 96
"""Unlabelled images that are scored to choose the next ones from."""
_CENTERS = 256
"""Labelled images whose features coverage compares with."""
_QUIET_SECONDS = 2.0
"""Seconds without a label after which all unlabelled images are scored."""
_SCORED_AT_MOST = 20_000


class Choice(NamedTuple):
    """An image that was handed out, and why."""

    image: str
    why: str
    audit: bool


class Queue:
    """Hands out images. Its methods that do not say otherwise are called with the project's lock."""

    def __init__(self, project: Project) -> None:
        self._project = project
        self._ready: deque[tuple[str, str]] = deque()
        self._ready_version = -1
        self._taken = True
        """Whether images were handed out since the last ones were made ready."""
        self._leases: dict[str, float] = {}
        self._draws = 0
        self._rest: list[str] = []
        self._rest_version = -1
        self._wake = threading.Event()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="scoring")

    def start(self) -> None:
        """Begin to score."""
        self._thread.start()

    def stop(self) -> None:
        """End the thread, which may not be waited for with the project's lock."""
        self._stop.set()
        self._wake.set()
        if self._thread.is_alive():
            self._thread.join()

    def wake(self) -> None:
        """Say that the learner, or what is unlabelled, has changed."""
        self._wake.set()

    def take(self, count: int, leave: Collection[str]) -> list[Choice]:
        """Hand out up to so many images that are not among those to leave."""
        now, choices = time.monotonic(), list[Choice]()
        self._leases = {id: end for id, end in self._leases.items() if end > now}
        taken = set(leave)
        for _ in range(count):
            choice = self._choose(taken)
            if choice is None:
                break
            choices.append(choice)
            taken.add(choice.image)
            self._leases[choice.image] = now + LEASE_SECONDS
        self._taken = True
        self._wake.set()
        return choices

    def give_back(self, id: str) -> None:
        """End the lease of an image."""
        self._leases.pop(id, None)

    def _choose(self, taken: set[str]) -> Choice | None:
        project, records = self._project, self._project.records
        draws = generator(records.settings["seed"], (records.seq << 20) + self._draws, "next image")
        self._draws += 1
        if draws.random() < records.settings["audit"]:
            waiting = next((id for id in records.waiting_audits if self._free(id, taken)), None)
            id = waiting or self._at_random(draws, taken)
            if id is not None:
                try:
                    if not records.images[id].audit:
                        project.append("audit", {"images": [id]}, who="coldstream")
                    return Choice(id, "audit", True)
                except CannotWrite:  # it is not part of the audit then
                    return Choice(id, "random", False)
        while self._ready:
            id, why = self._ready.popleft()
            if id in records.unlabelled and self._free(id, taken) and not records.images[id].audit:
                return Choice(id, why, False)
        id = self._at_random(draws, taken)
        if id is not None:
            return Choice(id, "random", records.images[id].audit)
        left = [id for id in self._leases if id in records.unlabelled and id not in taken]
        return Choice(left[0], "random", records.images[left[0]].audit) if left else None

    def _free(self, id: str, taken: set[str]) -> bool:
        return id not in taken and id not in self._leases and id not in self._project.scores.unreadable

    def _at_random(self, draws: np.random.Generator, taken: set[str]) -> str | None:
        pool = self._project.records.unlabelled
        if not len(pool):
            return None
        for _ in range(20):
            id = pool[int(draws.integers(len(pool)))]
            if self._free(id, taken):
                return id
        free = [id for id in pool.all() if self._free(id, taken)]
        return free[int(draws.integers(len(free)))] if free else None

    # The thread.

    def _run(self) -> None:
        while not self._stop.is_set():
            try:
                busy = self._score()
            except Exception:
                log.exception("scoring failed")
                busy = False
            if not busy:
                self._wake.wait(_QUIET_SECONDS if self._rest else None)
                self._wake.clear()

    def _score(self) -> bool:
        """Do the most urgent piece of work; return whether there was any."""
        project, answering = self._project, self._project.live.answering
        with project.lock:
            shown = [*self._leases, *(id for id, _ in self._ready)]
            unlabelled = project.records.unlabelled
            old = [id for id in shown if id in unlabelled and self._is_old(id, answering.version)]
            choosing = self._ready_version != answering.version or (self._taken and len(self._ready) < READY // 2)
        if answering.learner is not None and answering.columns and old:
            project.scores.guess(answering, old[:CHUNK])
            return True
        if choosing and len(unlabelled):
            return self._fill()
        return self._score_rest()

    def _is_old(self, id: str, version: int) -> bool:
        guess = self._project.scores.guess_of(id)
        return id not in self._project.scores.unreadable and (guess is None or guess.version != version)

    def _fill(self) -> bool:
        """Choose the images to show next from a sample, and make their guesses."""
        project, answering = self._project, self._project.live.answering
        records = project.records
        with project.lock:
            self._taken = False
            draws = generator(records.settings["seed"], (records.seq << 20) + self._draws, "sample")
            self._draws += 1
            sample = list(
                dict.fromkeys(
                    id
                    for id in (self._at_random(draws, set()) for _ in range(_SAMPLE))
                    if id is not None and not records.images[id].audit
                )
            )
        if not sample:
            self._ready_version = answering.version
            return False
        picks = [(id, "random") for id in sample[:READY]]
        if answering.learner is not None and len(answering.columns) > 1:
            scored = self._scored(answering, sample)
            if scored is None:
                return False
            policy = records.settings.get("policy", choosing.DEFAULT)
            features = labelled = None
            if policy in choosing.NEEDS_FEATURES:
                tested = [test.image for test in records.tested]
                some = [tested[place] for place in draws.permutation(len(tested))[:_CENTERS].tolist()]
                features, labelled = (project.scores.features(answering, ids) for ids in (scored[0], some))
            chosen = choosing.choose(policy, scored[1], features, labelled, READY, draws)
            picks = [(scored[0][pick.place], pick.why) for pick in chosen]
        project.scores.guess(answering, [id for id, _ in picks])
        with project.lock:
            self._ready = deque(picks)
            self._ready_version = answering.version
        return True

    def _scored(self, answering: Answering, sample: list[str]) -> tuple[list[str], NDArray[np.float64]] | None:
        """Return which images can be read, and their probabilities; None if the queue is to end meanwhile."""
        values, kept = [], list[str]()
        for start in range(0, len(sample), CHUNK):
            part, probabilities, _ = self._project.scores.probabilities(answering, sample[start : start + CHUNK])
            kept += part
            values.append(probabilities)
            if self._stop.is_set():
                return None
        return kept, np.concatenate(values)

    def _score_rest(self) -> bool:
        """Score unlabelled images while nobody labels; return whether there is more to do."""
        project, answering = self._project, self._project.live.answering
        if answering.learner is None or not answering.columns:
            return False
        if self._rest_version != answering.version:
            with project.lock:
                self._rest = project.records.unlabelled.all()[:_SCORED_AT_MOST]
            self._rest_version = answering.version
        quiet = time.monotonic() - project.labelled_at > _QUIET_SECONDS
        if not self._rest or not quiet or project.live.state.doing not in ("ready", "rehearsing"):
            return False
        unlabelled, score_of = project.records.unlabelled, project.scores.score_of
        part, self._rest = self._rest[-CHUNK:], self._rest[:-CHUNK]
        old = [id for id in part if (score := score_of(id)) is None or score.version != answering.version]
        project.scores.score(answering, [id for id in old if id in unlabelled])
        return True
