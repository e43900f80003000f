"""An experiment: one job per learner and seed on the same data, and their aggregated results."""

from __future__ import annotations

from contextlib import suppress
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from coldstream.lab.files import Folder, hash_of
from coldstream.lab.jobs import Job
from coldstream.lab.plan import Plan
from coldstream.lab.records import (
    EventResult,
    FinalLearner,
    JobTiming,
    Reference,
    Results,
    Timing,
    UnitEvent,
    UnitTiming,
)

if TYPE_CHECKING:
    from coldstream.lab.config import Config
    from coldstream.lab.inputs import ExperimentInputs


class Experiment:
    """The folder of a run: its plan, its config, and the jobs that it takes.

    Jobs are kept in ``store`` beside the folder, by what they depend on: experiments share those that are the same.
    Opening an experiment reads its plan and nothing else; config and data are read by the jobs that need them.
    """

    def __init__(self, path: Path, plan: Plan) -> None:
        self.folder, self.plan = Folder(path), plan
        self.store = path.parent / "store"
        jobs: dict[str, Job] = {}
        for planned in plan.jobs:  # what others begin with comes first
            jobs[planned.key] = Job(planned, self, tuple(jobs[key] for key in planned.needs))
        self.jobs = list(jobs.values())
        """All jobs, each once: pre-training, then units, then offline references."""

    @classmethod
    def create(cls, config: Config, path: Path) -> Experiment:
        """Plan a run in a new folder, or in one that has the same config; seeds may have been added."""
        from coldstream.lab.environment import describe_environment
        from coldstream.lab.inputs import ExperimentInputs
        from coldstream.lab.planning import make_plan
        from coldstream.lab.reading import write_config

        text = write_config(config)
        _refuse_other_config(config, text, path)
        inputs = ExperimentInputs(config)
        experiment = cls(path, make_plan(config, inputs, hash_of(text.encode())))
        experiment.config, experiment.inputs = config, inputs
        experiment.folder.make()
        experiment.folder.write("environment.json", describe_environment())
        experiment.folder.write("config.yaml", text)
        experiment.folder.write("plan.json", experiment.plan)
        return experiment

    @classmethod
    def resume(cls, path: Path) -> Experiment:
        """Plan the run in a folder again; jobs whose code or data have changed are computed anew."""
        from coldstream.lab.reading import make_config
        from coldstream.lab.saved import saved_settings

        _refuse_no_run(path)
        return cls.create(make_config(saved_settings(path)), path)

    @classmethod
    def open(cls, path: Path) -> Experiment:
        """Return the experiment in a folder as it was planned."""
        _refuse_no_run(path)
        folder = Folder(path)
        if not folder.has("plan.json"):
            raise ValueError(
                f"the run in {str(path)!r} has no plan.json; make it with: coldstream run --resume {path}"
            )
        return cls(path, folder.read("plan.json", Plan))

    @cached_property
    def config(self) -> Config:
        from coldstream.lab.reading import make_config
        from coldstream.lab.saved import saved_settings

        return make_config(saved_settings(self.folder.path))

    @cached_property
    def inputs(self) -> ExperimentInputs:
        """Data sets and streams; nothing is opened before it is asked for."""
        from coldstream.lab.inputs import ExperimentInputs

        return ExperimentInputs(self.config)

    def set_threads(self) -> None:
        """Set the number of torch threads, if the config gives one."""
        if self.config.threads:
            import torch

            torch.set_num_threads(self.config.threads)

    @property
    def finished(self) -> bool:
        return all(job.finished for job in self.jobs)

    def job(self, key: str) -> Job:
        """Return a job by its key."""
        return next(job for job in self.jobs if job.key == key)

    def unit(self, learner: str, seed: int) -> Job:
        """Return the job of a learner and seed."""
        return self.job(self.plan.units[learner][seed])

    def references(self, learner: str, seed: int) -> list[Job]:
        """Return the jobs of the offline references of a learner and seed."""
        return [self.job(key) for key in self.plan.references[learner][seed]]

    def results(self) -> Results:
        """Aggregate the finished jobs, write summary.json, metrics.jsonl and timing.json; return the results."""
        from coldstream.lab.references import best_references
        from coldstream.lab.results import learner_result, unit_result

        learners, lines = {}, []
        for name, seeds in self.plan.units.items():
            units = []
            for seed in seeds:
                job = self.unit(name, seed)
                final = job.folder.read("summary.json", FinalLearner)
                events = job.folder.sealed_lines("metrics.jsonl", EventResult, final.metrics, job.again)
                lines += [UnitEvent(**dict(event), learner=name, seed=seed) for event in events]
                references: dict[str | None, list[Reference]] = {}
                for task, reference in best_references(self.references(name, seed)):
                    references.setdefault(task, []).append(reference)
                came = self.plan.first_steps.get(seed, {})
                units.append(unit_result(seed, final, events, references, self.plan.tasks, came))
            learners[name] = learner_result(units, self.plan.learners.get(name))
        results = Results(
            name=self.plan.name,
            ordering=self.plan.ordering,
            tasks=self.plan.tasks,
            learners=learners,
            metrics=self.folder.rewrite("metrics.jsonl", lines),
        )
        self.folder.write("timing.json", self._timing())
        self.folder.write("summary.json", results)
        self._leave_model()
        return results

    def _leave_model(self) -> None:
        """Leave the learner of a run with a single one where a person finds it: in `model`.

        One that has learned on there, and was saved, is not replaced.
        """
        from coldstream.checkpoint import MANIFEST, CheckpointError, link, read_manifest

        model = self.folder.path / "model"
        units = [key for seeds in self.plan.units.values() for key in seeds.values()]
        if len(units) == 1:
            with suppress(CheckpointError):  # as of an earlier format: the results need no learner
                if not (model / MANIFEST).exists() or read_manifest(model).extra:  # a run's checkpoints have some
                    link(self.job(units[0]).folder.path / "checkpoint", model)

    def _timing(self) -> Timing:
        units = {
            name: {seed: self.unit(name, seed).folder.read("timing.json", UnitTiming) for seed in seeds}
            for name, seeds in self.plan.units.items()
        }
        # A unit's timing has more fields than that of the other jobs.
        others = [job.folder.read("timing.json", JobTiming) for job in self.jobs if job.planned.kind != "units"]
        unique = {
            self.plan.units[name][seed]: timing for name, seeds in units.items() for seed, timing in seeds.items()
        }
        seconds = sum(timing.seconds for timing in (*unique.values(), *others))
        return Timing(seconds=seconds, units=units)


def _refuse_no_run(path: Path) -> None:
    if not (path / "config.yaml").is_file():
        raise ValueError(f"there is no run in {str(path)!r} (no config.yaml in it)")


def _refuse_other_config(config: Config, text: str, path: Path) -> None:
    """Refuse a folder with the run of another config, or with files that belong to no run.

    A config.yaml that was damaged is replaced if the plan was made from the same config.
    """
    import yaml

    from coldstream.lab.reading import changes_between
    from coldstream.lab.saved import planned_hash, saved_settings

    if (path / "config.yaml").is_file():
        if planned_hash(path) == hash_of(text.encode()):
            return
        before = saved_settings(path)
        if set(before.get("seeds", ())) <= set(config.seeds):
            before["seeds"] = config.seeds
        changed = changes_between(before, yaml.safe_load(text))
        if changed and _has_begun(path):
            raise ValueError(
                f"folder {str(path)!r} is of another config; choose another --out or name. Changed:\n  "
                + "\n  ".join(changed)
            )
    elif path.is_dir() and any(path.iterdir()):
        raise ValueError(f"folder {str(path)!r} is not empty and not a run's; choose another --out")


def _has_begun(path: Path) -> bool:
    """Return whether anything was computed for the run in a folder; a config that never worked may be replaced."""
    if (path / "summary.json").exists():
        return True
    try:
        return any(job.progress()[0] for job in Experiment.open(path).jobs)
    except ValueError:
        return False
