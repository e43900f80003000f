"""Kills and power losses: every acknowledged label is there, once, and the learner is that of the journal.

A forked child serves over a real socket; the parent labels, and ends it with SIGKILL at a random moment. The parent
has imported what takes long, so that a kill costs a tenth of a second.
"""

import json
import multiprocessing
import os
import random
import signal
import sqlite3
import threading
import time

import pytest

from coldstream.serve.journal import FILE, verify
from coldstream.serve.project import Project
from coldstream.serve.server import listen, serve
from live_project import opened, replayed, wait
from serving import Client, label_of, write_pictures

FORK = multiprocessing.get_context("fork")
KILLS = int(os.environ.get("COLDSTREAM_KILLS", "300"))


def serve_in_child(folder, photos, listener):
    """Serve a project in a forked process until it is killed."""
    project = Project(folder, "photos", photos, learner={"model": "linear", "replay": 4}, rehearse=2)
    project.scan()
    serve({"photos": project}, listener)


class Labeller:
    """Labels as fast as it can, and remembers what was acknowledged."""

    def __init__(self, draws):
        self.draws = draws
        self.acknowledged = {}
        """The label of each key that was acknowledged: (image, label)."""
        self.sent = {}
        self.number = 0
        self._open = []
        self._answered = threading.Event()

    def wait_for_answer(self):
        """Wait until the next label is acknowledged."""
        self._answered.clear()
        assert self._answered.wait(600)

    def label(self, port, until):
        client = Client(port)
        try:
            while not until.is_set():
                for key in self._open[:1]:  # the answer got lost: the same request again
                    self._send(client, key)
                if self._open:
                    continue
                for item in client.get("/next?count=2")["items"]:
                    self.number += 1
                    key = f"key {self.number}"
                    self.sent[key] = item["image"], f"{label_of(item['name'])} {self.draws.randrange(4)}"
                    self._open.append(key)
                    self._send(client, key)
        except Exception:  # of whatever kind: the server is killed in the middle of an answer
            if not until.is_set():
                raise
        finally:
            client.close()

    def _send(self, client, key):
        image, label = self.sent[key]
        answer = client.ask("POST", client.base + "/label", {"image": image, "label": label, "key": key})
        assert answer.status == 200, answer.body
        self.acknowledged[key] = answer.json["seq"]
        self._open.remove(key)
        self._answered.set()


def run(folder, photos, kills, seed):
    """Kill a serving child so many times; return what the labeller knows."""
    draws = random.Random(seed)
    labeller = Labeller(draws)
    for kill in range(kills):
        listener = listen("127.0.0.1", 0)
        port = listener.getsockname()[1]
        child = FORK.Process(target=serve_in_child, args=(folder, photos, listener))
        child.start()
        listener.close()
        over = threading.Event()
        thread = threading.Thread(target=labeller.label, args=(port, over))
        thread.start()
        if kill % 2:  # every other time while it labels, else at any moment from its start on
            labeller.wait_for_answer()
        time.sleep(draws.expovariate(1 / 0.1))
        over.set()
        os.kill(child.pid, signal.SIGKILL)
        child.join()
        child.close()
        thread.join()
    return labeller


def labels_in(folder):
    with sqlite3.connect(folder / FILE) as connection:
        rows = connection.execute("SELECT seq, key, body FROM events WHERE kind = 'label'").fetchall()
    connection.close()
    return {key: (seq, json.loads(body)) for seq, key, body in rows}, len(rows)


def check(folder, photos, labeller):
    verify(folder / FILE)
    by_key, count = labels_in(folder)
    assert len(by_key) == count
    for key, seq in labeller.acknowledged.items():
        assert by_key[key][0] == seq
        assert (by_key[key][1]["image"], by_key[key][1]["label"]) == labeller.sent[key]
    with opened(folder, photos, learner={"model": "linear", "replay": 4}, rehearse=2) as project:
        wait(project)
        assert project.live.learner.fingerprint() == replayed(project)
        assert project.live.state.failures == 0
    return count


def test_kills(tmp_path):
    photos = write_pictures(tmp_path / "photos", 200)
    labeller = run(tmp_path / "project", photos, 6, 0)
    assert check(tmp_path / "project", photos, labeller) >= len(labeller.acknowledged) >= 3


@pytest.mark.slow
def test_many_kills(tmp_path):
    photos = write_pictures(tmp_path / "photos", 2000)
    done, part = 0, 0
    while done < KILLS:  # a new project every 100 kills, so that what is replayed in the end stays short
        kills = min(100, KILLS - done)
        labeller = run(tmp_path / f"project {part}", photos, kills, part)
        count = check(tmp_path / f"project {part}", photos, labeller)
        done, part = done + kills, part + 1
        print(f"{done} kills, {count} labels, {len(labeller.acknowledged)} acknowledged", flush=True)
