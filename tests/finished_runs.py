"""A finished run made by hand: files as the lab leaves them, without computing anything."""

from coldstream.lab import reading, records
from coldstream.lab.files import Folder
from coldstream.metrics import reliability, summary

ENVIRONMENT = records.Environment(
    python="3.11",
    torch="2.7",
    torchvision="0.22",
    numpy="2.0",
    machine="Linux",
    threads=1,
    coldstream="0.1.0",
    commit="0123456789abcdef",
)


def event(step, accuracy, *, task=None, classes=("a", "b"), predicted=None, counts=None, ece=0.1, images=20):
    """A test with all that a record has of one; by default everything is taken for the first class."""
    predicted = predicted or classes
    counts = counts or [[10, *[0] * (len(predicted) - 1)] for _ in classes]
    return records.EventResult(
        step=step,
        task=task,
        classes=len(classes),
        images=images,
        accuracy=accuracy,
        top5=1.0,
        ece=ece,
        ece_debiased=max(0.0, ece - 0.03),
        reliability=reliability([0.9, 0.6], [True, False]),
        coverage=records.Coverage(threshold=(0.6, 0.9), coverage=(1.0, 0.5), accuracy=(0.5, 1.0)),
        confusion=records.Confusion(truth=classes, predicted=predicted, counts=counts),
    )


def numbers(**values):
    """Numbers of a unit, the required ones 0 unless given."""
    given = dict.fromkeys(
        ("final_accuracy", "final_top5", "learned_accuracy", "average_ece", "average_ece_debiased"), 0.0
    )
    return records.Numbers[float](**{**given, **values})


def mean(units):
    """Mean and spread of the numbers that all units have."""
    names = [name for name, _ in units[0]]
    return records.Numbers[records.Summary](**{name: summary([unit.get(name) for unit in units]) for name in names})


def unit(seed, tasks, *, offline=None, buffer=(10, 1000), code="code", **values):
    """A unit of test events by task; `offline` has the accuracies of a task's references."""
    results = []
    for task, events in tasks.items():
        references = [
            records.Reference(**test.numbers().model_dump() | {"accuracy": accuracy})
            for test, accuracy in zip(events[::-1], (offline or {}).get(task, ())[::-1], strict=False)
        ][::-1]
        last = references[-1].accuracy if references else None
        of_task = numbers(final_accuracy=events[-1].accuracy, offline_accuracy=last, average_ece=events[-1].ece)
        results.append(
            records.TaskResult(
                task=task, numbers=of_task, events=[test.numbers() for test in events], offline=references
            )
        )
    learner = records.FinalLearner(
        examples=20,
        prequential=None,
        buffer=records.Buffer(examples=buffer[0], bytes=buffer[1]) if buffer else None,
        parameters=1234,
        frozen_share=0.0,
        fingerprint="f",
        code=code,
    )
    ends = [events[-1].accuracy for events in tasks.values()]
    values = {"final_accuracy": sum(ends) / len(ends), "average_ece": 0.1, **values}
    return records.UnitResult(seed=seed, learner=learner, numbers=numbers(**values), tasks=results), tasks


def write(path, learners, settings, *, ordering="class-incremental", seconds=5.0, all_seconds=None):
    """Write a finished run: learner -> list of `unit`; settings is the tree of its config."""
    folder = Folder(path)
    folder.make()
    tasks = list(next(iter(learners.values()))[0][1])
    length = 20 // len(tasks)
    results, events, timing = {}, [], {}
    for name, units in learners.items():
        of_learner = [one for one, _ in units]
        results[name] = records.LearnerResult(
            units=of_learner,
            numbers=mean([one.numbers for one in of_learner]),
            tasks=[
                records.TaskMean(task=task, numbers=mean([one.task(task).numbers for one in of_learner]))
                for task in tasks
            ],
        )
        for one, tests in units:
            for test in sorted((test for of_task in tests.values() for test in of_task), key=lambda test: test.step):
                events.append(records.UnitEvent(**dict(test), learner=name, seed=one.seed))
        timing[name] = {
            one.seed: records.UnitTiming(seconds=seconds, environment=ENVIRONMENT, ms_per_example=2.0, index_bytes=7)
            for one in of_learner
        }
    data = [
        records.TaskData(task=task, name="digits", classes=2, train=length, test=20, start=place * length)
        for place, task in enumerate(tasks)
    ]
    count = sum(map(len, learners.values()))
    folder.write("summary.json", records.Results(name=path.name, ordering=ordering, tasks=data, learners=results))
    folder.write("timing.json", records.Timing(seconds=all_seconds or seconds * count, units=timing))
    folder.rewrite("metrics.jsonl", events)
    folder.write("config.yaml", reading.write_config(reading.make_config({**settings, "name": path.name})))
    return records.FinishedRun(path)
