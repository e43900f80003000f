"""Where experiments could go wrong without being wrong: odd data, odd settings, changed files, company."""

import fcntl
import os
import sys
import threading
import time

import numpy as np
import pytest
from PIL import Image
from safetensors.torch import save_file

from coldstream import CSSL
from coldstream.cli import main
from coldstream.lab import Experiment, make_config, run_jobs
from coldstream.lab.config import DIGITS
from coldstream.lab.keys import learner_version
from coldstream.lab.names import settings_of
from coldstream.lab.reading import learner_changes
from coldstream.lab.records import FinishedRun
from coldstream.lab.yaml_files import read_config
from coldstream.learners import LEARNERS

TINY = {"data": {"per_class": 4, "classes": 3}, "learner": {"model": "linear", "replay": 3}, "offline": {"epochs": 1}}


def experiment(tmp_path, **changes):
    return Experiment.create(make_config({**TINY, **changes}), tmp_path / "runs" / "one")


def call(monkeypatch, *arguments):
    monkeypatch.setattr(sys, "argv", ["coldstream", *map(str, arguments)])
    with pytest.raises(SystemExit) as stopped:
        main()
    return stopped.value.code


@pytest.mark.parametrize("seed", range(3))
def test_a_class_of_too_few_images_to_test(tmp_path, seed):
    """A class of three images has no test image; a test on that class alone is left out."""
    rng = np.random.default_rng(0)
    for name, count in (("few", 3), ("more", 8), ("most", 8)):
        (tmp_path / "photos" / name).mkdir(parents=True)
        for i in range(count):
            pixels = rng.integers(0, 256, (6, 6, 3), dtype=np.uint8)
            Image.fromarray(pixels).save(tmp_path / "photos" / name / f"{i}.png")
    made = experiment(tmp_path, data={"name": str(tmp_path / "photos")}, seeds=[seed], offline={"enabled": False})
    run_jobs(made)
    events = made.results().learners["cold-start"].units[0].events
    assert all(event.images for event in events)
    assert len(events) in (2, 3)


ODD = [
    b"$\\frac{$", b"caf\xe9", b"<script>", b"=HYPERLINK(1)", b"\\input{x}", b"two\nlines", b"[bold]x[", b"a|b"
]  # fmt: skip


def test_classes_and_folders_of_any_name_get_through_to_the_report(tmp_path, monkeypatch, capsys):
    """Whatever a folder may be called: bytes that are not UTF-8, formulas, tags, line ends."""
    rng = np.random.default_rng(0)
    photos = os.path.join(os.fsencode(tmp_path), b"Fotos \xfc")
    for name in ODD:
        folder = os.path.join(photos, name)
        os.makedirs(folder)
        for i in range(6):
            pixels = rng.integers(0, 256, (6, 6, 3), dtype=np.uint8)
            Image.fromarray(pixels).save(os.path.join(folder, b"%d \xe9.png" % i), "PNG")
    tree = {**TINY, "data": {"name": os.fsdecode(photos)}, "learners": {"$\\frac{$": {}, "[/b] <i>": {"replay": 2}}}
    made = Experiment.create(make_config(tree), tmp_path / "runs" / "one")
    run_jobs(made)
    results = made.results()
    assert results.data_name == "Fotos \\xfc"
    known = FinishedRun(made.folder.path).events[-1].confusion.truth
    assert set(known) == {
        "$\\frac{$", "caf\\xe9", "<script>", "=HYPERLINK(1)", "\\input{x}", "two\\nlines", "[bold]x[", "a|b"
    }  # fmt: skip
    for command in (["report", made.folder.path], ["status", made.folder.path]):
        assert call(monkeypatch, *command) == 0
        assert "[/b] <i>" in capsys.readouterr().out
    page = (made.folder.path / "report.html").read_text()
    assert "<script>" not in page
    assert "caf\\xe9" in page


def test_status_and_reports_import_no_code_of_the_users(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delitem(sys.modules, "trap_here", raising=False)
    (tmp_path / "trap_here.py").write_text(
        "from pathlib import Path\nfrom coldstream import CSSL\nPath('sprung').touch()\nclass Trap(CSSL): pass\n"
    )
    made = experiment(tmp_path, learners={"mine": {"kind": "trap_here:Trap"}}, offline={"enabled": False})
    assert (tmp_path / "sprung").exists()
    run_jobs(made)
    made.results()
    (tmp_path / "sprung").unlink()
    path = made.folder.path
    for command in (["status", path], ["report", path], ["compare", path, path], ["list"], ["report", "paper"]):
        monkeypatch.delitem(sys.modules, "trap_here", raising=False)
        assert call(monkeypatch, *command) == 0
        assert not (tmp_path / "sprung").exists(), command


def test_every_learner_goes_into_the_default_experiment():
    config = make_config(dict(DIGITS), learner_changes(list(LEARNERS), default=True))
    assert list(config.learners) == list(LEARNERS)
    with pytest.raises(ValueError, match="same name"):
        learner_changes(["cssl", "mine:CSSL"], default=True)


def test_other_weights_in_the_same_file_are_another_job(tmp_path):
    keys = []
    for seed in (1, 2):
        source = CSSL(model="mlp", seed=seed, augment="none")
        source.learn_one(np.zeros((8, 8, 1), np.uint8), "a")
        save_file(source.engine.body.state_dict(), tmp_path / "w.safetensors")
        made = experiment(tmp_path, learner={"model": "mlp", "init": str(tmp_path / "w.safetensors")})
        keys.append([job.key for job in made.jobs])
    assert not set(keys[0]) & set(keys[1])


def test_references_are_made_once_for_learners_with_the_same_network(tmp_path):
    made = experiment(tmp_path, learners={"one": {}, "two": {"replay": 2}, "three": {"model": "mlp"}})
    assert made.references("one", 0) == made.references("two", 0)
    assert not {*made.references("one", 0)} & {*made.references("three", 0)}


def test_a_job_that_another_process_is_at_is_waited_for(tmp_path):
    made = experiment(tmp_path, offline={"enabled": False})
    job = made.jobs[0]
    job.folder.make()
    notes = []
    with open(job.folder.path / "lock", "w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        thread = threading.Thread(target=job.run, args=(lambda done, total, note: notes.append(note),))
        thread.start()
        while not notes:
            time.sleep(0.01)
    thread.join()
    assert notes[0] == "another process is at it"
    assert job.finished


def test_a_report_needs_only_the_files_of_the_run(tmp_path, monkeypatch):
    made = experiment(tmp_path, offline={"enabled": False})
    run_jobs(made)
    made.results()
    monkeypatch.setattr("coldstream.lab.inputs.load_dataset", lambda *_: 1 / 0)
    assert call(monkeypatch, "report", made.folder.path) == 0
    assert "threads 1" in (made.folder.path / "report.html").read_text()


def test_numbers_as_people_write_them(tmp_path):
    (tmp_path / "x.yaml").write_text("offline: {rate: 1e-3}\nlearner: {weight_decay: 1E-4, augment: 'none'}\n")
    config = make_config(read_config(tmp_path / "x.yaml"), ["learner.rate=2.5e-2"])
    assert (config.offline.rate, config.learner) == (1e-3, {"weight_decay": 1e-4, "augment": "none", "rate": 0.025})


@pytest.mark.parametrize("text", ["my photos", "hf:some/set?label=fine"])
def test_a_data_set_of_any_name_can_be_run(text, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "my photos").mkdir()
    config = make_config(settings_of(text))
    assert config.data.name == text
    assert " " not in config.name


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("learner.augment=5", "augment is a policy such as 'crop|flip', not 5"),
        ("learner.rate=1e30", "lower rate"),
        ("seeds=[0, 0]", "same seed"),
        ("name=store", "choose another name"),
        ("offline.momentum=2", "offline.momentum"),
        ("learners.mine.kind=broken_here:X", "cannot be imported: SyntaxError"),
        ("learners.mine.kind=needy_here:Needy", "needs setting 'depth'"),
    ],
)
def test_what_a_user_can_mend_is_said_in_a_line(change, message, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "broken_here.py").write_text("def (")
    (tmp_path / "needy_here.py").write_text(
        "from coldstream import CSSL\nclass Needy(CSSL):\n    class Settings(CSSL.Settings):\n        depth: int\n"
    )
    changes = ["data.per_class=12", "learner.model=linear", "learner.replay=3", "offline.enabled=false", change]
    assert call(monkeypatch, "run", *(part for one in changes for part in ("--set", one))) == 2
    said = " ".join(capsys.readouterr().err.split())
    assert message in said
    assert "Traceback" not in said


def test_a_class_order_from_a_file(tmp_path):
    (tmp_path / "order.txt").write_text("2\n0\n1\n")
    made = experiment(tmp_path, stream={"class_order": str(tmp_path / "order.txt")})
    part = made.inputs.stream(0).parts[None]
    seen = [part.dataset.names[label] for label in part.dataset.labels[part.order]]
    assert list(dict.fromkeys(seen)) == ["2", "0", "1"]


def test_a_module_beside_a_learner_of_the_users_counts(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "helps_here.py").write_text("x = 1\n")
    (tmp_path / "base_here.py").write_text("import helps_here\nfrom coldstream import CSSL\nclass Base(CSSL): pass\n")
    (tmp_path / "child_here.py").write_text("from base_here import Base\nclass Child(Base): pass\n")
    import child_here

    before = learner_version(child_here.Child)
    (tmp_path / "helps_here.py").write_text("x = 2\n")
    assert learner_version(child_here.Child) != before
