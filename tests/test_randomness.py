"""Draws that depend on (seed, step, role) and on nothing else."""

import random

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import chisquare, kstest

from coldstream.randomness import generator, torch_seed

ROLES = ["sample", "cutmix", "evict", "mix", "crop", "flip", "weights"]
triples = st.tuples(st.integers(0, 2**64 - 1), st.integers(0, 2**64 - 1), st.text(max_size=20))


def first_draws(steps, role="evict", seed=0):
    return np.array([generator(seed, step, role).random() for step in range(steps)])


@given(triples)
def test_the_same_triple_makes_the_same_draws(triple):
    one, other = generator(*triple), generator(*triple)
    np.testing.assert_array_equal(one.random(10), other.random(10))
    assert one.integers(1000) == other.integers(1000)
    assert torch_seed(*triple) == torch_seed(*triple)


@given(st.integers(0, 2**64 - 1), st.integers(0, 2**64 - 1), st.sampled_from(ROLES))
def test_another_seed_step_or_role_makes_others(seed, step, role):
    base = generator(seed, step, role).integers(2**63, size=4).tolist()
    others = [generator(seed ^ 1, step, role), generator(seed, step ^ 1, role), generator(step, seed ^ 1, role)]
    others += [generator(seed, step, other) for other in ROLES if other != role]
    drawn = {number for each in others for number in each.integers(2**63, size=4).tolist()}
    assert not drawn & set(base)


def test_no_triple_of_a_grid_repeats_another():
    grid = [(seed, step, role) for seed in range(12) for step in range(40) for role in ROLES]
    assert len({generator(*triple).integers(2**63) for triple in grid}) == len(grid)


def test_what_was_drawn_before_does_not_matter():
    expected = generator(3, 8, "evict").random(5)
    generator(3, 7, "evict").random(1000)
    generator(3, 8, "sample").random(1000)
    spent = generator(3, 8, "evict")
    spent.random(1000)
    np.testing.assert_array_equal(generator(3, 8, "evict").random(5), expected)


@pytest.mark.parametrize("step", [0, 1, 5, 2**32 - 1, 2**63, 2**64 - 2])
def test_two_steps_are_two_to_the_128_blocks_apart(step):
    # However much a step draws, it never reaches the numbers of the next: the generators are one sequence,
    # entered at distances that no one can draw.
    here, there = generator(9, step, "crop"), generator(9, step + 1, "crop")
    here.bit_generator.advance(2**128)
    np.testing.assert_array_equal(here.random(8), there.random(8))


def test_a_million_draws_stay_inside_their_step():
    rng = generator(9, 5, "crop")
    rng.random(1_000_000)
    counter = rng.bit_generator.state["state"]["counter"].tolist()
    assert counter == [250_000, 0, 5, 0]


def test_global_generators_are_neither_read_nor_moved():
    np.random.seed(1)  # noqa: NPY002
    random.seed(1)
    torch.manual_seed(1)
    expected = generator(0, 0, "evict").random(3).tolist(), torch_seed(0, 0, "weights")
    before = np.random.get_state()[1].tolist(), random.getstate(), torch.get_rng_state().tolist()  # noqa: NPY002
    generator(0, 1, "evict").random(100)
    torch_seed(0, 1, "evict")
    after = np.random.get_state()[1].tolist(), random.getstate(), torch.get_rng_state().tolist()  # noqa: NPY002
    assert before == after
    np.random.seed(2)  # noqa: NPY002
    assert (generator(0, 0, "evict").random(3).tolist(), torch_seed(0, 0, "weights")) == expected


@pytest.mark.parametrize("role", ["sample", "evict"])
def test_the_first_draw_of_each_step_is_uniform_over_the_steps(role):
    draws = first_draws(8000, role)
    assert kstest(draws, "uniform").pvalue > 1e-3
    picks = [int(generator(0, step, role).integers(7)) for step in range(8000)]
    assert chisquare(np.bincount(picks, minlength=7)).pvalue > 1e-3


def test_the_first_draw_of_each_seed_is_uniform_over_the_seeds():
    draws = [generator(seed, 0, "evict").random() for seed in range(8000)]
    assert kstest(draws, "uniform").pvalue > 1e-3


def correlated(one, other):
    """Return how many standard errors the correlation of two samples is from zero."""
    return abs(np.corrcoef(one, other)[0, 1]) * np.sqrt(len(one))


def test_steps_roles_and_seeds_are_uncorrelated():
    evict = first_draws(8000)
    for lag in (1, 2, 3, 64):
        assert correlated(evict[:-lag], evict[lag:]) < 4
    assert correlated(evict, first_draws(8000, "sample")) < 4
    assert correlated(evict, first_draws(8000, seed=1)) < 4
    assert correlated(evict[:-1], first_draws(8000, "sample")[1:]) < 4


@given(triples)
def test_torch_seeds_are_seeds_that_torch_takes(triple):
    seed = torch_seed(*triple)
    assert isinstance(seed, int)
    assert 0 <= seed < 2**63
    torch.Generator().manual_seed(seed)


def test_negative_seeds_are_seeds_too():
    assert generator(-1, 0, "evict").random() != generator(1, 0, "evict").random()
