"""What a Label Studio project holds, as the journal tells it: a pure fold of events.

Label Studio's own record is the truth about its annotations. The mirror is what was last known of it. From the
mirror follows what each image should be labelled; `Mirror.differences` compares this with what was done already.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from coldstream.serve.label_studio.mapping import Annotation, decide

if TYPE_CHECKING:
    from coldstream.serve.journal import Event

Json = dict[str, Any]

KIND = "label-studio"
"""The kind of the events in which the journal keeps what Label Studio said."""
WHO = "label-studio"
"""Who labels, in events that follow from what Label Studio said."""


@dataclass(frozen=True)
class State:
    """What an image is in Label Studio: labelled, skipped, or neither."""

    label: str | None = None
    skipped: bool = False


@dataclass(frozen=True)
class _Deleted:
    updated: str
    seq: int


class Mirror:
    """Tasks, annotations and images of one Label Studio project."""

    def __init__(self) -> None:
        self.seq = 0
        """Number of the last event taken."""
        self.uid: str | None = None
        """The Label Studio project's id and time of creation, which tell it from one of another server."""
        self.project: int | None = None
        self.control: str | None = None
        """Name of the `Choices`, where several are about the image."""
        self.images: dict[int, str] = {}
        """Image by task."""
        self.addresses: dict[int, str] = {}
        """Digest of the image's address by task."""
        self.annotations: dict[int, Annotation] = {}
        self.seqs: dict[int, int] = {}
        """Number of the event that an annotation was last told in."""
        self.applied: dict[str, State] = {}
        """What was last done about an image."""
        self.applied_at: dict[str, int] = {}
        """Number of the event that did it."""
        self._deleted: dict[int, _Deleted] = {}
        self._of_task: dict[int, set[int]] = defaultdict(set)
        self._tasks: dict[str, set[int]] = defaultdict(set)
        self._changed: dict[str, int] = {}
        """Images to compare again, with the number of the last event about them."""

    def take(self, event: Event) -> None:
        """Take one event of the journal; most change nothing here."""
        self.seq, body = event.seq, event.body
        if event.kind == KIND:
            ((what, value),) = body.items()
            _TAKE[what](self, event.seq, value)
        elif event.who == WHO and event.kind in _STATES:
            for image in body.get("images") or [body["image"]]:
                self.applied[image], self.applied_at[image] = _STATES[event.kind](body), event.seq

    def _take_connect(self, seq: int, value: Json) -> None:
        self.uid, self.project, self.control = value["uid"], value["project"], value["control"]

    def _take_task(self, seq: int, value: Json) -> None:
        self._forget_task(seq, value["id"])
        self.images[value["id"]], self.addresses[value["id"]] = value["image"], value["address"]
        self._tasks[value["image"]].add(value["id"])
        self._changed[value["image"]] = seq

    def _take_annotation(self, seq: int, value: Json) -> None:
        annotation = Annotation(**value)
        self._drop(seq, annotation.id)
        self.annotations[annotation.id], self.seqs[annotation.id] = annotation, seq
        self._of_task[annotation.task].add(annotation.id)
        self._deleted.pop(annotation.id, None)
        self._mark(seq, annotation.task)

    def _take_deleted(self, seq: int, value: Json) -> None:
        for number in value.get("annotations", ()):
            if dropped := self._drop(seq, number):
                self._deleted[number] = _Deleted(dropped.updated, seq)
        for task in value.get("tasks", ()):
            for number in [*self._of_task.get(task, ())]:
                self._take_deleted(seq, {"annotations": [number]})
            self._forget_task(seq, task)

    def _drop(self, seq: int, number: int) -> Annotation | None:
        annotation = self.annotations.pop(number, None)
        if annotation is not None:
            del self.seqs[number]
            self._of_task[annotation.task].discard(number)
            self._mark(seq, annotation.task)
        return annotation

    def _forget_task(self, seq: int, task: int) -> None:
        self._mark(seq, task)
        self.addresses.pop(task, None)
        image = self.images.pop(task, None)
        if image is not None:
            self._tasks[image].discard(task)

    def _mark(self, seq: int, task: int) -> None:
        if task in self.images:
            self._changed[self.images[task]] = seq

    def news(self, annotations: Iterable[Annotation], since: int | None = None) -> Iterator[tuple[str, Json]]:
        """Yield (request key, event body) for each annotation that says something not yet known.

        Parameters
        ----------
        annotations
            Annotations as Label Studio gives them.
        since
            Where they come from a listing, the number of the last event before it was asked for. A webhook may come
            late and out of order, so it never brings back what is deleted.
        """
        for annotation in annotations:
            known, deleted = self.annotations.get(annotation.id), self._deleted.get(annotation.id)
            again = 0
            if known is not None:
                listed_again = since is not None and annotation.updated == known.updated and annotation != known
                if annotation.updated <= known.updated and not listed_again:
                    continue
                again = self.seqs[annotation.id] if listed_again else 0
            elif deleted is not None and annotation.updated <= deleted.updated:
                if since is None or deleted.seq > since:
                    continue
                again = deleted.seq
            key = f"label-studio/{self.project}/annotation/{annotation.id}/{annotation.updated}"
            yield key + (f"/{again}" if again else ""), {"annotation": asdict(annotation)}

    def known(self, numbers: Iterable[int]) -> list[int]:
        """Return those of these annotations that are known, in order."""
        return sorted({number for number in numbers if number in self.annotations})

    def missing(self, tasks: Iterable[int], listed: set[int], since: int) -> list[int]:
        """Return annotations of these tasks known up to event `since` that a listing does not have."""
        numbers = (number for task in tasks for number in self._of_task.get(task, ()))
        return sorted(number for number in numbers if number not in listed and self.seqs[number] <= since)

    def tasks(self) -> set[int]:
        """Return the tasks with a known image or annotation."""
        return {*self.images, *(task for task, numbers in self._of_task.items() if numbers)}

    def state(self, image: str) -> State:
        """Return what an image is in Label Studio now."""
        numbers = (number for task in self._tasks.get(image, ()) for number in self._of_task.get(task, ()))
        annotation = decide([self.annotations[number] for number in numbers])
        return State() if annotation is None else State(annotation.label, annotation.skipped)

    def difference(self, image: str) -> tuple[State, int] | None:
        """Return what an image should be and the last event about it; None if nothing is to be done."""
        state = self.state(image)
        if image in self._changed and state != self.applied.get(image, State()):
            return state, self._changed[image]
        self._changed.pop(image, None)
        return None

    def differences(self) -> list[str]:
        """Return the images about which something is to be done, those longest known first."""
        images = sorted(self._changed, key=lambda image: self._changed[image])
        return [image for image in images if self.difference(image) is not None]

    def set_aside(self, image: str) -> None:
        """Do not compare an image again until something new is said about it."""
        self._changed.pop(image, None)

    def unlabelled(self) -> list[tuple[int, str]]:
        """Return (task, image) of the tasks that nobody has annotated."""
        return [(task, image) for task, image in sorted(self.images.items()) if not self._of_task.get(task)]


_STATES: dict[str, Callable[[Json], State]] = {
    "label": lambda body: State(label=body["label"]),
    "relabel": lambda body: State(label=body["label"]),
    "skip": lambda body: State(skipped=True),
    "unlabel": lambda body: State(),
}
_TAKE: dict[str, Callable[[Mirror, int, Any], None]] = {
    "connect": Mirror._take_connect,
    "task": Mirror._take_task,
    "annotation": Mirror._take_annotation,
    "deleted": Mirror._take_deleted,
}
