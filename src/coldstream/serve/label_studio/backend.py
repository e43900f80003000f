"""The HTTP endpoints that Label Studio calls, at an address per project: /label-studio/NAME.

None waits for training. /health and /setup answer from memory, /webhook from the journal, /predict from the copy of
the learner that answers.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Mapping
from typing import Annotated, Any

from fastapi import APIRouter, Body
from pydantic import BaseModel, Field

from coldstream.serve import looking
from coldstream.serve.errors import Refused
from coldstream.serve.label_studio import mapping
from coldstream.serve.label_studio.client import LabelStudio
from coldstream.serve.label_studio.predicting import predict
from coldstream.serve.label_studio.sync import Sync
from coldstream.serve.project import Project

log = logging.getLogger("coldstream.serve")

Json = dict[str, Any]
MAX_TASKS = 10_000
PATIENCE = 3.0
"""Seconds that the end of the threads is waited for."""


class Setup(BaseModel):
    """What Label Studio says of a project. Its `hostname` and `access_token` are not used."""

    project: str = Field(max_length=40)
    label_config: str = Field(alias="schema", max_length=mapping.MAX_CONFIG)
    extra_params: Json | str | None = None


class Predict(BaseModel):
    """Tasks to predict. What people have chosen in them already is not read."""

    project: str = Field(max_length=40)
    label_config: str = Field(max_length=mapping.MAX_CONFIG)
    tasks: list[Json] = Field(max_length=MAX_TASKS)


class Backends:
    """The projects that Label Studio is connected to.

    Parameters
    ----------
    studio
        Where Label Studio is.
    projects
        The projects of this server, by name.
    token
        What this server asks for, None if nothing.
    """

    def __init__(self, studio: LabelStudio, projects: Mapping[str, Project], token: str | None = None) -> None:
        self._studio, self._projects, self._token = studio, projects, token
        self._syncs: dict[str, Sync] = {}
        self._lock = threading.Lock()

    def start(self) -> None:
        """Go on with the projects that were connected before."""
        for project in self._projects.values():
            sync = Sync(project, self._studio, self._token)
            if sync.mirror.project is not None:
                self._syncs[project.name] = sync
                sync.start()

    def stop(self) -> None:
        """End all threads."""
        with self._lock:
            syncs = [*self._syncs.values()]
        until = time.monotonic() + PATIENCE
        for sync in syncs:
            sync.stop()
        for sync in syncs:
            sync.join(max(0.0, until - time.monotonic()))

    def health(self, name: str) -> Json:
        """Return that this is up, and how things stand with Label Studio."""
        answer: Json = {"status": "UP", "model_class": "ColdStart"}
        self._project(name)
        sync = self._syncs.get(name)
        if sync is None:
            return answer | {"connected": False}
        return answer | {"connected": True, "learning": looking.health(sync.project)} | sync.status.json()

    def setup(self, name: str, body: Setup) -> str:
        """Connect a project; return the version of its learner."""
        control = body.extra_params.get("control") if isinstance(body.extra_params, dict) else None
        if control is not None and not isinstance(control, str):
            raise Refused("the control is the name of a <Choices>", "body.extra_params.control")
        try:
            mapping.read_config(body.label_config, control)
            mapping.read_project_id(body.project)
            with self._lock:
                sync = self._syncs.get(name)
                if sync is None:
                    sync = Sync(self._project(name), self._studio, self._token)
                new = name not in self._syncs
                sync.connect(body.project, body.label_config, control)
                if new:
                    self._syncs[name] = sync
                    sync.start()
        except ValueError as error:
            if not isinstance(error, Refused):
                log.warning("Label Studio: project %s: %s", name, error)
                raise Refused(str(error), "body") from error
            raise
        return version(sync.project)

    def sync(self, name: str) -> Sync:
        """Return the connection of a project."""
        sync = self._syncs.get(name)
        if sync is None:
            raise Refused(f"no project {name[:64]!r} is connected to Label Studio", "path.name", 404)
        return sync

    def _project(self, name: str) -> Project:
        project = self._projects.get(name)
        if project is None:
            known = ", ".join(self._projects)
            raise Refused(f"there is no project {name[:64]!r} here; there are: {known}", "path.name", 404)
        return project

    def predictions(self, name: str, body: Predict) -> list[Json]:
        """Return a prediction for each task, in order: an empty one where there is no guess."""
        sync = self.sync(name)
        try:
            if body.project != sync.mirror.uid:
                raise Refused(f"this is not project {sync.mirror.uid} of Label Studio", "body.project", 409)
            config = mapping.read_config(body.label_config, sync.mirror.control)
            # Without annotations: what people have said must not leak into a prediction.
            tasks = [mapping.read_task({"id": one.get("id"), "data": one.get("data")}, config) for one in body.tasks]
        except ValueError as error:
            raise error if isinstance(error, Refused) else Refused(str(error), "body") from error
        guesses = predict(sync, tasks)
        named = version(sync.project)
        return [{"model_version": named} | mapping.result(config, *guess) for guess in guesses]


def version(project: Project) -> str:
    """Return the version of the learner that answers, as Label Studio shows it."""
    return f"coldstream-{project.live.answering.seq}"


def router(backends: Backends) -> APIRouter:
    """Return the endpoints of all projects."""
    routes = APIRouter(prefix="/label-studio/{name}", tags=["Label Studio"])

    @routes.get("/health")
    def health(name: str) -> Json:
        """Return that this is up, and how things stand with Label Studio."""
        return backends.health(name)

    @routes.post("/setup")
    def setup(name: str, body: Setup) -> Json:
        """Connect the project to one of Label Studio."""
        return {"model_version": backends.setup(name, body)}

    @routes.post("/predict")
    def predictions(name: str, body: Predict) -> Json:
        """Return a prediction for each task."""
        return {"results": backends.predictions(name, body)}

    @routes.post("/webhook", status_code=201)
    def webhook(name: str, body: Annotated[Json, Body()]) -> Json:
        """Take what has changed in Label Studio. Answered once it is on disk."""
        try:
            backends.sync(name).webhook(body)
        except ValueError as error:
            raise error if isinstance(error, Refused) else Refused(str(error), "body") from error
        return {}

    @routes.get("/versions")
    def versions(name: str) -> Json:
        """Return the version of the learner that answers."""
        return {"versions": [version(backends.sync(name).project)]}

    return routes
