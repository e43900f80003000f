"""What a run writes and reports read: the record of each file, all typed.

A run without tasks is a run with one task, whose name is None: there is one schema.

| file | record |
|---|---|
| an experiment's summary.json | `Results`: learners, their units (a learner with a seed), tasks, events |
| its metrics.jsonl | `UnitEvent`, a line each |
| its timing.json | `Timing` |
| its environment.json | `Environment`, when the run began |
| a unit's summary.json | `FinalLearner` |
| its metrics.jsonl | `EventResult`, a line each |
| its timing.json | `UnitTiming` |
| an offline reference's summary.json | `OfflineResult` |
| a pre-training's summary.json | `PretrainResult` |
| timing.json of these two | `JobTiming` |

`FinishedRun(path)` has the records of a finished experiment.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from pathlib import Path
from typing import Generic, TypeVar

from pydantic import Field

from coldstream.lab.files import Folder, Record, Seal
from coldstream.metrics import Reliability, Summary, per_class_accuracy

Task = str | None
"""The name of a task; None is that of a stream without tasks."""


class Environment(Record):
    """What results depend on, bit for bit: versions, processor, thread count and code.

    None: not recorded, or not there.
    """

    python: str
    torch: str
    torchvision: str
    numpy: str
    machine: str
    processor: str | None = Field(None, description="the model's name")
    instructions: str | None = Field(
        None, description="the instruction set that torch uses, and limits that were set"
    )
    threads: int
    coldstream: str
    commit: str | None = Field(None, description="of the code that ran, where it ran from a clone")
    dirty: bool | None = Field(None, description="whether that code differed from the commit")

    @property
    def hardware(self) -> str | None:
        """Processor, instruction set and threads, in short."""
        known = [text for text in (self.processor, self.instructions) if text]
        return ", ".join([*known, f"{self.threads} thread{'s' * (self.threads != 1)}"]) if known else None


# --- test events ---------------------------------------------------------------------------------------------------


class EventNumbers(Record):
    """A test event in short: when, on how much, and with what result."""

    step: int = Field(description="examples streamed before the test, over all tasks")
    task: Task = Field(None, description="which task was tested")
    classes: int = Field(description="number of classes tested")
    images: int = Field(description="number of test images")
    accuracy: float
    top5: float
    ece: float
    ece_debiased: float


class Coverage(Record):
    """Accuracy if only the most confident predictions are accepted, at about a hundred thresholds or fewer."""

    threshold: tuple[float, ...]
    coverage: tuple[float, ...]
    accuracy: tuple[float, ...]


class Confusion(Record):
    """How many test images of each class (`truth`, a row each) got each label (`predicted`, a column each).

    `truth` are the classes tested, `predicted` those that the learner knew, both in their own order.
    """

    truth: tuple[str, ...]
    predicted: tuple[str, ...]
    counts: tuple[tuple[int, ...], ...]

    def accuracies(self) -> dict[str, float]:
        """Return the accuracy on each class tested; NaN on one without images.

        Examples
        --------
        >>> Confusion(truth=("a", "b"), predicted=("b",), counts=((4,), (3,))).accuracies()
        {'a': 0.0, 'b': 1.0}
        """
        columns = [self.predicted.index(name) if name in self.predicted else None for name in self.truth]
        return dict(zip(self.truth, per_class_accuracy(self.counts, columns).tolist(), strict=True))


class EventResult(EventNumbers):
    """Everything that was measured at a test event."""

    reliability: Reliability
    coverage: Coverage
    confusion: Confusion

    def numbers(self) -> EventNumbers:
        """Return the event in short."""
        return EventNumbers(**{name: getattr(self, name) for name in EventNumbers.model_fields})


class UnitEvent(EventResult):
    """A test event of one learner and seed."""

    learner: str
    seed: int


class Reference(EventNumbers):
    """A test of the offline reference: `step` is the test event of the stream that it was trained for.

    Where several recipes were tried, it is the best one, and `rate` and `augment` say which, if they differed.
    """

    rate: float | None = None
    augment: str | None = None


# --- numbers of a unit ---------------------------------------------------------------------------------------------

T = TypeVar("T")


class Numbers(Record, Generic[T]):
    """The numbers of one task or of all, computed from their test events; None where the tests do not give it.

    `Numbers[float]` are those of one learner and seed, `Numbers[Summary]` their mean and spread over seeds. Iterating
    gives (name, value) of the numbers that are there.

    Test events *count* for Ω_all from the end of their task on; where the stream has one task only, all of them do.
    Over several tasks, accuracies and forgetting are means over tasks, ECE and Ω_all are over all events that count.
    """

    final_accuracy: T = Field(description="at the last test event")
    final_top5: T
    learned_accuracy: T = Field(
        description="at the first test event after the task ended; the final one if it is last"
    )
    average_ece: T
    average_ece_debiased: T
    offline_accuracy: T | None = Field(None, description="of the reference of all that was streamed of the task")
    omega_per_event: T | None = Field(None, description="Ω_all; each event has a reference of the same data")
    omega_final: T | None = Field(None, description="Ω_all; every event is divided by the last reference of its task")
    top5_omega_per_event: T | None = None
    top5_omega_final: T | None = None
    forgetting: T | None = Field(
        None,
        description="one task in the stream: mean fall of a class from its best test to the last; several: that of a "
        "task from its best test since its end, for all but the last",
    )
    backward_transfer: T | None = Field(None, description="over classes, for a stream of one task")
    forward_transfer: T | None = Field(None, description="over classes, for a stream of one task")
    prequential: T | None = Field(
        None, description="accuracy on each example before it was learned, over the whole stream"
    )

    def __iter__(self) -> Iterator[tuple[str, T]]:  # type: ignore[override]
        """Return names and values of the numbers that are there."""
        return ((name, value) for name in type(self).model_fields if (value := getattr(self, name)) is not None)

    def get(self, name: str) -> T | None:
        """Return a number by its name.

        Examples
        --------
        >>> ends = {"final_accuracy": 0.5, "final_top5": 1.0, "learned_accuracy": 0.5}
        >>> numbers = Numbers[float](**ends, average_ece=0.1, average_ece_debiased=0.0)
        >>> numbers.get("final_accuracy"), numbers.get("forgetting")
        (0.5, None)
        """
        value: T | None = getattr(self, name)
        return value


class TaskResult(Record):
    """One task of one learner and seed."""

    task: Task
    numbers: Numbers[float]
    events: tuple[EventNumbers, ...] = Field(description="tests of the task, by step")
    offline: tuple[Reference, ...] = Field(
        description="one for each event, one for the last (offline.last_only, or several tasks), or none"
    )


class Buffer(Record):
    """What the replay buffer held at the end."""

    examples: int
    bytes: int


class FinalLearner(Record):
    """A learner at the end of its stream."""

    examples: int = Field(description="examples learned")
    prequential: float | None
    buffer: Buffer | None = Field(description="None for a learner that stores no examples")
    parameters: int
    frozen_share: float
    fingerprint: str
    code: str = Field(description="hash of the code that ran: `keys.learner_version` of the learner's class")
    metrics: Seal | None = Field(
        None, description="of the unit's metrics.jsonl; None for runs from before there was one"
    )


class UnitResult(Record):
    """One learner with one seed."""

    seed: int
    learner: FinalLearner
    numbers: Numbers[float] = Field(description="over all tasks")
    tasks: tuple[TaskResult, ...]

    @property
    def events(self) -> tuple[EventNumbers, ...]:
        """The test events of all tasks, task by task."""
        return tuple(event for task in self.tasks for event in task.events)

    def task(self, name: Task) -> TaskResult:
        """Return the results of one task."""
        return next(task for task in self.tasks if task.task == name)


# --- an experiment -------------------------------------------------------------------------------------------------


class TaskMean(Record):
    """One task of one learner: mean and spread over seeds."""

    task: Task
    numbers: Numbers[Summary]


class LearnerSettings(Record):
    """What a learner ran with."""

    kind: str = Field(description="name of its class, as the config has it")
    changed: dict[str, str] = Field(description="the settings that differ from the defaults of its class")


class LearnerResult(Record):
    """One learner: its units, and their mean and spread."""

    ran_with: LearnerSettings | None = Field(None, description="None for runs from before it was recorded")
    units: tuple[UnitResult, ...] = Field(description="by seed, in the order of the config")
    numbers: Numbers[Summary] = Field(description="over all tasks")
    tasks: tuple[TaskMean, ...]

    def task(self, name: Task) -> TaskMean:
        """Return mean and spread of one task."""
        return next(task for task in self.tasks if task.task == name)


class TaskData(Record):
    """The data of a task and its place in the stream."""

    task: Task
    name: str = Field(description="of the data set")
    classes: int
    train: int = Field(description="number of examples that are streamed")
    test: int
    start: int = Field(description="examples streamed before the task begins")

    @property
    def end(self) -> int:
        """Examples streamed when the task ends."""
        return self.start + self.train


class Results(Record):
    """The results of an experiment."""

    name: str
    ordering: str
    tasks: tuple[TaskData, ...] = Field(description="in the order in which they are streamed; one, None, without")
    learners: dict[str, LearnerResult]
    metrics: Seal | None = Field(None, description="of metrics.jsonl; None for runs from before there was one")

    @property
    def examples(self) -> int:
        """The length of the stream."""
        return sum(task.train for task in self.tasks)

    @property
    def test_images(self) -> int:
        return sum(task.test for task in self.tasks)

    @property
    def data_name(self) -> str:
        """The data sets in the order in which they are streamed."""
        return ", then ".join(dict.fromkeys(task.name for task in self.tasks))

    @property
    def has_tasks(self) -> bool:
        """Whether the stream has tasks with names."""
        return self.tasks[0].task is not None

    @property
    def units(self) -> list[tuple[str, UnitResult]]:
        """Every unit with its learner's name."""
        return [(name, unit) for name, learner in self.learners.items() for unit in learner.units]


# --- costs ---------------------------------------------------------------------------------------------------------


class JobTiming(Record):
    """What a job cost, and with what it was computed."""

    seconds: float
    environment: Environment


class UnitTiming(JobTiming):
    """What one learner with one seed cost."""

    ms_per_example: float
    index_bytes: int | None = Field(None, description="memory beside the packed examples; None without a buffer")


class Timing(Record):
    """What an experiment cost."""

    seconds: float = Field(description="of all jobs, one after another")
    units: dict[str, dict[int, UnitTiming]] = Field(description="by learner and seed")


# --- other jobs ----------------------------------------------------------------------------------------------------


class OfflineResult(Record):
    """The test of an offline reference, or the error that ended its training."""

    event: EventResult | None
    diverged: str | None = Field(None, description="the error, where `event` is None")
    code: str = Field(description="hash of the code that ran")


class PretrainResult(Record):
    """A network that was trained before the stream."""

    data: str
    classes: tuple[str, ...]
    images: int
    test_images: int
    train_accuracy: float | None
    test_accuracy: float | None
    parameters: int
    code: str = Field(description="hash of the code that ran")


class FinishedRun:
    """The records of a finished experiment, each read when it is asked for.

    Examples
    --------
    >>> run = FinishedRun(Path("runs/digits"))
    >>> for name, unit in run.results.units:  # doctest: +SKIP
    ...     print(name, unit.seed, unit.numbers.final_accuracy, run.timing.units[name][unit.seed].seconds)
    """

    def __init__(self, path: Path) -> None:
        self.folder = Folder(path)

    @property
    def finished(self) -> bool:
        return self.folder.has("summary.json")

    @cached_property
    def results(self) -> Results:
        if not self.finished:
            raise ValueError(f"there is no finished run in {str(self.folder.path)!r} (no summary.json in it)")
        return self.folder.read("summary.json", Results)

    @cached_property
    def timing(self) -> Timing:
        return self.folder.read("timing.json", Timing)

    @cached_property
    def events(self) -> list[UnitEvent]:
        """Every test event, learner by learner, seed by seed, in the order of the stream."""
        advice = f"write it again with: coldstream run --resume {self.folder.path}"
        return self.folder.sealed_lines("metrics.jsonl", UnitEvent, self.results.metrics, advice)

    def last_events(self, learner: str, seed: int) -> list[UnitEvent]:
        """Return the last test event of each task, of one learner and seed."""
        events = (event for event in self.events if (event.learner, event.seed) == (learner, seed))
        return list({event.task: event for event in events}.values())
