"""Verdicts follow from the numbers."""

from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

from benchmarks.measuring import Row
from benchmarks.report import target_table
from benchmarks.targets import TARGETS, Target, judge

AT_MOST = Target("fast", "step", "net", "learn_one", "floor", 1.15)
AT_LEAST = Target("faster than others", "peers", "net", "Avalanche, 10,000", "learn_one", 1.5, at_least=True)


def row(target, name, *ratios):
    return Row(target.part, target.group, name, 2.0, 1.0, 3.0).compared(np.array(ratios), target.to)


def judged(target, rows):
    (one,) = judge([row(target, name, *ratios) for name, ratios in rows.items()], [target])
    return one


def around(ratio, spread=0.01, rounds=5):
    return [ratio * (1 + spread * (i - rounds // 2)) for i in range(rounds)]


@pytest.mark.parametrize(
    ("ratios", "expected"),
    [
        (around(1.0), "confirmed"),
        (around(1.15), "not decided"),
        (around(1.0, spread=0.2), "not decided"),
        (around(1.2), "refuted"),
        ([1.0], "not decided"),
        ([1.0, 1.0], "confirmed"),
    ],
)
def test_at_most(ratios, expected):
    assert judged(AT_MOST, {"learn_one": ratios}).verdict.outcome == expected


@pytest.mark.parametrize(
    ("ratios", "expected"), [(around(1.6), "confirmed"), (around(1.5), "not decided"), (around(1.2), "refuted")]
)
def test_at_least(ratios, expected):
    one = judged(AT_LEAST, {"Avalanche, 10,000 stored, reservoir": ratios})
    assert one.verdict.outcome == expected


def test_the_interval_is_that_of_the_logarithms_by_hand():
    ratios = [0.9, 1.1, 1.3]
    one = judged(AT_MOST, {"learn_one": ratios})
    logs = np.log(ratios)
    half = stats.t.ppf(0.975, 2) * logs.std(ddof=1) / np.sqrt(3)
    assert one.interval == pytest.approx(np.exp([logs.mean(), logs.mean() - half, logs.mean() + half]))
    assert one.verdict.interval.mean == pytest.approx(np.log(1.15) - logs.mean())


def test_a_ratio_that_may_be_negative_has_no_logarithm():
    signed = replace(AT_MOST, signed=True)
    ratios = [-0.1, 0.1, 0.3]
    one = judged(signed, {"learn_one": ratios})
    half = stats.t.ppf(0.975, 2) * 0.2 / np.sqrt(3)
    assert one.interval == pytest.approx((0.1, 0.1 - half, 0.1 + half))
    assert one.verdict.outcome == "confirmed"


def test_the_best_setting_of_ours_and_the_best_policy_of_others_count():
    both = judged(AT_MOST, {"learn_one": around(1.3), "learn_one, compiled": around(1.1)})
    assert (both.row.name, both.verdict.outcome) == ("learn_one, compiled", "confirmed")
    two = {f"Avalanche, 10,000 stored, {name}": around(ratio) for name, ratio in (("a", 3.0), ("b", 1.0))}
    assert judged(AT_LEAST, two).verdict.outcome == "refuted"


def test_other_rows_do_not_count():
    other = Target("", "networks", "net", "", "floor", 1.0)
    rows = [row(other, "learn_one", 1.0), row(AT_MOST, "floor, compiled", 1.0), row(AT_LEAST, "learn_one", 1.0)]
    rows.append(Row("step", "net", "learn_one", 1.0, 1.0, 1.0))
    (one,) = judge(rows, [AT_MOST])
    assert one.verdict.outcome == "not run"
    assert one.row is None
    assert judged(AT_LEAST, {"Avalanche, 2,000 stored, reservoir": around(9.0)}).verdict.outcome == "not run"


def test_table():
    judgements = judge([row(AT_MOST, "learn_one, compiled", 1.0, 1.1, 1.2)], [AT_MOST, AT_LEAST])
    assert target_table(judgements)[1:] == [
        ["fast", "≤ 1.15", "1.10 (1.03-1.17)", "1.10 (0.87-1.38)", "not decided (learn_one, compiled)"],
        ["faster than others", "≥ 1.5", "", "", "not run"],
    ]


def test_every_target_is_about_a_part():
    from benchmarks import PARTS

    assert {target.part for target in TARGETS} <= PARTS.keys()
    assert len({target.text for target in TARGETS}) == len(TARGETS) == 22
