"""Results that are kept beside the documentation: one small file per experiment, one line per run."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from pydantic import Field

from coldstream.lab.files import Folder, Record
from coldstream.lab.records import Confusion, Environment
from coldstream.metrics import Summary, summary

Values = Mapping[tuple[str, str, str], Mapping[int, float]]
"""(part, learner, metric) -> seed -> number."""


class KeptEvent(Record):
    """A test event; of `task`, where there are several."""

    step: int
    task: str | None = None
    accuracy: float
    ece: float | None = None
    ece_debiased: float | None = None
    images: int | None = None


class KeptRun(Record):
    """One learner and seed.

    `code` is the hash of the code that it was computed with, `machine` the processor, its instruction set and the
    threads; None for runs from before they were recorded.
    """

    seed: int
    numbers: dict[str, float]
    events: list[KeptEvent]
    confusion: Confusion | None = None
    commit: str | None = None
    seconds: int | None = None
    machine: str | None = None
    code: str | None = None


class KeptPart(Record):
    """The runs of one part by learner.

    `settings` has of each learner a hash of the settings that its results depend on. `kinds` has its kind, by which
    its code is compared with today's.
    """

    settings: dict[str, str] = Field(default_factory=dict)
    ordering: str | None = None
    examples: int
    kinds: dict[str, str] = Field(default_factory=dict)
    learners: dict[str, list[KeptRun]]


class KeptResults(Record):
    """What is kept of an experiment, at one scale where there are several; `seconds` only where steps are timed."""

    experiment: str
    scale: str | None = None
    date: str | None = None
    seconds: int | None = None
    environment: dict[str, Any] | None
    parts: dict[str, KeptPart]

    @property
    def runs(self) -> Iterator[KeptRun]:
        """All runs of all parts."""
        return (run for part in self.parts.values() for runs in part.learners.values() for run in runs)

    @property
    def seeds(self) -> list[int]:
        """The seeds that any learner has."""
        return sorted({run.seed for run in self.runs})

    @property
    def duration(self) -> float:
        """Seconds that everything took, one job after another."""
        return self.seconds if self.seconds is not None else sum(run.seconds or 0 for run in self.runs)

    @property
    def values(self) -> Values:
        """Every number of every run by part, learner, metric and seed."""
        values: dict[tuple[str, str, str], dict[int, float]] = {}
        for name, part in self.parts.items():
            for learner, runs in part.learners.items():
                for run in runs:
                    for metric, number in run.numbers.items():
                        values.setdefault((name, learner, metric), {})[run.seed] = number
        return values


def summary_of(values: Values, part: str, learner: str, metric: str) -> Summary | None:
    """Return mean and spread over seeds of one number; None where there is none."""
    by_seed = values.get((part, learner, metric))
    return summary(list(by_seed.values())) if by_seed else None


def file_name(experiment: str, scale: str | None) -> str:
    """Return the name of the file in which results are kept."""
    return f"{experiment.replace(':', '-')}{f'-{scale}' if scale else ''}.json"


def read_kept(experiment: str, scale: str | None, folder: Path) -> KeptResults | None:
    """Return what was kept of an experiment, or None."""
    name = file_name(experiment, scale)
    return Folder(folder).read(name, KeptResults) if Folder(folder).has(name) else None


def keep(results: KeptResults, folder: Path) -> None:
    """Keep results, one line per run, so that a diff shows which runs changed."""
    parts = []
    for name, part in results.parts.items():
        learners = ",\n".join(
            f"    {json.dumps(learner)}: [\n      " + ",\n      ".join(map(_line, runs)) + "\n    ]"
            for learner, runs in part.learners.items()
        )
        header = json.dumps(part.model_dump(exclude={"learners"}, exclude_none=True, exclude_defaults=True))[:-1]
        parts.append(f'  {json.dumps(name)}: {header}, "learners": {{\n{learners}\n  }}}}')
    head = {key: value for key, value in results if value is not None and key != "parts"}
    head.setdefault("environment", None)
    Folder(folder).make()
    text = json.dumps(head)[:-1] + ', "parts": {\n' + ",\n".join(parts) + "\n}}\n"
    Folder(folder).write(file_name(results.experiment, results.scale), text)


def _line(run: KeptRun) -> str:
    return json.dumps({**run.model_dump(mode="json", exclude_none=True), "code": run.code})


def code_note(results: KeptResults) -> str:
    """Return in a sentence or two which runs were computed with other code than today's; empty if none was."""
    unknown = total = 0
    other: dict[str, int] = {}
    for part in results.parts.values():
        for learner, runs in part.learners.items():
            codes = [run.code for run in runs if run.events]  # what was timed, or is a reference, has none
            total += len(codes)
            unknown += codes.count(None)
            recorded = [code for code in codes if code is not None]
            if ":" in part.kinds.get(learner, ""):  # a page does not import code of the user's
                continue
            if recorded and (differing := sum(code != code_today(part.kinds[learner]) for code in recorded)):
                other[learner] = other.get(learner, 0) + differing
    sentences = []
    if unknown:
        number = f"all {total}" if unknown == total else f"{unknown} of {total}"
        sentences.append(f"The code hash of {number} runs was not recorded.")
    if other:
        number = f"{sum(other.values())} of {total}"
        sentences.append(f"{number} runs were computed with other code than today's: {', '.join(other)}.")
    return " ".join(sentences)


def machine_note(results: KeptResults) -> str:
    """Return in a sentence on which processors the runs were computed."""
    machines = Counter(run.machine or "not recorded" for run in results.runs if run.events)
    if not machines:  # what was timed: all of it in one place
        given = Environment.model_validate(results.environment or {}).hardware if results.environment else None
        return f"Processor: {given or 'not recorded'}."
    several, total = len(machines) > 1, machines.total()
    return (
        f"Processor: {'; '.join(f'{one} ({n} of {total} runs)' if several else one for one, n in machines.items())}."
    )


def code_today(kind: str) -> str:
    """Return the hash of the code that a learner's results would be computed with now."""
    from coldstream.lab.keys import learner_version
    from coldstream.lab.learners import learner_class

    return learner_version(learner_class(kind))
