"""The endpoints that Label Studio calls, on a real project, with a small stand-in for Label Studio's API.

`test_end_to_end.py` does the same with the real program.
"""

import base64
import io
import json
import threading
from datetime import datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, urlsplit

import numpy as np
import pytest
import uvicorn
from PIL import Image

from coldstream.serve.images import image_id
from coldstream.serve.label_studio import ordering
from coldstream.serve.label_studio import sync as syncing
from coldstream.serve.label_studio.backend import Backends
from coldstream.serve.label_studio.client import LabelStudio
from coldstream.serve.label_studio.mapping import read_uid
from coldstream.serve.label_studio.transport import Server
from coldstream.serve.project import Project
from coldstream.serve.server import listen, web
from label_studio_server import request, wait_until

TOKEN = "0123456789abcdef"
CONFIG = (
    '<View><Image name="image" value="$image"/><Choices name="choice" toName="image">'
    '<Choice value="dark"/><Choice value="bright"/></Choices></View>'
)


def picture(number):
    values = np.random.default_rng(number).integers(0, 60, (8, 8, 3)) + (0 if number % 2 else 190)
    buffer = io.BytesIO()
    Image.fromarray(values.astype(np.uint8)).save(buffer, "PNG")
    return buffer.getvalue()


def chosen(label):
    return [{"from_name": "choice", "to_name": "image", "type": "choices", "value": {"choices": [label]}}]


class StandIn:
    """Label Studio's API as far as it is used; holds one project and gives no webhooks by itself."""

    def __init__(self):
        self.settings = {"id": 1, "created_at": "2026-11-19T21:56:19.006610Z", "label_config": CONFIG}
        self.settings |= {"model_version": "Coldstream", "sampling": "Sequential sampling"}
        self.tasks, self.files, self.hooks, self.backends = {}, {}, [], []
        self.requests, self.clock, self.numbers = [], 0, iter(range(1, 10_000))
        stand_in = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self):
                length = int(self.headers.get("Content-Length") or 0)
                body = json.loads(self.rfile.read(length)) if length else None
                assert self.headers["Authorization"] == f"Token {TOKEN}"
                stand_in.requests.append((self.command, self.path))
                data = stand_in.answer(self.command, *urlsplit(self.path)[2:4], body)
                data = data if isinstance(data, bytes | None) else json.dumps(data).encode()
                self.send_response(404 if data is None else 200)
                self.send_header("Content-Length", str(len(data or b"")))
                self.end_headers()
                self.wfile.write(data or b"")

            do_POST = do_PATCH = do_GET

            def log_message(self, *_):
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self.server.server_port}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def now(self):
        self.clock += 1
        return f"2026-11-19T22:{self.clock // 60:02}:{self.clock % 60:02}.000000Z"

    def add(self, number, annotations=()):
        """Add a task with a picture; return it."""
        self.files[path := f"/data/upload/1/{number}.png"] = picture(number)
        task = {"id": number, "data": {"image": path}, "predictions": [], "annotations": [*annotations]}
        self.tasks[number] = task | {"updated_at": self.now()}
        return self.tasks[number]

    def annotate(self, task, label, **changed):
        """Annotate a task; return its webhook."""
        annotation = {"id": next(self.numbers), "task": task, "result": chosen(label) if label else []}
        annotation |= {"was_cancelled": label is None, "updated_at": self.now(), "lead_time": 1.0} | changed
        annotation.setdefault("parent_prediction", None)
        self.tasks[task]["annotations"].append(annotation)
        self.tasks[task]["updated_at"] = annotation["updated_at"]
        return self.webhook("ANNOTATION_CREATED", annotation=annotation, task=self.tasks[task])

    def webhook(self, action, **values):
        return {"action": action, "project": self.settings} | values

    def answer(self, method, path, query, body):
        if path in self.files:
            return self.files[path]
        if path == "/api/projects/1/":
            return self.settings
        if path == "/api/ml":
            return self.backends
        if path == "/api/webhooks/" and method == "GET":
            return self.hooks
        if path == "/api/webhooks/":
            self.hooks.append({"id": next(self.numbers)} | body)
            return self.hooks[-1]
        if path.startswith("/api/webhooks/"):
            (hook,) = [one for one in self.hooks if path == f"/api/webhooks/{one['id']}/"]
            hook |= body
            return hook
        if path == "/api/predictions/":
            prediction = {"id": next(self.numbers)} | body
            self.tasks[body["task"]]["predictions"].append(prediction)
            return prediction
        if path.startswith("/api/predictions/"):
            every = [one for task in self.tasks.values() for one in task["predictions"]]
            (prediction,) = [one for one in every if path == f"/api/predictions/{one['id']}/"]
            prediction |= body
            return prediction
        if path == "/api/tasks":
            asked = parse_qs(query)
            items = json.loads(asked["query"][0])["filters"]["items"]
            last = max(one["value"] for one in items if one["filter"] == "filter:tasks:id")
            since = [one["value"] for one in items if one["filter"] == "filter:tasks:updated_at"]
            assert all(datetime.strptime(one, "%Y-%m-%dT%H:%M:%S.%fZ") for one in since)
            listed = [task for number, task in sorted(self.tasks.items()) if number > last]
            listed = [task for task in listed if not since or task["updated_at"] > since[0]]
            return {"tasks": listed[: int(asked["page_size"][0])]}
        return None


class Connected:
    """A project connected to the stand-in, behind the whole web application."""

    def __init__(self, folder, studio, token=None):
        self.studio, self.folder, self.token = studio, folder, token
        self.open()

    def open(self):
        self.project = Project(self.folder, "pets")
        projects = {"pets": self.project}
        self.backends = Backends(LabelStudio(Server(self.studio.url, TOKEN)), projects, self.token)
        config = uvicorn.Config(web(projects, self.token, self.backends), log_level="warning", lifespan="off")
        self.server, listener = uvicorn.Server(config), listen("127.0.0.1", 0)
        self.url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        self.thread = threading.Thread(target=self.server.run, args=([listener],))
        self.thread.start()
        self.project.start()
        self.backends.start()

    def close(self):
        self.server.should_exit = True
        self.thread.join()
        self.backends.stop()
        self.project.close()

    def ask(self, what, body=None, status=None):
        headers = {} if self.token is None else {"Authorization": f"Bearer {self.token}"}
        method, url = "GET" if body is None else "POST", f"{self.url}/label-studio/pets/{what}"
        answered, answer = request(method, url, body, headers)
        assert answered == (status or (201 if what == "webhook" else 200)), answer
        return answer

    def setup(self, **changed):
        body = {"project": read_uid(self.studio.settings), "schema": CONFIG, "hostname": "http://10.0.0.1"}
        return self.ask("setup", body | {"access_token": "x", "extra_params": None} | changed)["model_version"]

    def labels(self):
        """Return labels by task number, as the records have them."""
        names = {image_id(data): int(path.split("/")[-1][:-4]) for path, data in self.studio.files.items()}
        with self.project.lock:
            records = self.project.records
            return {
                names[id]: "(skipped)" if record.skipped else records.name_of(record.label)
                for id, record in records.images.items()
                if record.skipped or record.label is not None
            }

    def wait_for(self, labels):
        wait_until(lambda: self.labels() == labels, 30, what=f"labels {labels}")

    def predict(self, *tasks):
        body = {"project": read_uid(self.studio.settings), "label_config": CONFIG, "tasks": [*tasks]}
        return self.ask("predict", body)["results"]


@pytest.fixture
def studio():
    studio = StandIn()
    yield studio
    studio.server.shutdown()
    studio.server.server_close()


@pytest.fixture
def connected(tmp_path, studio, request):
    connected = Connected(tmp_path / "pets", studio, *getattr(request, "param", ()))
    studio.backends.append({"id": 1, "url": "http://127.0.0.1/label-studio/pets", "title": "Coldstream"})
    yield connected
    connected.close()


def test_a_session_with_lost_webhooks_and_a_restart(connected, studio, monkeypatch):
    monkeypatch.setattr(syncing, "SETUP_SECONDS", 0.0)
    for number in range(1, 9):
        studio.add(number)
    assert connected.ask("health") == {"status": "UP", "model_class": "ColdStart", "connected": False}
    assert connected.setup() == "coldstream-0"
    wait_until(lambda: connected.ask("health")["listed"] and not connected.ask("health")["waiting"], 30)
    assert connected.ask("health")["webhook"] == "ok"
    (hook,) = studio.hooks
    assert (hook["url"], hook["headers"]) == ("http://127.0.0.1/label-studio/pets/webhook", {})

    labels = {}
    for number in range(1, 6):
        labels[number] = "dark" if number % 2 else "bright"
        connected.ask("webhook", studio.annotate(number, labels[number]))
    connected.ask("webhook", studio.annotate(6, None))
    connected.wait_for(labels | {6: "(skipped)"})
    wait_until(lambda: connected.setup() != "coldstream-0", 30)
    (result,) = connected.predict(studio.tasks[7])
    assert result["model_version"].startswith("coldstream-")
    assert result["result"] in (chosen("dark"), chosen("bright"))
    assert 0 < result["score"] <= 1

    # Both are told and listed, and given once.
    written = [event for event in connected.project.journal.events() if event.kind in ("label", "skip")]
    assert len(written) == 6
    assert {event.who for event in written} == {"label-studio"}

    # Webhooks that are lost: an edit, a deletion, a deleted task, a label.
    (first,) = studio.tasks[1]["annotations"]
    first |= {"result": chosen("bright"), "updated_at": studio.now()}
    studio.tasks[1]["updated_at"] = first["updated_at"]
    studio.tasks[2] |= {"annotations": [], "updated_at": studio.now()}
    studio.annotate(8, "bright")
    connected.setup()
    labels = {1: "bright", 3: "dark", 4: "bright", 5: "dark", 6: "(skipped)", 8: "bright"}
    connected.wait_for(labels)
    connected.close()
    del studio.tasks[4], labels[4]
    connected.open()
    connected.wait_for(labels)


def test_deletions_by_webhook(connected, studio):
    studio.add(1)
    studio.add(2)
    connected.setup()
    connected.ask("webhook", studio.annotate(1, "dark"))
    connected.ask("webhook", studio.annotate(2, "dark"))
    connected.wait_for({1: "dark", 2: "dark"})
    (annotation,) = studio.tasks[1]["annotations"]
    studio.tasks[1] |= {"annotations": [], "updated_at": studio.now()}
    connected.ask("webhook", studio.webhook("ANNOTATIONS_DELETED", annotations=[{"id": annotation["id"]}]))
    connected.wait_for({2: "dark"})
    del studio.tasks[2]
    connected.ask("webhook", studio.webhook("TASKS_DELETED", tasks=[{"id": 2}]))
    connected.wait_for({})
    assert len(connected.project.records.unlabelled) == 2


def test_a_label_of_the_page_outlives_a_deletion(connected, studio):
    studio.add(1)
    connected.setup()
    connected.ask("webhook", studio.annotate(1, "dark"))
    connected.wait_for({1: "dark"})
    connected.project.relabel([image_id(picture(1))], "bright")
    connected.ask("webhook", studio.webhook("TASKS_DELETED", tasks=[{"id": 1}]))
    connected.ask("webhook", studio.webhook("TASKS_CREATED", tasks=[]))
    connected.wait_for({1: "bright"})


def test_our_own_predictions_are_no_labels(connected, studio):
    studio.add(1)
    studio.add(2)
    connected.setup()
    connected.ask("webhook", studio.annotate(1, "dark", parent_prediction=5, lead_time=None))
    connected.ask("webhook", studio.annotate(2, "dark", parent_prediction=5, lead_time=3.5))
    connected.wait_for({2: "dark"})


def test_a_webhook_is_on_disk_when_it_is_answered(connected, studio):
    studio.add(1)
    connected.setup()
    webhook = studio.annotate(1, "dark")
    before = connected.project.journal.seq
    connected.ask("webhook", webhook)
    events = [event for event in connected.project.journal.events(before) if "annotation" in event.body]
    assert [event.body["annotation"]["label"] for event in events] == ["dark"]
    for _ in range(3):
        connected.ask("webhook", webhook)
    events = [event for event in connected.project.journal.events(before) if "annotation" in event.body]
    assert len(events) == 1


def test_images_of_other_hosts_are_not_read(connected, studio):
    task = studio.add(1)
    task["data"]["image"] = "http://169.254.169.254/latest"
    studio.add(2)["data"]["image"] = "data:image/png;base64," + base64.b64encode(picture(2)).decode()
    studio.add(3)
    studio.files["/data/upload/1/3.png"] = b"not an image"
    connected.setup()
    wait_until(lambda: connected.ask("health")["unreadable"] == 2, 30)
    assert "images are read from there alone" in connected.ask("health")["reasons"]["1"]
    assert len(connected.project.records.images) == 1
    assert [one["result"] for one in connected.predict(*studio.tasks.values())] == [[], [], []]


def test_one_bad_task_does_not_hold_up_the_others(connected, studio):
    for number in range(1, 5):
        studio.add(number)
    del studio.files["/data/upload/1/1.png"]
    studio.files["/data/upload/1/2.png"] = bytes(20_000_001)
    studio.annotate(3, "dark")
    studio.tasks[3]["annotations"].append({"id": "x"})
    studio.annotate(4, "dark")
    connected.setup()
    connected.wait_for({4: "dark"})
    wait_until(lambda: connected.ask("health")["unreadable"] == 3, 30)
    health = connected.ask("health")
    assert health["error"] is None
    assert "404" in health["reasons"]["1"]
    assert "limit of 20,000,000 bytes" in health["reasons"]["2"]
    assert "annotation.id" in health["reasons"]["3"]


def test_annotations_do_not_leak_into_predictions(connected, studio):
    for number in range(1, 5):
        studio.add(number)
    connected.setup()
    for number in range(1, 4):
        connected.ask("webhook", studio.annotate(number, "dark" if number % 2 else "bright"))
    connected.wait_for({1: "dark", 2: "bright", 3: "dark"})
    wait_until(lambda: connected.predict(studio.tasks[4])[0]["result"], 30)
    wait_until(lambda: not connected.project.records.pending, 30)
    plain = connected.predict(studio.tasks[4])
    told = studio.tasks[4] | {"annotations": [{"id": 77, "task": 4, "result": chosen("dark")}], "drafts": "x"}
    told["predictions"] = [{"result": chosen("dark"), "score": 1.0}]
    assert connected.predict(told) == plain


def test_uncertainty_sampling(connected, studio, monkeypatch):
    monkeypatch.setattr(ordering, "SECONDS", 0.2)
    studio.settings["sampling"] = "Uncertainty sampling"
    for number in range(1, 9):
        studio.add(number)
    connected.setup()
    for number in range(1, 5):
        connected.ask("webhook", studio.annotate(number, "dark" if number % 2 else "bright"))

    def ordered():
        predictions = {number: task["predictions"] for number, task in studio.tasks.items()}
        return all(len(predictions[number]) == (number > 4) for number in predictions)

    wait_until(ordered, 40, what="one prediction for each task without a label")
    for number in range(5, 9):
        (prediction,) = studio.tasks[number]["predictions"]
        assert prediction["model_version"] == "Coldstream"
        assert 0 < prediction["score"] <= 1
        assert prediction["result"] in (chosen("dark"), chosen("bright"))


@pytest.mark.parametrize("connected", [("a-token-of-this-server",)], indirect=True)
def test_the_webhook_gets_the_token(connected, studio):
    studio.hooks.append({"id": 9, "url": "http://127.0.0.1/label-studio/pets/webhook", "headers": {"X": "y"}})
    connected.setup()
    wait_until(lambda: connected.ask("health")["listed"], 30)
    assert studio.hooks[0]["headers"] == {"X": "y", "Authorization": "Bearer a-token-of-this-server"}
    assert len(studio.hooks) == 1
    assert request("GET", f"{connected.url}/label-studio/pets/health")[0] == 401


def test_requests_that_are_refused(connected, studio):
    studio.add(1)
    webhook = studio.annotate(1, "dark")
    connected.ask("webhook", webhook, status=404)
    for changed in ({"project": "x"}, {"schema": "<View/>"}, {"extra_params": {"control": 5}}, {"project": None}):
        body = {"project": read_uid(studio.settings), "schema": CONFIG} | changed
        assert connected.ask("setup", body, status=422)["error"]
    assert connected.ask("health")["connected"] is False
    connected.setup()
    connected.ask("setup", {"project": "2.1795125379", "schema": CONFIG}, status=422)
    broken = webhook | {"annotation": {"id": "x"}}
    other = webhook | {"project": studio.settings | {"id": 2}}
    for body in (broken, other, webhook | {"annotation": None}):
        assert connected.ask("webhook", body, status=422)["error"]
    body = {"project": read_uid(studio.settings), "label_config": CONFIG, "tasks": [{"id": 1}, {"id": "x"}]}
    assert "task.id" in connected.ask("predict", body, status=422)["error"]
    assert connected.ask("predict", body | {"project": "2.1", "tasks": []}, status=409)["error"]
    setup = {"project": "1.1795125379", "schema": CONFIG}
    assert request("POST", f"{connected.url}/label-studio/other/setup", setup)[0] == 404
    connected.wait_for({1: "dark"})  # as listed, not as the refused webhooks said


def test_another_server_with_the_same_project_number(connected, studio):
    studio.add(1)
    connected.setup()
    connected.ask("webhook", studio.annotate(1, "dark"))
    connected.wait_for({1: "dark"})
    connected.close()
    studio.tasks.clear()
    studio.settings["created_at"] = "2025-01-01T00:00:00Z"
    connected.open()
    wait_until(lambda: "is not the one" in (connected.ask("health")["error"] or ""), 30)
    assert connected.labels() == {1: "dark"}


def test_label_studio_is_down(connected, studio):
    studio.add(1)
    connected.setup()
    connected.ask("webhook", studio.annotate(1, "dark"))
    connected.wait_for({1: "dark"})
    connected.close()
    studio.server.shutdown()
    studio.server.server_close()
    connected.open()
    wait_until(lambda: "does not answer" in (connected.ask("health")["error"] or ""), 30)
    assert connected.ask("health")["status"] == "UP"
    assert connected.predict(studio.tasks[1])
