"""Which slots are replayed: distributions against exact enumeration, with fixed seeds."""

import functools
import itertools
import tracemalloc
from collections import Counter
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import binom, binomtest, chisquare

from coldstream.randomness import generator
from coldstream.replay.index import Index
from coldstream.replay.sampling import SAMPLERS, class_balanced, get_sampler, least_replayed, uniform

RARE = 1e-4
"""The seeds are fixed: a p-value under this is a fault of the sampler, not bad luck."""


def make_index(labels, held_out=(), times=()):
    index = Index()
    for id, label in enumerate(labels):
        index.append(id, label, id in held_out)
    for slot, count in enumerate(times):
        index.times[slot] = count
    return index


def draws(sample, index, count, times):
    return [tuple(sample(index, count, generator(0, step, "sample")).tolist()) for step in range(times)]


def assert_equally_likely(outcomes, possible):
    counts = Counter(outcomes)
    assert set(counts) <= set(possible)
    assert chisquare([counts[outcome] for outcome in possible]).pvalue > RARE


# For every sampler.


@pytest.mark.parametrize("name", SAMPLERS)
@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 4), st.booleans()), max_size=40), st.integers(0, 45), st.integers(0, 2**32 - 1)
)
def test_distinct_training_rows_as_many_as_asked_for_or_all(name, examples, count, seed):
    index = make_index([label for label, _ in examples], {id for id, (_, held) in enumerate(examples) if held})
    slots = SAMPLERS[name](index, count, np.random.default_rng(seed)).tolist()
    training = {slot for slot, (_, held) in enumerate(examples) if not held}
    assert len(set(slots)) == len(slots) == min(count, len(training))
    assert set(slots) <= training


@pytest.mark.parametrize("name", SAMPLERS)
def test_an_empty_buffer_gives_no_rows(name):
    slots = SAMPLERS[name](Index(), 5, np.random.default_rng(0))
    assert slots.shape == (0,)
    assert slots.dtype == np.int64


@pytest.mark.parametrize("name", SAMPLERS)
def test_rows_are_a_function_of_the_generator_alone(name):
    index = make_index([i % 5 for i in range(100)], held_out={3, 50})
    before = index.state()
    first = draws(SAMPLERS[name], index, 10, 20)
    assert draws(SAMPLERS[name], index, 10, 20) == first
    assert len(set(first)) == 20
    for column, array in index.state().items():
        np.testing.assert_array_equal(array, before[column])


@functools.cache
def million(held_out):
    """Return an index of a million slots in a thousand classes, the first `held_out` of them held out."""
    slots = np.arange(1_000_000)
    index = Index()
    columns = {"ids": slots, "labels": slots % 1000, "serials": slots, "places": (slots - held_out) // 1000}
    index.restore({**columns, "times": slots % 7}, 1_000_000)
    assert index.held_out == held_out
    return index


@pytest.mark.parametrize("held_out", [0, 100_000])
@pytest.mark.parametrize("name", SAMPLERS)
def test_drawing_from_a_million_makes_no_list_of_a_million(name, held_out):
    index = million(held_out)
    SAMPLERS[name](index, 100, generator(0, 0, "sample"))
    tracemalloc.start()
    try:
        slots = SAMPLERS[name](index, 100, generator(0, 1, "sample"))
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert len(slots) == 100
    assert peak < 300_000  # a permutation of the slots would take 8,000,000; a thousand classes are listed


def test_names():
    assert get_sampler("uniform") is uniform
    assert get_sampler("class-balanced") is class_balanced
    assert get_sampler("least-replayed") is least_replayed
    with pytest.raises(ValueError, match="unknown sampling policy 'class_balanced'; did you mean 'class-balanced'"):
        get_sampler("class_balanced")


# Uniform.


@pytest.mark.parametrize(("stored", "count"), [(50, 7), (50, 49), (2, 1), (300, 3)])
def test_every_row_is_as_likely_in_every_place(stored, count):
    index = make_index([0] * stored)
    outcomes = draws(uniform, index, count, 5000)
    for place in {0, count // 2, count - 1}:
        assert_equally_likely([slots[place] for slots in outcomes], range(stored))


@pytest.mark.parametrize(("stored", "count"), [(5, 2), (5, 4), (4, 3)])
def test_every_subset_is_as_likely_in_every_order(stored, count):
    index = make_index([i % 2 for i in range(stored)])
    outcomes = draws(uniform, index, count, 5000)
    assert_equally_likely(
        [tuple(sorted(slots)) for slots in outcomes], list(itertools.combinations(range(stored), count))
    )
    assert_equally_likely(outcomes, list(itertools.permutations(range(stored), count)))


@pytest.mark.parametrize(
    ("stored", "held_out", "count"),
    [
        (12, {0, 3, 4, 7, 11}, 2),
        (12, {1, 2, 3, 4, 5, 6, 7, 8}, 2),
        (30, set(range(1, 27)), 2),
        (7, {6}, 3),
        (40, set(range(40)) - {0, 39, 20}, 1),
    ],
)
def test_held_out_rows_are_left_out_and_the_rest_stays_uniform(stored, held_out, count):
    index = make_index([i % 3 for i in range(stored)], held_out)
    training = [slot for slot in range(stored) if slot not in held_out]
    outcomes = draws(uniform, index, count, 5000)
    assert_equally_likely(outcomes, list(itertools.permutations(training, count)))


def test_all_but_one_of_the_training_rows():
    # The tightest case: of 60 slots 40 are held out, and 19 of the other 20 are wanted.
    index = make_index([0] * 60, held_out=set(range(0, 60, 3)) | set(range(1, 60, 3)))
    training = set(range(2, 60, 3))
    assert_equally_likely(
        [(training - set(slots)).pop() for slots in draws(uniform, index, 19, 4000)], sorted(training)
    )


# Class balanced.


def exact(classes, count, weight=lambda slot: 1):
    """Return the probability of every ordered outcome: a class among those with slots left, then one of them."""
    outcomes = {}

    def draw(left, drawn, chance):
        if len(drawn) == count:
            outcomes[drawn] = outcomes.get(drawn, 0) + chance
            return
        open_classes = [slots for slots in left if slots]
        for slots in open_classes:
            for slot in slots:
                rest = [tuple(r for r in each if r != slot) for each in left]
                share = Fraction(weight(slot)) / sum(Fraction(weight(each)) for each in slots)
                draw(rest, (*drawn, slot), chance / len(open_classes) * share)

    draw(classes, (), Fraction(1))
    assert sum(outcomes.values()) == 1
    return outcomes


@pytest.mark.parametrize(
    ("labels", "held_out", "count"),
    [
        ([0, 1, 1, 2, 2, 2], (), 3),
        ([0, 1, 1, 2, 2, 2], (), 5),
        ([4, 4, 4, 4, 1], (), 2),
        ([0, 0, 1, 1, 1, 2, 2], {0, 6}, 3),
        ([3, 3, 0, 0, 3], {2, 3}, 2),
    ],
)
def test_class_balanced_has_the_exact_distribution(labels, held_out, count):
    index = make_index(labels, held_out)
    groups = {}
    for slot, label in enumerate(labels):
        if slot not in held_out:
            groups.setdefault(label, []).append(slot)
    expected = exact([tuple(slots) for slots in groups.values()], count)
    times = 8_000
    counts = Counter(draws(class_balanced, index, count, times))
    assert set(counts) <= set(expected)
    observed = [counts[outcome] for outcome in expected]
    assert chisquare(observed, [float(chance) * times for chance in expected.values()]).pvalue > RARE


def test_class_frequencies_do_not_follow_class_sizes():
    labels = [0] * 400 + [1] * 40 + [2] * 4000 + [5] * 15
    index = make_index(np.random.default_rng(0).permutation(labels).tolist())
    outcomes = draws(class_balanced, index, 12, 1500)
    drawn = [index.labels[slot] for slots in outcomes for slot in slots]
    assert_equally_likely(drawn, [0, 1, 2, 5])
    members = [slot for slots in outcomes for slot in slots if index.labels[slot] == 5]
    assert_equally_likely(members, [slot for slot, label in enumerate(index.labels.view.tolist()) if label == 5])


def test_an_exhausted_class_leaves_its_turns_to_the_others():
    index = make_index([0, 0, 1] + [2] * 50 + [3] * 50)
    for slots in draws(class_balanced, index, 60, 50):
        counts = Counter(index.labels[slot] for slot in slots)
        assert counts[0] == 2
        assert counts[1] == 1
        assert counts[2] + counts[3] == 57
        assert min(counts[2], counts[3]) >= 7


# Least replayed.


def sets(outcomes):
    """Return the chance of every set of slots, whatever the order in which they are drawn."""
    chances = {}
    for slots, chance in outcomes.items():
        key = tuple(sorted(slots))
        chances[key] = chances.get(key, 0) + chance
    return chances


@pytest.mark.parametrize(
    ("labels", "held_out", "times", "count"),
    [
        ([0, 1, 1, 2, 2, 2], (), [5, 0, 2, 0, 3, 9], 3),
        ([0, 1, 1, 2, 2, 2], (), [0, 0, 0, 0, 0, 0], 4),
        ([4, 4, 4, 4, 1], (), [100, 0, 10, 1, 0], 2),
        ([0, 0, 1, 1, 1, 2, 2], {0, 6}, [0, 4, 1, 0, 7, 2, 0], 3),
        ([0, 0, 0, 0, 0], (), [0, 1, 3, 7, 15], 4),
    ],
)
def test_least_replayed_has_the_exact_distribution(labels, held_out, times, count):
    index = make_index(labels, held_out, times)
    groups = {}
    for slot, label in enumerate(labels):
        if slot not in held_out:
            groups.setdefault(label, []).append(slot)
    ordered = exact([tuple(slots) for slots in groups.values()], count, lambda slot: Fraction(1, 1 + times[slot]))
    expected = sets(ordered)
    repeats = 8_000
    counts = Counter(tuple(sorted(slots)) for slots in draws(least_replayed, index, count, repeats))
    assert set(counts) <= set(expected)
    observed = [counts[outcome] for outcome in expected]
    assert chisquare(observed, [float(chance) * repeats for chance in expected.values()]).pvalue > RARE


def test_of_a_large_class_any_sixteen_stand_for_the_whole():
    # One slot is wanted: of sixteen, drawn with replacement, one in proportion to its rate. 9 of 10 slots came up 8
    # times, the others never, so a set of n distinct new ones and m old ones gives a new one with n / (n + m / 9).
    index = make_index([0] * 5000, times=[0 if slot % 10 == 0 else 8 for slot in range(5000)])
    slots = np.array(draws(least_replayed, index, 1, 6000))[:, 0]
    new = slots % 10 == 0
    chances = [n / (n + (16 - n) / 9) for n in range(17)]  # of 5,000 slots hardly two of the sixteen are the same
    expected = sum(chance * binom.pmf(n, 16, 0.1) for n, chance in enumerate(chances))
    assert binomtest(int(new.sum()), len(new), expected).pvalue > RARE
    assert_equally_likely((slots[new] // 1000).tolist(), range(5))
    assert_equally_likely((slots[~new] // 1000).tolist(), range(5))


def test_least_replayed_takes_classes_in_turn_whatever_their_sizes():
    labels = [0] * 400 + [1] * 40 + [2] * 4000 + [5] * 15
    index = make_index(np.random.default_rng(0).permutation(labels).tolist())
    outcomes = draws(least_replayed, index, 12, 1500)
    assert_equally_likely([index.labels[slot] for slots in outcomes for slot in slots], [0, 1, 2, 5])


def test_a_late_example_catches_up():
    replayed = {}
    for sample in (uniform, least_replayed):
        index, rng = Index(), np.random.default_rng(0)
        for id in range(400):
            index.append(id, id % 4)
            index.times.view[sample(index, 20, rng)] += 1
        replayed[sample] = index.times.view.copy()
    early, late = slice(0, 100), slice(250, 350)
    assert replayed[uniform][early].mean() > 6 * replayed[uniform][late].mean()
    assert replayed[least_replayed][early].mean() < 3 * replayed[least_replayed][late].mean()
