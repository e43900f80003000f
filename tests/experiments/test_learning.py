"""Learning works: the main job's own configuration against offline training, over three seeds."""

import numpy as np
import pytest

from coldstream import CSSL
from coldstream.data import digits
from coldstream.experiments import Experiment, make_config, run_jobs
from coldstream.experiments.config import DIGITS
from coldstream.streams import make_stream


@pytest.mark.slow
def test_cold_start_reaches_offline_on_digits(tmp_path):
    experiment = Experiment.create(make_config(DIGITS, ["seeds=[0, 1, 2]"]), tmp_path / "run")
    run_jobs(experiment)
    runs = experiment.results()["learners"]["cssl"]["runs"]
    offline = np.mean([run["offline"][-1]["accuracy"] for run in runs])
    streamed = np.mean([run["final_accuracy"] for run in runs])
    assert offline >= 0.97
    assert streamed >= 0.95 * offline


def test_a_small_cold_start_beats_chance_by_far():
    """Four classes, one after another: old classes are still known at the end."""
    train, test = digits()
    stream = make_stream(train, "class-incremental", 0, 2)
    steps = stream.events[1].step
    learner = CSSL(replay=30, augment="crop")
    for index in stream.order[:steps]:
        learner.learn_one(train.images[index], train.names[train.labels[index]])
    mine = test.take(np.flatnonzero(np.isin(test.labels, stream.events[1].classes)))
    guesses = learner.predict_many(mine.images)
    truth = [mine.names[label] for label in mine.labels]
    assert np.mean([guess == name for guess, name in zip(guesses, truth, strict=True)]) > 0.9
    first = [g == t for g, t in zip(guesses, truth, strict=True) if t == mine.names[stream.events[1].classes[0]]]
    assert np.mean(first) > 0.8
