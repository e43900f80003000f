"""The server: binds, answers until it is told to stop, then writes checkpoints."""

from __future__ import annotations

import ipaddress
import re
import signal
import socket
import sys
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from types import FrameType

import uvicorn
from fastapi import FastAPI
from fastapi.responses import FileResponse, HTMLResponse, Response

from coldstream.serve.api import application
from coldstream.serve.errors import Refused
from coldstream.serve.guard import Guard
from coldstream.serve.label_studio.backend import Backends
from coldstream.serve.label_studio.backend import router as label_studio_routes
from coldstream.serve.label_studio.client import LabelStudio
from coldstream.serve.metrics import add_metrics
from coldstream.serve.project import Project
from coldstream.serve.reference import page as reference_page

PAGE = Path(__file__).parent / "page"
_TYPES = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
    ".png": "image/png",
    ".webmanifest": "application/manifest+json",
}
_TOKEN = re.compile(r"[A-Za-z0-9._~-]{16,200}")
_SWITCH_SECONDS = 0.001
"""How long a thread may keep the others waiting: the learner must not hold up answers."""


def check_address(host: str, token: str | None) -> None:
    """Refuse to answer other machines without a token, and a token that is too short."""
    if token is not None and not _TOKEN.fullmatch(token):
        raise ValueError("a token has 16 to 200 letters, digits, dots, dashes, underscores and tildes")
    if token is None and not _is_local(host):
        raise ValueError(
            f"anybody who reaches {host} could label and read your images; give a token (--token) or leave "
            "--host out, to answer this machine only"
        )


def _is_local(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def listen(host: str, port: int) -> socket.socket:
    """Return a socket that listens; a port that is taken is an error in words."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host, port))
        listener.listen(128)
    except OSError as error:
        listener.close()
        raise ValueError(f"cannot listen on {host} port {port}: {error.strerror}; choose another --port") from None
    return listener


def web(projects: dict[str, Project], token: str | None = None, backends: Backends | None = None) -> Guard:
    """Return the whole web application: the API, the page, the reference, the metrics, behind the guard."""
    app = application(projects)
    if backends is not None:
        app.include_router(label_studio_routes(backends))
    add_metrics(app, projects)
    _add_page(app)
    return Guard(app, token)


def _add_page(app: FastAPI) -> None:
    @app.get("/", include_in_schema=False)
    def index() -> Response:
        return _file("index.html")

    @app.get("/page/{path:path}", include_in_schema=False)
    def part(path: str) -> Response:
        return _file(path)

    @app.get("/docs", include_in_schema=False)
    def docs() -> Response:
        return HTMLResponse(reference_page(app.openapi()))


def _file(path: str) -> Response:
    place = (PAGE / path).resolve()
    kind = _TYPES.get(place.suffix)
    if kind is None or not place.is_relative_to(PAGE.resolve()) or not place.is_file():
        raise Refused(f"there is no page {path[:200]!r}", "path", 404)
    return FileResponse(place, media_type=kind, headers={"cache-control": "no-cache"})


class _Server(uvicorn.Server):
    """Uvicorn without its own signal handlers; says when it answers."""

    def __init__(self, config: uvicorn.Config, ready: Callable[[], None]) -> None:
        super().__init__(config)
        self._ready = ready

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self._ready()


def serve(
    projects: dict[str, Project],
    listener: socket.socket,
    token: str | None = None,
    ready: Callable[[], None] = lambda: None,
    label_studio: LabelStudio | None = None,
    stopping: threading.Event | None = None,
) -> None:
    """Answer until SIGTERM, Ctrl-C or `stopping`, then write checkpoints. The projects are closed on return."""
    backends = None if label_studio is None else Backends(label_studio, projects, token)
    sys.setswitchinterval(_SWITCH_SECONDS)
    config = uvicorn.Config(
        web(projects, token, backends),
        log_level="warning",
        access_log=False,
        server_header=False,
        lifespan="off",
        timeout_keep_alive=75,
        timeout_graceful_shutdown=3,
        ws="none",
        proxy_headers=False,
    )
    server = _Server(config, ready)

    def stop(number: int, frame: FrameType | None) -> None:
        for project in projects.values():
            project.closing.set()
        if server.should_exit and number == signal.SIGINT:
            server.force_exit = True
        server.should_exit = True

    if threading.current_thread() is threading.main_thread():
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, stop)
    try:
        for project in projects.values():
            project.start()
        if backends is not None:
            backends.start()
        # In a thread of its own, in which uvicorn installs no signal handlers.
        thread = threading.Thread(target=server.run, args=([listener],), name="http")
        thread.start()
        while thread.is_alive():
            thread.join(0.2)
            if stopping is not None and stopping.is_set():
                server.should_exit = True
    finally:
        listener.close()
        if backends is not None:
            backends.stop()
        close_all([*projects.values()])


def close_all(projects: Sequence[Project]) -> None:
    """Close projects, all at once: each writes a checkpoint."""
    threads = [threading.Thread(target=project.close) for project in projects]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
