"""Numbers of a run by hand."""

import numpy as np
import pytest

import finished_runs
from coldstream.data import Dataset
from coldstream.lab.planning import first_steps
from coldstream.lab.records import Numbers, Reference, TaskData
from coldstream.lab.results import averages, one_task_numbers, transfer, unit_result
from coldstream.metrics import summary
from coldstream.streams import make_stream


def event(step, **rows):
    """A test: for each class tested, how many images of it were taken for a, b and c."""
    known = [name for name in "abc" if any(row["abc".index(name)] is not None for row in rows.values())]
    table = [[row["abc".index(name)] for name in known] for row in rows.values()]
    return finished_runs.event(step, 0.5, classes=tuple(rows), predicted=known, counts=table)


def test_transfer_where_all_classes_are_tested():
    """B comes in the second of three batches, c in the last; a learner initialised on b knows it before."""
    events = [
        event(10, a=(8, 2, None), b=(5, 5, None), c=(6, 4, None)),
        event(20, a=(6, 4, None), b=(1, 9, None), c=(5, 5, None)),
        event(30, a=(7, 1, 2), b=(2, 6, 2), c=(0, 0, 10)),
    ]
    numbers = transfer(events, {"a": 1, "b": 11, "c": 30})
    assert numbers["forgetting"] == pytest.approx(((0.8 - 0.7) + (0.9 - 0.6)) / 2)
    assert numbers["backward_transfer"] == pytest.approx(((0.7 - 0.8) + (0.6 - 0.9)) / 2)
    assert numbers["forward_transfer"] == pytest.approx((0.5 + 0.0) / 2)


def test_transfer_where_only_classes_seen_are_tested():
    events = [event(10, a=(9, 1, None)), event(20, a=(5, 5, None), b=(0, 10, None))]
    numbers = transfer(events, {"a": 1, "b": 11})
    assert numbers == {
        "forgetting": pytest.approx(0.4),
        "backward_transfer": pytest.approx(-0.4),
        "forward_transfer": None,
    }
    everything_at_once = transfer(events[1:], {"a": 1, "b": 11})
    assert everything_at_once == dict.fromkeys(numbers)


def test_when_classes_come():
    data = Dataset("three", np.arange(6, dtype=np.uint8).reshape(6, 1, 1, 1), np.arange(6) // 2, ("a", "b", "c"))
    stream = make_stream(data, "class-incremental", 0, class_order=["c", "a", "b"])
    assert first_steps(stream) == {"c": 1, "a": 3, "b": 5}


def test_averages_are_over_the_seeds_that_have_a_number():
    units = [finished_runs.numbers(final_accuracy=1.0), finished_runs.numbers(final_accuracy=0.5, omega_final=0.25)]
    mean = averages(units)
    assert mean.final_accuracy == summary([1.0, 0.5])
    assert mean.omega_final == summary([0.25])
    assert mean.forgetting is None


def reference(accuracy, step=1, top5=1.0):
    test = finished_runs.event(step, accuracy).numbers().model_dump()
    return Reference(**test | {"top5": top5})


def test_an_offline_model_that_knows_nothing_has_no_omega():
    events = [finished_runs.event(1, 0.5, classes=("a",), counts=[[4]])]
    numbers = one_task_numbers(events, [reference(0.0)], {"a": 1})
    assert numbers.omega_per_event is numbers.omega_final is None
    assert numbers.top5_omega_per_event == numbers.top5_omega_final == 1.0
    assert one_task_numbers(events, [reference(0.8)], {"a": 1}).omega_final == pytest.approx(0.625)


def test_references_for_every_test_or_for_the_last():
    events = [
        finished_runs.event(step, accuracy, classes=("a",), counts=[[4]]) for step, accuracy in ((1, 0.5), (2, 0.25))
    ]
    both = one_task_numbers(events, [reference(1.0), reference(0.5)], {"a": 1})
    assert both.omega_per_event == pytest.approx((0.5 / 1.0 + 0.25 / 0.5) / 2)
    assert both.omega_final == pytest.approx((0.5 / 0.5 + 0.25 / 0.5) / 2)
    assert both.offline_accuracy == 0.5
    last = one_task_numbers(events, [reference(0.5)], {"a": 1})
    assert last.omega_per_event is None
    assert last.omega_final == both.omega_final
    assert one_task_numbers(events, [], {"a": 1}).omega_final is None


FINAL, _ = finished_runs.unit(0, {None: [finished_runs.event(20, 0.5)]})
EVENTS = [
    finished_runs.event(10, 0.25, task="x"),  # within the first task, which ends at 20
    finished_runs.event(20, 0.75, task="x", ece=0.3),
    finished_runs.event(30, 0.625, task="x"),
    finished_runs.event(30, 0.5, task="y"),
    finished_runs.event(50, 0.375, task="x").model_copy(update={"top5": 0.5}),
    finished_runs.event(50, 0.625, task="y"),
    finished_runs.event(50, 0.875, task="z"),
]
TASKS = [
    TaskData(task=task, name="digits", classes=2, train=train, test=9, start=start)
    for task, start, train in (("x", 0, 20), ("y", 20, 10), ("z", 30, 20))
]


def of_tasks(references, events=EVENTS, tasks=TASKS):
    return unit_result(0, FINAL.learner, events, references, tasks, {})


def test_numbers_of_several_tasks():
    unit = of_tasks({"x": [reference(0.75)], "y": [reference(1.0)], "z": [reference(0.875)]})
    x, y, z = (task.numbers for task in unit.tasks)
    assert [(task.learned_accuracy, task.final_accuracy) for task in (x, y, z)] == [
        (0.75, 0.375),
        (0.5, 0.625),
        (0.875, 0.875),
    ]
    assert (x.forgetting, y.forgetting, z.forgetting) == (0.375, 0.0, None)
    assert unit.numbers.forgetting == pytest.approx((0.375 + 0.0) / 2)
    assert unit.numbers.final_accuracy == pytest.approx((0.375 + 0.625 + 0.875) / 3)
    assert unit.numbers.final_top5 == pytest.approx((0.5 + 1 + 1) / 3)
    assert x.omega_final == pytest.approx((1 + 0.625 / 0.75 + 0.5) / 3)
    assert y.omega_final == pytest.approx((0.5 + 0.625) / 2)
    assert unit.numbers.omega_per_event == pytest.approx((1 + 0.625 / 0.75 + 0.5 + 0.5 + 0.625 + 1) / 6)
    assert unit.numbers.omega_final == unit.numbers.omega_per_event
    assert unit.numbers.offline_accuracy == pytest.approx((0.75 + 1 + 0.875) / 3)
    assert unit.numbers.average_ece == pytest.approx((6 * 0.1 + 0.3) / 7)
    assert [one.step for one in unit.tasks[0].events] == [10, 20, 30, 50]
    assert unit.learner == FINAL.learner


def test_omega_needs_a_reference_of_every_task():
    assert of_tasks({}).numbers.omega_per_event is None
    some = of_tasks({"x": [reference(0.75)]})
    assert some.numbers.omega_per_event is None
    assert some.tasks[0].numbers.omega_final is not None
    assert some.tasks[1].numbers.omega_final is some.tasks[1].numbers.offline_accuracy is None


def test_a_stream_of_one_named_task_is_as_one_without():
    tests = [event(10, a=(9, 1, None)), event(20, a=(5, 5, None), b=(0, 10, None))]
    results = []
    for name in ("x", None):
        named = [test.model_copy(update={"task": name}) for test in tests]
        data = [TaskData(task=name, name="digits", classes=2, train=20, test=9, start=0)]
        results.append(unit_result(0, FINAL.learner, named, {}, data, {"a": 1, "b": 11}).numbers)
    assert results[0] == results[1]
    assert results[0].forgetting == pytest.approx(0.4)
    assert isinstance(results[0], Numbers)
