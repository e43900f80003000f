"""The benchmark measures what it says: in turns, at the sizes asked for, beside a floor that is a real update."""

import json
import math
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import psutil
import pytest
import torch

from benchmarks import PARTS, growth, measuring, pace, run_bench
from benchmarks.measuring import Bench, Scale
from benchmarks.workloads import (
    BareStep,
    filled_learner,
    floors,
    learning,
    pictures,
    ready_batch,
)
from coldstream.learners.training.engine import Engine
from coldstream.models import Body
from coldstream.replay import ReplayBuffer

ROOT = Path(__file__).parents[2]
TINY = Scale(
    *(0.01, 2, 2, 0.001),
    stored=120,
    replay=10,
    sizes=(110, 150),
    networks=("resnet8-16",),
    replays=(0, 20),
    kept=120,
    saves=2,
    around=2,
    filled=300,
    streamed=20,
    compiled=False,
)


class Clock:
    """Time that passes only as it is told."""

    def __init__(self):
        self.now = 0.0

    def __call__(self):
        return self.now


def test_what_slows_one_slows_all(monkeypatch, tmp_path):
    clock, order, slowness = Clock(), [], [1.0]
    monkeypatch.setattr(measuring.time, "perf_counter", clock)

    def way(name, seconds):
        def act():
            order.append(name)
            slowness[0] *= 1.01 if name == "a" else 1.0
            clock.now += seconds * slowness[0]

        return act

    scale = Scale(seconds=1e9, least=5, most=7, block=0.0)
    times = Bench(tmp_path, scale).measure("test", {"a": way("a", 1.0), "b": way("b", 3.0)})
    assert "".join(order) == "aabb" + "abba" * 3 + "ab"  # warming up, then in turns, the first one rotating
    row = times.row("part", "group", "b", to="a")
    assert row.high > 1.02 * row.low
    assert row.ratio == pytest.approx(3.0, rel=0.011)
    assert row.ratio_high < 1.011 * row.ratio_low
    assert row.low <= row.value <= row.high
    assert times.fastest(["b", "a"]) == "a"


def test_a_block_has_as_many_calls_as_fit(monkeypatch, tmp_path):
    clock, calls = Clock(), []
    monkeypatch.setattr(measuring.time, "perf_counter", clock)

    def act():
        calls.append(clock.now)
        clock.now += 0.002

    times = Bench(tmp_path, Scale(least=3, most=3, block=0.1)).measure("test", {"a": act})
    assert len(calls) == 2 + 3 * (50 + 1)
    assert times.taken["a"].tolist() == pytest.approx([2.0] * 3)


def test_pictures():
    images, labels = pictures()
    assert images.shape == (1000, 32, 32, 3)
    assert labels.tolist() == [i % 10 for i in range(1000)]
    buffer = ReplayBuffer((32, 32, 3), codec="jpeg(90)")
    sizes = [len(buffer.compress(image)) for image in images[:50]]
    assert 700 < np.mean(sizes) < 2000  # CIFAR-10 has some 1,200 bytes; noise would have 3,000


def test_a_full_buffer_stays_full(tmp_path):
    learner = filled_learner(Bench(tmp_path), 130, model="linear")
    learn = learning(learner)
    for _ in range(15):
        learn()
    buffer = learner.tasks[None].buffer
    assert len(buffer) == 130
    assert len(set(buffer.index.ids.view.tolist())) == 130
    assert learner.step == 25
    assert len(learner.classes_) == 10


@pytest.mark.parametrize(
    "form",
    [{}, {"optimiser": "fused"}, {"optimiser": "plain"}, {"layout": "channels_last"}],
    ids=lambda form: "-".join(form.values()) or "contiguous",
)
@pytest.mark.parametrize("model", ["linear", "resnet8-16"])
def test_the_floor_is_the_learners_update(model, form):
    bare = BareStep(model, 20, **form)
    layout = {"memory_format": form.get("layout", "contiguous")}
    engine = Engine(Body.build(model, (3, 32, 32), 0), momentum=0.9, weight_decay=1e-5, **layout)
    head = engine.new_head(0, 10)
    begin = {name: value.detach().clone() for name, value in head.named_parameters()}
    images = torch.from_numpy(pictures()[0][:21]).permute(0, 3, 1, 2)
    torch.testing.assert_close(engine.normalise(images), bare.inputs, rtol=1e-5, atol=1e-5)
    for step in range(3):
        bare()
        engine.update(head, engine.normalise(images), ready_batch(21)[1], 0.01, 0, step)
    for bare_part, part in ((bare.classifier.body, engine.body), (bare.classifier.head, head)):
        after = part.state_dict()
        for name, value in bare_part.state_dict().items():
            torch.testing.assert_close(value, after[name], rtol=1e-4, atol=1e-5)
    moved = max(float((value.detach() - begin[name]).abs().max()) for name, value in head.named_parameters())
    assert moved > 1e-3  # far more than the tolerance above


def test_forms_of_the_floor(tmp_path):
    assert [name for name, _ in floors(Bench(tmp_path), "linear", 20, compiled=True)] == [
        "floor, contiguous",
        "floor, contiguous, torch's fused SGD",
    ]
    forms = dict(floors(Bench(tmp_path), "resnet8-16", 20, compiled=False))
    assert len(forms) == 3
    assert forms["floor, channels-last"].inputs.is_contiguous(memory_format=torch.channels_last)
    assert len(forms["floor, channels-last"].inputs) == 21


CHEAP = {
    "default": 3 * (4 + 4),
    "step": 2 + 2 + 3 + 1 + 2 + 3 + 3 + 1,
    "sizes": 2,
    "cold": 4 * 3,
    "shared": 3 * 3,
    "batch": 2 * 2 * 2,
    "storage": 5,
    "disk": 7,
    "checkpoint": 4,
    "buffer": 2 * 3,
}


def test_a_run(tmp_path):
    bench = run_bench(list(CHEAP), tmp_path, scale=TINY, thread_count=1)
    written = json.loads((tmp_path / "bench.json").read_text())
    assert {part: sum(row["part"] == part for row in written["rows"]) for part in CHEAP} == CHEAP
    for row in written["rows"]:
        assert row["unit"] == "ms"
        assert math.isfinite(row["value"])
        assert row["low"] <= row["value"] <= row["high"]
        assert (row["to"] is None) == (row["ratio"] is None)
        if row["part"] != "checkpoint":  # where times are differences
            assert row["value"] > 0
        names = {other["name"] for other in written["rows"] if other["group"] == row["group"]}
        assert row["to"] is None or row["to"] in names or row["to"].startswith("bare gather")
    assert written["environment"]["threads"] == 1
    page = (tmp_path / "bench.md").read_text()
    assert page.startswith(
        "`coldstream bench default step sizes cold shared batch storage disk checkpoint buffer --threads 1` made"
    )
    assert all(f"\n## {part}\n" in page for part in CHEAP)
    assert (tmp_path / "bench.png").read_bytes().startswith(b"\x89PNG")
    for model in ("linear", "resnet8-16"):
        by_name = {row.name: row for row in bench.rows if (row.part, row.group) == ("step", model)}
        forms = {name: row.value for name, row in by_name.items() if name.startswith("floor, ")}
        assert by_name["floor"].value == min(forms.values())
        assert by_name["floor"].to == "plain loop"
        assert f"floor, {by_name['floor'].note}" == min(forms, key=forms.get)
    judged = {one["text"]: one for one in written["verdicts"]}
    to_floor = judged["ResNet8-16: learn_one to floor"]
    row = min((row for name, row in by_name.items() if name.startswith("learn_one")), key=lambda row: row.ratio)
    assert to_floor["ratio"] == row.ratio
    assert to_floor["verdict"] in ("confirmed", "refuted", "not decided")
    assert to_floor["interval"][1] <= to_floor["interval"][0] <= to_floor["interval"][2]
    assert judged["step at 1M stored, to 1K"]["verdict"] == "not run"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["bench.json", "bench.md", "bench.png"]


def test_growth(capsys):
    growth.grow(250)
    *steps, last = capsys.readouterr().out.splitlines()
    assert len(steps) == 100
    bytes_used = json.loads(last)
    assert bytes_used["packed"] == 250 * 1521
    assert bytes_used["grown"] is None or 0 <= bytes_used["grown"] < 50e6


def test_a_busy_process_ends_with_its_context_and_with_its_parent():
    with pace.busy_process() as child:
        assert child.poll() is None
    assert child.poll() is not None
    code = """
import os
from benchmarks.pace import busy_process
context = busy_process()
print(context.__enter__().pid, flush=True)
os._exit(0)
"""
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    for _ in range(100):
        if not psutil.pid_exists(int(done.stdout)) or psutil.Process(int(done.stdout)).status() == "zombie":
            break
        time.sleep(0.1)
    else:
        pytest.fail("it outlived the process that started it")


def test_an_unknown_part(tmp_path):
    with pytest.raises(ValueError, match="unknown part 'netwroks'; did you mean 'networks'"):
        run_bench(["step", "netwroks"], tmp_path / "out", scale=TINY)
    assert not (tmp_path / "out").exists()


def test_the_command_line_knows_every_part():
    from typer.testing import CliRunner

    from coldstream.cli import app

    shown = CliRunner().invoke(app, ["bench", "--help"], env={"COLUMNS": "200", "TERMINAL_WIDTH": "200"}).output
    assert all(part in shown for part in PARTS)
    done = CliRunner().invoke(app, ["bench", "stpe"])
    assert isinstance(done.exception, ValueError)
    assert "did you mean 'step'" in str(done.exception)


def test_without_a_clone(tmp_path, monkeypatch):
    from typer.testing import CliRunner

    from coldstream.cli import app, bench

    monkeypatch.setattr(bench, "__file__", str(tmp_path / "site-packages" / "coldstream" / "cli" / "bench.py"))
    done = CliRunner().invoke(app, ["bench", "step"])
    assert isinstance(done.exception, ValueError)
    assert "benchmarks come with the repository, not with the installed package" in str(done.exception)
