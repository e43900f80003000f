"""The main job on small settings: what it writes, prints and refuses."""

import io
import json
import os
import re
import signal
import subprocess
import sys
import time
import zipfile
from collections import namedtuple

import numpy as np
import pytest
import yaml
from PIL import Image

from coldstream.cli import main
from coldstream.lab import make_config
from coldstream.lab.config import write_config
from warm import Warm

SMALL = [
    "--set", "learner.model=linear", "--set", "learner.replay=5", "--set", "offline.epochs=2",
    "--set", "checkpoint_every=300", "--set", "data.per_class=60",
]  # fmt: skip


COLDSTREAM = "from coldstream.cli import main; main()"
Done = namedtuple("Done", "returncode stdout stderr")


@pytest.fixture(scope="module")
def warm():
    with Warm() as warm:
        yield warm


@pytest.fixture(scope="module")
def coldstream(warm):
    """A command in a process of its own."""
    return lambda *arguments, cwd: Done(*warm.start(COLDSTREAM, *arguments, cwd=cwd).wait())


def call(monkeypatch, *arguments):
    """Run a command in this process, which saves importing torch again, and return its exit code."""
    monkeypatch.setattr(sys, "argv", ["coldstream", *arguments])
    with pytest.raises(SystemExit) as stopped:
        main()
    return stopped.value.code


@pytest.fixture(scope="module")
def finished(coldstream, tmp_path_factory):
    folder = tmp_path_factory.mktemp("job")
    done = coldstream("run", *SMALL, cwd=folder)
    assert done.returncode == 0, done.stderr
    return folder / "runs" / "digits", done


def test_writes_what_it_says(finished):
    folder, _ = finished
    names = {path.name for path in folder.iterdir()}
    assert names >= {"config.yaml", "metrics.jsonl", "summary.json", "accuracy.png", "reliability.png", "report.html"}
    assert names >= {"accuracy.svg", "coverage.png", "confusion.png", "results.md", "results.csv", "results.tex"}
    config = yaml.safe_load((folder / "config.yaml").read_text())
    assert config["learners"]["cssl"]["model"] == "linear"
    assert config["learners"]["cssl"]["momentum"] == 0.9  # defaults are spelled out
    assert write_config(make_config(config)) == (folder / "config.yaml").read_text()
    environment = json.loads((folder / "environment.json").read_text())
    assert {"python", "torch", "numpy", "threads", "coldstream", "commit"} <= environment.keys()
    for name in ("accuracy.png", "reliability.png"):
        picture = np.asarray(Image.open(folder / name).convert("L"))
        assert picture.std() > 5


def test_numbers_add_up(finished):
    folder, _ = finished
    whole = json.loads((folder / "summary.json").read_text())
    (summary,) = whole["learners"]["cssl"]["runs"]
    events = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    assert [event["classes"] for event in summary["events"]] == [2, 4, 6, 8, 10]
    assert summary["events"][-1]["step"] == whole["examples"] == 600
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
    assert re.search(r"cssl, seed 0.*600/600.*examples/s", done.stderr)
    assert re.search(r"all jobs.*6/6", done.stderr)
    assert re.search(r"accuracy \d+\.\d%", done.stderr)


def test_the_page_stands_alone(finished):
    folder, _ = finished
    page = (folder / "report.html").read_text()
    assert page.count("data:image/png;base64,") == 4
    assert "What is taken for what at the end" in page
    assert not re.search(r"(src|href)=.?https?:", page)
    assert "learners:" in page


def test_same_seed_same_bits_other_seed_others(coldstream, finished, tmp_path):
    folder, _ = finished
    again = coldstream("run", *SMALL, "--seed", 0, "--out", tmp_path / "again", cwd=tmp_path)
    other = coldstream("run", *SMALL, "--seed", 1, "--out", tmp_path / "other", cwd=tmp_path)
    assert again.returncode == other.returncode == 0
    assert (tmp_path / "again" / "summary.json").read_bytes() == (folder / "summary.json").read_bytes()
    assert (tmp_path / "again" / "metrics.jsonl").read_bytes() == (folder / "metrics.jsonl").read_bytes()
    assert (tmp_path / "other" / "summary.json").read_bytes() != (folder / "summary.json").read_bytes()


def test_ctrl_c_and_going_on(coldstream, warm, finished, tmp_path):
    straight, _ = finished
    process = warm.start(COLDSTREAM, "run", *SMALL, "--out", "mine", cwd=tmp_path)
    end = time.monotonic() + 120
    while time.monotonic() < end:  # until the first test, so that something was learned
        if any(path.stat().st_size for path in tmp_path.glob("store/units/*/metrics.jsonl")):
            break
        time.sleep(0.01)
    process.send_signal(signal.SIGINT)
    code, _, said = process.wait()
    assert code == 130
    assert "go on with: coldstream run --resume mine" in " ".join(said.split())
    assert not (tmp_path / "mine" / "summary.json").exists()
    state = coldstream("status", "mine", cwd=tmp_path)
    assert "begun" in state.stdout
    assert "waiting" in state.stdout
    done = coldstream("run", "--resume", "mine", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "going on in mine: 0 of 6 jobs are finished" in done.stdout
    for name in ("summary.json", "metrics.jsonl"):
        assert (tmp_path / "mine" / name).read_bytes() == (straight / name).read_bytes()


def test_what_is_finished_is_not_run_again(finished, tmp_path, monkeypatch, capsys):
    folder, _ = finished
    before = {path: path.stat().st_mtime_ns for path in folder.parent.glob("store/*/*/summary.json")}
    assert len(before) >= 6
    summary = (folder / "summary.json").read_bytes()
    monkeypatch.chdir(folder.parent.parent)
    call(monkeypatch, "run", *SMALL)
    assert "6 of 6 jobs are finished" in capsys.readouterr().out
    assert (folder / "summary.json").read_bytes() == summary
    # Another experiment shares the offline references and the unit that it has in common with this one.
    two = ["--set", "name=two", "--set", "learners={cssl: {}, other: {replay: 4}}"]
    call(monkeypatch, "run", *SMALL, *two)
    assert "6 of 7 jobs are finished" in capsys.readouterr().out
    assert {path: path.stat().st_mtime_ns for path in before} == before
    both = json.loads((folder.parent / "two" / "summary.json").read_text())["learners"]
    assert both["cssl"]["runs"] == json.loads(summary)["learners"]["cssl"]["runs"]
    commands = [["report", "runs/two"], ["status", "runs/two"], ["compare", "runs/digits", "runs/two"], ["list"]]
    for command in [*commands, ["data", "list", "--root", "nowhere"]]:
        call(monkeypatch, *command)
    said = capsys.readouterr().out
    assert "finished" in said
    assert "learners.other" in said
    assert "digits: embedded" in said
    assert "cifar100: not at nowhere" in said
    assert "+0.0000 (1 seed)" in said
    # A changed config in the same folder is refused, and says what changed.
    assert call(monkeypatch, "run", *SMALL, "--set", "learner.replay=6") == 2
    assert "learners.cssl.replay: 5 → 6" in capsys.readouterr().err


def test_jobs_in_processes_give_the_same_numbers(coldstream, finished, tmp_path):
    folder, _ = finished
    two = ["--set", "name=two", "--set", "learners={cssl: {}, other: {replay: 4}}", "--set", "threads=1"]
    done = coldstream("run", *SMALL, *two, "--jobs", 2, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "7/7" in done.stderr
    found = json.loads((tmp_path / "runs" / "two" / "summary.json").read_text())["learners"]
    assert found["cssl"]["runs"] == json.loads((folder / "summary.json").read_text())["learners"]["cssl"]["runs"]
    assert found["other"]["mean"]["final_accuracy"]["n"] == 1


OWN = """
import numpy as np
from coldstream import CSSL

class Patient(CSSL):
    \"\"\"CSSL that learns every example twice.\"\"\"

    def _learn(self, new):
        super()._learn(new)
        self.step -= len(new)
        super()._learn(new)
"""


def test_a_learner_of_the_users_own(coldstream, tmp_path):
    (tmp_path / "mymodule.py").write_text(OWN)
    arguments = ["--set", "offline.enabled=false", "--set", "data.per_class=15", "--learner", "mymodule:Patient"]
    done = coldstream("run", *SMALL, *arguments, "--set", "name=own", "--learner", "cssl", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    summary = json.loads((tmp_path / "runs" / "own" / "summary.json").read_text())
    assert set(summary["learners"]) == {"cssl", "patient"}
    runs = {name: found["runs"][0]["fingerprint"] for name, found in summary["learners"].items()}
    assert runs["cssl"] != runs["patient"]


def test_a_zip_of_photographs_of_the_users_own(coldstream, tmp_path):
    rng = np.random.default_rng(0)
    with zipfile.ZipFile(tmp_path / "pets.zip", "w") as file:
        for name, colour in (("cat", 60), ("dog", 200)):
            for i in range(12):
                side = 40 + 7 * i
                pixels = np.clip(rng.normal(colour, 25, (side, side + 9, 3)), 0, 255).astype(np.uint8)
                out = io.BytesIO()
                Image.fromarray(pixels).save(out, "JPEG")
                file.writestr(f"{name}/{i}.jpg", out.getvalue())
    done = coldstream("run", "pets.zip", "--set", "learner.replay=8", "--set", "offline.epochs=1", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    summary = json.loads((tmp_path / "runs" / "pets" / "summary.json").read_text())
    assert summary["examples"] + summary["data"]["test"] == 24
    assert summary["learners"]["cssl"]["runs"][0]["final_accuracy"] > 0.5


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--set", "learner.replya=5"], "unknown setting of a learner 'replya'; did you mean 'replay'?"),
        (["--set", "replay=5"], "unknown setting 'replay'; did you mean 'learner.replay'?"),
        (["--set", "learner.replay"], "--set takes key=value"),
        (["--set", "learner.replay=-1"], "replay is a whole number from 0, not -1"),
        (["--set", "learner.codec=quantise(6)"], "did you mean 'quantize'"),
        (["--set", "data.name=digit"], "did you mean 'digits'"),
        (["--set", "stream.ordering=class_incremental"], "did you mean 'class-incremental'"),
        (["--set", "stream.ordering=iid"], "ordering 'iid' does not use test_every; it takes batches"),
        (["--set", "evaluate=after"], "setting 'evaluate': input should be 'between' or 'beside', got 'after'"),
        (["--set", "learner.capacity=10B"], "capacity of 10 bytes is smaller than one example"),
        (["--set", "offline.epochs=0"], "offline.epochs"),
        (["--seed", "-1"], "setting 'seeds.0': input should be greater than or equal to 0"),
        (["--resume", "nowhere"], "there is no run in 'nowhere'"),
        (["--resume", "nowhere", "--seed", "1"], "leave the other arguments out"),
        (["missing.yaml"], "there is no file 'missing.yaml'"),
        (["digist"], "there is no data set and no experiment 'digist'; did you mean the data set 'digits'?"),
        (["zzz"], "no experiment 'zzz'; see coldstream list and coldstream data list"),
        (["--set", "learner.seed=3"], "seeds are the experiment's"),
        (["--set", "seeds=[]"], "seeds"),
        (["--learner", "nowhere:Mine"], "learner 'nowhere:Mine' cannot be imported"),
        (["--learner", "cssll"], "did you mean 'cssl'"),
        (["--out", "file/below"], "cannot write to folder"),
        (["--out", "full"], "is not empty and not a run's"),
    ],
)
def test_errors_in_one_line(tmp_path, monkeypatch, capsys, arguments, message):
    (tmp_path / "file").write_text("mine")
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "thesis").write_text("mine")
    monkeypatch.chdir(tmp_path)
    assert call(monkeypatch, "run", *arguments) == 2
    assert message in " ".join(capsys.readouterr().err.split())
    if "10B" not in str(arguments):  # known only when the first image has come
        assert sorted(path.name for path in tmp_path.iterdir()) == ["file", "full"]  # nothing half-written


def test_an_experiment_by_name(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert call(monkeypatch, "run", "digit-capacity") == 2
    assert "did you mean the data set 'digits'?" in " ".join(capsys.readouterr().err.split())
    (tmp_path / "experiments").mkdir()
    (tmp_path / "experiments" / "digits-capacity.yaml").write_text("learners: {a: {replay: 3}}\nseeds: []\n")
    assert call(monkeypatch, "run", "digit-capacity") == 2
    said = " ".join(capsys.readouterr().err.split())
    assert "did you mean the data set 'digits' or the experiment 'digits-capacity'?" in said
    assert call(monkeypatch, "run", "digits-capacity") == 2
    assert "setting 'seeds'" in capsys.readouterr().err  # it is the file's
    call(monkeypatch, "list")
    assert re.search(r"│ digits-capacity +│ digits +│ +a +│", capsys.readouterr().out)


def test_getting_data(tmp_path, monkeypatch, capsys):
    from coldstream.data import DATASETS, digits
    from coldstream.data.sources import Place, Source

    def get(name):
        code = call(monkeypatch, "data", "get", name, "--root", str(tmp_path))
        said = capsys.readouterr()
        return code, " ".join((said.out + said.err).split())

    fetch = lambda root: (root / "moths").mkdir()  # noqa: E731
    source = Source("moths", 10, 1_442, 355, "how", (Place("moths", lambda path: digits()),), fetch)
    monkeypatch.setitem(DATASETS, "moths", source)
    assert get("moths") == (0, f"moths: 1,442 + 355 images, 10 classes in {tmp_path / 'moths'}")
    assert get("moths") == (0, f"moths is here already: {tmp_path / 'moths'}")
    assert get("digits")[0] == 0
    code, said = get("core50")
    assert code == 2
    assert "It cannot be downloaded by this program. To get it: download core50_128x128.zip" in said
    assert get("mots") == (2, f"error: unknown data set 'mots'; did you mean 'moths'? valid: {valid(DATASETS)}")


def valid(names):
    return ", ".join(sorted([*names, "hf:NAME"]))


def test_help_explains_itself(tmp_path):
    command = [sys.executable, "-c", COLDSTREAM, "run", "--help"]
    done = subprocess.run(command, cwd=tmp_path, env={**os.environ, "COLUMNS": "140"}, capture_output=True, text=True)
    for word in ("--seed", "--out", "--set", "--resume", "digits", "Ctrl-C"):
        assert word in done.stdout


def test_a_file_of_settings(coldstream, tmp_path):
    config = make_config({}, ["learner.model=linear", "offline.enabled=false", "stream.ordering=iid", "name=mine"])
    (tmp_path / "mine.yaml").write_text(write_config(config))
    done = coldstream("run", "mine.yaml", "--set", "learners.cssl.replay=3", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    summary = json.loads((tmp_path / "runs" / "mine" / "summary.json").read_text())["learners"]["cssl"]["runs"][0]
    assert summary["omega_per_event"] is None
    assert len(summary["events"]) == 5
