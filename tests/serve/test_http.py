"""The HTTP API over real sockets: what it answers, and what it refuses."""

import base64
import csv
import io
import json
import threading
import zipfile

import numpy as np
import pytest
from PIL import Image

from coldstream.learners import ColdStart
from live_project import asked, wait
from serving import Client, label_of, picture, write_pictures


@pytest.fixture(scope="module")
def photos(tmp_path_factory):
    return write_pictures(tmp_path_factory.mktemp("http") / "photos", 60)


@pytest.fixture(scope="module")
def shared(tmp_path_factory, photos):
    with asked(tmp_path_factory.mktemp("http") / "project", photos) as pair:
        yield pair


@pytest.fixture
def project(shared):
    return shared[0]


@pytest.fixture
def client(shared):
    return shared[1]


def form(*files):
    """Return a multipart body with files, and its headers."""
    parts = b"".join(
        b'--cut\r\nContent-Disposition: form-data; name="files"; filename="%s"\r\n\r\n%s\r\n' % (name, data)
        for name, data in files
    )
    return parts + b"--cut--\r\n", {"Content-Type": "multipart/form-data; boundary=cut"}


def test_a_hundred_concurrent_retries_give_one_label(project, client):
    (item,) = client.get("/next")["items"]
    seqs, barrier = [], threading.Barrier(100)

    def retry():
        one = Client(client.port)
        barrier.wait()
        seqs.append(one.post("/label", image=item["image"], label="once", key="a hundred")["seq"])
        one.close()

    threads = [threading.Thread(target=retry) for _ in range(100)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(seqs) == 100
    assert len(set(seqs)) == 1
    assert sum(event.kind == "label" and event.body["label"] == "once" for event in project.journal.events()) == 1
    refused = client.post("/label", 409, image=item["image"], label="twice", key="a hundred")
    assert refused["field"] == "body.key"
    client.post("/undo")


def test_labels_corrections_and_undo(project, client):
    client.label_next(6)
    (item,) = client.get("/next")["items"]
    image = item["image"]
    client.post("/label", image=image, label="  bird ")
    assert project.records.images[image].label == project.records.numbers["bird"]
    client.post("/relabel", images=[image, image], label="fish")
    recent = client.get("/recent?count=2")["items"]
    assert (recent[0]["image"], recent[0]["label"]) == (image, "fish")
    undone = client.post("/undo")["undone"]
    assert (undone["kind"], undone["image"], undone["label"]) == ("relabel", image, "fish")
    assert client.get("/recent?count=1")["items"][0]["label"] == "bird"
    first = client.post("/undo", key="undo it")
    assert first["item"]["image"] == image
    labelled = client.get("/status")["labelled"]
    assert client.post("/undo", key="undo it")["undone"] == first["undone"]
    assert client.get("/status")["labelled"] == labelled
    client.post("/skip", image=image)
    assert client.get("/status")["skipped"] == 1
    assert client.post("/undo")["undone"]["kind"] == "skip"
    assert client.get("/status")["skipped"] == 0


def test_classes_are_renamed_and_merged(project, client):
    ids = [item["image"] for item in client.get("/next?count=3")["items"]]
    client.post("/label-many", images=ids, label="brid")
    assert client.post("/rename", old="brid", new="bird")["status"]
    assert client.post("/rename", 404, old="brid", new="x")["field"] == "body.old"
    client.post("/label", image=ids[0], label="eagle")
    assert client.post("/rename", 409, old="bird", new="eagle")["field"] == "body.new"
    client.post("/merge", old="eagle", into="bird")
    names = {one["name"]: one["count"] for one in client.get("/status")["classes"]}
    assert names["bird"] == 3
    assert "eagle" not in names
    assert client.post("/merge", 422, old="bird", into="bird")["field"] == "body.into"
    gallery = client.get("/gallery?class=bird&by=doubt")
    assert gallery["total"] == 3
    assert {item["image"] for item in gallery["items"]} == set(ids)
    client.post("/forget", image=ids[0])
    assert client.get("/gallery?class=bird")["total"] == 2
    client.wait()


def test_predictions_and_uploads(project, client):
    client.label_next(8)
    client.wait()
    wait(project)
    png = picture(1001)
    assert client.ask("POST", client.base + "/predict", png).json["guess"]["label"] in project.records.numbers
    body, headers = form((b"x.png", png))
    assert client.ask("POST", client.base + "/predict", body, headers).json["guess"]["ranked"]
    answer = client.ask("POST", client.base + "/predict", b"not an image")
    assert (answer.status, answer.json["field"]) == (422, "body")
    body, headers = form((b"good.png", png), (b"bad.png", b"bad"), (b"again.png", png))
    before = client.get("/status")["images"]
    added = client.ask("POST", client.base + "/images", body, headers).json
    assert [one["name"] for one in added["refused"]] == ["bad.png"]
    assert client.get("/status")["images"] == before + 1
    image = added["added"][0]["image"]
    full = client.ask("GET", f"{client.base}/images/{image}")
    assert np.array_equal(np.asarray(Image.open(io.BytesIO(full.body))), np.asarray(Image.open(io.BytesIO(png))))
    assert full.headers["x-content-type-options"] == "nosniff"
    assert "immutable" in full.headers["cache-control"]
    guesses = client.get(f"/guess?image={image}&image=unknown")["guesses"]
    assert [*guesses] == [image]


def test_next_gives_no_image_twice(project, client):
    first = [item["image"] for item in client.get("/next?count=5")["items"]]
    second = [item["image"] for item in client.get(f"/next?count=5&not={first[0]}")["items"]]
    assert len(first) == len(second) == 5
    assert not set(first) & set(second)


def test_an_image_without_its_file_is_not_handed_out(tmp_path):
    photos = write_pictures(tmp_path / "photos", 6)
    with asked(tmp_path / "project", photos) as (project, client):
        lost, *others = [*project.records.images]
        data = (photos / project.records.images[lost].name).read_bytes()
        (photos / project.records.images[lost].name).unlink()
        answer = client.ask("GET", f"{client.base}/images/{lost}")
        assert (answer.status, answer.json["field"]) == (404, "path.image")
        assert {item["image"] for item in client.get("/next?count=10")["items"]} == set(others)
        (photos / project.records.images[lost].name).write_bytes(data)
        project.scan()
        assert [item["image"] for item in client.get("/next")["items"]] == [lost]


FORMULAS = ["=1+1", "+SUM(A1)", "-2", "@cmd", '=HYPERLINK("http://x")']


def test_exports(tmp_path, photos):
    with asked(tmp_path / "project", photos) as (project, client):
        ids = [*project.records.images]
        for id, label in zip(ids, [*FORMULAS, "../../etc", "a/b", "A:B", "..", "ü", "CON"], strict=False):
            client.post("/label", image=id, label=label)
        for id in ids[20:28]:
            client.post("/label", image=id, label=label_of(project.records.images[id].name))
        wait(project)
        text = client.ask("GET", client.base + "/export?format=csv").body.decode()
        table = [*csv.DictReader(io.StringIO(text))]
        assert len(table) == 19
        assert all(not value.startswith(("=", "+", "-", "@")) for row in table for value in row.values())
        lines = client.ask("GET", client.base + "/export?format=jsonl").body.decode().splitlines()
        labels = {row["image"]: row["label"] for row in map(json.loads, lines)}
        assert [labels[id] for id in ids[:5]] == FORMULAS
        archive = zipfile.ZipFile(io.BytesIO(client.ask("GET", client.base + "/export?format=folders").body))
        names = archive.namelist()
        assert len(names) == 19
        assert len({name.split("/")[0].lower() for name in names}) == len(set(labels.values()))
        assert not any(name.startswith("/") or ".." in name.split("/") or len(name.split("/")) != 2 for name in names)
        for name in names:
            assert archive.read(name) in {(photos / path.name).read_bytes() for path in photos.iterdir()}
        tasks = client.ask("GET", client.base + "/export?format=label-studio").json
        assert tasks[0]["annotations"][0]["result"][0]["value"]["choices"] == [FORMULAS[0]]
        packed = client.ask("GET", client.base + "/export?format=learner").body
        zipfile.ZipFile(io.BytesIO(packed)).extractall(tmp_path / "away")
        learner = ColdStart.load(tmp_path / "away" / "learner")
        assert set(learner.classes_) == set(labels.values())
        image = np.asarray(Image.open(io.BytesIO(picture(0))))
        ours = client.ask("POST", client.base + "/predict", picture(0)).json["guess"]
        theirs = learner.predict_proba_one(image)
        assert theirs[ours["label"]] == pytest.approx(ours["confidence"], abs=1e-6)
        assert not [*(tmp_path / "project").glob("tmp*")]


def test_machine_labels_are_not_learned_and_can_be_revoked(tmp_path, photos):
    with asked(tmp_path / "project", photos, audit=1.0) as (project, client):
        early = client.post("/accept", 409, accuracy=0.5)
        assert "audited" in early["error"]
        client.label_next(40)
        client.wait()
        wait(project)
        promise = client.get("/knows?accuracy=0.5")["promise"]
        assert promise["ready"], promise
        updates = project.live.state.updates
        done = client.post("/accept", accuracy=0.5, key="take over")
        assert done["count"] > 0
        assert client.post("/accept", accuracy=0.5, key="take over") == done
        status = client.get("/status")
        assert (status["machine"], status["labelled"]) == (done["count"], 40)
        gallery = client.get("/gallery?who=machine")["items"]
        assert {item["by"] for item in gallery} == {"machine"}
        client.post("/label", image=gallery[0]["image"], label="corrected")
        wait(project)
        assert project.live.state.updates == updates + 1
        (accepted,) = client.get("/knows")["accepts"]
        assert (accepted["seq"], accepted["count"], accepted["revoked"]) == (done["seq"], done["count"], False)
        client.post("/revoke", seq=done["seq"])
        status = client.get("/status")
        assert (status["machine"], status["labelled"]) == (0, 41)
        assert client.post("/revoke", 404, seq=done["seq"])["field"] == "body.seq"


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"image": "x", "label": "cat"}, "body.image"),
        ({"label": "cat"}, "body.image"),
        ({"image": "ID", "label": ""}, "body.label"),
        ({"image": "ID", "label": "   "}, "body.label"),
        ({"image": "ID", "label": "a\nb"}, "body.label"),
        ({"image": "ID", "label": "\ud800"}, "body.label"),
        ({"image": "ID", "label": "x" * 201}, "body.label"),
        ({"image": "ID", "label": 7}, "body.label"),
        ({"image": "ID", "label": "cat", "key": "x" * 201}, "body.key"),
        ({"image": "ID", "label": "cat", "other": 1}, "body.other"),
        ({"image": "ID", "label": "cat", "guess": {"label": "x", "confidence": 2}}, "body.guess.confidence"),
        ([], "body"),
    ],
)
def test_a_bad_label_is_refused_by_its_field(project, client, body, field):
    if body:
        body = {key: next(iter(project.records.images)) if value == "ID" else value for key, value in body.items()}
    seq = project.records.seq
    answer = client.ask("POST", client.base + "/label", body)
    assert answer.status in (404, 422), answer.body
    assert answer.json["field"] == field
    assert answer.json["error"]
    assert project.records.seq == seq


def test_events_are_sent_as_they_happen(project, client):
    one = Client(client.port)
    import http.client

    connection = http.client.HTTPConnection("127.0.0.1", client.port, timeout=30)
    connection.request("GET", client.base + "/events", headers={"Host": f"127.0.0.1:{client.port}"})
    answer = connection.getresponse()
    assert answer.headers["content-type"].startswith("text/event-stream")

    def status():
        while not (line := answer.readline()).startswith(b"data:"):
            pass
        return json.loads(line[5:])

    before = status()
    (item,) = one.get("/next")["items"]
    one.post("/label", image=item["image"], label="new")
    while (after := status())["labelled"] == before["labelled"]:
        pass
    assert after["labelled"] == before["labelled"] + 1
    connection.close()
    one.close()


def test_metrics_health_and_reference(client):
    metrics = client.ask("GET", "/metrics").body.decode()
    assert 'coldstream_labelled{project="photos"}' in metrics
    assert 'route="/label",status="200"' in metrics or 'route="/api/projects/{project}/label",status="200"' in metrics
    assert client.ask("GET", "/health").json["status"] == "ok"
    reference = client.ask("GET", "/docs").body.decode()
    assert "POST /api/projects/{project}/label" in reference
    assert "<script" not in reference


# Who may ask.


@pytest.mark.parametrize("host", ["evil.example", "127.0.0.1.evil.example", "evil.example:80", "169.254.1.1", ""])
def test_a_foreign_host_is_refused(client, host):
    answer = client.ask("GET", client.base + "/status", headers={"Host": host})
    assert answer.status in (400, 421)


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1", "[::1]", "LOCALHOST:99"])
def test_names_of_this_machine_are_answered(client, host):
    assert client.ask("GET", client.base + "/status", headers={"Host": host}).status == 200


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "http://evil.example"},
        {"Origin": "null"},
        {"Origin": "http://127.0.0.1:1"},
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
    ],
)
def test_another_sites_page_changes_nothing(project, client, headers):
    seq = project.records.seq
    assert client.ask("POST", client.base + "/undo", {}, headers).status == 403
    assert project.records.seq == seq


def test_our_own_page_is_answered(client):
    headers = {"Origin": f"http://127.0.0.1:{client.port}", "Sec-Fetch-Site": "same-origin"}
    assert client.ask("POST", client.base + "/undo", {}, headers).status == 200


def test_answers_carry_the_headers_that_protect_them(client):
    for path in ("/", "/health", client.base + "/status", "/nowhere"):
        headers = client.ask("GET", path).headers
        assert "script-src 'self'" in headers["content-security-policy"]
        assert "unsafe-inline" not in headers["content-security-policy"]
        assert headers["x-frame-options"] == "DENY"


@pytest.mark.parametrize(
    "path", ["/page/../server.py", "/page/%2e%2e/server.py", "/page//etc/passwd", "/page/nothing.js", "/page/"]
)
def test_only_files_of_the_page_are_given(client, path):
    assert client.ask("GET", path).status == 404


def test_a_body_beyond_the_limit_is_refused(project, client):
    import socket

    for head in (b"Content-Length: 30000000", b"Content-Length: 99999999999999999999", b"Transfer-Encoding: chunked"):
        with socket.create_connection(("127.0.0.1", client.port), timeout=60) as one:
            path = client.base.encode() + b"/predict"
            one.sendall(b"POST %s HTTP/1.1\r\nHost: localhost\r\n%s\r\n\r\n" % (path, head))
            try:
                if b"chunked" in head:
                    for _ in range(25):
                        one.sendall(b"%x\r\n%s\r\n" % (1_000_000, bytes(1_000_000)))
                    one.sendall(b"0\r\n\r\n")
            except (BrokenPipeError, ConnectionResetError):
                pass
            status = one.recv(100).split(b" ")[1]
        assert status in (b"413", b"400")


def test_a_token_is_needed_where_there_is_one(tmp_path, photos):
    token = "a-token-of-good-length"
    with asked(tmp_path / "project", photos, token) as (_, client):
        path = client.base + "/status"
        basic = base64.b64encode(f"any:{token}".encode()).decode()
        wrong = base64.b64encode(b"any:wrong").decode()
        good = [{"Authorization": f"Bearer {token}"}, {"Authorization": f"Basic {basic}"}]
        good.append({"Cookie": f"coldstream_token={token}"})
        good.append({"Authorization": f"Bearer {token}", "Host": "labels.example"})
        bad = [
            {},
            {"Authorization": "Bearer wrong"},
            {"Authorization": f"Basic {wrong}"},
            {"Authorization": "Basic ?"},
        ]
        bad += [{"Cookie": "coldstream_token=wrong"}, {"Cookie": "\x01=;;"}, {"Authorization": f"Bearer {token}x"}]
        assert [client.ask("GET", path, headers=headers).status for headers in good] == [200] * len(good)
        assert [client.ask("GET", path, headers=headers).status for headers in bad] == [401] * len(bad)
        assert client.ask("GET", f"/?token={token[:-1]}").status == 401
        answer = client.ask("GET", f"/?project=photos&token={token}")
        assert (answer.status, answer.headers["location"]) == (303, "/?project=photos")
        cookie = answer.headers["set-cookie"]
        assert "HttpOnly" in cookie
        assert "SameSite=Strict" in cookie
        assert client.ask("GET", "/", headers={"Cookie": cookie.split(";")[0]}).status == 200
