"""The theory's network against loops over single units, autograd, and the exact law of its initial norms."""

import numpy as np
import pytest
import torch
from scipy import stats

from coldstream.theory.network import Network, check_size, loss, loss_slope, omega, relative_variance, smallest_width

SIZES = [(16, 3), (24, 4), (50, 6)]


def network_of(width=24, depth=4, inputs=5, seed=0):
    return Network.initial(width, depth, inputs, seed)


def inputs_of(count=6, inputs=5, seed=3):
    x = np.random.default_rng(seed).standard_normal((count, inputs))
    return x / np.linalg.norm(x, axis=1, keepdims=True)


def forward_by_hand(network, x):
    """Return f of one input, unit by unit."""
    h = list(x)
    for weights in [network.first, *network.hidden]:
        h = [max(0.0, sum(w * v for w, v in zip(row, h, strict=True))) for row in weights]
    return network.width**0.5 * sum(w * v for w, v in zip(network.last, h, strict=True))


@pytest.mark.parametrize(("width", "depth"), SIZES)
def test_forward(width, depth):
    network, x = network_of(width, depth), inputs_of()
    assert network(x) == pytest.approx([forward_by_hand(network, one) for one in x], rel=1e-12)
    assert network.gradients(x).outputs == pytest.approx(network(x), rel=1e-12)


@pytest.mark.parametrize(("width", "depth"), SIZES)
def test_gradients_are_those_of_autograd(width, depth):
    network, x = network_of(width, depth), inputs_of()
    gradients = network.gradients(x)
    hidden = torch.tensor(network.hidden, requires_grad=True)
    norms = gradients.norms()
    for i, one in enumerate(x):
        h = torch.relu(torch.tensor(network.first) @ torch.tensor(one))
        for weights in hidden:
            h = torch.relu(weights @ h)
        f = width**0.5 * torch.tensor(network.last) @ h
        (expected,) = torch.autograd.grad(f, hidden)
        only = np.zeros(len(x))
        only[i] = 1
        np.testing.assert_allclose(gradients.combine(only), expected.numpy(), atol=1e-12)
        assert norms[:, i] == pytest.approx(expected.flatten(1).norm(dim=1).numpy(), rel=1e-10)


def test_inner_products_and_grams_are_those_of_the_matrices():
    network, x = network_of(), inputs_of()
    gradients = network.gradients(x)
    whole = np.stack([gradients.combine(np.eye(len(x))[i]) for i in range(len(x))])
    step = np.random.default_rng(0).standard_normal(network.hidden.shape)
    np.testing.assert_allclose(gradients.inner(step), np.einsum("nlab,lab->n", whole, step), rtol=1e-10)
    np.testing.assert_allclose(gradients.grams(), np.einsum("nlab,klab->lnk", whole, whole), rtol=1e-10)


def test_the_taylor_error_is_zero_to_first_order():
    network, x = network_of(40, 4), inputs_of()
    direction = np.random.default_rng(1).standard_normal(network.hidden.shape)
    tiny = network.with_hidden(network.hidden + 1e-9 * direction)
    assert np.abs(network.taylor_errors(tiny, x)).max() < 1e-12
    large = network.with_hidden(network.hidden + 0.3 * direction)
    expected = large(x) - network(x) - network.gradients(x).inner(0.3 * direction)
    np.testing.assert_allclose(network.taylor_errors(large, x), expected, atol=1e-10)


@pytest.mark.parametrize("scale", [0.1, 1.7])
def test_everything_is_homogeneous_in_the_input(scale):
    network, x = network_of(30, 5), inputs_of()
    other = network.with_hidden(network.hidden * 1.05)
    np.testing.assert_allclose(network(scale * x), scale * network(x), rtol=1e-12)
    np.testing.assert_allclose(network.gradients(scale * x).norms(), scale * network.gradients(x).norms(), rtol=1e-12)
    np.testing.assert_allclose(
        network.taylor_errors(other, scale * x), scale * network.taylor_errors(other, x), rtol=1e-9
    )


def test_the_initial_weights_have_the_stated_variances():
    network = network_of(300, 4, 50)
    for weights, variance in [
        (network.first, 2 / 300),
        *((w, 2 / 300) for w in network.hidden),
        (network.last, 1 / 300),
    ]:
        scaled = weights.ravel() / variance**0.5
        assert stats.kstest(scaled, "norm").pvalue > 1e-3
        assert abs(scaled.var() - 1) < 5 * (2 / scaled.size) ** 0.5
    assert not np.array_equal(network.hidden[0], network.hidden[1])
    np.testing.assert_array_equal(network.hidden, network_of(300, 4, 50).hidden)


@pytest.mark.parametrize("layer", [1, 3])
def test_initial_norms_have_their_exact_law(layer):
    """Each layer multiplies ‖h‖² by (2/m) χ²_K with K binomial(m, 1/2), independently of the layers before."""
    width, draws = 32, 1500
    x = inputs_of(1)
    measured = [np.sum(network_of(width, 5, seed=seed).activations(x)[layer - 1] ** 2) for seed in range(draws)]
    rng = np.random.default_rng(7)
    units = rng.binomial(width, 0.5, size=(200_000, layer))
    expected = np.prod(2 / width * rng.gamma(units / 2 + 1e-300, 2.0), axis=1)
    assert stats.ks_2samp(measured, expected).pvalue > 1e-3
    variance = relative_variance(width, layer)
    assert abs(np.mean(measured) - 1) < 5 * (variance / draws) ** 0.5
    assert expected.var() == pytest.approx(variance, rel=0.05)


def test_loss_and_slope():
    z = np.array([-800.0, -3, 0, 2, 800])
    assert loss(z)[1:4] == pytest.approx(np.log(1 + np.exp(-z[1:4])))
    assert loss(z)[[0, 4]].tolist() == [800, 0]
    assert loss_slope(z) == pytest.approx([-1, -1 / (1 + np.exp(-3)), -0.5, -1 / (1 + np.exp(2)), 0])


@pytest.mark.parametrize(
    ("width", "depth", "message"),
    [(100, 2, "L must be at least 3"), (5, 8, "too small for depth L = 8"), (1, 3, "too small")],
)
def test_sizes_that_say_nothing_are_refused(width, depth, message):
    with pytest.raises(ValueError, match=message):
        check_size(width, depth)


def test_the_least_width_in_the_error_is_accepted():
    with pytest.raises(ValueError, match="m must be at least 49"):
        check_size(48, 8)
    check_size(49, 8)


def test_the_smallest_admissible_width_solves_its_equation():
    width = smallest_width(100, 10, 3, 0.5)
    assert width == pytest.approx(100 * 10 * 1.5**0.5 * 3**6 * np.log(width) ** 3, rel=1e-9)
    assert omega(1000, 3) == pytest.approx(3**-6 * np.log(1000) ** -3)
