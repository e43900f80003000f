"""The plan of an experiment, as plan.json: its tasks and its jobs, each with the key of its results.

It is written when a run begins. `coldstream status` and the jobs read it.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from coldstream.lab.files import Record
from coldstream.lab.records import LearnerSettings, Task, TaskData


class PlannedJob(Record):
    """A piece of work. Its results are in the folder ``store/KIND/KEY``."""

    key: str = Field(description="hash of all that the results depend on")
    title: str
    total: int = Field(description="how much there is to do, in `counted`")
    needs: tuple[str, ...] = Field((), description="keys of the jobs whose results this one begins with")
    learner: str = Field(description="which learner's settings it takes")
    seed: int
    code: str = Field(description="hash of the code that computes it")


class PlannedPretraining(PlannedJob):
    """A network trained before the stream."""

    kind: Literal["pretrained"] = "pretrained"
    counted: Literal["epochs"] = "epochs"


class PlannedUnit(PlannedJob):
    """A learner with a seed on its stream."""

    kind: Literal["units"] = "units"
    counted: Literal["examples"] = "examples"


class PlannedReference(PlannedJob):
    """The same network trained offline on what was streamed of a task until a test event."""

    kind: Literal["offline"] = "offline"
    counted: Literal["epochs"] = "epochs"
    task: Task
    event: int = Field(description="which test event of the task's own stream, from 0")
    recipe: int = Field(description="which of `OfflineConfig.recipes`, from 0")
    rate: float | None = Field(None, description="of its recipe, where the recipes differ in it")
    augment: str | None = Field(None, description="of its recipe, where the recipes differ in it")


class Plan(Record):
    """What an experiment computes, and on what."""

    name: str
    config: str | None = Field(None, description="hash of config.yaml; None for plans from before it was recorded")
    learners: dict[str, LearnerSettings] = Field(default_factory=dict, description="what each learner runs with")
    ordering: str
    tasks: tuple[TaskData, ...] = Field(description="in the order in which they are streamed; one, None, without")
    first_steps: dict[int, dict[str, int]] = Field(
        description="of a stream of one task, by seed: examples streamed until each class has come once"
    )
    jobs: tuple[Annotated[PlannedPretraining | PlannedUnit | PlannedReference, Field(discriminator="kind")], ...]
    units: dict[str, dict[int, str]] = Field(description="by learner and seed: the key of its unit")
    references: dict[str, dict[int, tuple[str, ...]]] = Field(
        description="by learner and seed: the keys of its offline references, in the order of tasks and test events"
    )
