"""Results of the paper's experiments: of finished runs, and together with those that were kept before."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import yaml

from coldstream import metrics
from coldstream.lab.config import Config
from coldstream.lab.environment import describe_environment
from coldstream.lab.files import Folder
from coldstream.lab.keys import key_of
from coldstream.lab.reading import changes_between, make_config, write_config
from coldstream.lab.records import Confusion, EventNumbers, FinishedRun, Results, UnitResult
from coldstream.lab.saved import saved_settings
from coldstream.paper.catalog import PaperExperiment, PaperRun, Settings
from coldstream.report.kept import KeptEvent, KeptPart, KeptResults, KeptRun, read_kept


def read_results(experiment: PaperExperiment, scale: str, runs: Path, kept: Path) -> KeptResults | None:
    """Return the results of finished runs, and of kept ones the seeds that these lack; None without either.

    Only results of today's settings count: see `left_out`.
    """
    before, now = read_kept(experiment.name, scale, kept), from_runs(experiment, scale, runs)
    if experiment.measured is not None or before is None:
        return now or before
    parts = {}
    for name, tree in experiment.configs(scale).items():
        old = before.parts.get(name)
        if old:
            wanted = addresses(tree)
            valid = [one for one in old.learners if one in wanted and old.settings.get(one) == wanted[one]]
            old = old.model_copy(update={"learners": {one: old.learners[one] for one in valid}})
        new = now.parts.get(name) if now else None
        if part := _merge(old, new) if old and new else new or old:
            parts[name] = _in_order(part, tree)
    # Of a part whose learners are all others now, a reference alone may be left.
    ours = {name: experiment.configs(scale)[name]["learners"].keys() for name in parts}
    parts = {name: part for name, part in parts.items() if part.learners.keys() & ours[name]}
    return (now or before).model_copy(update={"parts": parts}) if parts else None


def _merge(old: KeptPart, new: KeptPart) -> KeptPart:
    """Return two results of one part, a learner and seed that both have from the newer one."""
    learners = dict(new.learners)
    for name, runs in old.learners.items():
        seeds = {run.seed for run in learners.get(name, ())}
        added = [run for run in runs if run.seed not in seeds]
        learners[name] = sorted([*learners.get(name, ()), *added], key=lambda run: run.seed)
    both = {key: {**getattr(old, key), **getattr(new, key)} for key in ("settings", "kinds")}
    return new.model_copy(update={"learners": learners, **both})


def _in_order(part: KeptPart, tree: Settings) -> KeptPart:
    """Return a part with its learners in the order of the catalog, references last."""
    order = [name for name in (*tree["learners"], *part.learners) if name in part.learners]
    update: dict[str, Any] = {"learners": {name: part.learners[name] for name in dict.fromkeys(order)}}
    for key in ("settings", "kinds"):
        values = getattr(part, key)
        update[key] = {name: values[name] for name in update["learners"] if name in values}
    return part.model_copy(update=update)


def with_earlier_seeds(config: Config, runs: Path) -> Config:
    """Return the config of a part with the seeds that were run already, if its run differs in nothing else."""
    path = runs / config.name
    if not (path / "config.yaml").is_file():
        return config
    before, wanted = saved_settings(path), yaml.safe_load(write_config(config))
    if changes_between({**before, "seeds": None}, {**wanted, "seeds": None}):
        return config
    return config.model_copy(update={"seeds": sorted({*before["seeds"], *config.seeds})})


def left_out(experiment: PaperExperiment, scale: str, runs: Path, kept: Path) -> list[str]:
    """Return what `read_results` leaves out, a sentence each: results of other settings than today's."""
    if experiment.measured is not None:
        return []
    sentences = []
    for one in _runs(experiment, scale):
        run = FinishedRun(runs / str(one.tree["name"]))
        if run.finished and (changes := _changes(one.tree, run.folder)):
            sentences.append(f"{run.folder.path} is left out: it was run with other settings: {'; '.join(changes)}")
    before = read_kept(experiment.name, scale, kept)
    configs = experiment.configs(scale)
    for part, old in before.parts.items() if before else ():
        wanted = addresses(configs[part]) if part in configs else {}
        if changed := [name for name in old.learners if old.settings.get(name) != wanted.get(name)]:
            sentences.append(
                f"kept results of {experiment.name}, {part}, are left out, as settings have changed: "
                + "; ".join(changed)
            )
    return sentences


def addresses(tree: Settings) -> dict[str, str]:
    """Return, for each learner, a hash of all settings that its results depend on."""
    relevant = _relevant(tree)
    return {name: key_of({**relevant, "learners": {name: arm}}) for name, arm in relevant["learners"].items()} | (
        {"offline": key_of({**relevant, "learners": {}})} if "offline" not in relevant["learners"] else {}
    )


_IRRELEVANT = ("name", "seeds", "prequential", "checkpoint_every", "evaluate", "tensorboard")


def _relevant(tree: Settings) -> Settings:
    """Return the settings that the result of a seed depends on.

    Where the data are is none of them, nor which other seeds have offline references.
    """
    relevant = _without_places({key: value for key, value in tree.items() if key not in _IRRELEVANT})
    if isinstance(offline := relevant.get("offline"), dict):
        relevant["offline"] = {key: value for key, value in offline.items() if key != "seeds"}
    return relevant


def _without_places(tree: Settings) -> Settings:
    return {
        key: _without_places(value) if isinstance(value, dict) else value
        for key, value in tree.items()
        if key not in ("root", "download")
    }


def _changes(tree: Settings, folder: Folder) -> list[str]:
    """Return which settings of a run differ from its experiment's; settings that were added later do not count."""
    wanted = yaml.safe_load(write_config(make_config(tree)))
    before = saved_settings(folder.path)
    return changes_between(_relevant(_common(wanted, before)), _relevant(before))


_ABSENT_MEANS_NONE = ("base", "base_init", "per_update", "validation")
"""Settings that are not written where they are not set: without one a run had none, however old it is."""


def _common(tree: Any, other: Any) -> Any:
    """Return a tree without the settings that another one does not know; every learner stays."""
    if not isinstance(tree, dict) or not isinstance(other, dict):
        return tree
    known = {
        key: _common(value, other.get(key))
        for key, value in tree.items()
        if key != "learners" and (key in other or (key in _ABSENT_MEANS_NONE and value is not None))
    }
    if "learners" in tree:
        known["learners"] = {
            name: _common(arm, other["learners"].get(name)) for name, arm in tree["learners"].items()
        }
    return known


def minutes(experiment: PaperExperiment, results: KeptResults) -> float:
    """Return how long all parts and seeds take on two cores, estimated from those that were run."""
    if experiment.measured is not None:
        return results.duration / 60
    trees = experiment.configs(str(results.scale))
    wanted = sum(len(tree["learners"]) * len(tree["seeds"]) for tree in trees.values())
    finished = sum(
        len(runs)
        for part, content in results.parts.items()
        for name, runs in content.learners.items()
        if name in trees[part]["learners"]
    )
    return results.duration / 120 * wanted / finished


def write_measured(
    experiment: PaperExperiment, scale: str, part: str, pieces: Mapping[str, Mapping[str, Any]], runs: Path
) -> None:
    """Write the milliseconds of each learner's pieces, a list each, as if every step had been a run."""
    learners = {
        name: [
            KeptRun(seed=step, numbers=dict(zip(times, map(float, values), strict=True)), events=[])
            for step, values in enumerate(zip(*times.values(), strict=True))
        ]
        for name, times in pieces.items()
    }
    seconds = sum(float(sum(values)) for times in pieces.values() for values in times.values()) / 1000
    folder = Folder(runs / f"{experiment.slug}-{scale}")
    folder.make()
    results = KeptResults(
        experiment=experiment.name,
        scale=scale,
        date=datetime.now(UTC).date().isoformat(),
        seconds=round(seconds),
        environment=dict(describe_environment()),
        parts={part: KeptPart(examples=0, learners=learners)},
    )
    folder.write("summary.json", results)


def from_runs(
    experiment: PaperExperiment, scale: str, runs: Path, *, other_settings: bool = False
) -> KeptResults | None:
    """Return the results of the finished runs of an experiment, part by part; None while there are none.

    Runs with other settings than the experiment's count only where `other_settings` is true.
    """
    if experiment.measured is not None:
        folder = Folder(runs / f"{experiment.slug}-{scale}")
        return folder.read("summary.json", KeptResults) if folder.has("summary.json") else None
    parts: dict[str, KeptPart] = {}
    with_confusion = any(figure.kind == "confusion" for figure in experiment.figures)
    newest, environment = 0.0, {}
    for one in _runs(experiment, scale):
        run = FinishedRun(runs / str(one.tree["name"]))
        if not run.finished or (not other_settings and _changes(one.tree, run.folder)):
            continue
        new = _kept_part(run, one.tree, with_confusion)
        parts[one.part] = _merge(parts[one.part], new) if one.part in parts else new
        environment = [
            unit.environment.model_dump() for units in run.timing.units.values() for unit in units.values()
        ][-1]
        newest = max(newest, (run.folder.path / "metrics.jsonl").stat().st_mtime)
    if not parts:
        return None
    return KeptResults(
        experiment=experiment.name,
        scale=scale,
        date=datetime.fromtimestamp(newest, UTC).date().isoformat(),
        environment=environment,
        parts=parts,
    )


def _runs(experiment: PaperExperiment, scale: str) -> list[PaperRun]:
    """Return the runs that an experiment's results may come from: of whole parts, and of learners alone."""
    runs = (*experiment.runs(scale), *experiment.alone(scale))
    return list({str(run.tree["name"]): run for run in runs}.values())


def _kept_part(run: FinishedRun, tree: Settings, with_confusion: bool) -> KeptPart:
    results, timing, config = run.results, run.timing, saved_settings(run.folder.path)
    seconds = [unit.seconds for units in timing.units.values() for unit in units.values()]
    shared = (timing.seconds - sum(seconds)) / len(seconds)  # offline references and the like
    learners: dict[str, list[KeptRun]] = {name: [] for name in results.learners}
    for name, unit in results.units:
        cost = timing.units[name][unit.seed]
        confusion = None if results.has_tasks else run.last_events(name, unit.seed)[0].confusion
        learners[name].append(
            KeptRun(
                seed=unit.seed,
                numbers=_numbers(results, unit, confusion),
                events=[_kept_event(event) for event in unit.events],
                confusion=confusion if with_confusion else None,
                commit=str(cost.environment.commit)[:7] + "+" * bool(cost.environment.dirty),
                seconds=round(cost.seconds + shared),
                machine=cost.environment.hardware,
                code=unit.learner.code,
            )
        )
    whole = {**learners, **_offline(results)}
    return KeptPart(
        settings={name: one for name, one in addresses(tree).items() if name in whole},
        examples=results.examples,
        kinds={name: str(settings["kind"]) for name, settings in config["learners"].items()},
        learners=whole,
    )


def _kept_event(event: EventNumbers) -> KeptEvent:
    return KeptEvent(step=event.step, task=event.task, accuracy=round(event.accuracy, 4), ece=round(event.ece, 4))


def _numbers(results: Results, unit: UnitResult, confusion: Confusion | None) -> dict[str, float]:
    """Return the numbers of a unit that tables and pictures show."""
    numbers = {"frozen_share": unit.learner.frozen_share, **dict(unit.numbers)}
    if results.has_tasks:
        numbers |= {f"accuracy of {task.task}": task.numbers.final_accuracy for task in unit.tasks}
    else:
        for name, value in (("average_accuracy", "accuracy"), ("average_top5", "top5")):
            numbers[name] = metrics.summary([getattr(event, value) for event in unit.events]).mean
    if confusion is not None:
        numbers |= recency_bias(confusion, _last_batch(unit))
    return {name: round(value, 5) for name, value in numbers.items()}


def _last_batch(unit: UnitResult) -> int:
    """Return how many classes came since the last test but one."""
    counts = [event.classes for event in unit.events]
    return counts[-1] - counts[-2] if len(counts) > 1 else 0


def recency_bias(confusion: Confusion, last: int) -> dict[str, float]:
    """Return the share of images of older classes that is taken for one of the `last` newest, and for the newest.

    Classes are in the order of coming.

    Examples
    --------
    >>> names = ("a", "b", "c")
    >>> confusion = Confusion(truth=names, predicted=names, counts=((6, 1, 3), (2, 4, 4), (0, 0, 9)))
    >>> recency_bias(confusion, 2)
    {'bias_to_last_batch': 0.4, 'bias_to_last_class': 0.35}
    """
    classes = len(confusion.truth)
    if not last or classes <= last:
        return {}

    def share(newest: int) -> float:
        columns = [
            confusion.predicted.index(name) for name in confusion.truth[-newest:] if name in confusion.predicted
        ]
        return metrics.share_taken_for(confusion.counts, range(classes - newest), columns)

    return {"bias_to_last_batch": share(last), "bias_to_last_class": share(1)}


def _offline(results: Results) -> dict[str, list[KeptRun]]:
    """Return the offline references of several tasks as if they were a learner's runs."""
    units = [
        unit for unit in next(iter(results.learners.values())).units if unit.numbers.offline_accuracy is not None
    ]
    if not results.has_tasks or not units:
        return {}
    return {"offline": [KeptRun(seed=unit.seed, numbers=_offline_numbers(unit), events=[]) for unit in units]}


def _offline_numbers(unit: UnitResult) -> dict[str, float]:
    numbers = {f"accuracy of {task.task}": task.numbers.offline_accuracy for task in unit.tasks}
    numbers["final_accuracy"] = unit.numbers.offline_accuracy
    return {name: round(value, 5) for name, value in numbers.items() if value is not None}
