"""The records: what the journal's events add up to. A pure fold, without files, clocks or draws.

`Records.fold` takes one event after the other. It returns what the event asks of the learner, so that the learner is
a function of the journal too.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from coldstream.serve.journal import Event

UNDOABLE = ("label", "label-many", "skip", "relabel")
_HISTORY = 1_000
"""Actions of each person that can be undone, one after the other."""
_RECENT = 500


class Op(NamedTuple):
    """Something that the learner has to do: `verb` is learn, relabel, forget, merge or rehearse."""

    seq: int
    verb: str
    arguments: tuple[Any, ...]


@dataclass(slots=True)
class Record:
    """What is known of one image."""

    name: str
    path: str | None
    label: int | None = None
    """Number of the class."""
    by: str | None = None
    """Who gave the label: ``human``, ``machine`` or nobody."""
    confidence: float | None = None
    """The learner's, of a machine label."""
    skipped: bool = False
    audit: bool = False
    """Whether it was drawn at random for the audit."""
    seq: int = 0
    """The event that gave the label or skipped it."""
    learned: bool = False
    """Whether the learner has learned it and was not told to forget it."""
    unreadable: bool = False


Before = tuple[str, int | None, str | None, float | None, bool, int]


@dataclass(slots=True)
class Class:
    """A class: a number for good, and the name that it has now."""

    name: str
    count: int = 0
    machine: int = 0
    into: int | None = None
    """The class that it was merged into."""


class Tested(NamedTuple):
    """A label and what the learner predicted just before it learned the image."""

    seq: int
    image: str
    label: int
    guess: int | None
    confidence: float
    audit: bool


@dataclass(slots=True)
class Recent:
    """A label that was given lately, for the page."""

    seq: int
    image: str
    guess: list[Any] | None


class Pool:
    """A set of image ids from which one can be drawn by a number."""

    def __init__(self) -> None:
        self._items: list[str] = []
        self._places: dict[str, int] = {}

    def __len__(self) -> int:
        return len(self._items)

    def __contains__(self, id: object) -> bool:
        return id in self._places

    def __getitem__(self, place: int) -> str:
        return self._items[place]

    def add(self, id: str) -> None:
        if id not in self._places:
            self._places[id] = len(self._items)
            self._items.append(id)

    def discard(self, id: str) -> None:
        place = self._places.pop(id, None)
        if place is not None:
            last = self._items.pop()
            if last != id:
                self._items[place] = last
                self._places[last] = place

    def all(self) -> list[str]:
        return list(self._items)


@dataclass
class Records:
    """The state of a project as its journal says it."""

    settings: dict[str, Any] = field(default_factory=dict)
    images: dict[str, Record] = field(default_factory=dict)
    stamps: dict[str, tuple[int, int]] = field(default_factory=dict)
    """Size and time of each file of the source folder, by path."""
    by_path: dict[str, str] = field(default_factory=dict)
    refused: set[int] = field(default_factory=set)
    """Events whose update failed twice and is left out for good."""
    classes: list[Class] = field(default_factory=list)
    numbers: dict[str, int] = field(default_factory=dict)
    """The number of each class that was not merged into another, by name."""
    unlabelled: Pool = field(default_factory=Pool)
    pending: dict[str, None] = field(default_factory=dict)
    """Images with a label of a person's that the learner has not learned yet, in order."""
    waiting_audits: dict[str, None] = field(default_factory=dict)
    """Images drawn for the audit that nobody has labelled yet."""
    tested: list[Tested] = field(default_factory=list)
    recent: deque[Recent] = field(default_factory=lambda: deque(maxlen=_RECENT))
    accepted: dict[int, list[str]] = field(default_factory=dict)
    """The images of each acceptance that was not revoked."""
    acceptances: list[dict[str, Any]] = field(default_factory=list)
    """All acceptances, revoked or not: seq, time, count, threshold and accuracy."""
    accepted_at: int = 0
    """The last acceptance, revoked or not."""
    seq: int = 0
    labelled: int = 0
    skipped: int = 0
    machine: int = 0
    updates: int = 0
    rehearsed: int = 0
    """Rehearsal updates since the last update with new labels."""
    _history: dict[str, deque[tuple[int, str, list[Before]]]] = field(default_factory=dict)
    _undone: set[int] = field(default_factory=set)

    def fold(self, event: Event) -> list[Op]:
        """Take over an event; return what it asks of the learner."""
        ops: list[Op] = getattr(self, "_" + event.kind.replace("-", "_"))(event) or []
        self.seq = event.seq
        return ops

    def name_of(self, number: int) -> str:
        """Return the name of a class, or of the class that it was merged into."""
        return self.classes[self.resolve(number)].name

    def resolve(self, number: int) -> int:
        """Return the class that a class has become by merging."""
        while (into := self.classes[number].into) is not None:
            number = into
        return number

    def shown_classes(self) -> list[Class]:
        """Return the classes that have a label, in the order in which they came."""
        return [one for one in self.classes if one.into is None and (one.count or one.machine)]

    def in_use(self, number: int) -> bool:
        """Return whether an image has this class."""
        return bool(self.classes[number].count or self.classes[number].machine)

    def undoable(self, who: str) -> int | None:
        """Return the event that this person would undo."""
        history = self._history.get(who)
        return history[-1][0] if history else None

    # One method for each kind of event.

    def _settings(self, event: Event) -> None:
        self.settings = {**self.settings, **event.body}

    def _images(self, event: Event) -> None:
        for entry in event.body["added"]:
            path = entry.get("path")
            if path is not None and "time" in entry:
                self.stamps[path] = entry["bytes"], entry["time"]
                self.by_path[path] = entry["id"]
            known = self.images.get(entry["id"])
            if known is None:
                self.images[entry["id"]] = Record(entry["name"], path)
                self.unlabelled.add(entry["id"])
            else:
                known.path = path if path is not None else known.path
                if known.unreadable:
                    known.unreadable = False
                    self._sort(entry["id"], known)

    def _audit(self, event: Event) -> None:
        for id in event.body["images"]:
            self.images[id].audit = True
            if id in self.unlabelled:
                self.waiting_audits[id] = None

    def _label(self, event: Event) -> list[Op]:
        body = event.body
        self.recent.append(Recent(event.seq, body["image"], body.get("guess")))
        return self._give(event, [body["image"]], body["label"])

    def _label_many(self, event: Event) -> list[Op]:
        return self._give(event, event.body["images"], event.body["label"])

    def _relabel(self, event: Event) -> list[Op]:
        return self._give(event, event.body["images"], event.body["label"])

    def _give(self, event: Event, ids: list[str], name: str) -> list[Op]:
        number, ops = self._number(name), list[Op]()
        self._remember(event, ids)
        for id in ids:
            ops += self._set(event.seq, id, label=number, by="human", seq=event.seq)
        return ops

    def _skip(self, event: Event) -> list[Op]:
        ids = [event.body["image"]]
        self._remember(event, ids)
        return self._set(event.seq, ids[0], skipped=True, seq=event.seq)

    def _forget(self, event: Event) -> list[Op]:
        return self._set(event.seq, event.body["image"], skipped=True, seq=event.seq)

    def _unlabel(self, event: Event) -> list[Op]:
        return self._set(event.seq, event.body["image"], seq=event.seq)

    def _label_studio(self, event: Event) -> None:
        """Do nothing: labels follow in events of their own (`coldstream.serve.label_studio.mirror`)."""

    def _undo(self, event: Event) -> list[Op]:
        history, ops = self._history[event.who], list[Op]()
        seq, _, before = history.pop()
        assert seq == event.body["seq"]
        self._undone.add(seq)
        for id, label, by, confidence, skipped, earlier in reversed(before):
            if self.images[id].seq == seq:  # else somebody has changed it since
                ops += self._set(
                    event.seq, id, label=label, by=by, confidence=confidence, skipped=skipped, seq=earlier
                )
        self.recent = deque((one for one in self.recent if one.seq != seq), maxlen=_RECENT)
        return ops

    def _rename(self, event: Event) -> None:
        number = self.numbers.pop(event.body["old"])
        displaced = self.numbers.get(event.body["new"])
        if displaced is not None:  # nothing has that label now, but an undo may bring it back
            name = f"{event.body['new']} ({event.seq})"
            self.classes[displaced].name = name
            self.numbers.setdefault(name, displaced)
        self.classes[number].name = event.body["new"]
        self.numbers[event.body["new"]] = number

    def _merge(self, event: Event) -> list[Op]:
        old, into = self.numbers.pop(event.body["old"]), self.numbers[event.body["into"]]
        source, target = self.classes[old], self.classes[into]
        source.into = into
        target.count, target.machine = target.count + source.count, target.machine + source.machine
        source.count = source.machine = 0
        return [Op(event.seq, "merge", (old, into))]

    def _accept(self, event: Event) -> None:
        ids = []
        for id, name, confidence in event.body["items"]:
            if id in self.unlabelled:
                self._set(event.seq, id, label=self._number(name), by="machine", confidence=confidence, seq=event.seq)
                ids.append(id)
        self.accepted[event.seq] = ids
        self.accepted_at = event.seq
        asked = {name: event.body[name] for name in ("threshold", "accuracy")}
        self.acceptances.append({"seq": event.seq, "time": event.time, "count": len(ids), **asked})

    def _revoke(self, event: Event) -> None:
        for id in self.accepted.pop(event.body["seq"]):
            record = self.images[id]
            if record.by == "machine" and record.seq == event.body["seq"]:
                self._set(event.seq, id, label=None, by=None, seq=event.seq)

    def _learn(self, event: Event) -> list[Op]:
        examples = []
        for id, guess in zip(event.body["images"], event.body["guesses"], strict=True):
            record = self.images[id]
            assert record.label is not None
            number = self.resolve(record.label)
            examples.append((id, number))
            record.learned = True
            self.pending.pop(id, None)
            best, confidence = guess or (None, 0.0)
            self.tested.append(Tested(record.seq, id, number, best, confidence, record.audit))
        self.updates += 1
        self.rehearsed = 0
        return [Op(event.seq, "learn", tuple(examples))]

    def _rehearse(self, event: Event) -> list[Op]:
        self.rehearsed += event.body["updates"]
        return [Op(event.seq, "rehearse", (event.body["updates"],))]

    def _unreadable(self, event: Event) -> None:
        for id in event.body["images"]:
            self.images[id].unreadable = True
            self._sort(id, self.images[id])

    def _refused(self, event: Event) -> None:
        self.refused.add(event.body["seq"])

    # The steps that they share.

    def _number(self, name: str) -> int:
        number = self.numbers.get(name)
        if number is None:
            number = self.numbers[name] = len(self.classes)
            self.classes.append(Class(name))
        return number

    def _remember(self, event: Event, ids: Iterable[str]) -> None:
        before: list[Before] = []
        for id in ids:
            one = self.images[id]
            before.append((id, one.label, one.by, one.confidence, one.skipped, one.seq))
        self._history.setdefault(event.who, deque(maxlen=_HISTORY)).append((event.seq, event.kind, before))

    def _set(
        self,
        event: int,
        id: str,
        *,
        seq: int,
        label: int | None = None,
        by: str | None = None,
        confidence: float | None = None,
        skipped: bool = False,
    ) -> list[Op]:
        """Give an image its state; return what the learner has to do about it."""
        record, ops = self.images[id], list[Op]()
        label = None if label is None else self.resolve(label)
        before = None if record.label is None else self.resolve(record.label)
        self._count(record, -1)
        record.label, record.by, record.confidence, record.skipped, record.seq = label, by, confidence, skipped, seq
        self._count(record, 1)
        if record.learned and by != "human":
            record.learned = False
            ops.append(Op(event, "forget", (id,)))
        elif record.learned and label != before:
            ops.append(Op(event, "relabel", (id, label)))
        self._sort(id, record)
        return ops

    def _count(self, record: Record, sign: int) -> None:
        self.skipped += sign * record.skipped
        if record.label is None:
            return
        one = self.classes[self.resolve(record.label)]
        if record.by == "human":
            one.count += sign
            self.labelled += sign
        else:
            one.machine += sign
            self.machine += sign

    def _sort(self, id: str, record: Record) -> None:
        """Put an image where its state belongs: unlabelled, waiting to be learned, or neither."""
        if record.label is None and not record.skipped and not record.unreadable:
            self.unlabelled.add(id)
            if record.audit:
                self.waiting_audits[id] = None
        else:
            self.unlabelled.discard(id)
            self.waiting_audits.pop(id, None)
        if record.by == "human" and not record.learned and not record.unreadable:
            self.pending.setdefault(id)
        else:
            self.pending.pop(id, None)
