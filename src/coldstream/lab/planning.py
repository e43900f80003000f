"""The plan of an experiment, made from its config and data."""

from __future__ import annotations

import numpy as np

from coldstream.lab.config import Config
from coldstream.lab.inputs import ExperimentInputs
from coldstream.lab.learners import ran_with
from coldstream.lab.plan import Plan, PlannedPretraining, PlannedReference, PlannedUnit
from coldstream.lab.pretraining import plan_pretraining
from coldstream.lab.records import TaskData
from coldstream.lab.references import network_settings, plan_references
from coldstream.lab.tensorboard import check_tensorboard
from coldstream.lab.units import plan_unit
from coldstream.streams import Stream


def make_plan(config: Config, inputs: ExperimentInputs, config_hash: str) -> Plan:
    """Return the jobs of an experiment, each once; learners with the same network share references."""
    if config.tensorboard:
        check_tensorboard()
    before: dict[str, PlannedPretraining] = {}
    units: dict[str, PlannedUnit] = {}
    references: dict[str, PlannedReference] = {}
    unit_keys: dict[str, dict[int, str]] = {name: {} for name in config.learners}
    reference_keys: dict[str, dict[int, tuple[str, ...]]] = {name: {} for name in config.learners}
    shared: dict[str, tuple[str, ...]] = {}
    for name in config.learners:
        for seed in config.seeds:
            pretrained = plan_pretraining(config, inputs, name, seed)
            needs = (pretrained.key,) if pretrained else ()
            if pretrained:
                before.setdefault(pretrained.key, pretrained)
            unit = plan_unit(config, inputs, name, seed, needs)
            units.setdefault(unit.key, unit)
            unit_keys[name][seed] = unit.key
            network = repr((network_settings(config, name), seed))
            if not config.offline.enabled or seed not in (config.offline.seeds or config.seeds):
                reference_keys[name][seed] = ()
                continue
            if network not in shared:
                planned = plan_references(config, inputs, name, seed, needs)
                references |= {one.key: one for one in planned if one.key not in references}
                shared[network] = tuple(one.key for one in planned)
            reference_keys[name][seed] = shared[network]
    alone = len(inputs.train) == 1
    return Plan(
        name=config.name,
        config=config_hash,
        learners={name: ran_with(config, name) for name in config.learners},
        ordering=config.stream.ordering,
        tasks=_tasks(config, inputs),
        first_steps={
            seed: first_steps(next(iter(inputs.stream(seed).parts.values()))) for seed in config.seeds if alone
        },
        jobs=(*before.values(), *units.values(), *references.values()),
        units=unit_keys,
        references=reference_keys,
    )


def _tasks(config: Config, inputs: ExperimentInputs) -> tuple[TaskData, ...]:
    stream = inputs.stream(config.seeds[0])
    return tuple(
        TaskData(
            task=task,
            name=train.name,
            classes=len(np.unique(train.labels)),
            train=len(train),
            test=len(inputs.test[task]),
            start=stream.starts[task],
        )
        for task, train in inputs.train.items()
    )


def first_steps(stream: Stream) -> dict[str, int]:
    """Return for each class the number of examples streamed up to and including its first."""
    labels, first = np.unique(stream.dataset.labels[stream.order], return_index=True)
    return {stream.dataset.names[label]: int(step) + 1 for label, step in zip(labels, first, strict=True)}
