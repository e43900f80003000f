"""Learning works: the main job's own configuration against offline training, over three seeds."""

import numpy as np
import pytest

from coldstream import CSSL
from coldstream.data import digits
from coldstream.lab import Experiment, make_config, run_jobs
from coldstream.lab.config import DIGITS
from coldstream.streams import make_stream


@pytest.mark.slow
def test_cold_start_reaches_offline_on_digits(tmp_path):
    experiment = Experiment.create(make_config(DIGITS, ["seeds=[0, 1, 2]"]), tmp_path / "run")
    run_jobs(experiment)
    runs = experiment.results()["learners"]["cold-start"]["runs"]
    offline = np.mean([run["offline"][-1]["accuracy"] for run in runs])
    streamed = np.mean([run["final_accuracy"] for run in runs])
    assert offline >= 0.97
    assert streamed >= 0.95 * offline


def test_a_small_cold_start_beats_chance_by_far():
    """Four classes, one after another: old classes are still known at the end. The mean of three seeds."""
    train, test = digits()
    right, right_of_old = [], []
    for seed in range(3):
        stream = make_stream(train, "class-incremental", seed, 2)
        learner = CSSL(replay=30, augment="crop", seed=seed)
        for index in stream.order[: stream.events[1].step]:
            learner.learn_one(train.images[index], train.names[train.labels[index]])
        classes = stream.events[1].classes
        seen = test.take(np.flatnonzero(np.isin(test.labels, classes)))
        truth = [seen.names[label] for label in seen.labels]
        hits = [guess == name for guess, name in zip(learner.predict_many(seen.images), truth, strict=True)]
        right.append(np.mean(hits))
        newest = learner.classes_[-1]
        right_of_old.append(np.mean([hit for hit, name in zip(hits, truth, strict=True) if name != newest]))
    assert np.mean(right) > 0.9
    assert np.mean(right_of_old) > 0.9
