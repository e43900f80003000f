"""Running accuracy over the stream."""

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from coldstream.metrics import Prequential

streams = st.lists(st.booleans(), max_size=40)
windows = st.integers(1, 12)


def run(running, stream):
    for correct in stream:
        running.update(correct)
    return running


def test_by_hand():
    running = Prequential(window=3)
    assert (running.cumulative, running.windowed) == (None, None)
    seen = []
    for correct in [True, True, False, False, True]:
        running.update(correct)
        seen.append((running.cumulative, running.windowed))
    assert seen == [(1.0, 1.0), (1.0, 1.0), (2 / 3, 2 / 3), (0.5, 1 / 3), (0.6, 1 / 3)]
    assert (running.count, running.correct) == (5, 3)


@given(streams, windows)
def test_equals_means_over_the_history(stream, window):
    running = Prequential(window)
    for t, correct in enumerate(stream, start=1):
        running.update(correct)
        recent = stream[max(0, t - window) : t]
        assert running.cumulative == sum(stream[:t]) / t
        assert running.windowed == sum(recent) / len(recent)


@given(streams, streams, windows)
def test_a_resumed_one_equals_one_that_ran_straight_through(before, after, window):
    saved = json.loads(json.dumps(run(Prequential(window), before).to_dict()))
    resumed = run(Prequential.from_dict(saved), after)
    straight = run(Prequential(window), before + after)
    assert resumed.to_dict() == straight.to_dict()
    assert (resumed.cumulative, resumed.windowed) == (straight.cumulative, straight.windowed)


def test_the_state_is_a_copy():
    running = run(Prequential(4), [True])
    saved = running.to_dict()
    saved["recent"].append(0)
    assert running.to_dict()["recent"] == [1]


def test_numpy_booleans_are_booleans():
    running = run(Prequential(2), np.array([True, False]))
    assert json.dumps(running.to_dict()) == '{"window": 2, "count": 2, "correct": 1, "recent": [1, 0]}'


@pytest.mark.parametrize("wrong", [1, 0.5, None, float("nan"), np.array([True, False])])
def test_update_takes_only_booleans(wrong):
    running = Prequential()
    with pytest.raises(ValueError, match="correct: expected True or False"):
        running.update(wrong)
    assert running.count == 0


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"window": 0}, "window: expected an integer >= 1, got 0"),
        ({"count": -1}, "count: expected an integer >= 0, got -1"),
        ({"correct": 6}, "correct: expected an integer from 0 to 5, got 6"),
        ({"recent": [1]}, "recent: expected the last 2 examples, got 1"),
        ({"recent": [1, 3]}, r"recent: expected True/False or 1/0, got 3 at \[1\]"),
        ({"recent": 2}, "recent: expected a list, got 2"),
        ({"correct": 0}, "0 of 5 does not agree with 1 of the last 2"),
        ({"correct": 5}, "5 of 5 does not agree with 1 of the last 2"),
        ({"extra": 1}, "Prequential: expected a dict with the keys"),
    ],
)
def test_a_damaged_state_is_refused(change, message):
    good = {"window": 2, "count": 5, "correct": 3, "recent": [1, 0]}
    assert Prequential.from_dict(good).to_dict() == good
    with pytest.raises(ValueError, match=message):
        Prequential.from_dict(good | change)
