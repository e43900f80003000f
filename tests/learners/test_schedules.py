"""Learning rates against their formulas, computed by hand."""

import pytest

from coldstream import CSSL
from coldstream.learners.training.schedules import get_schedule


def test_constant():
    assert get_schedule("constant(0.01)")(500, None) == 0.01
    assert get_schedule(0.02)(0, 3) == 0.02


def test_linear_from_first_to_last_example_of_a_class():
    rate = get_schedule("linear(0.1, 0.001)")
    assert rate(0, 500) == 0.1
    assert rate(499, 500) == pytest.approx(0.001, abs=1e-12)
    assert rate(250, 501) == pytest.approx((0.1 + 0.001) / 2)
    assert rate(1, 100) == pytest.approx(0.1 + (0.001 - 0.1) / 99)
    assert rate(0, 1) == 0.1
    assert rate(700, 500) == pytest.approx(0.001)  # more came than were announced


def test_remind_steps():
    rate = get_schedule("remind(0.1)")
    gamma = 0.01 ** (100 / 1300)
    assert [rate(k, None) for k in (0, 99)] == [0.1, 0.1]
    assert rate(100, None) == pytest.approx(0.1 * gamma)
    assert rate(1299, None) == pytest.approx(0.1 * gamma**12)
    assert rate(1300, None) == pytest.approx(0.001)


def test_inverse_sqrt_needs_no_counts():
    rate = get_schedule("inverse-sqrt(0.1, 100)")
    assert rate(0, None) == 0.1
    assert rate(300, None) == pytest.approx(0.05)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("cosine(0.1)", "unknown rate 'cosine'"),
        ("constnat(0.1)", "did you mean 'constant'"),
        ("constant(-1)", "above 0"),
        ("constant(0.1, 2)", "constant"),
        ("linear(a, b)", "above 0"),
        ("linear(0.1", "cannot read"),
    ],
)
def test_wrong_rates(text, message):
    with pytest.raises(ValueError, match=message):
        get_schedule(text)


def test_linear_without_counts_is_refused_before_anything():
    with pytest.raises(ValueError, match="needs the class counts"):
        CSSL(rate="linear(0.1, 0.001)")


def test_each_class_has_its_own_counter(monkeypatch):
    import numpy as np

    learner = CSSL(model="linear", replay=2, rate="linear(0.1, 0.001)", counts={"a": 3, "b": 2})
    rates = []
    image = np.zeros((4, 4, 3), np.uint8)
    learner.learn_one(image, "a")
    update = learner.engine.update
    monkeypatch.setattr(
        learner.engine, "update", lambda *args, **more: (rates.append(args[3]), update(*args, **more))[1]
    )
    for label in ("b", "a", "b", "a"):
        learner.learn_one(image, label)
    assert rates == pytest.approx([0.1, 0.0505, 0.001, 0.001])
    before = learner.fingerprint()
    with pytest.raises(ValueError, match="label 'c' is not among the counts"):
        learner.learn_one(image, "c")
    assert learner.fingerprint() == before
