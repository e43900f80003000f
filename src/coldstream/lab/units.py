"""A unit: one learner with one seed on its stream."""

from __future__ import annotations

import time
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterator
from contextlib import closing, contextmanager, nullcontext
from dataclasses import asdict, dataclass
from functools import cached_property, partial
from typing import Any

from coldstream import metrics
from coldstream.checkpoint import MANIFEST, Saving, read_manifest
from coldstream.lab.config import Config, Settings
from coldstream.lab.environment import describe_environment
from coldstream.lab.evaluation import Evaluation
from coldstream.lab.files import Seal
from coldstream.lab.inputs import ExperimentInputs
from coldstream.lab.jobs import Job, Stopped, Watch
from coldstream.lab.keys import content_of, key_of, learner_version
from coldstream.lab.learners import asks_for_base_init, base_of, learner_settings, per_update
from coldstream.lab.plan import PlannedUnit
from coldstream.lab.records import Buffer, EventResult, FinalLearner, UnitTiming
from coldstream.lab.tensorboard import TensorBoardLog
from coldstream.learners import LEARNERS, Learner
from coldstream.streams import Event


def unit_settings(config: Config, inputs: ExperimentInputs, name: str) -> tuple[type[Learner[Any]], Settings]:
    """Return a learner's class and settings, with what they take from the data."""
    kind, settings = learner_settings(config, name)
    if str(settings.get("rate")).startswith("linear"):
        settings["counts"] = inputs.counts()
    return kind, settings


def needs_base_init(config: Config, name: str, learner: Learner[Any]) -> bool:
    """Return whether a learner is base-initialised before it streams."""
    return learner.needs_base_init or asks_for_base_init(config, name)


def plan_unit(
    config: Config, inputs: ExperimentInputs, name: str, seed: int, needs: tuple[str, ...] = ()
) -> PlannedUnit:
    """Return the job of a learner and seed; `needs` is the key of the job that makes its weights, if one does."""
    kind, settings = unit_settings(config, inputs, name)
    if config.tasks and not kind.multi_task:
        able = ", ".join(other for other, known in LEARNERS.items() if known.multi_task)
        raise ValueError(f"learner {name!r} ({kind.__name__}) has no tasks; those that have are {able}")
    code = learner_version(kind, "coldstream.lab.units")
    dependencies: Settings = {"kind": kind.__qualname__, "code": code, "settings": settings, "seed": seed}
    dependencies["threads"] = config.threads  # they decide about the last bits
    dependencies["weights"] = needs[0] if needs else content_of(settings.get("init"))
    if needs_base_init(config, name, kind(**settings, seed=seed)):
        recipe = base_of(config, name).recipe()
        dependencies["base"] = {"data": inputs.base(seed).fingerprint(), "recipe": str(recipe)}
    for part, datasets in (("train", inputs.train), ("test", inputs.test)):
        dependencies[part] = [[task, dataset.fingerprint()] for task, dataset in datasets.items()]
    stream = inputs.stream(seed)
    dependencies |= {"stream": stream.fingerprint(), "prequential": config.prequential}
    dependencies["per_update"] = per_update(config, name)
    return PlannedUnit(
        key=key_of(dependencies),
        title=f"{name}, seed {seed}",
        total=len(stream),
        needs=needs,
        learner=name,
        seed=seed,
        code=code,
    )


@dataclass
class Clock:
    """Seconds spent learning, and predicting each example before; over all sittings."""

    learn: float = 0.0
    predict: float = 0.0

    @contextmanager
    def learning(self) -> Iterator[None]:
        begin = time.perf_counter()
        yield
        self.learn += time.perf_counter() - begin

    @contextmanager
    def predicting(self) -> Iterator[None]:
        begin = time.perf_counter()
        yield
        self.predict += time.perf_counter() - begin


@contextmanager
def _saved(saves: list[Saving]) -> Iterator[None]:
    """Wait at the end for checkpoints being written: the job's folder may belong to another process after it."""
    try:
        yield
    finally:
        for saving in saves:
            saving.settle()


def run(job: Job, watch: Watch) -> None:
    """Stream until the end, from the last checkpoint on."""
    config, inputs, planned = job.experiment.config, job.experiment.inputs, job.planned
    job.check_key(plan_unit(config, inputs, planned.learner, planned.seed, planned.needs).key)
    _Run(job, config, inputs, watch).stream()


class _Run:
    """The streaming of a unit."""

    def __init__(self, job: Job, config: Config, inputs: ExperimentInputs, watch: Watch) -> None:
        self._folder, self._config, self._watch = job.folder, config, watch
        self._again = job.again
        self._name, self._seed, self._code = job.planned.learner, job.planned.seed, job.planned.code
        self._inputs, self._stream = inputs, inputs.stream(self._seed)
        self._checkpoint = job.folder.path / "checkpoint"
        self._kind, self._settings = unit_settings(config, inputs, self._name)
        self._weights = job.start_weights()
        self._tensorboard = None
        if config.tensorboard:
            path = job.experiment.folder.path / "tensorboard" / f"{self._name}-{self._seed}"
            self._tensorboard = TensorBoardLog(path)
        self._prequential, self._clock, self._seal = metrics.Prequential(), Clock(), Seal()
        self._saves: list[Saving] = []

    def stream(self) -> None:
        """Learn each example once; test where the stream says so; write one line per test, then the summary."""
        learner = self._load() if (self._checkpoint / MANIFEST).exists() else self._new()
        # A checkpoint knows the lines of every test before it, so that only those after it are made again.
        lines = self._folder.sealed_lines("metrics.jsonl", EventResult, self._seal, self._again)
        self._folder.rewrite("metrics.jsonl", lines)
        total, batches = len(self._stream), set(self._stream.batches)
        tests: dict[int, list[Event]] = defaultdict(list)
        for event in self._stream.events:
            tests[event.step].append(event)
        stops = sorted({*batches, *tests, total})
        every, note, due = self._config.checkpoint_every, "", False
        with (
            _saved(self._saves),
            closing(self._tensorboard) if self._tensorboard else nullcontext(),
            Evaluation(self._inputs.test, self._log, beside=self._config.evaluate == "beside") as evaluation,
        ):
            while learner.step < total:
                before = learner.step
                if self._watch(before, total, note):
                    evaluation.wait()
                    self._save(learner, wait=True)
                    raise Stopped
                self._learn(learner, min(before + self._per_update, stops[bisect_right(stops, before)]))
                step = learner.step
                if self._config.prequential:
                    note = f"accuracy {self._prequential.windowed:.1%}"
                if step in batches:
                    with self._clock.learning():
                        learner.end_batch(partial(self._watch_batch, step))
                if step in tests:
                    evaluation.begin(learner, tests[step])
                if step == total or (due and step in tests):  # a checkpoint is put off until the next test at most
                    evaluation.wait()
                due = due or step // every > before // every or step == total
                if not evaluation.under_way() and due:
                    self._save(learner, wait=step == total)
                    due = False
        self._watch(total, total, note)
        self._finish(learner)

    @cached_property
    def _per_update(self) -> int:
        return per_update(self._config, self._name)

    @cached_property
    def _ids(self) -> list[str]:
        return self._stream.ids()

    def _learn(self, learner: Learner[Any], end: int) -> None:
        """Learn the examples up to a step in one update; all are of one task."""
        begin = learner.step
        images, labels, tasks = zip(*map(self._stream.example, range(begin, end)), strict=True)
        task = tasks[0]
        if self._config.prequential:
            with self._clock.predicting():
                for image, label in zip(images, labels, strict=True):
                    self._prequential.update(learner.predict_one(image, task=task) == label)
        with self._clock.learning():
            if end - begin == 1:
                learner.learn_one(images[0], labels[0], task=task, id=self._ids[begin])
            else:
                ids = self._ids[begin:end]
                learner.learn_many(images, labels, ids=ids, task=task, per_update=end - begin)

    def _watch_batch(self, step: int, epoch: int, epochs: int) -> None:
        """Report how far a batch-incremental learner is with a batch; asked to stop, it begins that batch again."""
        if self._watch(step, len(self._stream), f"batch ended, epoch {epoch} of {epochs}"):
            raise Stopped

    def _log(self, event: EventResult) -> None:
        self._seal = self._folder.append("metrics.jsonl", event, self._seal)
        if self._tensorboard:
            self._tensorboard.log(event)

    def _save(self, learner: Learner[Any], *, wait: bool) -> None:
        extra = {
            "prequential": self._prequential.to_dict(),
            "clock": asdict(self._clock),
            "metrics": self._seal.model_dump(),
        }
        self._saves[:] = [learner.save(self._checkpoint, extra=extra, wait=wait)]

    def _load(self) -> Learner[Any]:
        model = self._settings.get("model")
        named = {} if isinstance(model, str) or model is None else {"model": model}
        learner = self._kind.load(self._checkpoint, **named)
        extra = read_manifest(self._checkpoint).extra
        self._prequential = metrics.Prequential.from_dict(extra["prequential"])
        self._clock = Clock(**extra["clock"])
        self._seal = Seal(**extra["metrics"])
        return learner

    def _new(self) -> Learner[Any]:
        """Return a learner that can begin to stream."""
        settings = {**self._settings, **({"init": str(self._weights)} if self._weights else {})}
        learner = self._kind(**settings, seed=self._seed)
        if needs_base_init(self._config, self._name, learner):
            recipe, total = base_of(self._config, self._name).recipe(), len(self._stream)

            def watched(epoch: int) -> None:
                if self._watch(0, total, f"base initialisation, epoch {epoch} of {recipe.epochs}"):
                    raise Stopped

            watched(0)
            first = next(iter(self._stream.parts))
            named: dict[str, Any] = {} if first is None else {"task": first}
            learner.base_init(self._inputs.base(self._seed), recipe, watched, **named)
            self._save(learner, wait=True)
        return learner

    def _finish(self, learner: Learner[Any]) -> None:
        clock = self._clock
        timing = UnitTiming(
            seconds=clock.learn + clock.predict,
            ms_per_example=1000 * clock.learn / max(1, learner.step),
            environment=describe_environment(),
            index_bytes=learner.overhead() if learner.stores else None,
        )
        summary = FinalLearner(
            examples=learner.step,
            prequential=self._prequential.cumulative,
            buffer=Buffer(**dict(zip(("examples", "bytes"), learner.memory(), strict=True)))
            if learner.stores
            else None,
            parameters=learner.parameters(),
            frozen_share=learner.frozen_share(),
            fingerprint=learner.fingerprint(),
            code=self._code,
            metrics=self._seal,
        )
        self._folder.write("timing.json", timing)
        self._folder.write("summary.json", summary)
