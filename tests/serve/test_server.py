"""The real server over real sockets: a session from the first label to the restart."""

import pytest

from serving import Server, write_pictures


@pytest.fixture
def photos(tmp_path):
    return write_pictures(tmp_path / "photos", 40)


def test_a_session(photos, tmp_path):
    with Server(photos, "--project", tmp_path / "project") as server:
        client = server.client()
        first = client.get("/status")
        assert (first["images"], first["labelled"], first["remaining"]) == (40, 0, 40)
        done = client.label_next(12)
        assert len(set(done)) == 12
        status = client.wait()
        assert {one["name"] for one in status["classes"]} == {"bright", "dark"}
        assert status["labelled"] == 12
        (item,) = client.get("/next")["items"]
        assert item["guess"]["label"] in ("bright", "dark")
        assert client.ask("GET", item["url"]).headers["content-type"] == "image/png"
        undone = client.post("/undo")
        assert undone["undone"]["image"] == undone["item"]["image"] == done[-1]
        assert client.get("/status")["labelled"] == 11
        before = client.wait()
        assert server.stop() == 0
    with Server(photos, "--project", tmp_path / "project") as server:
        after = server.client().wait(lambda status: status["learning"]["state"] == "ready")
        same = ("id", "images", "labelled", "classes", "seq")
        assert {key: after[key] for key in same} == {key: before[key] for key in same}
        assert after["saved"] > 0
