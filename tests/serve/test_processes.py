"""Several processes on one project, a full disk, and a server that is told to stop."""

import json
import multiprocessing
import os
import resource
import signal
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from coldstream.checkpoint import CheckpointError
from coldstream.serve.journal import FILE, verify
from coldstream.serve.project import Project
from coldstream.serve.server import check_address
from live_project import asked, fingerprint, opened, replayed, wait
from serving import Server, label_of, picture, write_pictures

FORK = multiprocessing.get_context("fork")


@pytest.fixture
def photos(tmp_path):
    return write_pictures(tmp_path / "photos", 40)


def begin(folder, photos, answers, over):
    try:
        project = Project(folder, "photos", photos)
    except CheckpointError as error:
        answers.put((os.getpid(), str(error)))
        return
    answers.put((os.getpid(), None))
    over.wait()
    project.close()


def test_of_twenty_processes_one_has_the_project(tmp_path, photos):
    answers, over = FORK.Queue(), FORK.Event()
    children = [FORK.Process(target=begin, args=(tmp_path / "project", photos, answers, over)) for _ in range(20)]
    for child in children:
        child.start()
    given = [answers.get(timeout=600) for _ in children]
    over.set()
    for child in children:
        child.join()
    assert [child.exitcode for child in children] == [0] * 20
    (owner,) = [pid for pid, error in given if error is None]
    assert all(f"process {owner} on " in error for _, error in given if error is not None)


@pytest.mark.slow
def test_of_twenty_servers_one_lives(tmp_path, photos):
    servers = [Server(photos, "--project", tmp_path / "project") for _ in range(20)]
    with ThreadPoolExecutor(20) as pool:
        alive = [
            server for server, ready in zip(servers, pool.map(Server.wait_until_ready, servers), strict=True) if ready
        ]
    (one,) = alive
    others = [server for server in servers if server is not one]
    assert [server.stop() for server in others] == [2] * 19
    assert all(f"process {one.process.pid} on" in server.output.replace("\n", " ") for server in others)
    one.client().label_next(3)
    assert one.stop() == 0


def test_a_full_disk_refuses_labels_and_nothing_else(tmp_path, photos):
    with asked(tmp_path / "project", photos, audit=0.0) as (project, client):
        client.label_next(6)
        client.wait()
        wait(project)
        connection = project.journal._connection
        (pages,) = connection.execute("PRAGMA page_count").fetchone()
        connection.execute(f"PRAGMA max_page_count = {pages}")
        refused = acknowledged = 0
        ids = project.records.unlabelled.all()
        for number in range(60):
            body = {"image": ids[number % len(ids)], "label": "x" * 200, "key": f"full {number}"}
            answer = client.ask("POST", client.base + "/label", body)
            assert answer.status in (200, 507)
            acknowledged += answer.status == 200
            refused += answer.status == 507
        assert refused > 5
        assert "free some space" in answer.json["error"]
        labelled = client.get("/status")["labelled"]
        assert client.get("/next?count=2")["items"]
        assert client.ask("POST", client.base + "/predict", picture(3)).json["guess"]
        connection.execute("PRAGMA max_page_count = 1000000")
        client.label_next(2)
        assert client.get("/status")["labelled"] >= labelled + 2
        client.wait()
        assert fingerprint(project) == replayed(project)
        assert client.ask("GET", "/health").json["status"] == "ok"
    assert verify(tmp_path / "project" / FILE) == project.records.seq


def test_a_full_disk_without_audit_events(tmp_path, photos):
    with asked(tmp_path / "project", photos, audit=1.0) as (project, client):
        project.journal._connection.execute("PRAGMA max_page_count = 1")
        items = [item for _ in range(4) for item in client.get("/next?count=10")["items"]]
        assert len({item["image"] for item in items}) == 40
        assert {item["audit"] for item in items} == {True, False}
        audited = {image for event in project.journal.events() for image in event.body.get("images", [])}
        assert {item["image"] for item in items if item["audit"]} == audited


def test_a_disk_that_fails_a_server_process(tmp_path, photos):
    if not sys.platform.startswith("linux"):
        pytest.skip("the limit of another process can be set on Linux only")
    with Server(photos, "--project", tmp_path / "project", "--audit", "0") as server:
        client = server.client()
        client.label_next(4)
        client.wait()
        size = (tmp_path / "project" / (FILE + "-wal")).stat().st_size
        _, most = resource.prlimit(server.process.pid, resource.RLIMIT_FSIZE)
        resource.prlimit(server.process.pid, resource.RLIMIT_FSIZE, (size + 5000, most))
        statuses = []
        for number in range(12):
            items = client.get("/next")["items"]
            body = {"image": items[0]["image"], "label": label_of(items[0]["name"]), "key": f"full {number}"}
            statuses.append(client.ask("POST", client.base + "/label", body).status)
        assert 507 in statuses
        assert set(statuses) <= {200, 507}
        resource.prlimit(server.process.pid, resource.RLIMIT_FSIZE, (most, most))
        client.label_next(2)
        client.wait()
        end = time.monotonic() + 600
        while client.ask("GET", "/health").json["status"] != "ok":
            assert time.monotonic() < end
            time.sleep(0.1)
        assert client.get("/status")["labelled"] == 6 + statuses.count(200)
        # SIGTERM ends it in time, with a checkpoint, while somebody labels and somebody listens.
        over = threading.Event()

        def label():
            try:
                while not over.is_set():
                    client.label_next()
            except Exception:
                assert over.is_set()

        thread = threading.Thread(target=label)
        thread.start()
        time.sleep(0.2)
        over.set()
        assert server.stop(signal.SIGTERM) == 0
        thread.join()
    with opened(tmp_path / "project", photos, learner={}, start=False) as project:
        manifests = [*(tmp_path / "project" / "checkpoints").glob("*/manifest.json")]
        saved = max(json.loads(path.read_text())["extra"]["seq"] for path in manifests)
        learned = max(event.seq for event in project.journal.events() if event.kind == "learn")
        assert saved >= learned


def test_other_machines_need_a_token():
    for host in ("0.0.0.0", "::", "192.168.1.2", "example.org"):
        with pytest.raises(ValueError, match="--token"):
            check_address(host, None)
        check_address(host, "a-token-of-good-length")
    for host in ("127.0.0.1", "::1", "localhost", "127.9.9.9"):
        check_address(host, None)
    for token in ("short", "x" * 201, "with a space in it"):
        with pytest.raises(ValueError, match="token"):
            check_address("127.0.0.1", token)
