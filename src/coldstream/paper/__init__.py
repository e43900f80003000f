"""The paper's tables and figures, each a named experiment at two scales."""

from __future__ import annotations

from coldstream.paper import buffers, cifar100, core50, crossing, imagenet, multitask, timing
from coldstream.paper.catalog import SCALES, PaperExperiment
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
        cifar100.CALIBRATION,
        cifar100.IID,
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
    )
}
"""In the order in which the paper has them."""


def get_experiment(name: str) -> PaperExperiment:
    """Return the experiment of a name, in which a dash may stand for the colon."""
    for experiment in EXPERIMENTS.values():
        if name in (experiment.name, experiment.slug):
            return experiment
    raise unknown("table or figure of the paper", name, EXPERIMENTS)


def parts_named(text: str, scale: str) -> dict[str, list[str]]:
    """Return the parts of each experiment that ``paper``, ``paper/NAME`` or ``paper/NAME/PART`` means.

    Examples
    --------
    >>> parts_named("paper/T:diff_arch", "lab")
    {'T:diff_arch': ['ImageNet']}
    """
    if scale not in SCALES:
        raise unknown("scale", scale, SCALES)
    _, _, rest = text.partition("/")
    name, _, part = rest.partition("/")
    chosen = [get_experiment(name)] if name else list(EXPERIMENTS.values())
    parts = {experiment.name: list(experiment.configs(scale)) for experiment in chosen}
    if part:
        if part not in parts[chosen[0].name]:
            raise unknown(f"part of {chosen[0].name}", part, parts[chosen[0].name])
        return {chosen[0].name: [part]}
    return parts


__all__ = ["EXPERIMENTS", "SCALES", "PaperExperiment", "get_experiment", "parts_named"]
