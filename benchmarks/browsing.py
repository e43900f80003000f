"""A server in a process of its own and a real browser, for benchmarks, screenshots and tests of the page."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from playwright.sync_api import Browser

Value = TypeVar("Value")
CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
FLAGS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
)
PATIENCE = 60.0
"""Seconds until waiting is an error."""


@contextmanager
def chromium() -> Iterator[Browser]:
    """Start the system's Chromium."""
    from playwright.sync_api import sync_playwright

    if CHROMIUM is None:
        raise RuntimeError("Chromium is not installed; on Debian: apt-get install chromium")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        try:
            yield browser
        finally:
            browser.close()


def wait_until(condition: Callable[[], Value], what: str, seconds: float = PATIENCE) -> Value:
    """Return what the condition returns as soon as that is true."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if value := condition():
            return value
        time.sleep(0.02)
    raise AssertionError(f"waited {seconds} s in vain: {what}")


class Server:
    """`coldstream serve` with the projects in a folder."""

    def __init__(self, projects: Path) -> None:
        self.projects, self.log = projects, projects.parent / "server.log"
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = int(probe.getsockname()[1])
        self.url = f"http://127.0.0.1:{self.port}"

    def start(self) -> None:
        """Start it, and wait until it answers."""
        main = "from coldstream.cli import main; main()"
        command = [sys.executable, "-c", main, "serve", str(self.projects), "--port", str(self.port)]
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                command, stdout=log, stderr=subprocess.STDOUT, env={"OMP_NUM_THREADS": "1", **os.environ}
            )
        try:
            wait_until(self._answers, f"the server answers; see {self.log}", 5 * PATIENCE)
        except BaseException:
            self.kill()
            raise

    def kill(self) -> None:
        """End it as a crash would."""
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()

    def stop(self) -> None:
        """End it as Ctrl-C would."""
        self.process.terminate()
        if code := self.process.wait(PATIENCE):
            raise AssertionError(f"the server ended with {code}:\n{self.log.read_text()}")

    def get(self, project: str, path: str) -> Any:
        """Ask for something of a project."""
        return self._ask(f"/api/projects/{project}/{path}")

    def post(self, project: str, path: str, **body: Any) -> Any:
        """Do something in a project."""
        return self._ask(f"/api/projects/{project}/{path}", body)

    def status(self, project: str) -> Any:
        """Return a project's status."""
        return self.get(project, "status")

    def label(self, project: str, count: int, truth: Callable[[str], str], most_behind: int = 5) -> None:
        """Label so many images by `truth(name)`, with the learner at most so many labels behind."""
        for number in range(count):
            item = self.get(project, "next?count=1")["items"][0]
            self.post(project, "label", image=item["image"], label=truth(item["name"]))
            if number % most_behind == most_behind - 1:
                self.wait_until_learned(project)

    def wait_until_learned(self, project: str) -> None:
        """Wait until the learner has learned every label."""
        wait_until(lambda: self.status(project)["learning"]["behind"] == 0, "the learner keeps up")

    def _answers(self) -> bool:
        if self.process.poll() is not None:
            raise AssertionError(self.log.read_text())
        try:
            return bool(self._ask("/api/projects"))
        except OSError:
            return False

    def _ask(self, path: str, body: object = None) -> Any:
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self.url + path, data, {"Content-Type": "application/json"})
        with urllib.request.urlopen(request, timeout=PATIENCE) as response:
            return json.loads(response.read())
