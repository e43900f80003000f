"""A real server process, and a plain client of its HTTP API."""

import http.client
import io
import json
import os
import re
import select
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
from PIL import Image

COMMAND = Path(sys.executable).with_name("coldstream")
SMALL = {"model": "linear", "replay": 8}
"""Settings of a learner that learns fast."""


def picture(number, side=8):
    """Return a small PNG whose class is told by its shade."""
    shade = np.random.default_rng(number).integers(0, 60, (side, side)) + 150 * (number % 2)
    buffer = io.BytesIO()
    Image.fromarray(shade.astype(np.uint8)).save(buffer, "PNG")
    return buffer.getvalue()


def label_of(name):
    return "bright" if int(re.search(r"\d+", name)[0]) % 2 else "dark"


def write_pictures(folder, count, side=8):
    folder.mkdir(parents=True, exist_ok=True)
    for number in range(count):
        (folder / f"{number:05d}.png").write_bytes(picture(number, side))
    return folder


class Answer:
    def __init__(self, status, headers, body):
        self.status, self.headers, self.body = status, headers, body

    @property
    def json(self):
        return json.loads(self.body)


class Client:
    """One connection to a project's API."""

    def __init__(self, port, project="photos", host="127.0.0.1"):
        self.port, self.base, self.host = port, f"/api/projects/{project}", host
        self._connection = None

    def ask(self, method, path, body=None, headers=(), timeout=600):
        headers = {"Host": f"127.0.0.1:{self.port}", **dict(headers)}
        if body is not None and not isinstance(body, bytes):
            body, headers["Content-Type"] = json.dumps(body).encode(), "application/json"
        if self._connection is None:
            self._connection = http.client.HTTPConnection(self.host, self.port, timeout=timeout)
        try:
            self._connection.request(method, path, body, headers)
            answer = self._connection.getresponse()
            done = Answer(answer.status, answer.headers, answer.read())
        except (OSError, http.client.HTTPException):
            self.close()
            raise
        if answer.will_close:
            self.close()
        return done

    def get(self, path, expect=200):
        answer = self.ask("GET", self.base + path)
        assert answer.status == expect, answer.body
        return answer.json

    def post(self, path, expect=200, **body):
        answer = self.ask("POST", self.base + path, body)
        assert answer.status == expect, answer.body
        return answer.json

    def label_next(self, count=1):
        """Label so many images one after the other, as a person does; return the ids."""
        done = []
        for _ in range(count):
            (item,) = self.get("/next")["items"]
            self.post("/label", image=item["image"], label=label_of(item["name"]))
            done.append(item["image"])
        return done

    def wait(self, until=lambda status: not status["learning"]["behind"], seconds=600):
        """Wait until the status is as wanted; by default, until all labels are learned."""
        end = time.monotonic() + seconds
        while not until(status := self.get("/status")):
            assert time.monotonic() < end, status
            time.sleep(0.02)
        return status

    def close(self):
        if self._connection is not None:
            self._connection.close()
            self._connection = None


class Server:
    """`coldstream teach` in a process of its own."""

    def __init__(self, *arguments, project="photos", command="teach", environment=None):
        variables = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONUNBUFFERED": "1", **(environment or {})}
        browser = ["--no-browser"] if command == "teach" else []
        line = [str(COMMAND), command, *browser, "--port", "0", *map(str, arguments)]
        self.process = subprocess.Popen(
            line, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=variables
        )
        self.output, self.port = "", None
        self._clients = []
        self.project = project

    def wait_until_ready(self, seconds=600):
        """Wait for the address; return False if the process ends without one."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            if not select.select([self.process.stdout], [], [], 0.5)[0]:
                continue
            line = self.process.stdout.readline()
            self.output += line
            if match := re.search(r"label at http://.*?:(\d+)/", line):
                self.port = int(match[1])
                return True
            if not line and self.process.poll() is not None:
                return False
        raise AssertionError(f"the server did not start: {self.output}")

    def client(self):
        self._clients.append(Client(self.port, self.project))
        return self._clients[-1]

    def __enter__(self):
        assert self.wait_until_ready(), self.output
        return self

    def __exit__(self, *error):
        self.stop()

    def stop(self, number=signal.SIGTERM, seconds=600):
        """Send a signal; return the exit code."""
        for client in self._clients:
            client.close()
        if self.process.poll() is None:
            self.process.send_signal(number)
        try:
            rest, _ = self.process.communicate(timeout=seconds)
        except subprocess.TimeoutExpired:
            self.process.kill()
            rest, _ = self.process.communicate()
            raise AssertionError(f"the server did not stop: {self.output}{rest}") from None
        self.output += rest
        return self.process.returncode
