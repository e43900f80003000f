"""Grids of settings, and base initialisation that a learner has for itself."""

import pytest
import yaml

from coldstream.lab.inputs import ExperimentInputs
from coldstream.lab.learners import base_of, learner_settings
from coldstream.lab.planning import make_plan
from coldstream.lab.reading import make_config, write_config

DATA = {"name": "digits", "classes": 2, "per_class": 4, "test_per_class": 4}
SLDA = {"kind": "deep-slda", "model": "resnet8-16"}


def test_every_point_of_a_grid_is_a_learner():
    grid = {"rate": ["constant(0.1)", "linear(0.1, 0.001)"], "replay": [5, 10]}
    learners = {"er": {"kind": "er", "momentum": 0.5, "grid": grid}, "cssl": {"kind": "cssl"}}
    config = make_config({"learners": learners})
    assert list(config.learners) == [
        "er, rate=constant(0.1), replay=5",
        "er, rate=constant(0.1), replay=10",
        "er, rate=linear(0.1, 0.001), replay=5",
        "er, rate=linear(0.1, 0.001), replay=10",
        "cssl",
    ]
    for name in list(config.learners)[:4]:
        _, settings = learner_settings(config, name)
        assert name == f"er, rate={settings['rate']}, replay={settings['replay']}"
        assert settings["momentum"] == 0.5
    assert make_config(yaml.safe_load(write_config(config))).learners.keys() == config.learners.keys()


def test_a_grid_of_base_initialisation():
    tree = {"base": {"epochs": 3, "batch": 8}, "learners": {"slda": {**SLDA, "grid": {"base.epochs": [1, 2]}}}}
    config = make_config(tree)
    assert [base_of(config, name).epochs for name in ("slda, base.epochs=1", "slda, base.epochs=2")] == [1, 2]
    assert {base_of(config, name).batch for name in config.learners} == {8}


def test_own_base_is_the_experiments_with_these_changes():
    """The job is the same whether the experiment or the learner says how to train."""

    def key(tree):
        config = make_config({"data": DATA, "offline": {"enabled": False}, **tree})
        return make_plan(config, ExperimentInputs(config), "").units["slda"][0]

    one = key({"base": {"epochs": 1}, "learners": {"slda": SLDA}})
    assert key({"base": {"epochs": 2}, "learners": {"slda": {**SLDA, "base": {"epochs": 1}}}}) == one
    assert key({"base": {"epochs": 2}, "learners": {"slda": SLDA}}) != one


@pytest.mark.parametrize(
    ("learner", "message"),
    [
        ({"grid": {}}, "settings with a list of values each"),
        ({"grid": {"rate": 0.1}}, "settings with a list of values each"),
        ({"grid": {"rate": []}}, "settings with a list of values each"),
        ({"grid": {"ratte": [1]}}, "did you mean 'rate'"),
        ({"base": 5}, "some of augment, batch"),
        ({"base": {"classes": 2}}, "some of augment, batch"),
        ({"base": {"epochs": -1}}, "setting 'learners.er.base.epochs': input should be"),
        ({"base": {"augment": "cropp"}}, "did you mean 'crop'"),
    ],
)
def test_refused(learner, message):
    with pytest.raises(ValueError, match=message):
        make_config({"learners": {"er": {"kind": "er", **learner}}})


def test_a_value_that_comes_twice_is_refused():
    with pytest.raises(ValueError, match="two learners have the name 'er, rate=constant\\(0.1\\)'"):
        make_config({"learners": {"er": {"kind": "er", "grid": {"rate": ["constant(0.1)", "constant(0.1)"]}}}})


def test_a_base_that_nothing_would_use_is_refused():
    with pytest.raises(ValueError, match="learner 'er' \\(ER\\) has no base initialisation; leave base out"):
        make_config({"learners": {"er": {"kind": "er", "base": {"epochs": 3}}}})
    given = {"kind": "er", "init": "base", "base": {"epochs": 3}}
    assert make_config({"learners": {"er": given}}).learners["er"]["base"] == {"epochs": 3}
