"""The main job on small settings: what it writes, prints and refuses."""

import json
import os
import re
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
import yaml
from PIL import Image

from coldstream.cli import main
from coldstream.data import digits
from coldstream.experiments import make_config
from coldstream.experiments.config import Config, read_config, write_config

SMALL = [
    "--set", "learner.model=linear", "--set", "learner.replay=5", "--set", "offline.epochs=2",
    "--set", "checkpoint_every=300",
]  # fmt: skip


def coldstream(*arguments, cwd, **options):
    command = [sys.executable, "-c", "from coldstream.cli import main; main()", *map(str, arguments)]
    env = {**os.environ, "COLUMNS": "140"}
    return subprocess.run(command, cwd=cwd, env=env, capture_output=True, text=True, **options)


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    folder = tmp_path_factory.mktemp("job")
    done = coldstream("run", *SMALL, cwd=folder)
    assert done.returncode == 0, done.stderr
    return folder / "runs" / "digits", done


def test_writes_what_it_says(finished):
    folder, _ = finished
    names = {path.name for path in folder.iterdir()}
    assert names >= {"config.yaml", "metrics.jsonl", "summary.json", "accuracy.png", "reliability.png", "report.html"}
    config = yaml.safe_load((folder / "config.yaml").read_text())
    assert config["learner"]["model"] == "linear"
    assert Config.model_validate(config) == read_config(folder / "config.yaml")
    environment = json.loads((folder / "environment.json").read_text())
    assert {"python", "torch", "numpy", "threads", "coldstream", "commit"} <= environment.keys()
    for name in ("accuracy.png", "reliability.png"):
        picture = np.asarray(Image.open(folder / name).convert("L"))
        assert picture.std() > 5


def test_numbers_add_up(finished):
    folder, _ = finished
    summary = json.loads((folder / "summary.json").read_text())
    events = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    assert [event["classes"] for event in summary["events"]] == [2, 4, 6, 8, 10]
    assert summary["events"][-1]["step"] == summary["examples"] == len(digits()[0])
    assert [len(event["classes"]) for event in events] == [2, 4, 6, 8, 10]
    for event in events:
        rows = np.array(event["confusion"]["rows"])
        columns = event["confusion"]["columns"]
        right = sum(rows[i, columns.index(name)] for i, name in enumerate(event["classes"]))
        assert event["accuracy"] == pytest.approx(right / rows.sum())
        assert rows.sum() == event["images"]
        assert event["top5"] >= event["accuracy"]
    ratios = [e["accuracy"] / o["accuracy"] for e, o in zip(summary["events"], summary["offline"], strict=True)]
    assert summary["omega_per_event"] == pytest.approx(np.mean(ratios))
    final = summary["offline"][-1]["accuracy"]
    assert summary["omega_final"] == pytest.approx(np.mean([e["accuracy"] / final for e in summary["events"]]))
    assert summary["buffer"]["bytes"] == 32 * summary["buffer"]["examples"]  # 8x8 pixels of 4 bits
    assert summary["average_ece"] == pytest.approx(np.mean([event["ece"] for event in events]))


def test_prints_a_table_and_bars(finished):
    _, done = finished
    for text in ("Ω_all", "average ECE", "time an example", "replay buffer", "report:", "offline"):
        assert text in done.stdout
    assert re.search(r"streaming.*1442/1442.*examples/s", done.stderr)
    assert re.search(r"accuracy \d+\.\d%", done.stderr)


def test_the_page_stands_alone(finished):
    folder, _ = finished
    page = (folder / "report.html").read_text()
    assert page.count("data:image/png;base64,") == 2
    assert not re.search(r"(src|href)=.?https?:", page)
    assert "learner:" in page


def test_same_seed_same_bits_other_seed_others(finished, tmp_path):
    folder, _ = finished
    again = coldstream("run", *SMALL, "--seed", 0, "--out", tmp_path / "again", cwd=tmp_path)
    other = coldstream("run", *SMALL, "--seed", 1, "--out", tmp_path / "other", cwd=tmp_path)
    assert again.returncode == other.returncode == 0
    assert (tmp_path / "again" / "summary.json").read_bytes() == (folder / "summary.json").read_bytes()
    assert (tmp_path / "again" / "metrics.jsonl").read_bytes() == (folder / "metrics.jsonl").read_bytes()
    assert (tmp_path / "other" / "summary.json").read_bytes() != (folder / "summary.json").read_bytes()


def test_ctrl_c_and_resume(finished, tmp_path):
    straight, _ = finished
    command = [sys.executable, "-c", "from coldstream.cli import main; main()", "run", *SMALL, "--out", "mine"]
    process = subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    end = time.monotonic() + 120
    while not (tmp_path / "mine" / "metrics.jsonl").exists() and time.monotonic() < end:
        time.sleep(0.01)
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "go on with: coldstream run --resume mine" in " ".join(said.split())
    assert not (tmp_path / "mine" / "summary.json").exists()
    done = coldstream("run", "--resume", "mine", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "going on with mine at example" in done.stdout
    for name in ("summary.json", "metrics.jsonl", "offline.jsonl"):
        assert (tmp_path / "mine" / name).read_bytes() == (straight / name).read_bytes()
    again = coldstream("run", "--resume", "mine", cwd=tmp_path)  # a finished run is only reported
    assert again.returncode == 0
    assert (tmp_path / "mine" / "summary.json").read_bytes() == (straight / "summary.json").read_bytes()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--set", "learner.replya=5"], "unknown setting 'learner.replya'; did you mean 'replay'?"),
        (["--set", "replay=5"], "unknown setting 'replay'; did you mean 'learner.replay'?"),
        (["--set", "learner.replay"], "--set takes key=value"),
        (["--set", "learner.replay=-1"], "replay is a whole number from 0, not -1"),
        (["--set", "learner.codec=quantise(6)"], "did you mean 'quantize'"),
        (["--set", "data.name=digit"], "did you mean 'digits'"),
        (["--set", "stream.ordering=class_incremental"], "did you mean 'class-incremental'"),
        (["--set", "learner.capacity=10B"], "capacity of 10 bytes is smaller than one example"),
        (["--set", "offline.epochs=0"], "offline.epochs"),
        (["--seed", "-1"], "seed"),
        (["--resume", "nowhere"], "there is no run to resume in 'nowhere'"),
        (["--resume", "nowhere", "--seed", "1"], "leave the other arguments out"),
        (["missing.yaml"], "missing.yaml"),
        (["--out", "file/below"], "cannot write to folder"),
        (["--out", "full"], "is not empty; go on with that run by --resume full"),
    ],
)
def test_errors_in_one_line(tmp_path, monkeypatch, capsys, arguments, message):
    (tmp_path / "file").write_text("mine")
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "thesis").write_text("mine")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["coldstream", "run", *arguments])
    with pytest.raises(SystemExit) as stopped:
        main()
    assert stopped.value.code == 2
    assert message in " ".join(capsys.readouterr().err.split())
    if "10B" not in str(arguments):
        assert sorted(path.name for path in tmp_path.iterdir()) == ["file", "full"]  # nothing half-written


def test_help_explains_itself(tmp_path):
    done = coldstream("run", "--help", cwd=tmp_path)
    for word in ("--seed", "--out", "--set", "--resume", "digits", "Ctrl-C"):
        assert word in done.stdout


def test_a_file_of_settings(tmp_path):
    config = make_config({}, ["learner.model=linear", "offline.enabled=false", "stream.ordering=iid", "name=mine"])
    (tmp_path / "mine.yaml").write_text(write_config(config))
    done = coldstream("run", "mine.yaml", "--set", "learner.replay=3", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    summary = json.loads((tmp_path / "runs" / "mine" / "summary.json").read_text())
    assert summary["omega_per_event"] is None
    assert len(summary["events"]) == 5
