"""The best function of the NTRF class against a general solver, and its certificate against the truth."""

import numpy as np
import pytest
from scipy.optimize import minimize

from coldstream.theory.network import Network, loss
from coldstream.theory.ntrf import best_in_ball


def problem(width=10, depth=4, count=8, seed=0):
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((count, 5))
    hidden = rng.standard_normal((depth - 2, width, width)) * (2 / width) ** 0.5
    network = Network(rng.standard_normal((width, 5)) * (2 / width) ** 0.5, hidden, rng.standard_normal(width))
    return network, x, np.where(rng.random(count) < 0.5, 1.0, -1.0)


def by_scipy(network, x, y, radius):
    """Minimise over all entries of the trained matrices with SLSQP."""
    gradients = network.gradients(x)
    shape = network.hidden.shape
    whole = np.stack([gradients.combine(one) for one in np.eye(len(x))])

    def objective(flat):
        margins = y * (gradients.outputs + np.einsum("nlab,lab->n", whole, flat.reshape(shape)))
        slopes = -y / (1 + np.exp(margins)) / len(y)
        return loss(margins).mean(), np.einsum("n,nlab->lab", slopes, whole).ravel()

    constraints = [
        {
            "type": "ineq",
            "fun": lambda flat, layer=layer: radius**2 - np.sum(flat.reshape(shape)[layer] ** 2),
            "jac": lambda flat, layer=layer: _one_layer(-2 * flat.reshape(shape), layer),
        }
        for layer in range(shape[0])
    ]
    solved = minimize(
        objective,
        np.zeros(network.hidden.size),
        jac=True,
        constraints=constraints,
        method="SLSQP",
        options={"maxiter": 500, "ftol": 1e-10},
    )
    assert solved.success
    return solved.fun


def _one_layer(whole, layer):
    only = np.zeros_like(whole)
    only[layer] = whole[layer]
    return only.ravel()


@pytest.mark.parametrize("radius", [0.01, 0.1, 0.5])
def test_the_fit_is_that_of_a_general_solver(radius):
    network, x, y = problem()
    fit = best_in_ball(network.gradients(x), y, radius, tolerance=1e-8)
    assert fit.gap <= 1e-8
    assert fit.value == pytest.approx(by_scipy(network, x, y, radius), abs=1e-5)


@pytest.mark.parametrize("radius", [0.02, 0.3, 3.0])
@pytest.mark.parametrize("iterations", [3, 200])
def test_the_gap_bounds_the_distance_to_the_best(radius, iterations):
    network, x, y = problem(count=12)
    gradients = network.gradients(x)
    best = best_in_ball(gradients, y, radius, tolerance=1e-9, iterations=200_000)
    early = best_in_ball(gradients, y, radius, tolerance=1e-12, iterations=iterations)
    assert best.value - best.gap <= early.value <= best.value + best.gap + early.gap
    assert early.value - early.gap <= best.value


@pytest.mark.parametrize("radius", [0.02, 0.3])
def test_the_step_is_in_the_ball_and_has_the_value(radius):
    network, x, y = problem()
    gradients = network.gradients(x)
    fit = best_in_ball(gradients, y, radius)
    step = fit.step(gradients)
    assert np.linalg.norm(step, axis=(1, 2)).max() <= radius * (1 + 1e-9)
    assert loss(y * (gradients.outputs + gradients.inner(step))).mean() == pytest.approx(fit.value)


def test_a_larger_ball_is_not_worse():
    network, x, y = problem()
    values = [best_in_ball(network.gradients(x), y, radius, tolerance=1e-6).value for radius in (1e-6, 0.01, 0.1, 1)]
    assert values == sorted(values, reverse=True)
    assert values[0] == pytest.approx(loss(y * network(x)).mean(), abs=1e-4)


@pytest.mark.parametrize("radius", [0, -1.0, np.inf, np.nan])
def test_a_radius_must_be_positive(radius):
    network, x, y = problem()
    with pytest.raises(ValueError, match="radius of the NTRF class"):
        best_in_ball(network.gradients(x), y, radius)
