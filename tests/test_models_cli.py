"""`coldstream predict` and `export`, and images given as paths."""

import csv
import json
import os
import shutil

import numpy as np
import pytest
from PIL import Image
from typer.testing import CliRunner

from coldstream import ColdStart
from coldstream.checkpoint import link
from coldstream.cli import app

SHADES = {"dark": 110, "bright": 140}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Images in two folders, one broken file, and a name that a spreadsheet would take for a formula."""
    root = tmp_path_factory.mktemp("photos")
    for label, shade in SHADES.items():
        (root / label).mkdir()
        for number in range(4):
            Image.fromarray(np.full((12, 9, 3), shade + number, np.uint8)).save(root / label / f"{number}.png")
    (root / "bright" / "broken.jpg").write_bytes(b"\xff\xd8\xff no image")
    Image.fromarray(np.full((8, 8, 3), 105, np.uint8)).save(root / "=1+1.png")
    return root


@pytest.fixture(scope="module")
def learner(folder):
    learner = ColdStart(model="linear", size=8, replay=8)
    for _ in range(4):
        for label in SHADES:
            for path in sorted((folder / label).glob("*.png")):
                learner.learn_one(path, label)
    return learner


@pytest.fixture(scope="module")
def saved(learner, tmp_path_factory):
    path = tmp_path_factory.mktemp("saved") / "shades"
    learner.save(path)
    return path


def call(*arguments, code=0):
    result = CliRunner().invoke(app, [*map(str, arguments)], catch_exceptions=True)
    if code == 0:
        assert result.exception is None, result.output
    return result


def test_paths_are_images(learner, folder):
    path = folder / "dark" / "0.png"
    assert learner.predict_proba_one(path) == learner.predict_proba_one(path.read_bytes())
    assert learner.predict_many([path, folder / "bright" / "1.png"]) == ["dark", "bright"]


def test_a_folder_is_all_its_images(learner, folder):
    inside = sorted((folder / "dark").iterdir())
    assert learner.predict_many(folder / "dark") == learner.predict_many(inside) == ["dark"] * 4
    with pytest.raises(ValueError, match=r"broken\.jpg"):
        learner.predict_many(folder / "bright")


def test_predict_writes_csv(saved, folder, tmp_path, learner):
    result = call("predict", saved, folder, "--out", tmp_path / "labels.csv")
    lines = [*csv.DictReader((tmp_path / "labels.csv").read_text().splitlines())]
    assert [line["path"] for line in lines][:2] == ["'=1+1.png", "bright/0.png"]
    assert {line["path"].split("/")[0]: line["label"] for line in lines if not line["error"]} == {
        "'=1+1.png": "dark",
        "bright": "bright",
        "dark": "dark",
    }
    (broken,) = [line for line in lines if line["error"]]
    assert broken["path"] == "bright/broken.jpg"
    assert broken["label"] == broken["confidence"] == ""
    expected = learner.predict_proba_one(folder / "bright" / "0.png")
    assert float(lines[1]["confidence"]) == pytest.approx(max(expected.values()), abs=1e-6)
    assert float(lines[1]["runner_up_confidence"]) == pytest.approx(min(expected.values()), abs=1e-6)
    assert "9 of 10 images have a label" in result.stderr
    assert "1 could not be read" in result.stderr
    assert "skipped:" in result.stderr
    assert "broken.jpg" in result.stderr


def test_predict_writes_json_lines_and_to_the_terminal(saved, folder, tmp_path):
    call("predict", saved, folder / "dark", "--out", tmp_path / "labels.jsonl")
    lines = [json.loads(line) for line in (tmp_path / "labels.jsonl").read_text().splitlines()]
    assert [line["label"] for line in lines] == ["dark"] * 4
    assert call("predict", saved, folder / "dark" / "1.png").stdout.splitlines()[1].startswith("1.png,dark,")


def test_below_the_threshold_there_is_no_label(saved, folder):
    result = call("predict", saved, folder / "dark", "--threshold", "1")
    assert all(line.split(",")[1] == "" and float(line.split(",")[2]) > 0 for line in result.stdout.splitlines()[1:])
    assert "0 of 4 images have a label" in result.stderr


def test_strict_stops_at_a_broken_file(saved, folder, tmp_path):
    result = call("predict", saved, folder, "--strict", "--out", tmp_path / "labels.csv", code=2)
    assert "broken.jpg" in str(result.exception)
    assert not [*tmp_path.iterdir()]


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["{saved}", "{folder}", "--out", "labels.xlsx"], "NAME.csv or NAME.jsonl"),
        (["{saved}", "{folder}", "--out", "nowhere/labels.csv"], "there is no folder"),
        (["{saved}", "nowhere"], "expected a directory or a zip"),
        (["{saved}", "{empty}"], "there are no images"),
        (["{empty}", "{folder}"], "there is no checkpoint"),
        (["{saved}", "{folder}", "--task", "birds"], "began without tasks"),
        (["{saved}", "{folder}", "--learner", "nowhere:Mine"], "cannot be imported"),
    ],
)
def test_predict_refuses(arguments, says, saved, folder, tmp_path):
    (tmp_path / "empty").mkdir()
    given = [one.format(saved=saved, folder=folder, empty=tmp_path / "empty") for one in arguments]
    assert says in str(call("predict", *given, code=2).exception)


def test_export_writes_a_file_that_torch_reads(saved, learner, tmp_path):
    import torch

    result = call("export", saved, tmp_path / "shades.pt2")
    assert "shades.pt2" in result.stdout
    images = np.full((3, 8, 8, 3), 200, np.uint8)
    program = torch.export.load(tmp_path / "shades.pt2").module()
    np.testing.assert_allclose(program(torch.from_numpy(images)), learner.predict_proba_many(images), atol=1e-5)
    assert "not 'shades.bin'" in str(call("export", saved, "shades.bin", code=2).exception)


def test_a_run_leaves_its_model(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    small = ["--set", "learner.model=linear", "--set", "offline.enabled=false", "--set", "data.per_class=3"]
    call("run", *small)
    model = tmp_path / "runs" / "digits" / "model"
    kept = ColdStart.load(model)
    assert kept.step == 30
    before = kept.fingerprint()
    call("run", *small)
    assert ColdStart.load(model).fingerprint() == before
    kept.learn_one(np.zeros((8, 8, 1), np.uint8), "0")
    kept.save(model)  # the run does not take back what it has learned since
    call("run", *small)
    assert ColdStart.load(model).fingerprint() == kept.fingerprint()
    shutil.rmtree(model)
    call("run", *small)
    assert ColdStart.load(model).fingerprint() == before  # the run's own checkpoint is as it was


def test_a_linked_checkpoint_shares_bytes_and_nothing_else(saved, tmp_path, learner):
    target = tmp_path / "there"
    for _ in range(2):  # the second replaces the first
        link(saved, target)
        assert [*tmp_path.iterdir()] == [target]
    assert {os.stat(file).st_ino for file in target.glob("*.bin")} == {
        os.stat(file).st_ino for file in saved.glob("*.bin")
    }
    twin = ColdStart.load(target)
    assert twin.fingerprint() == learner.fingerprint()
    twin.learn_one(np.zeros((8, 8, 3), np.uint8), "black")
    twin.save(target)
    assert ColdStart.load(saved).fingerprint() == learner.fingerprint()
    assert ColdStart.load(target).fingerprint() == twin.fingerprint()


def test_a_link_that_fails_leaves_what_was_there(saved, tmp_path, monkeypatch, learner):
    target = tmp_path / "there"
    link(saved, target)
    real = os.replace
    for failing in (1, 2):
        calls = []

        def replace(*arguments, failing=failing, calls=calls):
            calls.append(arguments)
            if len(calls) == failing:
                raise OSError("no more")
            real(*arguments)

        monkeypatch.setattr(os, "replace", replace)
        with pytest.raises(OSError, match="no more"):
            link(saved, target)
        monkeypatch.setattr(os, "replace", real)
        assert ColdStart.load(target).fingerprint() == learner.fingerprint()
        assert [*tmp_path.iterdir()] == [target]
