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
from rich.console import Console

from coldstream.cli import lists, main, progress
from coldstream.lab import make_config
from coldstream.lab.reading import write_config
from coldstream.lab.records import FinishedRun
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
    assert config["learners"]["cold-start"]["model"] == "linear"
    assert config["learners"]["cold-start"]["momentum"] == 0.9  # defaults are spelled out
    assert write_config(make_config(config)) == (folder / "config.yaml").read_text()
    environment = json.loads((folder / "environment.json").read_text())
    assert {"python", "torch", "numpy", "threads", "coldstream", "commit"} <= environment.keys()
    for name in ("accuracy.png", "reliability.png"):
        picture = np.asarray(Image.open(folder / name).convert("L"))
        assert picture.std() > 5


def test_numbers_add_up(finished):
    folder, _ = finished
    run = FinishedRun(folder)
    (unit,) = run.results.learners["cold-start"].units
    assert [event.classes for event in unit.events] == [2, 4, 6, 8, 10]
    assert unit.events[-1].step == run.results.examples == 600
    assert [len(event.confusion.truth) for event in run.events] == [2, 4, 6, 8, 10]
    for event in run.events:
        counts, guesses = np.array(event.confusion.counts), event.confusion.predicted
        right = sum(counts[i, guesses.index(name)] for i, name in enumerate(event.confusion.truth))
        assert event.accuracy == pytest.approx(right / counts.sum())
        assert counts.sum() == event.images
        assert event.top5 >= event.accuracy
    (task,) = unit.tasks
    ratios = [e.accuracy / o.accuracy for e, o in zip(task.events, task.offline, strict=True)]
    assert unit.numbers.omega_per_event == pytest.approx(np.mean(ratios))
    final = task.offline[-1].accuracy
    assert unit.numbers.omega_final == pytest.approx(np.mean([e.accuracy / final for e in task.events]))
    assert unit.learner.buffer.bytes == 64 * unit.learner.buffer.examples  # 8x8 pixels of 8 bits
    assert unit.numbers.average_ece == pytest.approx(np.mean([event.ece for event in run.events]))


def test_prints_a_table_and_how_far_it_is(finished):
    _, done = finished
    for text in ("Ω_all", "average ECE", "time per example", "replay buffer", "report:", "offline"):
        assert text in done.stdout
    assert re.search(r"\ncold-start, seed 0: 600 of 600 examples, accuracy \d+\.\d%; finished", "\n" + done.stderr)
    assert "; finished, 6 of 6 jobs\n" in done.stderr


Shown = namedtuple("Shown", "key title counted")


def test_without_a_terminal_there_are_lines_of_progress(capsys, monkeypatch):
    monkeypatch.setattr(progress.Lines, "seconds", 0.05)
    first, second = Shown("a", "one, seed 0", "examples"), Shown("b", "offline, 2 classes, seed 0", "epochs")
    with progress.Lines(2) as lines:
        time.sleep(0.2)  # workers import torch
        lines.update(first, 1_200, 6_000, "accuracy 12.5%")
        lines.update(second, 3, 30, "")
        time.sleep(0.5)  # a slow step: nothing new is heard of either
        lines.update(first, 6_000, 6_000, "accuracy 50.0%")
        lines.finished(first)
    said = capsys.readouterr().err.splitlines()
    assert said[0] == "starting; finished, 0 of 2 jobs"
    assert said.count("one, seed 0: 1,200 of 6,000 examples, accuracy 12.5%") >= 2
    assert said.count("offline, 2 classes, seed 0: 3 of 30 epochs") >= 2
    assert said[-1] == "one, seed 0: 6,000 of 6,000 examples, accuracy 50.0%; finished, 1 of 2 jobs"


def test_a_terminal_has_bars(monkeypatch):
    terminal = Console(file=io.StringIO(), force_terminal=True, width=120)
    monkeypatch.setattr(progress, "complaints", terminal)
    job = Shown("a", "one, seed 0", "examples")
    with progress.Bars(2) as bars:
        bars.update(job, 300, 600, "accuracy 12.5%")
        bars.update(job, 600, 600, "accuracy 50.0%")
        bars.finished(job)
    said = re.sub(r"\x1b\[[\d;?]*[a-zA-Z]", "", terminal.file.getvalue())
    assert re.search(r"one, seed 0.*600/600.*accuracy 50.0%", said)
    assert re.search(r"all jobs.*1/2", said)


def test_the_page_stands_alone(finished):
    folder, _ = finished
    page = (folder / "report.html").read_text()
    assert page.count("data:image/png;base64,") == 4
    assert "Confusion matrix at the end" in page
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
    assert "resume with: coldstream run --resume mine" in " ".join(said.split())
    assert not (tmp_path / "mine" / "summary.json").exists()
    state = coldstream("status", "mine", cwd=tmp_path)
    assert "begun" in state.stdout
    assert "waiting" in state.stdout
    done = coldstream("run", "--resume", "mine", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "resuming mine: 0 of 6 jobs are finished" in done.stdout
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
    two = ["--set", "name=two", "--set", "learners={cold-start: {}, other: {replay: 4}}"]
    call(monkeypatch, "run", *SMALL, *two)
    assert "6 of 7 jobs are finished" in capsys.readouterr().out
    assert {path: path.stat().st_mtime_ns for path in before} == before
    both, one = (FinishedRun(folder.parent / name).results.learners for name in ("two", "digits"))
    assert both["cold-start"] == one["cold-start"]
    commands = [["report", "runs/two"], ["status", "runs/two"], ["compare", "runs/digits", "runs/two"], ["list"]]
    for command in [*commands, ["data", "list", "--root", "nowhere"]]:
        call(monkeypatch, *command)
    said = capsys.readouterr().out
    assert "finished" in said
    assert "learners.other" in said
    assert "digits: embedded" in said
    assert "cifar100: not at nowhere" in said
    assert "+0.0000 (1 seed," in said
    # A changed config in the same folder is refused, and says what changed.
    assert call(monkeypatch, "run", *SMALL, "--set", "learner.replay=6") == 2
    assert "learners.cold-start.replay: 5 → 6" in capsys.readouterr().err


def test_jobs_in_processes_give_the_same_numbers(coldstream, finished, tmp_path):
    folder, _ = finished
    two = ["--set", "name=two", "--set", "learners={cold-start: {}, other: {replay: 4}}", "--set", "threads=1"]
    done = coldstream("run", *SMALL, *two, "--jobs", 2, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "; finished, 7 of 7 jobs" in done.stderr
    both, one = (FinishedRun(path).results.learners for path in (tmp_path / "runs" / "two", folder))
    assert both["cold-start"] == one["cold-start"]
    assert both["other"].numbers.final_accuracy.n == 1


OWN = """
import numpy as np
from coldstream import CSSL

class Impatient(CSSL):
    \"\"\"CSSL that learns every example twice.\"\"\"

    def loss(self, logits, batch, targets):
        return 2 * super().loss(logits, batch, targets)
"""


def test_a_learner_of_the_users_own(coldstream, tmp_path):
    (tmp_path / "mymodule.py").write_text(OWN)
    arguments = ["--set", "offline.enabled=false", "--set", "data.per_class=15", "--learner", "mymodule:Impatient"]
    done = coldstream("run", *SMALL, *arguments, "--set", "name=own", "--learner", "cssl", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    learners = FinishedRun(tmp_path / "runs" / "own").results.learners
    prints = {name: result.units[0].learner.fingerprint for name, result in learners.items()}
    assert prints.keys() == {"cssl", "impatient"}
    assert prints["cssl"] != prints["impatient"]


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
    results = FinishedRun(tmp_path / "runs" / "pets").results
    assert results.examples + results.test_images == 24
    assert results.learners["cold-start"].units[0].numbers.final_accuracy > 0.5


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
    assert "digits-capacity: digits; seeds []\n      a\n" in capsys.readouterr().out


def test_list_breaks_no_name_over_lines(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(lists.console, "width", 50)
    names = ["er-ace, 1 an update, 0.003", "last weights, not their average", "cssl-crop-flip", "x" * 60]
    (tmp_path / "experiments").mkdir()
    path = tmp_path / "experiments" / "first-labels-cifar100-iid-pretrained-and-longer-than-that.yaml"
    path.write_text(yaml.safe_dump({"learners": {name: {} for name in names}, "data": "digits"}))
    call(monkeypatch, "list")
    said = capsys.readouterr().out
    for name in (path.stem, *names, "linear-probe", "class-instance"):
        assert name in said
    assert max(map(len, said.splitlines()[3:])) < 80


def test_a_missing_set_is_got_by_a_command(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert call(monkeypatch, "run", "cifar100", "--set", "data.root=nowhere") == 2
    assert "To get it: coldstream data get cifar100 (in Python: download=True); or unpack" in capsys.readouterr().err
    assert call(monkeypatch, "data", "list", "--root", "nowhere") == 0
    said = capsys.readouterr().out
    assert (
        "cifar100: not at nowhere/cifar-100-python or cifar100*.zip; to get it: coldstream data get cifar100" in said
    )
    assert "coldstream data get core50" not in said  # which cannot be downloaded


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
    done = coldstream("run", "mine.yaml", "--set", "learners.cold-start.replay=3", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    (unit,) = FinishedRun(tmp_path / "runs" / "mine").results.learners["cold-start"].units
    assert unit.numbers.omega_per_event is None
    assert len(unit.events) == 5
