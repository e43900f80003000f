"""Keep a project equal to a Label Studio project: webhooks as they come, and listings for those that were lost.

A webhook is written into the journal before it is answered. Label Studio sends each once and waits one second, so a
webhook is lost whenever one of the two is down. A listing of the tasks finds what was lost. What both say goes
through the `Mirror`; labels follow from its differences. All this is a function of the journal, so nothing is lost or
done twice when the process is killed.
"""

from __future__ import annotations

import hashlib
import logging
import threading
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from coldstream.serve.journal import CannotWrite
from coldstream.serve.label_studio import mapping
from coldstream.serve.label_studio.client import LabelStudio
from coldstream.serve.label_studio.mapping import Config, Task
from coldstream.serve.label_studio.mirror import KIND, WHO, Mirror, State
from coldstream.serve.label_studio.ordering import Ordering
from coldstream.serve.label_studio.transport import LabelStudioError
from coldstream.serve.label_studio.webhooks import backend_of, backend_path, check_webhook
from coldstream.serve.project import Project

log = logging.getLogger("coldstream.serve")

CHANGED_SECONDS = 60.0
"""Seconds between listings of the tasks that have changed."""
ALL_SECONDS = 600.0
"""Seconds between listings of all tasks, which find tasks that were deleted."""
SETUP_SECONDS = 5.0
"""Least seconds between two listings because of /setup, which Label Studio calls before each prediction."""
_MARGIN = timedelta(seconds=10)
"""A task may be listed some seconds after the time that it says it changed."""
_FETCHED_AT_ONCE = 20
_SLOWEST = 60.0
"""Most seconds between two attempts while Label Studio does not answer."""


@dataclass
class Status:
    """How things stand, for people and for /health."""

    error: str | None = None
    listed: float | None = None
    """When a listing of all tasks was last complete."""
    webhook: str = "not checked yet"
    waiting: int = 0
    """Images that are still to be read from Label Studio."""
    unreadable: dict[int, str] = field(default_factory=dict)
    """Why a task's image cannot be used."""

    def json(self) -> dict[str, Any]:
        """Return it as /health gives it: of the unreadable images, a few."""
        reasons = dict(self.unreadable)  # a copy: other threads change it
        return {
            "error": self.error,
            "listed": self.listed,
            "webhook": self.webhook,
            "waiting": self.waiting,
            "unreadable": len(reasons),
            "reasons": {str(task): reasons[task] for task in sorted(reasons)[:10]},
        }


class Sync:
    """Connects one project to one of Label Studio's, in a thread of its own.

    Parameters
    ----------
    project
        The project. Its lock guards the mirror.
    studio
        Where the Label Studio project is.
    token
        What Label Studio's webhooks have to send in their `Authorization`, if this server asks for a token.
    """

    def __init__(self, project: Project, studio: LabelStudio, token: str | None = None) -> None:
        self.project, self.studio, self._token = project, studio, token
        self.mirror = Mirror()
        for event in project.journal.events():
            self.mirror.take(event)
        self.config: Config | None = None
        self.status = Status()
        self.ordering = Ordering(project, studio)
        self._backend: dict[str, Any] | None = None
        self._urls: dict[int, str] = {}
        """Addresses of the images that are to be read, by task."""
        self._changed_at: datetime | None = None
        self._due_changed = self._due_all = 0.0
        self._delay = 1.0
        self._wake, self._stop = threading.Event(), threading.Event()
        # A daemon, because a request to Label Studio may take longer than anybody waits for the end of a process.
        self._thread = threading.Thread(target=self._run, name=f"label-studio {project.name}", daemon=True)

    def start(self) -> None:
        """Begin to listen and to list."""
        self.project.live.changed.append(self._wake.set)
        self._thread.start()

    def stop(self) -> None:
        """Ask the thread to end."""
        self._stop.set()
        self._wake.set()

    def join(self, seconds: float) -> None:
        """Wait for the end; a thread that waits for Label Studio ends with the process, and has nothing to lose."""
        if self._thread.is_alive():
            self._thread.join(seconds)

    # What Label Studio calls. Nothing here waits for Label Studio or for the learner.

    def connect(self, uid: str, schema: object, control: str | None) -> None:
        """Connect to a project of Label Studio, or refuse with a ValueError."""
        config, number = mapping.read_config(schema, control), mapping.read_project_id(uid)
        with self.project.lock:
            if self.mirror.uid not in (None, uid):
                raise ValueError(
                    f"project {self.project.name!r} belongs to project {self.mirror.uid} of Label Studio, and this "
                    f"is {uid}; give it another name at the end of the backend's address"
                )
            if (self.mirror.uid, self.mirror.control) != (uid, control):
                self._write({"connect": {"uid": uid, "project": number, "control": control}})
            self.config = config
        self._due_changed = min(self._due_changed, time.monotonic() + SETUP_SECONDS)
        self._wake.set()

    def webhook(self, payload: object) -> None:
        """Take a webhook; when this returns, what it says is on disk."""
        project = payload.get("project") if isinstance(payload, dict) else None
        if isinstance(project, dict):
            if self.mirror.project is None or project.get("id") != self.mirror.project:
                raise ValueError(f"project.id: this is not project {self.mirror.project} of Label Studio")
            self.config = mapping.read_config(project.get("label_config"), self.mirror.control)
        if self.config is None:
            self._due_changed = 0.0  # the webhook cannot be understood yet: ask
        else:
            changes = mapping.read_webhook(payload, self.config)
            with self.project.lock:
                self._tell(changes.annotations)
                self._delete(annotations=self.mirror.known(changes.deleted))
                self._delete(tasks=sorted(self.mirror.tasks() & {*changes.deleted_tasks}))
            self._place(changes.tasks)
            if changes.ask:
                self._due_changed = 0.0
        self._wake.set()

    def known_image(self, task: Task) -> str | None:
        """Return the image of a task if it was read already."""
        with self.project.lock:
            same = task.url is not None and self.mirror.addresses.get(task.id) == _digest(task.url)
            return self.mirror.images[task.id] if same else None

    # The thread.

    def _run(self) -> None:
        while not self._stop.is_set():
            self._wake.clear()
            try:
                waiting = self._step()
                self.status.error, self._delay = None, 1.0
            except (LabelStudioError, CannotWrite, ValueError) as error:
                self.status.error = str(error)
                waiting = self._later()
            except Exception as error:
                if self._stop.is_set():
                    return
                log.exception("Label Studio: project %s", self.project.name)
                self.status.error = f"{type(error).__name__}: {error}"
                waiting = self._later()
            if waiting:
                self._wake.wait(waiting)
                if self.status.error is not None:
                    self._stop.wait(min(waiting, 1.0))  # webhooks come often; do not ask each time

    def _later(self) -> float:
        self._delay = min(_SLOWEST, 2 * self._delay)
        return self._delay

    def _step(self) -> float:
        """Do what is due; return for how many seconds nothing is."""
        if self.mirror.project is None:
            return _SLOWEST
        self._apply()
        now = time.monotonic()
        if now >= self._due_all or now >= self._due_changed:
            self._list(whole=now >= self._due_all)
        self._fetch()
        self._apply()
        if self._urls:
            return 0.0
        ordered = self.ordering.step(self.mirror, self.config)
        due = min(self._due_all, self._due_changed) - time.monotonic()
        return max(0.05, min(due, ordered))

    def _list(self, whole: bool) -> None:
        """Ask for all tasks, or for those that have changed, and take over what is new."""
        settings = self.studio.project(self.mirror.project or 0)
        created = mapping.read_uid(settings)
        if created != self.mirror.uid:
            raise ValueError(
                f"project {self.mirror.project} of Label Studio is not the one that {self.project.name!r} was "
                f"connected to ({created}, not {self.mirror.uid}); nothing was changed"
            )
        self.config = mapping.read_config(settings.get("label_config"), self.mirror.control)
        if whole:
            self._check_connection(settings)
        with self.project.lock:
            since, before = self.project.journal.seq, self.mirror.tasks()
        changed = None if whole or self._changed_at is None else self._changed_at - _MARGIN
        latest, listed = self._changed_at, set[int]()
        self.ordering.begin(settings, self._backend)
        for value in self.studio.tasks(settings["id"], changed):
            number = mapping.read_id(value.get("id"), "task.id")
            listed.add(number)
            try:
                self._take(mapping.read_task(value, self.config), since)
                self.ordering.see(value, self.config)
            except ValueError as error:  # one task that is not understood must not hold up the others
                self.status.unreadable[number] = str(error)
            moment = mapping.read_moment(value.get("updated_at"))
            latest = moment if latest is None else max(latest, moment)
            if self._stop.is_set():
                return
        if changed is None:
            with self.project.lock:
                self._delete(tasks=sorted(before - listed))
            self.status.listed = time.time()
            self.status.unreadable = {t: why for t, why in self.status.unreadable.items() if t in listed}
            self._due_all = time.monotonic() + ALL_SECONDS
        self._changed_at = latest
        self._due_changed = time.monotonic() + CHANGED_SECONDS

    def _check_connection(self, settings: dict[str, Any]) -> None:
        """See that Label Studio calls us: for predictions, and for labels as they are given."""
        name = self.project.name
        self._backend = backend_of(self.studio.backends(settings["id"]), name)
        if self._backend is None:
            self.status.webhook = "no backend of the Label Studio project ends with " + backend_path(name)
        else:
            self.status.webhook = check_webhook(self.studio, settings["id"], self._backend, name, self._token)

    def _take(self, task: Task, since: int) -> None:
        """Take over one listed task: its annotations are exactly those listed."""
        with self.project.lock:
            self._tell(task.annotations, since)
            numbers = {annotation.id for annotation in task.annotations}
            self._delete(annotations=self.mirror.missing([task.id], numbers, since))
        self._place([task])

    def _place(self, tasks: Iterable[Task]) -> None:
        """Note the images that are to be read."""
        for task in tasks:
            if task.url is None:
                self.status.unreadable[task.id] = "the task has no address of an image"
            elif self.known_image(task) is None:
                self._urls[task.id] = task.url
        self.status.waiting = len(self._urls)

    def _fetch(self) -> None:
        """Read some images, those of annotated tasks first."""
        with self.project.lock:
            annotated = {annotation.task for annotation in self.mirror.annotations.values()}
        waiting = [*self._urls]  # a copy: webhooks add to it
        for task in sorted(waiting, key=lambda task: (task not in annotated, task))[:_FETCHED_AT_ONCE]:
            url = self._urls[task]
            try:
                data = self.studio.image(url)
                image = self._store(data, _name(url, task))
            except (ValueError, LabelStudioError) as error:
                if isinstance(error, LabelStudioError) and not error.about_one_file:
                    raise
                self.status.unreadable[task] = str(error)
            else:
                self.status.unreadable.pop(task, None)
                with self.project.lock:
                    self._write({"task": {"id": task, "image": image, "address": _digest(url)}})
            if self._urls.get(task) == url:
                del self._urls[task]
            self.status.waiting = len(self._urls)
            if self._stop.is_set():
                return

    def _store(self, data: bytes, name: str) -> str:
        """Store an image in the project; return its id."""
        answer = self.project.add_images([(name, data)], who=WHO)
        if answer["refused"]:
            raise ValueError(answer["refused"][0]["error"])
        return str(answer["added"][0]["image"])

    def _apply(self) -> None:
        """Give the labels that follow from what Label Studio said."""
        with self.project.lock:
            images = self.mirror.differences()
        for image in images:
            with self.project.lock:
                if (difference := self.mirror.difference(image)) is not None:
                    state, seq = difference
                    self._apply_one(image, state, f"label-studio/{image}/{seq}")

    def _apply_one(self, image: str, state: State, key: str) -> None:
        project = self.project
        try:
            if state.label is not None:
                event = project.label(image, state.label, key=key, who=WHO, source=WHO)
            elif state.skipped:
                event = project.skip(image, key=key, who=WHO)
            elif project.record(image).seq == self.mirror.applied_at.get(image):
                event = project.unlabel(image, key=key, who=WHO)
            else:  # the page has given it another label since
                self.mirror.set_aside(image)
                return
        except ValueError as error:
            log.warning("Label Studio: %s", error)
            self.mirror.set_aside(image)
            return
        self.mirror.take(event)

    # The journal. With the project's lock.

    def _write(self, body: dict[str, Any], key: str | None = None) -> None:
        before = self.project.journal.seq
        event = self.project.append(KIND, body, who=WHO, key=key)
        if event.seq > before:
            self.mirror.take(event)

    def _tell(self, annotations: Iterable[mapping.Annotation], since: int | None = None) -> None:
        for key, body in [*self.mirror.news(annotations, since)]:
            self._write(body, key)

    def _delete(self, **numbers: list[int]) -> None:
        if any(numbers.values()):
            self._write({"deleted": numbers})


def _digest(address: str) -> str:
    """Return what stands for an image's address, which may hold the whole image."""
    return hashlib.sha256(address.encode("utf-8", "surrogatepass")).hexdigest()[:32]


def _name(address: str, task: int) -> str:
    """Return the name of an image for people."""
    inline = address.startswith("data:")
    return f"task {task}" if inline else address.split("?")[0].rsplit("/", 1)[-1] or f"task {task}"
