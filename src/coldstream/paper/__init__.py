"""The paper's tables and figures, each a named experiment at up to three scales."""

from __future__ import annotations

from coldstream.paper import (
    baselines,
    buffers,
    calibration,
    cifar100,
    core50,
    crossing,
    imagenet,
    multitask,
    search,
    timing,
)
from coldstream.paper.catalog import SCALES, PaperExperiment, PaperRun
from coldstream.parsing import unknown

EXPERIMENTS: dict[str, PaperExperiment] = {
    experiment.name: experiment
    for experiment in (
        cifar100.FREEZING,
        imagenet.BASE,
        cifar100.CAPACITY,
        imagenet.METHODS,
        core50.ORDERINGS,
        multitask.METHODS,
        calibration.CALIBRATION,
        calibration.IID,
        cifar100.TRACK,
        imagenet.NETWORKS,
        cifar100.AUGMENTATION,
        buffers.COMPRESSION,
        buffers.CONSOLIDATION,
        buffers.EVICTION,
        multitask.STRATEGY,
        cifar100.GAP,
        timing.TIMING,
        crossing.CROSSING,
        search.SEARCH,
        baselines.BASELINES,
    )
}
"""In the order of the paper; those that it does not have come last."""


def get_experiment(name: str) -> PaperExperiment:
    """Return the experiment of a name, in which a dash may stand for the colon."""
    for experiment in EXPERIMENTS.values():
        if name in (experiment.name, experiment.slug):
            return experiment
    raise unknown("table or figure of the paper", name, EXPERIMENTS)


def runs_named(text: str, scale: str) -> dict[str, list[PaperRun]]:
    """Return the runs of each experiment that ``paper``, ``paper/NAME`` or ``paper/NAME/PART`` means.

    ``paper/NAME/PART/LEARNER`` is the run of one learner.

    Examples
    --------
    >>> [run.part for run in runs_named("paper/T:diff_arch", "lab")["T:diff_arch"]]
    ['ImageNet']
    >>> [run.learners for run in runs_named("paper/baselines/CIFAR100/Deep SLDA", "lab")["baselines"]]
    [('Deep SLDA',)]
    """
    if scale not in SCALES:
        raise unknown("scale", scale, SCALES)
    _, _, rest = text.partition("/")
    name, _, place = rest.partition("/")
    if not name:
        return {one.name: one.runs(scale) for one in EXPERIMENTS.values() if scale in one.scales}
    experiment = get_experiment(name)
    runs = experiment.runs(scale)
    if not place:
        return {experiment.name: runs}
    alone = {f"{run.part}/{run.learners[0]}": run for run in experiment.alone(scale)}
    chosen = [run for run in runs if place == run.part] or [alone[one] for one in alone if one == place]
    if not chosen:
        parts = dict.fromkeys(run.part for run in runs)
        raise unknown(f"part of {experiment.name}", place, [*alone] if "/" in place else [*parts])
    return {experiment.name: chosen}


__all__ = ["EXPERIMENTS", "SCALES", "PaperExperiment", "PaperRun", "get_experiment", "runs_named"]
