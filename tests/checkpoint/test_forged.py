"""Checkpoints that somebody made to do harm, with checksums that are right: refused, and nothing else happens."""

import copy
import json
import os
import zlib

import numpy as np
import pytest
import safetensors.numpy

from coldstream import CSSL, checkpoint
from coldstream.checkpoint import CheckpointError
from coldstream.checkpoint.manifest import checksum
from interrupting import within


@pytest.fixture
def folder(tmp_path):
    learner = CSSL(replay=2, model="linear", augment="none")
    learner.learn_many(np.zeros((6, 8, 8, 3), np.uint8), ["a", "b", "c"] * 2)
    learner.save(tmp_path / "kept")
    return tmp_path / "kept"


def plain(folder):
    return json.loads((folder / "manifest.json").read_text())


def forge(folder, manifest):
    manifest["crc32"] = checksum(manifest)
    (folder / "manifest.json").write_text(json.dumps(manifest))


def changed(manifest, where, value):
    """Return a manifest with another value at a place such as ``tasks.0.name``."""
    manifest = copy.deepcopy(manifest)
    *way, last = where.split(".")
    part = manifest
    for name in way:
        part = part[int(name) if isinstance(part, list) else name]
    part[int(last) if isinstance(part, list) else last] = value
    return manifest


def outside(folder):
    """Copy the files to where a manifest must not lead."""
    for path in folder.iterdir():
        (folder.parent / path.name).write_bytes(path.read_bytes())


@pytest.mark.parametrize("where", ["state.file", "segments.0.file"])
@pytest.mark.parametrize(
    "name", ["../{}", "{folder}/{}", "./{}", "x/../{}", "{}\x00", "{}\n", "CON", "", "manifest.json"]
)
def test_only_plain_names_of_files(folder, where, name):
    manifest = plain(folder)
    outside(folder)
    part = manifest["state"] if where.startswith("state") else manifest["segments"][0]
    name = name.format(part["file"], folder=folder.parent)
    forge(folder, changed(manifest, where, name))
    with pytest.raises(CheckpointError, match="damaged: manifest.json, .*should match pattern"):
        CSSL.load(folder)


@pytest.mark.parametrize("init", ["IMAGENET1K_V1", "DEFAULT", "/etc/passwd", "weights.pt", 3, None, ["random"], {}])
@pytest.mark.parametrize("model", ["linear", "resnet18"])
def test_nothing_is_fetched_or_read_from_elsewhere(folder, init, model, monkeypatch):
    import urllib.request

    import torch

    def refuse(*arguments, **named):
        raise AssertionError("it was asked for")

    monkeypatch.setattr(urllib.request, "urlopen", refuse)
    monkeypatch.setattr(torch.hub, "load_state_dict_from_url", refuse)
    monkeypatch.setattr(torch, "load", refuse)
    forge(folder, changed(changed(plain(folder), "settings.init", init), "settings.model", model))
    with pytest.raises(CheckpointError, match="its init is"):
        CSSL.load(folder)


NUMBERS = (-1, 1 << 62, 10**400, 1e308, 1.5, True, None, "7", [], {})
COUNTS = ("step", "next_id", "state.bytes", "state.crc32", "tasks.0.classes.counts.0", "tasks.0.classes.into.1")
COUNTS += tuple(f"segments.0.{name}" for name in ("buffer", "first", "last", "rows", "bytes", "crc32"))


@pytest.mark.parametrize("where", COUNTS)
def test_numbers_that_are_none_or_huge(folder, where):
    manifest = plain(folder)
    for number in NUMBERS:
        forge(folder, changed(manifest, where, number))
        if where in ("step", "next_id", "tasks.0.classes.counts.0") and number == 1 << 62 and number is not True:
            continue  # a learner may be that old
        with pytest.raises(CheckpointError):
            CSSL.load(folder)


@pytest.mark.parametrize(
    ("where", "value"),
    [
        ("shape", [1 << 40, 1 << 40, 3]),
        ("shape", [100_000, 100_000, 3]),
        ("shape", [0, 8, 3]),
        ("shape", [8]),
        ("shape", [8, 8]),
        ("shape", None),
        ("settings", {}),
        ("settings.classes", 10**12),
        ("settings.unknown", 1),
        ("settings.model", "../model.py"),
        ("settings.replay", "all"),
        ("settings.codec", "raw|" * 1000),
        ("tasks", []),
        ("tasks.0.name", {"a": "b"}),
        ("tasks.0.buffer", None),
        ("tasks.0.buffer", {}),
        ("tasks.0.buffer.blends", [[1, 2, [[3, 4]]]]),
        ("tasks.0.buffer.next_serial", 1),
        ("tasks.0.method", None),
        ("tasks.0.classes.labels", ["a", "b"]),
        ("tasks.0.classes.labels", [["a"], {"b": 1}, "c"]),
        ("tasks.0.classes.labels", ["a"] * 100_000),
        ("tasks.0.classes.into", [0, 1, 3]),
        ("last", [5, 0, 1]),
        ("last", [5, 3, 0]),
        ("last", [[], 0, 0]),
        ("environment", ["python"]),
        ("kind", None),
        ("extra", []),
        ("more", 1),
        ("segments", []),
    ],
    ids=lambda value: str(value)[:30],
)
def test_values_that_do_not_fit(folder, where, value):
    forge(folder, changed(plain(folder), where, value))
    with within(20), pytest.raises(ValueError):
        CSSL.load(folder)


def test_segments_that_overlap(folder):
    manifest = plain(folder)
    forge(folder, changed(manifest, "segments", manifest["segments"] * 2))
    with pytest.raises(CheckpointError, match="segments of a buffer overlap"):
        CSSL.load(folder)


@pytest.mark.parametrize("where", ["extra", "settings", "labels", "whole"])
def test_json_that_is_nested_deeply(folder, where):
    whole, deep = json.dumps(plain(folder)), "[" * 100_000 + "]" * 100_000
    text = {
        "whole": deep,
        "labels": whole.replace('"a"', deep, 1),
    }.get(where, whole.replace(f'"{where}": {{', f'"{where}": {{"deep": {deep}, ', 1).replace(", }", "}"))
    assert len(text) >= len(deep)
    (folder / "manifest.json").write_text(text)
    for action in (CSSL.load, checkpoint.read_manifest, checkpoint.verify):
        with pytest.raises(CheckpointError, match="recursion"):
            action(folder)
    with pytest.raises(CheckpointError, match="delete that folder"):
        CSSL().save(folder)


@pytest.mark.parametrize("depth", [100, 500, 800, 900, 950])
@pytest.mark.parametrize("where", ["extra.deep", "settings.seed", "tasks.0.classes.labels.0", "tasks.0.method.deep"])
def test_json_that_is_nested_as_deeply_as_it_can_be_read(folder, where, depth):
    """It is refused, or does not matter."""
    deep = []
    for _ in range(depth):
        deep = [deep]
    manifest, before = plain(folder), CSSL.load(folder).fingerprint()
    try:
        forge(folder, changed(manifest, where, deep))
    except RecursionError:  # of this test
        return
    try:
        after = CSSL.load(folder).fingerprint()
    except ValueError:
        return
    assert after == before or "labels" in where


@pytest.mark.parametrize(
    "text", ["", "null", "[]", '"x"', "1" * 5000, "{", "\x00", "NaN", '{"format": NaN}', "\ud800"]
)
def test_texts_that_are_no_manifest(folder, text):
    (folder / "manifest.json").write_bytes(text.encode(errors="surrogatepass"))
    with pytest.raises(CheckpointError):
        CSSL.load(folder)


def test_a_manifest_without_end(folder, monkeypatch):
    monkeypatch.setattr(checkpoint.manifest, "MOST_BYTES", 1000)
    with pytest.raises(CheckpointError, match="has more than 1000 bytes"):
        CSSL.load(folder)


@pytest.mark.parametrize("what", ["fifo", "folder", "device"])
def test_files_that_are_no_files(folder, what):
    name = plain(folder)["segments"][0]["file"]
    (folder / name).unlink()
    make = {
        "fifo": os.mkfifo,
        "folder": os.mkdir,
        "device": lambda path: os.symlink("/dev/zero", path),
    }
    make[what](folder / name)
    with within(20), pytest.raises(CheckpointError, match="lacks its file"):
        CSSL.load(folder)


def test_a_link_in_the_place_of_a_file_is_not_written_through(folder):
    victim = folder.parent / "victim"
    victim.write_text("mine")
    for name in ("lock", "manifest.json.0123abcd.tmp", "rows-7-0123abcd.bin"):
        os.symlink(victim, folder / name)
    learner = CSSL.load(folder)
    try:
        learner.save(folder)
    except OSError:
        (folder / "lock").unlink()
        learner.save(folder)
    assert victim.read_text() == "mine"
    assert CSSL.load(folder).fingerprint() == learner.fingerprint()


COLUMNS = ("ids", "labels", "serials", "places", "times")
HARMLESS = (("ids", -2), ("ids", 1 << 30), ("times", 2), ("times", 1 << 30))
"""Another id, and another number of times that an example was replayed."""


@pytest.mark.parametrize("name", COLUMNS)
@pytest.mark.parametrize("value", [-2, 2, 1 << 30, "twice", "short", "float", "square", "empty"])
def test_indexes_that_do_not_fit(folder, name, value):
    """With right checksums everywhere: a wrong index would give one example the label or the place of another."""
    manifest = plain(folder)
    path = folder / manifest["state"]["file"]
    arrays = safetensors.numpy.load(path.read_bytes())
    key = f"0.buffer.{name}"
    column = arrays[key].copy()
    if isinstance(value, int):
        column[3] = value
    arrays[key] = {
        "twice": np.concatenate([column, column]),
        "short": column[:-1],
        "float": np.full(len(column), np.nan),
        "square": column.reshape(2, 3),
        "empty": column[:0],
    }.get(value, column)
    data = safetensors.numpy.save(arrays)
    path.write_bytes(data)
    manifest["state"] |= {"bytes": len(data), "crc32": zlib.crc32(data)}
    forge(folder, manifest)
    if (name, value) in HARMLESS:
        CSSL.load(folder)
        return
    with within(20), pytest.raises(ValueError):
        CSSL.load(folder)


def test_what_could_not_be_loaded_is_not_saved(tmp_path):
    learner = CSSL(replay=2, model="linear", augment="none")
    learner.learn_many(np.zeros((6, 8, 8, 3), np.uint8), [0, 1, 2] * 2)
    learner.save(tmp_path / "kept")
    before = learner.fingerprint()
    deep = []
    for _ in range(5000):
        deep = [deep]
    learner.learn_one(np.ones((8, 8, 3), np.uint8), 0)
    with pytest.raises(ValueError, match="nested too deeply"):
        learner.save(tmp_path / "kept", extra={"deep": deep})
    assert CSSL.load(tmp_path / "kept").fingerprint() == before


def test_labels_that_are_no_unicode(tmp_path):
    """Names of files may be such; JSON keeps them."""
    learner = CSSL(replay=2, model="linear", augment="none")
    learner.learn_one(np.zeros((8, 8, 3), np.uint8), "\udcff", id="\udcfe", task="\udcfd")
    learner.save(tmp_path / "kept", extra={"name": "\udcff"})
    loaded = CSSL.load(tmp_path / "kept")
    assert loaded.fingerprint() == learner.fingerprint()
    assert loaded.classes_of("\udcfd") == ["\udcff"]
    assert loaded.undo() == "\udcfe"
