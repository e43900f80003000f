"""What the live learner asks of its project: which labels to learn, and what the journal said before."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from coldstream.images import Pixels
from coldstream.serve.images import Unreadable
from coldstream.serve.live import Live
from coldstream.serve.records import Op, Records

if TYPE_CHECKING:
    from coldstream.serve.project import Project

PER_UPDATE = 16
"""Most new labels in one update."""


class History:
    """The journal and the records of a project, as its live learner sees them."""

    def __init__(self, project: Project) -> None:
        self._project = project

    @property
    def settings(self) -> dict[str, Any]:
        """The settings of the project."""
        return self._project.records.settings

    @property
    def seq(self) -> int:
        """The last event."""
        return self._project.records.seq

    def take(self) -> list[Op]:
        """Return what the journal asks of the learner since the last call."""
        project = self._project
        with project.lock:
            ops, project.ops = project.ops, []
        return ops

    def begin_update(self, live: Live) -> bool:
        """Write into the journal which labels go into one update; False if none is waiting.

        A quarter of what is waiting, at least one label and at most `PER_UPDATE`: several where labels come faster
        than updates.
        """
        project, records = self._project, self._project.records
        with project.lock:
            waiting = [*records.pending]
        if not waiting:
            return False
        ids, lost, items = list[str](), list[str](), list[Pixels]()
        project.decide_shape()
        shape = tuple(records.settings["shape"] or ())
        for id in waiting[: min(PER_UPDATE, math.ceil(len(waiting) / 4))]:
            try:
                if not shape:
                    raise Unreadable("no image of the project can be read")
                items.append(self.pixels(id, shape))
                ids.append(id)
            except Unreadable:
                lost.append(id)
        guesses = live.predict(items)
        with project.lock:
            if lost:
                project.append("unreadable", {"images": lost}, who="coldstream")
            pairs = [(id, guess) for id, guess in zip(ids, guesses, strict=True) if id in records.pending]
            if pairs:
                body = {"images": [id for id, _ in pairs], "guesses": [guess for _, guess in pairs]}
                project.append("learn", body, who="coldstream")
        return True

    def begin_rehearsal(self) -> bool:
        """Write into the journal that the learner rehearses; False if it has done so enough."""
        project, records = self._project, self._project.records
        with project.lock:
            if not records.updates or records.rehearsed >= records.settings["rehearse"] or records.pending:
                return False
            project.append("rehearse", {"updates": 1}, who="coldstream")
        return True

    def replay(self, after: int) -> Iterator[Op]:
        """Forget what `take` would return; return what the journal asks of the learner after an event."""
        project = self._project
        with project.lock:
            project.ops = []
            events = project.journal.events()  # up to the last one now
        records = Records()
        for event in events:
            ops = records.fold(event)
            if event.seq > after:
                yield from ops

    def refuse(self, seq: int, error: str) -> None:
        """Write into the journal that the update of an event is left out for good."""
        self._project.append("refused", {"seq": seq, "error": error[:500]}, who="coldstream")

    def refused(self) -> set[int]:
        """Return the events that are left out."""
        return self._project.records.refused

    def checksum(self, seq: int) -> bytes | None:
        """Return the checksum of an event."""
        event = self._project.journal.event(seq)
        return None if event is None else event.checksum

    def pixels(self, id: str, shape: tuple[int, ...]) -> Pixels:
        """Return an image at the network's size."""
        return self._project.images.sized(id, self._project.records.images[id].path, shape)
