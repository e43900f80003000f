"""Algorithm 1 of the theory against a hand-written loop, and its data and perturbations against their promises."""

import numpy as np
import pytest

from coldstream.randomness import generator
from coldstream.theory.algorithm import Algorithm
from coldstream.theory.examples import DIMENSION, from_images, on_sphere, separation, stream_and_test
from coldstream.theory.network import Network
from coldstream.theory.perturbations import draw, input_gradients

SPHERE = np.random.default_rng(0).standard_normal((40, 6))
SPHERE /= np.linalg.norm(SPHERE, axis=1, keepdims=True)


def gradient_by_hand(weights, x, y):
    """Return the gradient of log(1 + exp(-y f(x))) with respect to each matrix, one example, plain loops."""
    width = len(weights[0])
    before, h = [], [x]
    for w in weights[:-1]:
        before.append(w @ h[-1])
        h.append(np.where(before[-1] > 0, before[-1], 0))
    f = np.sqrt(width) * weights[-1] @ h[-1]
    back = -y / (1 + np.exp(y * f)) * np.sqrt(width) * weights[-1]
    gradients = []
    for w, g, inputs in zip(weights[-2::-1], before[::-1], h[-2::-1], strict=True):
        back = np.where(g > 0, back, 0)
        gradients.append(np.outer(back, inputs))
        back = w.T @ back
    return gradients[::-1]


def by_hand(network, stream, seed, *, kappa, replay, capacity, perturbation="none", size=0.0):
    """Return the trained layers after every step, from Algorithm 1 written with lists."""
    weights = [network.first.copy(), *(w.copy() for w in network.hidden), network.last.copy()]
    buffer, after = [], []
    for t, (x, y) in enumerate(zip(stream.x, stream.y, strict=True)):
        batch = [(x, y)]
        if replay and buffer:
            rng = generator(seed, t, "theory sample")
            slots = range(len(buffer)) if replay >= len(buffer) else rng.choice(len(buffer), replay, replace=False)
            batch += [buffer[slot] for slot in slots]
        xs, ys = np.stack([b[0] for b in batch]), np.array([b[1] for b in batch])
        now = Network(weights[0], np.stack(weights[1:-1]), weights[-1])
        xs = xs + draw(perturbation, size, xs, ys, now, generator(seed, t, "theory perturbation"))
        total = [np.zeros_like(w) for w in weights[:-1]]
        for one, label in zip(xs, ys, strict=True):
            for sum_, gradient in zip(total, gradient_by_hand(weights, one, label), strict=True):
                sum_ += gradient
        for layer in range(1, len(weights) - 1):
            weights[layer] = weights[layer] - kappa * network.width**-1.5 * total[layer]
        after.append(np.stack(weights[1:-1]))
        buffer.append((x, y))
        if capacity is not None and len(buffer) > capacity:
            slot = int(generator(seed, t, "theory evict").integers(len(buffer)))
            buffer[slot] = buffer[-1]
            buffer.pop()
    return np.stack(after)


@pytest.mark.parametrize(
    "settings",
    [
        {"kappa": 1.0, "replay": 4, "capacity": 6},
        {"kappa": 0.3, "replay": 0, "capacity": None},
        {"kappa": 1.0, "replay": 5, "capacity": None, "perturbation": "gaussian", "size": 0.5},
    ],
)
def test_the_update_is_that_of_the_paper(settings):
    stream, _ = stream_and_test("clusters", 30, 5, "iid", seed=1)
    network = Network.initial(20, 4, DIMENSION, seed=2)
    expected = by_hand(network, stream, 5, **settings)
    trained = network.copy()
    before = trained.hidden.copy()
    for step in Algorithm(**settings).run(trained, stream, 5):
        np.testing.assert_allclose(trained.hidden, before if step.t == 0 else expected[step.t - 1], atol=1e-10)
        np.testing.assert_allclose(trained.hidden + step.update, expected[step.t], atol=1e-10)
        assert len(step.x) == 1 + min(settings["replay"], step.t, settings["capacity"] or 99)
    np.testing.assert_allclose(trained.hidden, expected[-1], atol=1e-10)
    assert np.abs(trained.hidden - network.hidden).max() > 1e-3


def test_the_same_seed_gives_the_same_bits():
    stream, _ = stream_and_test("digits", 30, 5, "iid", seed=0)
    algorithm = Algorithm(replay=3, perturbation="crops and flips")
    runs = []
    for seed in (0, 0, 1):
        network = Network.initial(16, 3, DIMENSION, seed=0)
        for _ in algorithm.run(network, stream, seed):
            pass
        runs.append(network.hidden)
    assert np.array_equal(runs[0], runs[1])
    assert not np.array_equal(runs[0], runs[2])


@pytest.mark.parametrize("kind", ["sphere", "orthogonal", "parallel", "opposed", "adversarial"])
def test_perturbations_have_the_given_size(kind):
    network = Network.initial(30, 4, 6, seed=0)
    y = np.where(np.arange(len(SPHERE)) % 2, 1.0, -1.0)
    xi = draw(kind, 0.3, SPHERE, y, network, np.random.default_rng(1))
    np.testing.assert_allclose(np.sum(xi * xi, axis=1), 0.3)
    cosines = np.sum(xi * SPHERE, axis=1) / 0.3**0.5
    if kind in ("orthogonal", "parallel", "opposed"):
        np.testing.assert_allclose(cosines, {"orthogonal": 0, "parallel": 1, "opposed": -1}[kind], atol=1e-12)


def test_gaussian_perturbations_have_the_size_on_average():
    x = np.repeat(SPHERE, 500, axis=0)
    xi = draw("gaussian", 0.3, x, np.ones(len(x)), None, np.random.default_rng(0))
    squares = np.sum(xi * xi, axis=1)
    assert abs(squares.mean() - 0.3) < 5 * squares.std() / len(x) ** 0.5


def test_the_gradient_by_input_is_a_difference_quotient():
    network = Network.initial(30, 5, 6, seed=0)
    y = np.where(np.arange(len(SPHERE)) % 2, 1.0, -1.0)
    gradient = input_gradients(network, SPHERE, y)
    for place in range(6):
        step = np.zeros(6)
        step[place] = 1e-6
        losses = [np.logaddexp(0, -y * network(SPHERE + sign * step)) for sign in (1, -1)]
        np.testing.assert_allclose((losses[0] - losses[1]) / 2e-6, gradient[:, place], atol=1e-5)


@pytest.mark.parametrize("name", ["digits", "clusters", "one label then the other"])
@pytest.mark.parametrize("order", ["iid", "class"])
def test_data_are_on_the_sphere_with_both_labels(name, order):
    stream, test = stream_and_test(name, 100, 50, order, seed=0)
    for part in (stream, test):
        np.testing.assert_allclose(np.linalg.norm(part.x, axis=1), 1, atol=1e-6)
        assert {*part.y} == {-1.0, 1.0}
    assert len(stream) == 100
    assert separation(np.concatenate([stream.x, test.x])) > 0
    sorted_ = (np.diff(stream.y) <= 0).all()
    assert sorted_ == (order == "class" or name == "one label then the other")


def test_separation_is_the_smallest_distance():
    distances = [np.linalg.norm(a - b) for i, a in enumerate(SPHERE) for b in SPHERE[:i]]
    assert separation(SPHERE) == pytest.approx(min(distances))


def test_crops_are_measured_in_the_norm_of_the_data():
    stream, _ = stream_and_test("digits", 20, 5, "iid", seed=0)
    places = np.arange(20)
    xi = stream.augmented(places, "crop|flip", 0, 0)
    assert (np.sum(xi * xi, axis=1) > 0).any()
    np.testing.assert_allclose(stream.augmented(places, "none", 0, 0), 0, atol=1e-6)


def test_large_images_are_projected():
    images = np.random.default_rng(0).integers(0, 256, (5, 12, 12, 3), dtype=np.uint8)
    examples = from_images(images, np.ones(5))
    assert examples.x.shape == (5, DIMENSION)
    np.testing.assert_allclose(np.linalg.norm(examples.x, axis=1), 1, atol=1e-6)
    np.testing.assert_allclose(examples.augmented(np.arange(5), "none", 0, 0), 0, atol=1e-6)


def test_data_without_length_are_refused():
    with pytest.raises(ValueError, match="example 1 is zero everywhere"):
        from_images(np.array([[[[3]]], [[[0]]]], np.uint8), np.ones(2))
    with pytest.raises(ValueError, match="example 0 has a value that is not finite"):
        on_sphere(np.array([[np.nan, 1.0]]))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("digit", 10, 5, "iid"), "digits"),
        (("digits", 1797, 5, "iid"), "fewer than 1797"),
        (("digits", 1, 5, "iid"), "at least 2 examples"),
        (("digits", 10, 5, "sorted"), "iid"),
    ],
)
def test_wrong_data_are_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        stream_and_test(*arguments, seed=0)


def test_clusters_cannot_be_cropped():
    stream, _ = stream_and_test("clusters", 10, 5, "iid", seed=0)
    with pytest.raises(ValueError, match="need images"):
        stream.augmented(np.arange(3), "crop", 0, 0)
