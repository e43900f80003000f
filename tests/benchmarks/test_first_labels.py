"""What passes and the warm-up are worth: runs resume, tables are printed, intervals are right."""

import numpy as np
import pytest

from benchmarks import first_labels
from benchmarks.first_labels import ARMS, DEFAULT, ORDERS, Run, gains, read, times

QUICK = {"seeds": 1, "data": ["digits"], "counts": (3, 6)}


@pytest.fixture(scope="module")
def out(tmp_path_factory):
    path = tmp_path_factory.mktemp("first-labels") / "runs.jsonl"
    first_labels.measure(path, path.parent, **QUICK)
    return path


def test_every_arm_of_every_order_runs_once(out):
    runs = read(out)
    assert sorted((run.order, run.arm) for run in runs) == sorted((order, arm) for order in ORDERS for arm in ARMS)
    tested = {run.order: list(run.tests) for run in runs}
    assert tested == {"shuffled": [3, 6], "class by class": [6]}
    assert all(run.ms > 0 for run in runs)


def test_it_resumes_after_a_cut(out, tmp_path):
    copy, lines = tmp_path / "runs.jsonl", out.read_text().splitlines(keepends=True)
    copy.write_text("".join(lines[:6]) + lines[6][:40])
    first_labels.measure(copy, tmp_path, **QUICK)
    resumed = copy.read_text().splitlines(keepends=True)
    assert resumed[:6] == lines[:6]
    without_times = [[run.model_copy(update={"ms": 0.0}) for run in read(path)] for path in (copy, out)]
    assert without_times[0] == without_times[1]


def test_it_prints_the_tables(out, capsys):
    before = out.read_text()
    first_labels.main(["--root", str(out.parent), "--out", str(out), "--seeds", "1", "--data", "digits"])
    assert out.read_text() == before  # nothing was missing
    gained, taken = capsys.readouterr().out.split("\n\n")
    assert gained.startswith("| order | ColdStart() less | accuracy, points |")
    assert len(gained.splitlines()) == 2 + len(ORDERS) * (len(ARMS) - 1)
    assert len(taken.splitlines()) == 2 + len(ORDERS)


def made(seed, data, arm, accuracy, ms=1.0):
    tests = {n: {"accuracy": accuracy + n / 100, "ece": 0.1, "log_loss": 1.0} for n in (5, 10)}
    return Run(data=data, order="shuffled", seed=seed, arm=arm, tests=tests, ms=ms)


def test_the_interval_is_that_by_hand():
    ours, theirs = np.array([[0.5, 0.7], [0.6, 0.9], [0.7, 0.6]]), np.array([[0.4, 0.5], [0.6, 0.5], [0.3, 0.5]])
    runs = []
    for arm, table, ms in ((DEFAULT, ours, 4.0), ("passes=1", theirs, 2.0)):
        for seed, name in np.ndindex(*table.shape):
            runs.append(made(seed, ("digits", "gtsrb")[name], arm, table[seed, name], ms))
    runs.append(made(3, "digits", DEFAULT, 0.9))  # a seed that is not finished does not count
    runs.append(made(3, "digits", "passes=1", 0.1))
    by_hand = 100 * (ours - theirs).mean(axis=1)
    half = 4.302652729911275 * by_hand.std(ddof=1) / np.sqrt(3)  # the t quantile of two degrees of freedom
    line = gains(runs)[1]
    assert line[:2] == ["shuffled", "passes=1"]
    assert line[2:] == [f"{by_hand.mean():+.1f} ± {half:.1f}", "+0.0 ± 0.0", "+0.00 ± 0.00"]


def test_times_are_compared_within_a_seed():
    runs = [
        made(seed, "digits", arm, 0.5, ms * (1 + seed))
        for seed in (0, 1)
        for arm, ms in zip(ARMS, (6, 2, 6, 2), strict=True)
    ]
    assert times(runs)[1] == ["digits", "shuffled", "8.5", "2.8", "8.5", "2.8", "3.00"]
