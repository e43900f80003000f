"""Live labelling measured: runs resume, pools are as said, tables and curves come out of the runs."""

import numpy as np
import pytest

from benchmarks import idle, next_image
from benchmarks.labelling import RATIO, Pool, read
from coldstream import ColdStart

POLICIES = ("random", "mixture")


@pytest.fixture(scope="module")
def pool(tmp_path_factory):
    return Pool("digits", tmp_path_factory.mktemp("none"))


def test_a_long_tail_falls_by_its_ratio(pool):
    counts = np.sort(np.bincount(pool.labels[pool.long_tailed(3)], minlength=10))[::-1]
    assert counts[0] == 120
    assert counts[-1] == max(1, round(120 / RATIO))
    ratios = counts[1:6] / counts[:5]
    np.testing.assert_allclose(ratios, RATIO ** (-1 / 9), rtol=0.1)


def test_an_unlabelled_class_counts_as_wrong_unless_only_seen_ones_are_tested(pool):
    learner = ColdStart(replay=4, model="linear")
    for label in (0, 1):
        learner.learn_one(pool.images[np.flatnonzero(pool.labels == label)[0]], label)
    every, seen = pool.test(learner), pool.test(learner, seen=True)
    assert every["accuracy"] <= 0.2
    assert seen["accuracy"] == pytest.approx(5 * every["accuracy"])


def test_policies_begin_alike_resume_and_are_tabled(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(next_image, "POLICIES", POLICIES)
    out = tmp_path / "runs.jsonl"
    arguments = ["--root", str(tmp_path), "--out", str(out), "--data", "digits", "--labels", "20", "--seeds", "1"]
    next_image.main([*arguments, "--picture", str(tmp_path / "curves.png")])
    printed, lines = capsys.readouterr().out, out.read_text().splitlines(keepends=True)
    runs = read(out, next_image.Run)
    assert [(run.pool, run.policy) for run in runs] == [(p, q) for p in next_image.POOLS for q in POLICIES]
    assert all(list(run.tests) == [20] for run in runs)
    assert "mixture" in printed
    assert (tmp_path / "curves.png").stat().st_size > 1000
    out.write_text("".join(lines[:3]) + lines[3][:30])  # cut off
    next_image.main(arguments)
    assert out.read_text().splitlines(keepends=True) == lines


def test_labels_to_an_accuracy_are_in_proportion_between_tests():
    tests = {20: {"accuracy": 0.4, "ece": 0.0}, 40: {"accuracy": 0.6, "ece": 0.0}}
    run = next_image.Run(
        data="digits", pool="balanced", seed=0, policy="random", tests=tests, classes={}, all_classes=None
    )
    assert [next_image.labels_to(run, wanted) for wanted in (0.2, 0.4, 0.5, 0.6, 0.9)] == [10, 20, 30, 40, 40]
    assert next_image.seen_all(run) == 40


def test_arms_learn_the_same_stream_and_are_tabled(tmp_path, capsys, pool):
    assert sorted(idle.stream(pool, "shuffled", 40, 2)) == sorted(idle.stream(pool, "class by class", 40, 2))
    classes = pool.labels[idle.stream(pool, "class by class", 40, 2)]
    assert len(np.flatnonzero(np.diff(classes))) == 9
    out = tmp_path / "runs.jsonl"
    arguments = ["--root", str(tmp_path), "--out", str(out), "--data", "digits", "--labels", "10", "--seeds", "1"]
    idle.main([*arguments, "--updates", "0", "2", "--picture", str(tmp_path / "curves.png")])
    runs = read(out, idle.Run)
    assert [(run.order, run.updates) for run in runs] == [(order, n) for order in idle.ORDERS for n in (0, 2)]
    assert [list(run.tests) for run in runs] == [[5, 10]] * 4
    assert "| digits | 10 | 2 |" in capsys.readouterr().out
