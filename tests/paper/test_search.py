"""The search for settings: what is searched, on which images, and what it chooses."""

from pathlib import Path

import numpy as np
import pytest

from coldstream.lab.inputs import ExperimentInputs
from coldstream.lab.reading import make_config
from coldstream.paper import EXPERIMENTS, baselines, search
from coldstream.report.kept import KeptPart, KeptResults, KeptRun, read_kept


def results_of(accuracy):
    """Kept results of every point of every grid; `accuracy` is a function of (method, values)."""
    parts = {}
    for name, grid in {**search.GRIDS, "offline": search.OFFLINE}.items():
        learners = {
            point: [KeptRun(seed=0, numbers={"final_accuracy": accuracy(name, values)}, events=[])]
            for point, values in search._values(name, grid).items()
        }
        parts[name] = KeptPart(examples=1, learners=learners)
    return KeptResults(experiment="search", scale="lab", environment=None, parts=parts)


def test_the_best_is_chosen():
    middle = {name: {key: grid["grid"][key][1] for key in grid["grid"]} for name, grid in search.GRIDS.items()}
    middle["offline"] = {key: values[1] for key, values in search.OFFLINE["grid"].items()}
    choice = search.chosen(results_of(lambda name, values: 0.5 + (values == middle[name])))
    assert choice == middle
    assert search.at_the_edge(choice) == []


def test_of_equals_the_first_is_chosen_and_it_is_at_the_edge():
    choice = search.chosen(results_of(lambda name, values: 0.5))
    assert choice["icarl"] == {"epochs": 20, "rate": 0.1}
    edges = search.at_the_edge(choice)
    assert "icarl: epochs=20" in edges
    keys = sum(len(grid["grid"]) for grid in (*search.GRIDS.values(), search.OFFLINE))
    assert len(edges) == keys


def test_what_was_not_run_is_not_chosen():
    assert search.chosen(KeptResults(experiment="search", environment=None, parts={})) == {}


@pytest.mark.parametrize("part", EXPERIMENTS["search"].configs("lab"))
def test_every_point_is_valid_and_no_grid_is_too_short(part):
    config = make_config(EXPERIMENTS["search"].configs("lab")[part])
    grid = {**search.GRIDS, "offline": search.OFFLINE}[part]["grid"]
    assert len(config.learners) == np.prod([len(values) for values in grid.values()])
    assert all(len(values) >= 3 for key, values in grid.items() if key != "augment")
    assert config.data.validation == search.HELD_OUT


def test_no_test_image_has_a_part_in_it():
    """Trained on is what the lab trains on, tested on are other training images."""
    small = ["data.name=digits", "data.classes=10", "data.per_class=20"]
    config = make_config(EXPERIMENTS["search"].configs("lab")["er"], [*small, "data.validation=30"])
    ((train, test),) = ExperimentInputs(config).datasets.values()
    whole = make_config(EXPERIMENTS["T:compress"].configs("lab")["CIFAR100"], small)
    ((streamed, tested),) = ExperimentInputs(whole).datasets.values()
    assert train.fingerprint() == streamed.fingerprint()
    assert not {*test.identities()} & {*train.identities(), *tested.identities()}
    assert len(test) == 300


def test_what_was_chosen_is_not_at_the_edge():
    kept = read_kept("search", "lab", Path(__file__).parents[2] / "docs" / "results")
    if kept is None:
        pytest.skip("the search was not run yet")
    edges = search.at_the_edge(search.chosen(kept))
    assert {edge.partition(":")[0] for edge in edges} == {*search.UNSETTLED}


def test_the_baselines_have_the_chosen_settings():
    kept = read_kept("search", "lab", Path(__file__).parents[2] / "docs" / "results")
    if kept is None:
        pytest.skip("the search was not run yet")
    settled = {name: values for name, values in search.chosen(kept).items() if name not in search.UNSETTLED}
    assert settled == baselines.CHOSEN
    assert settled.keys() | {*search.UNSETTLED} == {*search.GRIDS, "offline"}
    offline = read_kept("search", "lab", Path(__file__).parents[2] / "docs" / "results").parts["offline"].learners
    reference, best = (
        offline[f"offline, epochs={epochs}, rate=0.3"][0].numbers["final_accuracy"] for epochs in (200, 400)
    )
    assert baselines.OFFLINE["epochs"] == 200
    assert best - reference == pytest.approx(0.024)
