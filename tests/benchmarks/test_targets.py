"""Verdicts follow from the numbers."""

import pytest

from coldstream.benchmarks.measuring import Row
from coldstream.benchmarks.report import verdict_table
from coldstream.benchmarks.targets import TARGETS, Target, judge

AT_MOST = Target("fast", "step", "net", "learn_one", "floor", 1.15)
AT_LEAST = Target("faster than others", "peers", "net", "Avalanche, 10,000", "learn_one", 1.5, at_least=True)


def row(target, name, ratio):
    return Row(target.part, target.group, name, 2.0, 1.0, 3.0, "ms", ratio, ratio - 0.1, ratio + 0.1, target.to)


def verdict(target, *pairs):
    (found,) = judge([row(target, name, ratio) for name, ratio in pairs], [target])
    return found.verdict


@pytest.mark.parametrize(
    ("ratio", "expected"),
    [(1.0, "met"), (1.15, "met"), (1.15 * 1.08, "missed by 8%"), (2.3, "missed by 100%")],
)
def test_at_most(ratio, expected):
    assert verdict(AT_MOST, ("learn_one", ratio)) == expected


@pytest.mark.parametrize(("ratio", "expected"), [(1.5, "met"), (3.0, "met"), (1.2, "missed by 25%")])
def test_at_least(ratio, expected):
    assert verdict(AT_LEAST, ("Avalanche, 10,000 stored, reservoir", ratio)) == expected


def test_the_best_setting_of_ours_and_the_best_policy_of_others_count():
    assert verdict(AT_MOST, ("learn_one", 1.3), ("learn_one, compiled", 1.1)) == "met"
    two = ("Avalanche, 10,000 stored, reservoir", 3.0), ("Avalanche, 10,000 stored, class-balanced", 1.0)
    assert verdict(AT_LEAST, *two) == "missed by 50%"


def test_other_rows_do_not_count():
    other = Target("", "networks", "net", "", "floor", 1.0)
    rows = [row(other, "learn_one", 1.0), row(AT_MOST, "floor, compiled", 1.0), row(AT_LEAST, "learn_one", 1.0)]
    rows.append(Row("step", "net", "learn_one", 1.0, 1.0, 1.0))
    (found,) = judge(rows, [AT_MOST])
    assert found.verdict == "not measured"
    assert found.row is None
    assert verdict(AT_LEAST, ("Avalanche, 2,000 stored, reservoir", 9.0)) == "not measured"


def test_table():
    verdicts = judge([row(AT_MOST, "learn_one, compiled", 1.1)], [AT_MOST, AT_LEAST])
    assert verdict_table(verdicts)[1:] == [
        ["fast", "≤ 1.15", "1.10 (1.00-1.20)", "met (learn_one, compiled)"],
        ["faster than others", "≥ 1.5", "", "not measured"],
    ]


def test_every_target_is_about_a_part():
    from coldstream.benchmarks import PARTS

    assert {target.part for target in TARGETS} <= PARTS.keys()
    assert len({target.text for target in TARGETS}) == len(TARGETS) == 13
