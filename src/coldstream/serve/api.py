"""The HTTP API: what is asked in JSON, what is answered, and which errors there are."""

from __future__ import annotations

import asyncio
import errno
import json
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from typing import Annotated, Any, Literal

from fastapi import APIRouter, FastAPI, File, Path, Query, Request, UploadFile
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, Response, StreamingResponse
from pydantic import BaseModel, ConfigDict, Field
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException

from coldstream.serve import exports, looking
from coldstream.serve.errors import Refused
from coldstream.serve.images import Unreadable
from coldstream.serve.journal import CannotWrite
from coldstream.serve.project import Project

Projects = Mapping[str, Project]
_EVENTS_SECONDS = 0.25
_SILENCE = 15.0
_CHUNK = 1 << 16

ImageId = Annotated[str, Field(min_length=1, max_length=64)]
Label = Annotated[str, Field(min_length=1, max_length=2_000)]
Key = Annotated[str | None, Field(min_length=1, max_length=200, pattern=r"^[\x20-\x7e]+$")]
Name = Annotated[str, Path(alias="project", max_length=64)]
Accuracy = Annotated[float, Field(gt=0, lt=1)]


class Body(BaseModel):
    """A body of a request: `key` makes it idempotent."""

    model_config = ConfigDict(extra="forbid")
    key: Key = None


class ShownGuess(BaseModel):
    """The guess that the person was shown."""

    label: Label
    confidence: Annotated[float, Field(ge=0, le=1)]


class LabelBody(Body):
    """A label for one image."""

    image: ImageId
    label: Label
    guess: ShownGuess | None = None


class ImageBody(Body):
    """One image."""

    image: ImageId


class ManyBody(Body):
    """One label for several images."""

    images: Annotated[list[ImageId], Field(min_length=1, max_length=1_000)]
    label: Label


class RenameBody(Body):
    """A class and its new name."""

    old: Label
    new: Label


class MergeBody(Body):
    """A class and the one that it becomes."""

    old: Label
    into: Label


class AcceptBody(Body):
    """The accuracy that machine labels shall have."""

    accuracy: Accuracy = 0.95


class RevokeBody(Body):
    """The acceptance that is taken back."""

    seq: Annotated[int, Field(ge=1, le=1 << 53)]


def application(projects: Projects) -> FastAPI:
    """Return the API of these projects; all of them are there before the first request."""
    app = FastAPI(title="Coldstream", docs_url=None, redoc_url=None, openapi_url="/openapi.json")
    _explain_errors(app)

    @app.get("/api/projects")
    def all_projects() -> dict[str, Any]:
        """Return the projects of this server."""
        return {
            "projects": [
                {
                    "name": project.name,
                    "images": len(project.records.images),
                    "labelled": project.records.labelled,
                    "url": f"/?project={project.name}",
                }
                for project in projects.values()
            ]
        }

    @app.get("/health")
    def health() -> JSONResponse:
        """Return whether all learners learn; 503 if one cannot."""
        states = {project.name: looking.health(project) for project in projects.values()}
        failed = any(project.live.state.doing == "failed" for project in projects.values())
        good = all(state == "ok" for state in states.values())
        answer = {"status": "failed" if failed else "ok" if good else "degraded", "projects": states}
        return JSONResponse(answer, 503 if failed else 200)

    app.include_router(_routes(projects), prefix="/api/projects/{project}")
    return app


def _routes(projects: Projects) -> APIRouter:
    router = APIRouter()

    def find(name: str) -> Project:
        project = projects.get(name)
        if project is None:
            raise Refused(f"there is no project {name[:64]!r}; there are: {', '.join(projects)}", "path.project", 404)
        return project

    @router.get("/status")
    def status(name: Name) -> dict[str, Any]:
        """Return the numbers of the project and what its learner is doing."""
        return looking.status(find(name))

    @router.get("/next")
    def next_images(
        name: Name,
        count: Annotated[int, Query(ge=1, le=20)] = 1,
        leave: Annotated[list[ImageId] | None, Query(alias="not", max_length=100)] = None,
    ) -> dict[str, Any]:
        """Hand out images to label, with guesses; none of those in `not`."""
        return {"items": find(name).next(count, leave or ())}

    @router.get("/guess")
    def guess(name: Name, image: Annotated[list[ImageId], Query(max_length=50)]) -> dict[str, Any]:
        """Return guesses of the learner as it is now."""
        project = find(name)
        known = [id for id in dict.fromkeys(image) if id in project.records.images]
        guesses = looking.guesses_of(project, known)
        return {"guesses": {id: guesses[id].json() if id in guesses else None for id in known}}

    @router.post("/label")
    def label(name: Name, body: LabelBody) -> dict[str, Any]:
        """Give an image a label, or correct it. Answered once the label is on disk."""
        project = find(name)
        shown = None if body.guess is None else [body.guess.label, body.guess.confidence]
        return _done(project, project.label(body.image, body.label, key=body.key, guess=shown).seq)

    @router.post("/skip")
    def skip(name: Name, body: ImageBody) -> dict[str, Any]:
        """Leave an image without a label."""
        project = find(name)
        return _done(project, project.skip(body.image, key=body.key).seq)

    @router.post("/relabel")
    def relabel(name: Name, body: ManyBody) -> dict[str, Any]:
        """Correct the label of images."""
        project = find(name)
        return _done(project, project.relabel(body.images, body.label, key=body.key).seq)

    @router.post("/label-many")
    def label_many(name: Name, body: ManyBody) -> dict[str, Any]:
        """Give several images one label."""
        project = find(name)
        return _done(project, project.label_many(body.images, body.label, key=body.key).seq)

    @router.post("/forget")
    def forget(name: Name, body: ImageBody) -> dict[str, Any]:
        """Take an image's label away, and do not show the image again."""
        project = find(name)
        return _done(project, project.forget(body.image, key=body.key).seq)

    @router.post("/undo")
    def undo(name: Name, body: Body) -> dict[str, Any]:
        """Take back the last label, skip or correction."""
        project = find(name)
        return looking.undone(project, project.undo(key=body.key))

    @router.post("/rename")
    def rename(name: Name, body: RenameBody) -> dict[str, Any]:
        """Give a class another name."""
        project = find(name)
        return _done(project, project.rename(body.old, body.new, key=body.key).seq)

    @router.post("/merge")
    def merge(name: Name, body: MergeBody) -> dict[str, Any]:
        """Let one class be another from now on."""
        project = find(name)
        return _done(project, project.merge(body.old, body.into, key=body.key).seq)

    @router.get("/recent")
    def recent(name: Name, count: Annotated[int, Query(ge=1, le=200)] = 20) -> dict[str, Any]:
        """Return the labels that were given last."""
        return {"items": looking.recent(find(name), count)}

    @router.get("/gallery")
    def gallery(
        name: Name,
        of: Annotated[Label | None, Query(alias="class")] = None,
        who: Literal["human", "machine", "guess"] | None = None,
        by: Literal["doubt"] | None = None,
        offset: Annotated[int, Query(ge=0, le=10_000_000)] = 0,
        count: Annotated[int, Query(ge=1, le=looking.GALLERY)] = 60,
    ) -> dict[str, Any]:
        """Return images of a class, of who labelled them, or all that have a label."""
        return looking.gallery(find(name), of, who, by, offset, count)

    @router.get("/knows")
    def knows(name: Name, accuracy: Annotated[Accuracy, Query()] = 0.95) -> dict[str, Any]:
        """Return what the learner knows, and how many images it may label by itself."""
        return looking.knows(find(name), accuracy)

    @router.post("/accept")
    def accept(name: Name, body: AcceptBody) -> dict[str, Any]:
        """Let the learner label the images that it is sure enough of."""
        return looking.accept(find(name), body.accuracy, key=body.key)

    @router.post("/revoke")
    def revoke(name: Name, body: RevokeBody) -> dict[str, Any]:
        """Take back all machine labels of one acceptance."""
        return looking.revoke(find(name), body.seq, key=body.key)

    @router.post("/predict")
    async def predict(name: Name, request: Request) -> dict[str, Any]:
        """Return a guess for an image: the file as the body, or as a part of a form."""
        project = find(name)
        if request.headers.get("content-type", "").startswith("multipart/form-data"):
            async with request.form(max_files=1, max_fields=1) as form:
                part = next(iter(form.values()), None)
                data = b"" if part is None or isinstance(part, str) else await part.read()
        else:
            data = await request.body()
        try:
            return {"guess": await run_in_threadpool(looking.predict, project, data)}
        except Unreadable as error:
            raise Refused(str(error), "body") from None

    @router.post("/images")
    def add_images(name: Name, files: Annotated[list[UploadFile], File(max_length=1_000)]) -> dict[str, Any]:
        """Add images."""
        project = find(name)
        return project.add_images([(file.filename or "image", file.file.read()) for file in files])

    @router.get("/images/{image}")
    def image(
        name: Name, image: Annotated[str, Path(max_length=64)], size: Literal["full", "thumb"] = "full"
    ) -> Response:
        """Return an image, encoded anew."""
        project = find(name)
        record = project.record(image, "path.image")
        try:
            data, kind = project.images.shown(image, record.path, size)
        except Unreadable as error:
            project.scores.unreadable.add(image)  # it is not handed out any more
            raise Refused(str(error), "path.image", 404) from None
        return Response(data, media_type=kind, headers={"cache-control": "private, max-age=31536000, immutable"})

    @router.get("/export")
    def export(
        name: Name, format: Literal["csv", "jsonl", "folders", "label-studio", "learner"] = "csv"
    ) -> StreamingResponse:
        """Return all labels, the images in a folder for each class, or the learner."""
        project = find(name)
        file_name, kind = exports.FORMATS[format]
        open_file = exports.exported(project, format)
        file = open_file.__enter__()

        def parts() -> Iterator[bytes]:
            try:
                while part := file.read(_CHUNK):
                    yield part
            finally:
                open_file.__exit__(None, None, None)

        disposition = f'attachment; filename="{project.name}-{file_name}"'
        return StreamingResponse(parts(), media_type=kind, headers={"content-disposition": disposition})

    @router.get("/events")
    async def events(name: Name, request: Request) -> StreamingResponse:
        """Send the status whenever it changes, as server-sent events."""
        return StreamingResponse(
            _events(find(name), request),
            media_type="text/event-stream",
            headers={"cache-control": "no-store", "x-accel-buffering": "no"},
        )

    return router


def _done(project: Project, seq: int) -> dict[str, Any]:
    return {"seq": seq, "status": looking.status(project)}


async def _events(project: Project, request: Request) -> AsyncIterator[str]:
    loop = asyncio.get_running_loop()
    last, sent = None, loop.time()
    yield "retry: 2000\n\n"
    while not project.closing.is_set():
        now = await run_in_threadpool(looking.status, project)
        if now != last:
            last, sent = now, loop.time()
            yield f"event: status\ndata: {json.dumps(now)}\n\n"
        elif loop.time() - sent > _SILENCE:
            sent = loop.time()
            yield ": still here\n\n"
        await asyncio.sleep(_EVENTS_SECONDS)


def _explain_errors(app: FastAPI) -> None:
    """Answer errors as {"error": words, "field": path or null}."""

    def answer(status: int, error: str, field: str | None = None) -> JSONResponse:
        return JSONResponse({"error": error, "field": field}, status)

    def handler(kind: type[Exception]) -> Callable[[Callable[[Any], JSONResponse]], None]:
        def register(explain: Callable[[Any], JSONResponse]) -> None:
            async def call(request: Request, error: Exception) -> JSONResponse:
                return explain(error)

            app.add_exception_handler(kind, call)

        return register

    @handler(Refused)
    def refused(error: Refused) -> JSONResponse:
        return answer(error.status, str(error), error.field)

    @handler(CannotWrite)
    def cannot_write(error: CannotWrite) -> JSONResponse:
        return answer(507, error.strerror or str(error))

    @handler(OSError)
    def failed(error: OSError) -> JSONResponse:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
            raise error
        return answer(507, f"the disk is full ({error.strerror}); free some space on it and try again")

    @handler(HTTPException)
    def http(error: HTTPException) -> JSONResponse:
        return answer(error.status_code, str(error.detail))

    @handler(RequestValidationError)
    def invalid(error: RequestValidationError) -> JSONResponse:
        first = error.errors()[0]
        place = ".".join(str(part) for part in first["loc"])
        return answer(422, f"{first['msg']} (at {place})", place)
