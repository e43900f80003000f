"""A whole session with the real Label Studio: labels, edits, deletions, imports, and either side down in turn.

`COLDSTREAM_LABEL_STUDIO` names the program; without it, `label-studio` is looked for in the path.
"""

import base64
import io
import os
import shutil
import signal
import time

import pytest
from PIL import Image
from sklearn.datasets import load_digits

from coldstream.serve.images import image_id
from coldstream.serve.journal import FILE, read, verify
from coldstream.serve.label_studio.ordering import SECONDS
from coldstream.serve.records import Records
from label_studio_server import TOKEN, Coldstream, Studio, request, wait_until

PROGRAM = os.environ.get("COLDSTREAM_LABEL_STUDIO") or shutil.which("label-studio")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(PROGRAM is None, reason="label-studio is not installed (pip install label-studio)"),
]
CLASSES = ["zero", "one", "two", "three"]
CONFIG = (
    '<View><Image name="image" value="$image"/><Choices name="choice" toName="image">'
    + "".join(f'<Choice value="{name}"/>' for name in CLASSES)
    + "</Choices></View>"
)


def chosen(label):
    return [{"from_name": "choice", "to_name": "image", "type": "choices", "value": {"choices": [label]}}]


def png(pixels):
    buffer = io.BytesIO()
    Image.fromarray(pixels).save(buffer, "PNG")
    return buffer.getvalue()


class Session:
    """One Label Studio project of digits, and the same project here."""

    def __init__(self, folder, token=None):
        digits = load_digits()
        kept = [
            (image, CLASSES[label]) for image, label in zip(digits.images, digits.target, strict=True) if label < 4
        ]
        self.files = {f"{i:03}.png": png((image * 15).astype("uint8")) for i, (image, _) in enumerate(kept)}
        self.truth = {f"{i:03}.png": label for i, (_, label) in enumerate(kept)}
        self.studio = Studio(PROGRAM, folder / "studio").start()
        self.coldstream = Coldstream(folder / "projects", "digits", self.studio.url, token)
        self.project = self.studio.ask("POST", "/api/projects", {"title": "digits", "label_config": CONFIG})["id"]
        self.tasks = {}
        """Task by file name."""

    def add(self, count):
        names = [name for name in self.files if name not in self.tasks][:count]
        ids = self.studio.upload(self.project, {name: self.files[name] for name in names})
        self.tasks |= zip(names, ids, strict=True)
        return names

    def label(self, name, label=None):
        body = {"result": chosen(label or self.truth[name]), "lead_time": 1.5}
        return self.studio.ask("POST", f"/api/tasks/{self.tasks[name]}/annotations/", body)["id"]

    def expected(self):
        """Return what people said in Label Studio, by image, from its export."""
        tasks = self.studio.ask("GET", f"/api/projects/{self.project}/export?exportType=JSON")
        names, answer = {task: name for name, task in self.tasks.items()}, {}
        for task in tasks:
            people = [one for one in task["annotations"] if one["parent_prediction"] is None]
            people.sort(key=lambda one: one["updated_at"])
            labels = [one["result"][0]["value"]["choices"][0] for one in people if not one["was_cancelled"]]
            if people:
                name = names.get(task["id"])
                inline = task["data"]["image"].partition("base64,")[2]
                image = image_id(self.files[name] if name else base64.b64decode(inline))
                answer[image] = labels[-1] if labels else "(skipped)"
        return answer

    def actual(self):
        """Return what the journal says."""
        records = Records()
        for event in read(self.coldstream.folder / "digits" / FILE):
            records.fold(event)
        return {
            id: "(skipped)" if record.skipped else records.name_of(record.label)
            for id, record in records.images.items()
            if record.skipped or record.label is not None
        }

    def agree(self, seconds=30.0):
        expected = self.expected()
        wait_until(lambda: self.actual() == expected, seconds, self.coldstream.process, f"{expected} in the journal")
        return expected

    def stop(self):
        self.coldstream.stop()
        self.studio.stop()


@pytest.fixture
def session(tmp_path, request):
    session = Session(tmp_path, *getattr(request, "param", ()))
    try:
        yield session
    finally:
        session.stop()


def test_a_session_with_either_side_down_in_turn(session):
    studio, coldstream = session.studio, session.coldstream.start()
    names = session.add(30)

    backend = {"project": session.project, "url": f"{coldstream.url}/label-studio/digits", "title": "Coldstream"}
    assert studio.ask("POST", "/api/ml", backend)["readable_state"] == "Connected"
    wait_until(lambda: coldstream.health()["waiting"] == 0 and coldstream.health()["listed"], 60)
    assert coldstream.health()["webhook"] == "ok"
    assert coldstream.ask("GET", "/api/projects/digits/status")[1]["images"] == 30

    # Labels come by webhook, long before the next listing.
    annotations = {name: session.label(name) for name in names[:12]}
    assert len(session.agree(10)) == 12

    # Live predictions: named by the learner's version, with labels of the config.
    wait_until(lambda: coldstream.ask("GET", "/api/projects/digits/status")[1]["learning"]["updates"], 30)
    (prediction,) = studio.ask("GET", f"/api/projects/{session.project}/next")["predictions"]
    assert prediction["model_version"].startswith("coldstream-")
    assert prediction["result"][0]["value"]["choices"][0] in CLASSES
    assert 0 <= prediction["score"] <= 1

    # An edit, a skip, a deletion, a skip that becomes a label; the deleted id is given again.
    studio.ask("PATCH", f"/api/annotations/{annotations[names[0]]}/", {"result": chosen("three")})
    skip = {"result": [], "was_cancelled": True}
    skipped = studio.ask("POST", f"/api/tasks/{session.tasks[names[12]]}/annotations/", skip)["id"]
    studio.ask("DELETE", f"/api/annotations/{skipped}/")
    studio.ask("POST", f"/api/tasks/{session.tasks[names[13]]}/annotations/", skip)
    studio.ask("DELETE", f"/api/annotations/{annotations[names[1]]}/")
    back = {"result": chosen("two"), "was_cancelled": False, "lead_time": 2.0}
    again = studio.ask("POST", f"/api/tasks/{session.tasks[names[14]]}/annotations/", skip)["id"]
    studio.ask("PATCH", f"/api/annotations/{again}/", back)
    assert len(session.agree(10)) == 13

    # An import with annotations sends its tasks alone.
    inline = "data:image/png;base64," + base64.b64encode(session.files["100.png"]).decode()
    task = {"data": {"image": inline}, "annotations": [{"result": chosen("one")}]}
    studio.ask("POST", f"/api/projects/{session.project}/import", [task])
    assert image_id(session.files["100.png"]) in session.agree(20)

    # Predictions that are made annotations without a person are not labels.
    before = session.expected()
    predicted = {
        "task": session.tasks[names[20]],
        "result": chosen("zero"),
        "score": 0.9,
        "model_version": "Coldstream",
    }
    studio.ask("POST", "/api/predictions/", predicted)
    selected = {
        "selectedItems": {"all": False, "included": [session.tasks[names[20]]]},
        "model_version": "Coldstream",
    }
    studio.ask("POST", f"/api/dm/actions?id=predictions_to_annotations&project={session.project}", selected)
    made = studio.ask("GET", f"/api/tasks/{session.tasks[names[20]]}/")["annotations"]
    assert len(made) == 1
    session.label(names[21])
    assert session.agree(10).keys() - before.keys() == {image_id(session.files[names[21]])}

    # Coldstream down: a label, an edit, a deletion, a deleted task.
    assert coldstream.stop() == 0
    session.label(names[15])
    studio.ask("PATCH", f"/api/annotations/{annotations[names[2]]}/", {"result": chosen("zero")})
    studio.ask("DELETE", f"/api/annotations/{annotations[names[3]]}/")
    studio.ask("DELETE", f"/api/tasks/{session.tasks[names[4]]}/")
    assert session.actual() != session.expected()
    coldstream.start()
    session.agree(30)

    # Label Studio down: the learner goes on, and /health says so.
    studio.stop()
    wait_until(lambda: "does not answer" in (coldstream.health()["error"] or ""), 90, what="an error in /health")
    (item,) = coldstream.ask("GET", "/api/projects/digits/next")[1]["items"]
    assert item["guess"]["label"] in CLASSES
    studio.start()
    session.label(names[16])
    session.agree(60)
    wait_until(lambda: coldstream.health()["error"] is None, 90)

    # Killed right after a label.
    session.label(names[17])
    coldstream.stop(signal.SIGKILL)
    session.label(names[18])
    coldstream.start()
    session.agree(30)
    assert verify(coldstream.folder / "digits" / FILE) > 30
    time.sleep(3)
    events = verify(coldstream.folder / "digits" / FILE)
    time.sleep(3)
    assert verify(coldstream.folder / "digits" / FILE) == events, "something is done again and again"


@pytest.mark.parametrize("session", [("a-token-of-this-server",)], indirect=True)
def test_with_a_password_and_uncertainty_sampling(session):
    studio, coldstream = session.studio, session.coldstream.start()
    names = session.add(24)
    backend = {"project": session.project, "url": f"{coldstream.url}/label-studio/digits", "title": "Coldstream"}
    refused = request("POST", f"{studio.url}/api/ml", backend, {"Authorization": f"Token {TOKEN}"})
    assert refused[0] == 400
    backend |= {"auth_method": "BASIC_AUTH", "basic_auth_user": "any", "basic_auth_pass": coldstream.token}
    assert studio.ask("POST", "/api/ml", backend)["readable_state"] == "Connected"
    wait_until(lambda: coldstream.health()["listed"] and not coldstream.health()["waiting"], 60)
    (hook,) = studio.ask("GET", f"/api/webhooks/?project={session.project}")
    assert hook["headers"] == {"Authorization": f"Bearer {coldstream.token}"}

    # By webhook: a listing is up to a minute away.
    for name in names[:12]:
        session.label(name)
    session.agree(10)

    # The first task to label is the one with the lowest score, and comes with a live prediction.
    studio.ask("PATCH", f"/api/projects/{session.project}/", {"sampling": "Uncertainty sampling"})

    def scores():
        tasks = studio.ask("GET", f"/api/tasks?project={session.project}&fields=all&page_size=100")["tasks"]
        stored = {task["id"]: task["predictions"] for task in tasks if not task["annotations"]}
        ours = {
            task: [one["score"] for one in some if one["model_version"] == "Coldstream"]
            for task, some in stored.items()
        }
        return ours if all(len(some) == 1 for some in ours.values()) else None

    ours = wait_until(scores, 120, what="an ordering prediction for each task")
    assert len(ours) == 12
    time.sleep(SECONDS + 5)  # until scores have settled
    ours = scores()
    shown = studio.ask("GET", f"/api/projects/{session.project}/next")
    assert ours[shown["id"]] == [min(some[0] for some in ours.values())]
    assert [one["model_version"].split("-")[0] for one in shown["predictions"]] == ["coldstream"]
