"""The real Label Studio, and the real `coldstream serve`, as processes for tests."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
import uuid

TOKEN = "0123456789abcdef0123456789abcdef01234567"
USER, PASSWORD = "a@example.com", "pass-1234"


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def wait_until(condition, seconds=60.0, process=None, what="the condition"):
    """Wait until a condition holds; return its value."""
    end = time.monotonic() + seconds
    while True:
        if value := condition():
            return value
        assert time.monotonic() < end, f"{what} did not come true in {seconds:.0f} seconds"
        assert process is None or process.poll() is None, "the process has ended"
        time.sleep(0.1)


def request(method, url, body=None, headers=None, data=None):
    """Return (status, answer) of a request; the answer is JSON where it can be read as that."""
    headers = dict(headers or {})
    if body is not None:
        data, headers["Content-Type"] = json.dumps(body).encode(), "application/json"
    try:
        with urllib.request.urlopen(urllib.request.Request(url, data, headers, method=method), timeout=60) as answer:
            status, text = answer.status, answer.read()
    except urllib.error.HTTPError as error:
        status, text = error.code, error.read()
    except OSError:
        return 0, None
    try:
        return status, json.loads(text)
    except ValueError:
        return status, text


def ended(process, number=signal.SIGTERM):
    process.send_signal(number)
    try:
        return process.wait(30)
    except subprocess.TimeoutExpired:
        process.kill()
        raise


class Studio:
    """Label Studio in a folder of its own."""

    def __init__(self, program, folder):
        self.program, self.folder, self.port = program, folder, free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.process = None

    def start(self):
        home = self.folder / "home"
        home.mkdir(parents=True, exist_ok=True)
        settings = {
            "HOME": str(home),
            "LABEL_STUDIO_BASE_DATA_DIR": str(self.folder),
            "LABEL_STUDIO_USERNAME": USER,
            "LABEL_STUDIO_PASSWORD": PASSWORD,
            "LABEL_STUDIO_USER_TOKEN": TOKEN,
            "LABEL_STUDIO_ENABLE_LEGACY_API_TOKEN": "true",
            "COLLECT_ANALYTICS": "false",
            "LATEST_VERSION_CHECK": "false",
            "SENTRY_DSN": "",
            "FRONTEND_SENTRY_DSN": "",
            "SSRF_PROTECTION_ENABLED": "false",
            "ML_BLOCK_LOCAL_IP": "false",
        }
        command = [self.program, "start", "--no-browser", "--internal-host", "127.0.0.1", "--port", str(self.port)]
        with (self.folder / "log.txt").open("ab") as log:
            self.process = subprocess.Popen(
                [*command, "--data-dir", str(self.folder)], env=os.environ | settings, stdout=log, stderr=log
            )
        wait_until(lambda: request("GET", f"{self.url}/health")[0] == 200, 900, self.process, "Label Studio")
        return self

    def stop(self, number=signal.SIGTERM):
        if self.process is not None:
            ended(self.process, number)
            self.process = None

    def ask(self, method, path, body=None):
        """Return the answer of the API, which must not refuse."""
        status, answer = request(method, self.url + path, body, {"Authorization": f"Token {TOKEN}"})
        assert 200 <= status < 300, (method, path, status, answer)
        return answer

    def upload(self, project, images):
        """Import images; return the ids of their tasks."""
        boundary = uuid.uuid4().hex
        parts = [
            f'--{boundary}\r\nContent-Disposition: form-data; name="{name}"; filename="{name}"\r\n'.encode()
            + b"Content-Type: image/png\r\n\r\n"
            + data
            + b"\r\n"
            for name, data in images.items()
        ]
        status, answer = request(
            "POST",
            f"{self.url}/api/projects/{project}/import?return_task_ids=true",
            headers={
                "Authorization": f"Token {TOKEN}",
                "Content-Type": f"multipart/form-data; boundary={boundary}",
            },
            data=b"".join(parts) + f"--{boundary}--\r\n".encode(),
        )
        assert status == 201, answer
        return answer["task_ids"]


class Coldstream:
    """`coldstream serve` with one project, a backend of Label Studio."""

    def __init__(self, folder, name, studio, token=None):
        self.folder, self.name, self.studio, self.port = folder, name, studio, free_port()
        self.url, self.token = f"http://127.0.0.1:{self.port}", token
        self.process = None

    def start(self):
        self.folder.mkdir(exist_ok=True)
        token_file = self.folder / "token"
        token_file.write_text(f"{TOKEN}\n")
        command = [sys.executable, "-c", "from coldstream.cli import main; main()", "serve", str(self.folder)]
        command += ["--new", self.name]
        command += [
            "--port",
            str(self.port),
            "--label-studio",
            self.studio,
            "--label-studio-token-file",
            str(token_file),
        ]
        settings = {"OMP_NUM_THREADS": "1"} | ({} if self.token is None else {"COLDSTREAM_TOKEN": self.token})
        with (self.folder / "log.txt").open("ab") as log:
            self.process = subprocess.Popen(command, env=os.environ | settings, stdout=log, stderr=log)
        wait_until(lambda: self.ask("GET", "/health")[0] == 200, 120, self.process, "coldstream serve")
        return self

    def stop(self, number=signal.SIGTERM):
        if self.process is not None:
            code = ended(self.process, number)
            self.process = None
            return code
        return None

    def ask(self, method, path, body=None):
        headers = {} if self.token is None else {"Authorization": f"Bearer {self.token}"}
        return request(method, self.url + path, body, headers)

    def health(self):
        return self.ask("GET", f"/label-studio/{self.name}/health")[1]
