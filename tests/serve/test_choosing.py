"""Which image to show next: each policy against its definition, and random choices against their distribution."""

import itertools

import numpy as np
import pytest
from scipy import stats

from coldstream.serve.choosing import DEFAULT, NEEDS_FEATURES, POLICIES, choose, far_apart


def some(seed=0, images=40, classes=5, size=6, labelled=7):
    rng = np.random.default_rng(seed)
    features = np.abs(rng.normal(size=(images + labelled, size)))
    return rng.dirichlet(np.ones(classes), images), features[:images], features[images:]


def places(policy, probabilities, features, labelled, count, seed=0):
    return [
        pick.place for pick in choose(policy, probabilities, features, labelled, count, np.random.default_rng(seed))
    ]


def angle(a, b):
    return 1 - a @ b / np.linalg.norm(a) / np.linalg.norm(b)


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("count", [1, 8, 40, 100])
def test_images_are_different_and_as_many_as_asked_for(policy, count):
    chosen = places(policy, *some(), count)
    assert len(chosen) == len(set(chosen)) == min(count, 40)
    assert set(chosen) <= set(range(40))
    assert places(policy, *some(), count) == chosen  # the same generator, the same choice


def test_doubt_is_the_smallest_margin():
    probabilities, *rest = some()
    margins = np.sort(probabilities, axis=1)
    margins = margins[:, -1] - margins[:, -2]
    assert places("margin", probabilities, *rest, 40) == np.argsort(margins).tolist()


def test_coverage_is_the_farthest_from_all_that_are_labelled_or_chosen():
    probabilities, features, labelled = some(3)
    centers, expected = list(labelled), []
    for _ in range(12):
        distances = [-1.0 if i in expected else min(angle(x, c) for c in centers) for i, x in enumerate(features)]
        expected.append(int(np.argmax(distances)))
        centers.append(features[expected[-1]])
    assert places("coverage", probabilities, features, labelled, 12) == expected


def test_many_labelled_images_are_compared_in_parts():
    _, features, labelled = some(5, labelled=700)
    chosen = far_apart(features, labelled, 1, np.random.default_rng(0))
    distances = [min(angle(x, c) for c in labelled) for x in features]
    assert chosen.tolist() == [int(np.argmax(distances))]


@pytest.mark.parametrize("seed", range(5))
def test_greedy_coverage_is_at_most_twice_the_best(seed):
    """For chords of the unit sphere, a metric that grows with the angle."""
    _, features, labelled = some(seed, images=12, labelled=2)
    unit = features / np.linalg.norm(features, axis=1, keepdims=True)
    first = labelled / np.linalg.norm(labelled, axis=1, keepdims=True)

    def radius(chosen):
        centers = np.concatenate([first, unit[list(chosen)]])
        return np.linalg.norm(unit[:, None] - centers, axis=2).min(axis=1).max()

    greedy = radius(far_apart(features, labelled, 3, np.random.default_rng(0)))
    assert greedy <= 2 * min(radius(chosen) for chosen in itertools.combinations(range(12), 3)) + 1e-9


def test_a_mixture_takes_turns():
    arguments = some(1)
    doubt, coverage = places("margin", *arguments, 8), places("coverage", *arguments, 8)
    assert places("mixture", *arguments, 2) == [doubt[0], coverage[0]]
    chosen = choose("mixture", *arguments, 8, np.random.default_rng(0))
    expected = list(dict.fromkeys(place for pair in zip(doubt, coverage, strict=True) for place in pair))[:8]
    assert [pick.place for pick in chosen] == expected
    assert {pick.why for pick in chosen} == {"doubt", "coverage"}
    assert chosen[0].why == "doubt"


def test_a_spread_choice_is_far_apart_among_the_most_doubtful():
    probabilities, features, labelled = some(2)
    doubtful = places("margin", probabilities, features, labelled, 12)
    among = far_apart(features[doubtful], labelled, 3, np.random.default_rng(0))
    assert places("spread", probabilities, features, labelled, 3) == [doubtful[place] for place in among]


@pytest.mark.parametrize(
    ("policy", "arguments"),
    [
        ("random", some(images=6)),
        ("margin", (np.full((6, 3), 1 / 3), None, None)),
        ("margin", (np.ones((6, 1)), None, None)),
        ("margin", (np.empty((6, 0)), None, None)),
        ("coverage", (np.full((6, 3), 1 / 3), some(images=6)[1], np.empty((0, 6)))),
    ],
)
def test_what_decides_nothing_is_drawn_at_random(policy, arguments):
    first = [places(policy, *arguments, 1, seed)[0] for seed in range(600)]
    assert stats.chisquare(np.bincount(first, minlength=6)).pvalue > 0.001


def test_features_of_length_zero_are_far_from_all():
    features = np.zeros((3, 4))
    features[0] = 1
    assert places("coverage", np.ones((3, 2)) / 2, features, np.ones((1, 4)), 3)[-1] == 0


def test_no_images_no_choice():
    for policy in POLICIES:
        assert choose(policy, np.empty((0, 3)), np.empty((0, 4)), np.empty((2, 4)), 5, np.random.default_rng(0)) == []


def test_what_is_missing_is_refused():
    assert DEFAULT in POLICIES
    with pytest.raises(ValueError, match="policy of the next image 'margins'; "):
        choose("margins", np.ones((1, 2)), None, None, 1, np.random.default_rng(0))
    for policy in NEEDS_FEATURES:
        with pytest.raises(ValueError, match="needs the features"):
            choose(policy, np.ones((1, 2)), None, None, 1, np.random.default_rng(0))
