"""What the measurements return, against definitions written out."""

import numpy as np
import pytest

from coldstream.theory.measurements import MEASUREMENTS, VIEWS, get_measurement
from coldstream.theory.measurements.bound import smallest_radius, third_term
from coldstream.theory.measurements.neighbourhood import DIRECTIONS, extra_units, nearest_units, products
from coldstream.theory.measurements.regret import labelled
from coldstream.theory.network import Network, loss
from coldstream.theory.ntrf import best_in_ball
from coldstream.theory.points import Point
from coldstream.theory.sizes import SIZES


def unit(count=1, inputs=6, seed=0):
    x = np.random.default_rng(seed).standard_normal((count, inputs))
    return x / np.linalg.norm(x, axis=1, keepdims=True)


@pytest.mark.parametrize("direction", DIRECTIONS)
def test_pairs_are_at_the_distance_and_keep_corollary_1(direction):
    point = Point(sweep="omega", direction=direction, omega=0.2, width=32, depth=4)
    numbers = MEASUREMENTS["neighbourhood"].measure(point, 0, None)
    assert numbers["distance"] == pytest.approx(0.2, rel=1e-6)
    assert numbers["defect beyond error"] <= 1e-12
    assert numbers["loss gradient"] < numbers["gradient"]
    assert 0 < numbers["rms error"] <= numbers["error"]


@pytest.mark.parametrize("depth", [3, 5])
def test_nearest_units_err_as_the_construction_says(depth):
    network, x = Network.initial(400, depth, 6, 0), unit()
    other = nearest_units(network, x, 0.05)
    assert network.distances(other) == pytest.approx([0.05] * (depth - 2))
    worst = abs(network.taylor_errors(other, x)[0])
    rng = np.random.default_rng(0)
    for _ in range(20):
        step = rng.standard_normal(network.hidden.shape)
        step *= 0.05 / np.linalg.norm(step, axis=(1, 2), keepdims=True)
        assert abs(network.taylor_errors(network.with_hidden(network.hidden + step), x)[0]) < worst / 20


def test_the_error_of_nearest_units_is_of_order_four_thirds():
    inputs, omegas = unit(12), np.array([0.003, 0.01, 0.03, 0.1])
    network = Network.initial(1000, 3, 6, 0)
    errors = [
        np.mean([abs(network.taylor_errors(nearest_units(network, x[None], omega), x[None])[0]) for x in inputs])
        for omega in omegas
    ]
    assert np.polyfit(np.log(omegas), np.log(errors), 1)[0] == pytest.approx(4 / 3, abs=0.1)


def test_products_are_those_of_the_matrices():
    point = Point(sweep="omega", width=40, depth=4, omega=0.01)
    network, x = Network.initial(40, 4, 6, 0), unit()
    other = nearest_units(network, x, 0.01)
    count = extra_units(point)
    assert count == int(np.ceil(40 * 0.01 ** (2 / 3) * 4))
    rows = []
    for one, added in ((other, count), (network, 0)):
        masks = [np.diag((g[0] > 0).astype(float)) for g in one.before_relu(x)]
        masks[2][np.argsort(-np.abs(network.last))[:added], np.argsort(-np.abs(network.last))[:added]] += 1
        rows.append(one.last @ masks[2] @ one.hidden[1] @ masks[1] @ one.hidden[0])
    assert products(network, other, x, 0.01) == pytest.approx(np.linalg.norm(rows[0] - rows[1]))


@pytest.mark.parametrize("replay", [0, 3])
def test_the_mended_regret_holds_up_to_the_convexity_error(replay):
    """The telescoped inequality, with the largest defect of the pairs (W^t, W*) in place of ε."""
    point = Point(sweep="test", steps=40, width=64, replay=replay, order="class", radius=5.0)
    stream, _ = point.examples(1, 1, None)
    numbers = labelled(point, stream, 1)
    assert MEASUREMENTS["regret"].measure(point, 1, None)["ratio"] >= numbers["ratio"]
    start = point.network(stream.x.shape[1], 1)
    fit = best_in_ball(start.gradients(stream.x), stream.y, 5.0 / 64, tolerance=1e-6)
    star = start.with_hidden(start.hidden + fit.step(start.gradients(stream.x)))
    network, energy, regret, epsilon, rows = start.copy(), 0.0, 0.0, 0.0, 0
    for step in point.algorithm().run(network, stream, 1):
        gradients = network.gradients(step.x)
        slopes = -step.y / (1 + np.exp(step.margins))
        inner = slopes * gradients.inner(star.hidden - network.hidden)
        defects = loss(step.y * star(step.x)) - loss(step.margins) - inner
        epsilon = max(epsilon, float(-defects.min()))
        regret += float((loss(step.margins) - loss(step.y * star(step.x))).sum())
        energy += float((step.update**2).sum())
        rows += len(step.y)
    rate = 64**-1.5
    right = float(((star.hidden - start.hidden) ** 2).sum()) / (2 * rate) + energy / (2 * rate)
    assert regret <= right + rows * max(epsilon, 0)
    assert numbers["exact right side"] == pytest.approx(right, rel=1e-6)
    assert numbers["total regret"] == pytest.approx(regret, rel=1e-6)
    assert numbers["terms"] == pytest.approx(3 * 25 / (2 * 8) + 40 * (replay + 1) * 3 / 8)


def test_shares_of_activations_are_counted_in_the_printed_interval():
    measure = MEASUREMENTS["activations"].measure
    plain = measure(Point(sweep="m", width=64), 0, None)
    assert plain["inside"] == 0
    assert plain["inside corrected"] > 0.9
    wide = measure(Point(sweep="m", width=64, perturbation="parallel", size=0.25), 0, None)
    assert wide["mean"] == pytest.approx(2.25, abs=0.6)
    assert wide["mean of x + xi"] == pytest.approx(2.25, abs=1e-5)


def test_the_third_term():
    point = Point(sweep="n", steps=100, replay=4, depth=3, width=256, size=0.5)
    assert third_term(point, 10) == pytest.approx((1.5**0.75 * 2 * 100 + 100) / (9 * np.log(256) ** 1.5))


def test_the_smallest_radius_is_where_the_first_term_crosses():
    rng = np.random.default_rng(0)
    network, x = Network.initial(32, 3, 6, 0), unit(10)
    y = np.where(rng.random(10) < 0.5, 1.0, -1.0)
    gradients = network.gradients(x)
    radius = smallest_radius(gradients, y, 1.0)
    assert 4 * best_in_ball(gradients, y, radius).value <= 1.0 + 1e-9
    assert 4 * best_in_ball(gradients, y, radius / 1.2).value > 1.0
    assert smallest_radius(gradients, y, 0.0) == float("inf")


def test_admissible_sizes_are_what_the_assumption_says():
    for size in SIZES:
        right = size.steps * size.replay * size.depth**6 * np.log(size.width) ** 3
        assert size.width == pytest.approx(right, rel=1e-6)
        assert size.third * size.depth**2 * np.log(size.width) ** 1.5 == pytest.approx(size.steps * size.replay**0.5)
        least = 10**size.log10_below_one if size.log10_below_one < 300 else None
        if least:
            assert size.steps * size.replay**0.5 == pytest.approx(size.depth**2 * np.log(least) ** 1.5)
        assert size.with_radius > 1


@pytest.mark.parametrize("name", ["iterates", "bound", "order", "practice"])
def test_a_measurement_gives_finite_numbers(name):
    point = Point(sweep="test", steps=24, width=32, replay=2)
    numbers = MEASUREMENTS[name].measure(point, 0, None)
    assert all(np.isfinite(value) for key, value in numbers.items() if key != "radius for half")
    assert 0 <= numbers.get("error", 0) <= 1


def test_iterates_report_the_largest_distance():
    point = Point(sweep="test", steps=20, width=32, replay=2)
    stream, _ = point.examples(200, 0, None)
    network = point.network(stream.x.shape[1], 0)
    start, far = network.copy(), 0.0
    for _ in point.algorithm().run(network, stream, 0):
        far = max(far, float(start.distances(network).max()))
    far = max(far, float(start.distances(network).max()))
    assert MEASUREMENTS["iterates"].measure(point, 0, None)["distance"] == pytest.approx(far)


def test_views_are_of_measurements():
    assert {*VIEWS.values()} <= {*MEASUREMENTS}
    assert get_measurement("convexity").name == "neighbourhood"
    with pytest.raises(ValueError, match="iterates"):
        get_measurement("iterate")


@pytest.mark.parametrize("name", MEASUREMENTS)
def test_every_point_can_be_measured_and_named(name):
    points = MEASUREMENTS[name].points((64, 512, 2048))
    assert len({point.label for point in points}) == len(points)
    for point in points:
        point.check()
        assert Point.of_label(point.label) == point


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"width": 8, "depth": 8}, "too small for depth"),
        ({"depth": 2}, "at least 3"),
        ({"radius": 0.0}, r"radius \(R\) is 0"),
        ({"radius": -3.0}, r"radius \(R\) is -3"),
        ({"kappa": float("nan")}, "κ"),
        ({"omega": 0.0}, "ω"),
        ({"size": -0.1}, "size"),
        ({"replay": -1}, "replay is -1"),
        ({"capacity": 0}, "capacity 0"),
        ({"data": "digit"}, "digits"),
    ],
)
def test_points_that_say_nothing_are_refused(changes, message):
    with pytest.raises(ValueError, match=message):
        Point(sweep="test", **changes).check()
