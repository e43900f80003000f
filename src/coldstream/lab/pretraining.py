"""Weights that learners with `init: pretrained` begin from: their own network, trained offline on other classes."""

from __future__ import annotations

import time

import numpy as np
import safetensors.torch

from coldstream.checkpoint import write_atomically
from coldstream.data import Dataset
from coldstream.lab.config import NETWORK, PRETRAINED, Config, Settings
from coldstream.lab.environment import describe_environment
from coldstream.lab.evaluation import evaluate
from coldstream.lab.inputs import ExperimentInputs
from coldstream.lab.jobs import Job, Stopped, Watch
from coldstream.lab.keys import key_of, learner_version
from coldstream.lab.learners import learner_settings
from coldstream.lab.plan import PlannedPretraining
from coldstream.lab.records import JobTiming, PretrainResult
from coldstream.learners import CSSL
from coldstream.streams import Event


def plan_pretraining(config: Config, inputs: ExperimentInputs, name: str, seed: int) -> PlannedPretraining | None:
    """Return the job that makes the weights a learner begins from, where these are pre-trained."""
    if config.pretrain is None or learner_settings(config, name)[1].get("init") != PRETRAINED:
        return None
    train, test = inputs.pretraining
    recipe, code = config.pretrain.recipe(), learner_version(CSSL, __name__)
    dependencies: Settings = {
        "network": _network(config, name, seed),
        "threads": config.threads,
        "train": train.fingerprint(),
        "test": test.fingerprint(),
        "recipe": str(recipe),
        "code": code,
    }
    return PlannedPretraining(
        key=key_of(dependencies),
        title=f"pre-training, {len(train.names)} classes, seed {seed}",
        total=recipe.epochs,
        learner=name,
        seed=seed,
        code=code,
    )


def _network(config: Config, name: str, seed: int) -> Settings:
    """Return the settings of the network that is trained; it begins from random weights."""
    _, settings = learner_settings(config, name)
    return {**{key: settings[key] for key in NETWORK if key in settings}, "init": "random", "seed": seed}


def run(job: Job, watch: Watch) -> None:
    """Train a network offline and leave the weights of its body in a file."""
    config, inputs, planned = job.experiment.config, job.experiment.inputs, job.planned
    again = plan_pretraining(config, inputs, planned.learner, planned.seed)
    job.check_key(again.key if again else "")
    assert config.pretrain is not None
    (train, test), recipe = inputs.pretraining, config.pretrain.recipe()
    begin = time.perf_counter()

    def watched(epoch: int) -> None:
        if watch(epoch, recipe.epochs, "") and epoch < recipe.epochs:
            raise Stopped

    watched(0)
    learner = CSSL(**_network(config, planned.learner, planned.seed))
    learner.base_init(train, recipe, watched)
    body = learner.engine.body
    result = PretrainResult(
        data=train.name,
        classes=tuple(map(str, learner.classes_)),
        images=len(train),
        test_images=len(test),
        train_accuracy=_accuracy(learner, train),
        test_accuracy=_accuracy(learner, test),
        parameters=sum(parameter.numel() for parameter in body.parameters()),
        code=planned.code,
    )
    state = {name: value.to("cpu").contiguous() for name, value in body.state_dict().items()}
    write_atomically(job.weights, safetensors.torch.save(state))
    timing = JobTiming(seconds=time.perf_counter() - begin, environment=describe_environment())
    job.folder.write("timing.json", timing)
    job.folder.write("summary.json", result)


def _accuracy(learner: CSSL, part: Dataset) -> float | None:
    """Return the accuracy on all images of a data set; None if it has none."""
    if not len(part):
        return None
    classes = tuple(np.unique(part.labels).tolist())
    return evaluate(learner, part, Event(learner.step, classes, "all")).accuracy
