"""Offline references: what the same network reaches when it is trained on everything at once."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence

import numpy as np

from coldstream.lab.config import NETWORK, Config, Settings
from coldstream.lab.environment import describe_environment
from coldstream.lab.evaluation import evaluate
from coldstream.lab.inputs import ExperimentInputs
from coldstream.lab.jobs import Job, Stopped, Watch
from coldstream.lab.keys import content_of, key_of, learner_version
from coldstream.lab.learners import learner_settings
from coldstream.lab.plan import PlannedReference
from coldstream.lab.records import JobTiming, OfflineResult, Reference, Task
from coldstream.learners import CSSL
from coldstream.learners.training.offline import OfflineRecipe


def plan_references(
    config: Config, inputs: ExperimentInputs, name: str, seed: int, needs: tuple[str, ...] = ()
) -> list[PlannedReference]:
    """Return the references of a learner and seed: for each task and test event a job for each recipe.

    With tasks there is one event for each, its end, on its data alone: that of an experiment without tasks.
    """
    return [
        _plan(config, inputs, (name, seed), (task, event, recipe), needs)
        for task, part in inputs.stream(seed).parts.items()
        for event in range(len(part.events))
        if event == len(part.events) - 1 or not (config.offline.last_only or task is not None)
        for recipe in range(len(config.offline.recipes()))
    ]


def _plan(
    config: Config,
    inputs: ExperimentInputs,
    unit: tuple[str, int],
    place: tuple[Task, int, int],
    needs: tuple[str, ...],
) -> PlannedReference:
    (name, seed), (task, number, recipe_number) = unit, place
    network = network_settings(config, name)
    part, test = inputs.stream(seed).parts[task], inputs.test[task]
    event = part.events[number]
    recipes = config.offline.recipes()
    recipe = recipes[recipe_number]
    classes = sorted(test.names[label] for label in event.classes)
    code = learner_version(CSSL, __name__)
    dependencies: Settings = {
        "network": network,
        "seed": seed,
        "classes": classes,
        "code": code,
        "threads": config.threads,
        "weights": needs[0] if needs else content_of(network.get("init")),
        # Which examples have come matters to offline training, their order does not.
        "train": part.dataset.take(np.sort(part.order[: event.step])).fingerprint(),
        "test": test.fingerprint(),
        "recipe": str(recipe),
    }
    differing = {key: getattr(recipe, key) for key in differences(recipes)}
    words = {"rate": f"rate {recipe.rate:g}", "augment": recipe.augment}
    what = f"{len(classes)} classes" if task is None else task
    return PlannedReference(
        key=key_of(dependencies),
        title=", ".join(["offline", what, *(words[key] for key in differing), f"seed {seed}"]),
        total=recipe.epochs,
        needs=needs,
        learner=name,
        seed=seed,
        code=code,
        task=task,
        event=number,
        recipe=recipe_number,
        **differing,
    )


def network_settings(config: Config, name: str) -> Settings:
    """Return the settings of a learner's network; one that the learner initialises itself begins from random."""
    _, settings = learner_settings(config, name)
    network = {key: settings[key] for key in NETWORK if key in settings}
    return {**network, "init": "random"} if network.get("init") == "base" else network


def differences(recipes: Sequence[OfflineRecipe]) -> list[str]:
    """Return in which of rate and policy some recipes differ."""
    return [name for name in ("rate", "augment") if len({getattr(recipe, name) for recipe in recipes}) > 1]


def run(job: Job, watch: Watch) -> None:
    """Train offline on everything streamed until a test event, and test.

    One of several recipes, of which the best counts, may diverge; its summary says so.
    """
    config, inputs, planned = job.experiment.config, job.experiment.inputs, job.planned
    assert isinstance(planned, PlannedReference)
    unit, place = (planned.learner, planned.seed), (planned.task, planned.event, planned.recipe)
    job.check_key(_plan(config, inputs, unit, place, planned.needs).key)
    recipes = config.offline.recipes()
    recipe = recipes[planned.recipe]
    part = inputs.stream(planned.seed).parts[planned.task]
    event = part.events[planned.event]
    begin = time.perf_counter()

    def watched(epoch: int) -> None:
        if watch(epoch, recipe.epochs, "") and epoch < recipe.epochs:
            raise Stopped

    watched(0)
    settings = network_settings(config, planned.learner)
    if weights := job.start_weights():
        settings["init"] = str(weights)
    reference = CSSL(**settings, seed=planned.seed)
    result, diverged = None, None
    try:
        reference.base_init(part.dataset.take(np.sort(part.order[: event.step])), recipe, watched)
        result = evaluate(reference, inputs.test[planned.task], event)
    except FloatingPointError as error:
        if len(recipes) == 1:
            raise
        diverged = str(error)
    job.folder.write(
        "timing.json", JobTiming(seconds=time.perf_counter() - begin, environment=describe_environment())
    )
    job.folder.write("summary.json", OfflineResult(event=result, diverged=diverged, code=planned.code))


def best_references(jobs: Sequence[Job]) -> Iterator[tuple[Task, Reference]]:
    """Yield, for each task and test event, the best of the finished jobs, which differ only in rate and policy.

    The best on the test images counts; of equals, the first.
    """
    groups: dict[tuple[Task, int], list[Job]] = {}
    for job in jobs:
        assert isinstance(job.planned, PlannedReference)
        groups.setdefault((job.planned.task, job.planned.event), []).append(job)
    for (task, _), group in groups.items():
        yield task, _best(group)


def _best(jobs: Sequence[Job]) -> Reference:
    results = [(job.planned, job.folder.read("summary.json", OfflineResult).event) for job in jobs]
    able = [(planned, event) for planned, event in results if event is not None]
    if not able:
        raise ValueError(f"{jobs[0].title}: every recipe diverged; give offline.rates lower ones")
    planned, event = max(able, key=lambda pair: pair[1].accuracy)
    assert isinstance(planned, PlannedReference)
    return Reference(**dict(event.numbers()), rate=planned.rate, augment=planned.augment)
