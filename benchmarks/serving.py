"""How long a label and a prediction take over HTTP: idle, while learning, while saving, with many labels before.

`python -m benchmarks.serving soak --minutes 60 --labels 100000` labels for long, and says how memory, journal and the
time to restart grow.
"""

from __future__ import annotations

import argparse
import http.client
import io
import json
import multiprocessing
import os
import socket
import sqlite3
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from benchmarks.measuring import Bench, Row

_FORK = multiprocessing.get_context("fork")
_REQUESTS = 300
_CLASSES = 10
Settings = dict[str, Any]


def serving(bench: Bench) -> None:
    """A label and a prediction over HTTP, beside a bare handler that only fsyncs and a bare forward pass.

    The server is a process of its own. "while learning": labels follow each other without a pause, so that updates
    run all the time. "while saving": a checkpoint is begun after every update.
    """
    quick = bench.scale.most < 10
    requests = 20 if quick else _REQUESTS
    for side in (8,) if quick else (8, 64):
        for before in (0,) if quick else (0, 10_000):
            with tempfile.TemporaryDirectory() as place:
                _measure(bench, Path(place), side, before, requests)


def _measure(bench: Bench, place: Path, side: int, before: int, requests: int) -> None:
    photos = _write_images(place / "photos", before + 2 * requests + 200, side)
    settings: Settings = {"audit": 0.0, "learner": {"model": "linear"} if before else {}}
    group = f"{side} pixels, {settings['learner'].get('model', 'resnet8-16')}, {before:,} labels before"
    taken: dict[str, NDArray[np.float64]] = {}
    with _bare(place / "bare") as port:
        client = _Client(port)
        taken["bare handler that fsyncs"] = _times(lambda: client.ask("POST", "/label", {"image": "x"}), requests)
        client.close()
    _prefill(place / "project", photos, settings, before)
    for saving in (False, True):
        with _served(place / "project", photos, settings, saving) as port:
            client = _Client(port)
            items = client.take(20)
            if not saving:
                for item in items:
                    client.label(item)
                client.wait()
                taken["label, idle"] = np.array([_label_idle(client) for _ in range(requests // 3)])
                data = (photos / "000000.png").read_bytes()
                taken["predict, idle"] = _times(partial(client.ask, "POST", f"{client.base}/predict", data), requests)
                taken["next, idle"] = _times(partial(client.take, 1), min(requests, 150))
            with _labelling(port):
                name = "while saving" if saving else "while learning"
                taken[f"label, {name}"] = np.array([_label_now(client) for _ in range(requests // 2)])
                if not saving:
                    taken["predict, while learning"] = _times(
                        partial(client.ask, "POST", f"{client.base}/predict", data), requests
                    )
                    taken["next, while learning"] = _times(partial(client.take, 1), min(requests, 150))
            client.close()
    taken["bare forward pass"] = _bare_forward(side, requests)
    for name, values in taken.items():
        median, low, high = (1e3 * np.percentile(values, [50, 16, 84])).tolist()
        p99 = 1e3 * float(np.percentile(values, 99))
        reference = "bare forward pass" if name.startswith("predict") else "bare handler that fsyncs"
        note = f"p99 {p99:.1f} ms, n {len(values)}"
        row = Row("serving", group, name, median, low, high, note=note)
        if not name.startswith(("bare", "next")):
            row = row.compared(values / np.median(taken[reference]), reference)
        bench.rows.append(row)


def _label_idle(client: _Client) -> float:
    (item,) = client.take(1)
    seconds = client.label(item)
    client.wait()
    return seconds


def _label_now(client: _Client) -> float:
    (item,) = client.take(1)
    return client.label(item)


def _times(call: Callable[[], object], count: int) -> NDArray[np.float64]:
    times = []
    for _ in range(count):
        begin = time.perf_counter()
        call()
        times.append(time.perf_counter() - begin)
    return np.array(times)


def _write_images(folder: Path, count: int, side: int) -> Path:
    """Write images whose class is told by where they are bright."""
    folder.mkdir(parents=True)
    draws = np.random.default_rng(0)
    for number in range(count):
        pixels = draws.integers(0, 120, (side, side, 3))
        row = number % _CLASSES * side // _CLASSES
        pixels[row : row + max(1, side // _CLASSES)] += 130
        buffer = io.BytesIO()
        Image.fromarray(pixels.astype(np.uint8)).save(buffer, "PNG")
        (folder / f"{number:06d}.png").write_bytes(buffer.getvalue())
    return folder


def _prefill(folder: Path, photos: Path, settings: Settings, labels: int) -> None:
    """Give a project its first labels, learned many at a time."""
    from coldstream.serve.project import Project

    project = Project(folder, "photos", photos, **settings)
    project.scan()
    ids = sorted(project.records.images, key=lambda id: project.records.images[id].name)[:labels]
    for start in range(0, labels, 1000):
        for number in range(_CLASSES):
            part = [id for id in ids[start : start + 1000] if _class(project.records.images[id].name) == str(number)]
            project.label_many(part, str(number))
    project.start()
    while project.records.pending or project.live.settled < project.records.seq:
        time.sleep(0.05)
    project.close()


def _class(name: str) -> str:
    return str(int(name.partition(".")[0]) % _CLASSES)


class _Client:
    """A client that keeps its connection."""

    def __init__(self, port: int) -> None:
        self.base = "/api/projects/photos"
        self._port = port
        self._connection = http.client.HTTPConnection("127.0.0.1", port, timeout=600)
        self._connection.connect()
        # As browsers do: a request goes out at once.
        self._connection.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def ask(self, method: str, path: str, body: object = None) -> Any:
        data = body if isinstance(body, bytes) or body is None else json.dumps(body).encode()
        headers = {} if isinstance(body, bytes) else {"Content-Type": "application/json"}
        self._connection.request(method, path, data, headers)
        answer = self._connection.getresponse()
        content = answer.read()
        if answer.status != 200:
            raise RuntimeError(f"{method} {path}: {answer.status} {content!r}")
        return json.loads(content)

    def take(self, count: int) -> list[dict[str, Any]]:
        items: list[dict[str, Any]] = self.ask("GET", f"{self.base}/next?count={count}")["items"]
        return items

    def label(self, item: dict[str, Any]) -> float:
        """Label an image; return the seconds that it took."""
        body = {"image": item["image"], "label": _class(item["name"]), "key": f"{time.time_ns()} {item['image']}"}
        begin = time.perf_counter()
        self.ask("POST", f"{self.base}/label", body)
        return time.perf_counter() - begin

    def wait(self) -> None:
        """Wait until all labels are learned."""
        while True:
            learning = self.ask("GET", f"{self.base}/status")["learning"]
            if not learning["behind"] and learning["state"] == "ready":
                return
            time.sleep(0.02)

    def close(self) -> None:
        self._connection.close()


@contextmanager
def _served(folder: Path, photos: Path, settings: Settings, saving: bool = False) -> Iterator[int]:
    """Serve a project in a forked process; give its port."""
    from coldstream.serve import live
    from coldstream.serve.project import Project
    from coldstream.serve.server import listen, serve

    listener = listen("127.0.0.1", 0)

    def child() -> None:
        if saving:
            live.CHECKPOINT_UPDATES = 1
        project = Project(folder, "photos", photos, **settings)
        project.scan()
        serve({"photos": project}, listener)

    with _process(child, listener):
        port = listener.getsockname()[1]
        listener.close()
        yield port


@contextmanager
def _bare(folder: Path) -> Iterator[int]:
    """Serve a handler that only writes and syncs."""
    import uvicorn
    from fastapi import FastAPI

    from coldstream.serve.server import listen

    listener = listen("127.0.0.1", 0)
    folder.mkdir()

    def child() -> None:
        app = FastAPI()
        file = os.open(folder / "log", os.O_WRONLY | os.O_CREAT | os.O_APPEND)

        @app.post("/label")
        def label(body: dict[str, str]) -> dict[str, int]:
            os.write(file, json.dumps(body).encode().ljust(300))
            os.fsync(file)
            return {"seq": 1}

        config = uvicorn.Config(app, log_level="warning", lifespan="off")
        uvicorn.Server(config).run([listener])

    with _process(child, listener):
        port = listener.getsockname()[1]
        listener.close()
        yield port


@contextmanager
def _process(child: Callable[[], None], listener: socket.socket) -> Iterator[int]:
    process = _FORK.Process(target=child)
    process.start()
    assert process.pid is not None
    try:
        yield process.pid
    finally:
        process.terminate()
        process.join()


@contextmanager
def _labelling(port: int) -> Iterator[None]:
    """Label without a pause, in a thread."""
    over = threading.Event()

    def label() -> None:
        client = _Client(port)
        while not over.is_set():
            for item in client.take(1):
                client.label(item)
                time.sleep(0.02)
        client.close()

    thread = threading.Thread(target=label)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def _bare_forward(side: int, count: int) -> NDArray[np.float64]:
    """Return the seconds of a prediction by a learner in this process."""
    from coldstream import ColdStart

    learner = ColdStart(size=side, channels=3)
    draws = np.random.default_rng(0)
    for number in range(_CLASSES):
        learner.learn_one(draws.integers(0, 255, (side, side, 3), np.uint8), str(number))
    image = draws.integers(0, 255, (side, side, 3), np.uint8)
    return _times(lambda: learner.predict_proba_one(image), count)


# The soak.


def soak(minutes: float, labels: int, folder: Path) -> dict[str, Any]:
    """Label small images for so long, or so often; return memory, journal and the time to restart."""
    from coldstream.serve.journal import FILE, verify

    photos, settings = folder / "photos", {"learner": {"model": "linear"}, "rehearse": 1}
    if not photos.is_dir():
        _write_images(photos, labels, 8)
    points, end, done = [], time.monotonic() + 60 * minutes, 0
    with _served(folder / "project", photos, settings) as port:
        client = _Client(port)
        pid = _listening(port)
        while time.monotonic() < end and done < labels:
            for item in client.take(10):
                client.label(item)
                done += 1
            if done % max(100, labels // 50) < 10:
                size = sum(path.stat().st_size for path in (folder / "project").glob(f"{FILE}*"))
                points.append({"labels": done, "memory": _memory(pid), "journal": size, "seconds": time.monotonic()})
                print(json.dumps(points[-1]), flush=True)
        client.wait()
        client.close()
    begin = time.perf_counter()
    with _served(folder / "project", photos, settings) as port:
        client = _Client(port)
        client.ask("GET", f"{client.base}/status")
        answered = time.perf_counter() - begin
        client.wait()
        restarted = time.perf_counter() - begin
        client.close()
    events = verify(folder / "project" / FILE)
    with sqlite3.connect(folder / "project" / FILE) as connection:
        (count,) = connection.execute("SELECT count(*) FROM events WHERE kind = 'label'").fetchone()
    connection.close()
    return {
        "points": points,
        "labels": count,
        "events": events,
        "answers_after": answered,
        "learned_after": restarted,
    }


def _listening(port: int) -> int:
    import psutil

    children = psutil.Process().children(recursive=True)
    return next(
        int(child.pid)
        for child in children
        if any(one.laddr.port == port for one in child.net_connections("inet") if one.status == "LISTEN")
    )


def _memory(pid: int) -> int:
    """Return the bytes of memory that a process has to itself."""
    import psutil

    return int(psutil.Process(pid).memory_full_info().uss)


def main() -> None:
    """Run the soak."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=["soak"])
    parser.add_argument("--minutes", type=float, default=60.0)
    parser.add_argument("--labels", type=int, default=100_000)
    parser.add_argument("--folder", type=Path, default=Path("runs") / "soak")
    given = parser.parse_args()
    given.folder.mkdir(parents=True, exist_ok=True)
    result = soak(given.minutes, given.labels, given.folder)
    (given.folder / "soak.json").write_text(json.dumps(result, indent=1))
    print(json.dumps({name: value for name, value in result.items() if name != "points"}))


if __name__ == "__main__":
    main()
