"""One project: its folder's lock, journal, images, records and live learner, and the verbs that people use."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import Any

from coldstream.checkpoint import hold, make_folder
from coldstream.parsing import unknown as unknown_name
from coldstream.serve import choosing, history, journal, looking
from coldstream.serve.errors import Refused
from coldstream.serve.images import Images, shape_for
from coldstream.serve.journal import Event, Journal
from coldstream.serve.live import Live
from coldstream.serve.queue import Queue
from coldstream.serve.records import Op, Record, Records
from coldstream.serve.scores import Scores
from coldstream.serve.text import check_label

DEFAULTS: dict[str, Any] = {
    "seed": 0,
    "audit": 0.2,
    "rehearse": 0,
    "policy": choosing.DEFAULT,
    "learner": {},
}
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
MANY = 1_000
"""Images that one request may label."""
_SAMPLED = 50


class Project:
    """A folder with everything about one set of images and its learner. One process has it at a time."""

    def __init__(self, folder: Path, name: str, source: Path | None = None, **settings: Any) -> None:
        if not NAME.fullmatch(name):
            raise ValueError(
                f"a project's name has 1 to 64 letters, digits, dots, dashes and underscores, not {name!r}"
            )
        if unknown := settings.keys() - DEFAULTS.keys():
            raise ValueError(f"unknown setting {min(unknown)!r}; known: {', '.join(DEFAULTS)}")
        if (policy := settings.get("policy", choosing.DEFAULT)) not in choosing.POLICIES:
            raise unknown_name("policy of the next image", policy, choosing.POLICIES)
        make_folder(folder)
        self.folder, self.name = folder.resolve(), name
        self._folder_lock = hold(folder)
        try:
            self.journal = Journal(self.folder / journal.FILE)
            try:
                self._open(source, settings)
            except BaseException:
                self.journal.close()
                raise
        except BaseException:
            self._folder_lock.release()
            raise

    def _open(self, source: Path | None, settings: dict[str, Any]) -> None:
        self.lock = threading.RLock()
        self.records = Records()
        self.ops: list[Op] = []
        self.labelled_at = time.monotonic()
        self.closing = threading.Event()
        for event in self.journal.events():
            self.records.fold(event)
        known = self.records.settings
        place = None if source is None else str(source.resolve())
        if not known:
            self.append("settings", {"format": 1, "source": place, "shape": None, **DEFAULTS, **settings})
        else:
            changed = {key: value for key, value in settings.items() if known.get(key) != value}
            if fixed := changed.keys() & {"seed", "learner"}:
                raise ValueError(f"{min(fixed)!r} of project {self.name!r} was chosen when it began; begin a new one")
            if place is not None and place != known["source"]:
                changed["source"] = place
            if changed:
                self.append("settings", changed)
        where = self.records.settings["source"]
        self.images = Images(self.folder, None if where is None else Path(where))
        self.id = self.journal.checksum_of(1).hex()[:16]
        self.scores = Scores(self.records, self.images)
        self.live = Live(self.folder, history.History(self))
        self.queue = Queue(self)
        self.live.changed.append(self.queue.wake)

    def scan(self, progress: Callable[[int], None] | None = None) -> int:
        """Add the images of the source folder that are new; return how many images there are."""
        known = {
            path: stamp
            for path, stamp in self.records.stamps.items()
            if (record := self.records.by_path.get(path)) is None or not self.records.images[record].unreadable
        }
        for batch in self.images.scan(known):
            with self.lock:
                self.append("images", {"added": batch}, who="coldstream")
            if progress is not None:
                progress(len(self.records.images))
        self.decide_shape()
        self.scores.unreadable.clear()
        self.live.wake()
        self.queue.wake()
        return len(self.records.images)

    def start(self) -> None:
        """Begin to learn and to choose images."""
        self.live.start()
        self.queue.start()

    def close(self) -> None:
        """Write a checkpoint and give the folder back."""
        self.closing.set()
        self.queue.stop()
        self.live.stop()
        self.journal.close()
        self._folder_lock.release()

    # The journal.

    def append(self, kind: str, body: dict[str, Any], *, who: str = "person", key: str | None = None) -> Event:
        """Write an event; once it is on disk, take it over into the records and tell the learner."""
        with self.lock:
            before = self.journal.seq
            event = self.journal.append(kind, body, who=who, key=key)
            if event.seq > before:
                self.ops += self.records.fold(event)
        return event

    def _act(self, kind: str, body: dict[str, Any], who: str, key: str | None) -> Event:
        event = self.append(kind, body, who=who, key=key)
        self.labelled_at = time.monotonic()
        self.live.wake()
        return event

    def again(self, key: str | None, kind: str, **fields: Any) -> Event | None:
        """Return the event that this request has written before; refuse a key that was used for another one."""
        event = None if key is None else self.journal.find(key)
        if event is not None and (
            event.kind != kind or any(event.body.get(name) != value for name, value in fields.items())
        ):
            raise Refused("this key was used for another request; take a new one", "body.key", 409)
        return event

    # What people do.

    def label(
        self,
        image: str,
        label: str,
        *,
        key: str | None = None,
        who: str = "person",
        source: str = "human",
        guess: Sequence[Any] | None = None,
    ) -> Event:
        """Give an image a label, or correct the one that it has."""
        label = check_label(label)
        with self.lock:
            if event := self.again(key, "label", image=image, label=label):
                return event
            record = self.record(image)
            shown = self.scores.guess_of(image)
            if shown is not None:
                guess = [shown.label, shown.confidence]
            body = {"image": image, "label": label, "audit": record.audit, "guess": guess, "source": source}
            event = self._act("label", body, who, key)
            self.queue.give_back(image)
            self.scores.drop(image)
        return event

    def label_many(self, images: Sequence[str], label: str, *, key: str | None = None, who: str = "person") -> Event:
        """Give several images one label."""
        return self._give_many("label-many", images, label, key, who)

    def relabel(self, images: Sequence[str], label: str, *, key: str | None = None, who: str = "person") -> Event:
        """Correct the label of several images."""
        return self._give_many("relabel", images, label, key, who)

    def _give_many(self, kind: str, images: Sequence[str], label: str, key: str | None, who: str) -> Event:
        label, ids = check_label(label), list(dict.fromkeys(images))
        if not 0 < len(ids) <= MANY:
            raise Refused(f"expected 1 to {MANY:,} images, got {len(ids):,}", "body.images")
        with self.lock:
            if event := self.again(key, kind, images=ids, label=label):
                return event
            for id in ids:
                self.record(id, "body.images")
            return self._act(kind, {"images": ids, "label": label}, who, key)

    def skip(self, image: str, *, key: str | None = None, who: str = "person") -> Event:
        """Leave an image without a label."""
        with self.lock:
            if event := self.again(key, "skip", image=image):
                return event
            self.record(image)
            self.queue.give_back(image)
            return self._act("skip", {"image": image}, who, key)

    def forget(self, image: str, *, key: str | None = None, who: str = "person") -> Event:
        """Take an image's label away, from the learner's replay too, and do not show the image again."""
        with self.lock:
            if event := self.again(key, "forget", image=image):
                return event
            self.record(image)
            return self._act("forget", {"image": image}, who, key)

    def unlabel(self, image: str, *, key: str | None = None, who: str = "person") -> Event:
        """Take an image's label, or that it was skipped, away: it is one of the unlabelled again."""
        with self.lock:
            if event := self.again(key, "unlabel", image=image):
                return event
            self.record(image)
            return self._act("unlabel", {"image": image}, who, key)

    def undo(self, *, key: str | None = None, who: str = "person") -> Event | None:
        """Take back this person's last label, skip or correction; None if there is none."""
        with self.lock:
            if event := self.again(key, "undo"):
                return event
            seq = self.records.undoable(who)
            return None if seq is None else self._act("undo", {"seq": seq}, who, key)

    def rename(self, old: str, new: str, *, key: str | None = None, who: str = "person") -> Event:
        """Give a class another name."""
        new = check_label(new, "body.new")
        with self.lock:
            if event := self.again(key, "rename", old=old, new=new):
                return event
            self.class_number(old, "body.old")
            taken = self.records.numbers.get(new)
            if taken is not None and (old == new or self.records.in_use(taken)):
                raise Refused(f"there is a class {new!r} already; merge {old!r} into it", "body.new", 409)
            return self._act("rename", {"old": old, "new": new}, who, key)

    def merge(self, old: str, into: str, *, key: str | None = None, who: str = "person") -> Event:
        """Let one class be another from now on."""
        with self.lock:
            if event := self.again(key, "merge", old=old, into=into):
                return event
            if self.class_number(old, "body.old") == self.class_number(into, "body.into"):
                raise Refused("a class cannot be merged into itself; choose another one", "body.into")
            return self._act("merge", {"old": old, "into": into}, who, key)

    def add_images(self, files: Sequence[tuple[str, bytes]], *, who: str = "person") -> dict[str, Any]:
        """Check and store uploaded images."""
        added, refused = [], []
        for name, data in files:
            try:
                added.append(self.images.store(data, name[:200]))
            except ValueError as error:
                refused.append({"name": name, "error": str(error)})
        if added:
            with self.lock:
                new = [entry for entry in added if entry["id"] not in self.records.images]
                if new:
                    self.append("images", {"added": new}, who=who)
            self.decide_shape()
            self.live.wake()
            self.queue.wake()
        return {"added": [{"image": one["id"], "name": one["name"]} for one in added], "refused": refused}

    def next(self, count: int = 1, leave: Collection[str] = ()) -> list[dict[str, Any]]:
        """Hand out images to label, with guesses."""
        with self.lock:
            choices = self.queue.take(count, leave)
        return looking.items(self, choices)

    # What they share.

    def record(self, id: str, field: str = "body.image") -> Record:
        """Return the record of an image, or refuse an id that is not known."""
        record = self.records.images.get(id)
        if record is None:
            raise Refused(f"there is no image {id[:64]!r} in project {self.name!r}", field, 404)
        return record

    def class_number(self, name: str, field: str) -> int:
        """Return the number of a class, or refuse a name that is not known."""
        number = self.records.numbers.get(name)
        if number is None or not self.records.in_use(number):
            names = ", ".join(repr(one.name) for one in self.records.shown_classes()[:8])
            raise Refused(f"there is no class {name[:200]!r}; there are: {names or 'none yet'}", field, 404)
        return number

    def decide_shape(self) -> None:
        """Decide the network's input once there are images to decide it from."""
        if self.records.settings["shape"] is not None:
            return
        ids = [*self.records.images]
        samples = []
        for id in ids[:: max(1, len(ids) // _SAMPLED)][:_SAMPLED]:
            try:
                samples.append(self.images.decode(self.images.read(id, self.records.images[id].path)))
            except ValueError:
                continue
        shape = shape_for(samples)
        if shape is not None:
            with self.lock:
                if self.records.settings["shape"] is None:
                    self.append("settings", {"shape": list(shape)}, who="coldstream")
