"""Every order is as likely as every other."""

from itertools import groupby
from math import factorial

import numpy as np
import pytest
from scipy.stats import binomtest, chi2

from coldstream.streams import make_stream

SEEDS = 1200


def p_value(counts, outcomes):
    """Return the p-value of counts under equal chances, outcomes that never came included."""
    expected = SEEDS / outcomes
    missing = outcomes - len(counts)
    statistic = sum((count - expected) ** 2 / expected for count in counts) + missing * expected
    return chi2.sf(statistic, outcomes - 1)


def orders(data, ordering, key, **options):
    """Count the orders in which the things told apart by `key` come, over many seeds."""
    counts = {}
    for seed in range(SEEDS):
        order = make_stream(data, ordering, seed, **options).order
        came = tuple(thing for thing, _ in groupby(order.tolist(), key=key))
        counts[came] = counts.get(came, 0) + 1
    return counts


@pytest.mark.parametrize("ordering", ["class-incremental", "class-iid", "class-instance"])
def test_class_order(build, grid, ordering):
    data = build(grid(4, 1, 1, 1))
    one_each = {} if ordering == "class-incremental" else {"classes_per_batch": 1}
    counts = orders(data, ordering, lambda i: i, **one_each)
    assert p_value(counts.values(), factorial(4)) > 0.001


@pytest.mark.parametrize("ordering", ["class-incremental", "class-iid", "iid"])
def test_examples_of_one_class(build, grid, ordering):
    counts = orders(build(grid(1, 1, 1, 4)), ordering, lambda i: i)
    assert p_value(counts.values(), factorial(4)) > 0.001


def test_examples_of_two_classes_are_mixed(build, grid):
    counts = orders(build(grid(2, 1, 1, 2)), "class-iid", lambda i: i)
    assert p_value(counts.values(), factorial(4)) > 0.001


@pytest.mark.parametrize("ordering", ["instance", "class-instance"])
def test_clips(build, grid, ordering):
    rows = grid(2, 1, 2, 2)
    counts = orders(build(rows), ordering, lambda i: rows[i][:3])
    assert p_value(counts.values(), factorial(4)) > 0.001


def test_every_example_in_every_place_of_an_iid_stream(build, grid):
    data = build(grid(3, 1, 1, 3))
    places = np.zeros((9, 9), int)
    for seed in range(SEEDS):
        places[np.arange(9), make_stream(data, "iid", seed).order] += 1
    for place in places:
        assert p_value(place, 9) > 0.001
    for end in (0, -1):
        assert p_value(places[end].reshape(3, 3).sum(axis=1), 3) > 0.001


@pytest.mark.parametrize("ordering", ["class-incremental", "class-iid", "class-instance"])
def test_classes_draw_apart(build, grid, ordering):
    """Two classes of equal shape are not shuffled alike."""
    data = build(grid(2, 3, 1, 1))
    one_each = {} if ordering == "class-incremental" else {"classes_per_batch": 1}
    same = 0
    for seed in range(SEEDS):
        order = make_stream(data, ordering, seed, **one_each).order % 3
        same += (order[:3] == order[3:]).all()
    assert binomtest(int(same), SEEDS, 1 / 6).pvalue > 0.001


@pytest.mark.parametrize("pair", [("iid", "class-iid"), ("instance", "class-instance")])
def test_orderings_draw_apart(build, grid, pair):
    """Two orderings that could make the same orders here do not make them for the same seeds."""
    data = build(grid(2, 2, 1, 1))
    same = sum(
        (make_stream(data, pair[0], s).order == make_stream(data, pair[1], s).order).all() for s in range(SEEDS)
    )
    assert binomtest(int(same), SEEDS, 1 / factorial(4)).pvalue > 0.001
