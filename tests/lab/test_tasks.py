"""Experiments with several tasks: what is learned and tested when, what it comes down to, stopping and going on."""

import json
import sys
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
import yaml

from coldstream import CSSL
from coldstream.cli import main
from coldstream.data import digits
from coldstream.lab import Experiment, Stopped, make_config, run_jobs
from coldstream.lab.files import Folder
from coldstream.lab.reading import write_config
from coldstream.lab.records import FinishedRun, OfflineResult
from coldstream.lab.references import best_references
from coldstream.lab.units import unit_settings
from coldstream.learners import LEARNERS, OfflineRecipe
from coldstream.report.pages import write_report
from coldstream.report.run_tables import event_table, learner_table, task_table

TASKS = {
    "low": {"classes": ["0", "1", "2"], "per_class": 6, "test_per_class": 4},
    "mid": {"classes": ["4", "5"], "per_class": 5, "test_per_class": 6},
    "high": {"classes": ["8", "9"], "per_class": 7, "test_per_class": 5},
}
TREE = {
    "name": "mt",
    "tasks": TASKS,
    "learner": {"kind": "one-head", "model": "linear", "replay": 3},
    "offline": {"enabled": False},
    "checkpoint_every": 4,
    "threads": 1,
}


class OneHead(CSSL):
    """The plainest learner with tasks: one head over all (task, label) pairs, of which a task has its own."""

    def learn_one(self, image, label, *, task=None, id=None):
        return super().learn_one(image, (task, label), id=id)

    def classes_of(self, task):
        return [label for owner, label in super().classes_of(None) if owner == task]

    def predict_proba_many(self, images, *, task=None):
        shares = super().predict_proba_many(images)
        shares = shares[:, [owner == task for owner, _ in super().classes_of(None)]]
        return shares / shares.sum(axis=1, keepdims=True)

    def predict_one(self, image, *, task=None):
        labels = self.classes_of(task)
        return labels[self.predict_proba_many([image], task=task)[0].argmax()] if labels else None

    def base_init(self, dataset, recipe=None, progress=None, task=None):
        super().base_init(replace(dataset, names=tuple((task, name) for name in dataset.names)), recipe, progress)


@pytest.fixture(autouse=True)
def one_head(monkeypatch):
    monkeypatch.setitem(LEARNERS, "one-head", OneHead)


def begin(folder, *changes, **more):
    return Experiment.create(make_config({**TREE, **more}, changes), folder / "runs" / "mt")


def end(experiment):
    run_jobs(experiment)
    experiment.results()
    return {name: (experiment.folder.path / name).read_bytes() for name in ("summary.json", "metrics.jsonl")}


def unit_of(experiment):
    """Return the results of the only learner and seed."""
    ((_, unit),) = experiment.results().units
    return unit


@pytest.fixture(scope="module")
def straight(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(LEARNERS, "one-head", OneHead)
        return end(begin(tmp_path_factory.mktemp("straight")))


def test_what_is_learned_and_tested_when(tmp_path, monkeypatch):
    seen, tested = [], []
    learn, predict = OneHead.learn_one, OneHead.predict_proba_many

    def watched(self, image, label, *, task=None, id=None):
        seen.append((task, label, id))
        return learn(self, image, label, task=task, id=id)

    def asked(self, images, *, task=None):
        tested.append((self.step, task, len(images)))
        return predict(self, images, task=task)

    monkeypatch.setattr(OneHead, "learn_one", watched)
    monkeypatch.setattr(OneHead, "predict_proba_many", asked)
    made = begin(tmp_path, "prequential=false")
    end(made)
    assert [task for task, _, _ in seen] == ["low"] * 18 + ["mid"] * 10 + ["high"] * 14
    assert Counter(label for _, label, _ in seen) == {
        **dict.fromkeys("012", 6),
        **dict.fromkeys("45", 5),
        "8": 7,
        "9": 7,
    }
    assert [id for *_, id in seen] == made.inputs.stream(0).ids()
    expected = [
        *[(18, "low", 12), (28, "low", 12), (28, "mid", 12)],
        *[(42, "low", 12), (42, "mid", 12), (42, "high", 10)],
    ]
    assert tested == expected
    lines = FinishedRun(made.folder.path).events
    assert [(line.step, line.task, line.images) for line in lines] == expected
    for line in lines:
        table = line.confusion
        assert sorted(table.truth) == sorted(table.predicted) == TASKS[line.task]["classes"]
        right = [counts[table.predicted.index(n)] for n, counts in zip(table.truth, table.counts, strict=True)]
        assert line.accuracy == pytest.approx(sum(right) / line.images)


def test_a_prediction_comes_before_each_example_with_the_head_of_its_task(tmp_path, monkeypatch):
    asked, predict = [], OneHead.predict_one

    def watched(self, image, *, task=None):
        label = predict(self, image, task=task)
        asked.append((task, label))
        return label

    monkeypatch.setattr(OneHead, "predict_one", watched)
    made = begin(tmp_path)
    end(made)
    assert [task for task, _ in asked] == ["low"] * 18 + ["mid"] * 10 + ["high"] * 14
    assert [asked[step][1] for step in (0, 18, 28)] == [None] * 3  # nothing is known of a task before it begins
    truth = [made.inputs.stream(0).example(step)[1] for step in range(42)]
    right = np.mean([guess == label for (_, guess), label in zip(asked, truth, strict=True)])
    assert unit_of(made).numbers.prequential == pytest.approx(right)


def test_the_order_of_a_task_is_that_of_an_experiment_on_it_alone(tmp_path):
    together = begin(tmp_path, "seeds=[0, 1]")
    for task, data in TASKS.items():
        alone = Experiment.create(make_config({"data": data, "seeds": [0, 1], "name": task}), tmp_path / task)
        for seed in (0, 1):
            assert together.inputs.stream(seed).parts[task].ids() == alone.inputs.stream(seed).parts[None].ids()


def test_tests_within_tasks(tmp_path):
    made = begin(tmp_path, "stream.test_every=1")
    steps = [(event.step, event.task) for event in made.inputs.stream(0).events]
    assert steps[:5] == [(6, "low"), (12, "low"), (18, "low"), (23, "low"), (23, "mid")]
    end(made)
    low = unit_of(made).task("low")
    assert [event.classes for event in low.events] == [1, 2, 3, 3, 3, 3, 3]
    assert low.numbers.learned_accuracy == low.events[2].accuracy
    assert event_table(made.results(), unit_of(made))[3][:3] == ["low", "3", "18"]


@pytest.mark.parametrize("mode", ["between", "beside"])
def test_stops_and_crashes_change_nothing(tmp_path, monkeypatch, straight, mode):
    made = begin(tmp_path, f"evaluate={mode}")
    (job,) = made.jobs
    append, lines = Folder.append, []

    def dies(self, name, record, seal):
        seal = append(self, name, record, seal)
        lines.append((record.step, record.task))
        if lines[-1] == (28, "low"):  # the first of the two tests of that step
            raise RuntimeError("the process dies")
        return seal

    with pytest.raises(Stopped):
        job.run(lambda done, total, note: done == 10)
    assert job.progress() == (10, 42)
    with monkeypatch.context() as patch:
        patch.setattr(Folder, "append", dies)
        with pytest.raises(RuntimeError, match="dies"):
            job.run(lambda done, total, note: False)
    assert lines == [(18, "low"), (28, "low")]
    assert 18 <= job.progress()[0] < 28
    with pytest.raises(Stopped):
        job.run(lambda done, total, note: done == 33)
    assert end(made) == straight


@pytest.mark.parametrize("classes", [2, None])
def test_base_initialisation_is_on_the_beginning_of_the_first_task(tmp_path, monkeypatch, classes):
    calls, base_init = [], OneHead.base_init

    def watched(self, dataset, recipe=None, progress=None, task=None):
        calls.append((Counter(dataset.names[label] for label in dataset.labels), task))
        base_init(self, dataset, recipe, progress, task)

    monkeypatch.setattr(OneHead, "base_init", watched)
    base = {"classes": classes, "epochs": 1, "batch": 8, "augment": "none"}
    made = begin(tmp_path, "learner.init=base", base=base)
    first = [made.inputs.stream(0).example(step)[1] for step in (0, 6)] if classes else list("012")
    end(made)
    assert calls == [(dict.fromkeys(first, 6), "low")]
    # What comes again replaces what was kept: nothing is stored twice.
    assert unit_of(made).learner.buffer.examples == 42


def test_counts_are_by_task_and_label(tmp_path):
    tasks = {"one": {"per_class": 4, "classes": ["0", "1"]}, "two": {"classes": ["1"]}}
    made = begin(tmp_path, "learner.rate=linear(0.1, 0.001)", tasks=tasks)
    train = digits()[0]
    ones = int((train.labels == train.names.index("1")).sum())
    counts = {("one", "0"): 4, ("one", "1"): 4, ("two", "1"): ones}
    assert unit_settings(made.config, made.inputs, "cold-start")[1]["counts"] == counts
    tasks["two"]["per_class"] = 9
    other = begin(tmp_path / "other", "learner.rate=linear(0.1, 0.001)", tasks=tasks)
    assert unit_settings(other.config, other.inputs, "cold-start")[1]["counts"] == {**counts, ("two", "1"): 9}
    end(other)
    alone = Experiment.create(make_config({"data": tasks["one"], "learner": {"rate": "linear(0.1)"}}), tmp_path / "x")
    assert unit_settings(alone.config, alone.inputs, "cold-start")[1]["counts"] == {"0": 4, "1": 4}


def test_another_order_or_name_of_tasks_is_another_job(tmp_path):
    trees = [TASKS, dict(reversed(TASKS.items())), {"first": TASKS["low"], **dict(list(TASKS.items())[1:])}]
    keys = [begin(tmp_path / str(i), tasks=tasks).jobs[0].key for i, tasks in enumerate(trees)]
    assert len(set(keys)) == 3


OFFLINE = {"epochs": 2, "batch": 8, "augment": "none"}


def test_a_reference_of_each_task_is_that_of_an_experiment_on_it_alone(tmp_path):
    together = begin(tmp_path, offline=OFFLINE)
    references = together.references("cold-start", 0)
    assert [job.title for job in references] == [f"offline, {task}, seed 0" for task in TASKS]
    for task, job in zip(TASKS, references, strict=True):
        tree = {"data": TASKS[task], "learner": {"model": "linear"}, "offline": OFFLINE, "threads": 1}
        alone = Experiment.create(make_config(tree), tmp_path / "runs" / task)
        assert alone.references("cold-start", 0)[-1].key == job.key
    end(together)
    unit = unit_of(together)
    by_hand = CSSL(model="linear", seed=0)
    by_hand.base_init(together.inputs.train["mid"], OfflineRecipe(**OFFLINE, rate=0.1))
    test = together.inputs.test["mid"]
    truth = [test.names[label] for label in test.labels]
    right = np.mean([one == other for one, other in zip(by_hand.predict_many(test.images), truth, strict=True)])
    assert unit.task("mid").numbers.offline_accuracy == pytest.approx(right)
    shares = [event.accuracy / task.numbers.offline_accuracy for task in unit.tasks for event in task.events]
    assert unit.numbers.omega_per_event == pytest.approx(np.mean(shares))


def test_the_best_of_several_rates_counts(tmp_path):
    tree = {"data": TASKS["low"], "learner": {"model": "linear", "replay": 3}}
    several = Experiment.create(make_config({**tree, "offline": {**OFFLINE, "rates": [1e-6, 0.1]}}), tmp_path / "a")
    jobs = several.references("cold-start", 0)
    assert [job.title for job in jobs[:2]] == [
        f"offline, 1 classes, rate {rate}, seed 0" for rate in ("1e-06", "0.1")
    ]
    end(several)
    accuracies = {rate: [] for rate in (1e-6, 0.1)}
    for rate, reached in accuracies.items():
        one = Experiment.create(make_config({**tree, "offline": {**OFFLINE, "rate": rate}}), tmp_path / str(rate))
        assert {job.key for job in one.references("cold-start", 0)} <= {job.key for job in jobs}  # shared
        run_jobs(one)
        reached += [event.accuracy for event in unit_of(one).task(None).offline]
    offline = unit_of(several).task(None).offline
    pairs = list(zip(*accuracies.values(), strict=True))
    assert [event.accuracy for event in offline] == [max(pair) for pair in pairs]
    assert [event.rate for event in offline] == [1e-6 if low >= high else 0.1 for low, high in pairs]
    assert len({event.rate for event in offline}) == 2


def test_the_best_of_several_policies_counts(tmp_path):
    tree = {"data": TASKS["low"], "learner": {"model": "linear", "replay": 3}, "stream": {"test_every": 3}}
    offline = {**OFFLINE, "rates": [1e-6, 0.1], "augments": ["none", "crop(2)"]}
    made = Experiment.create(make_config({**tree, "offline": offline}), tmp_path / "a")
    end(made)
    jobs = made.references("cold-start", 0)
    assert [job.title for job in jobs] == [
        f"offline, 3 classes, rate {rate}, {policy}, seed 0"
        for policy in ("none", "crop(2)")
        for rate in ("1e-06", "0.1")
    ]
    reached = [(job.folder.read("summary.json", OfflineResult).event.accuracy, job.planned) for job in jobs]
    (chosen,) = unit_of(made).task(None).offline
    best = next(planned for accuracy, planned in reached if accuracy == max(a for a, _ in reached))
    assert (chosen.rate, chosen.augment) == (best.rate, best.augment)
    with pytest.raises(ValueError, match="sharpen"):
        make_config({**tree, "offline": {"augments": ["sharpen"]}})


@pytest.mark.parametrize("seed", [0, 1])
def test_some_seeds_have_references(seed, tmp_path):
    tree = {"data": TASKS["low"], "learner": {"model": "linear", "replay": 3}, "stream": {"test_every": 3}}
    tree |= {"seeds": [0, 1, 2], "offline": {**OFFLINE, "seeds": [seed]}}
    made = Experiment.create(make_config(tree), tmp_path / "a")
    end(made)
    assert [job.title for job in made.jobs if "offline" in job.title] == [f"offline, 3 classes, seed {seed}"]
    result = made.results().learners["cold-start"]
    assert [len(unit.task(None).offline) for unit in result.units] == [int(one.seed == seed) for one in result.units]
    mean = result.numbers.omega_final
    assert (mean.mean, mean.n) == (result.units[seed].numbers.omega_final, 1)
    write_report(made.folder.path)
    assert "trained offline" in (made.folder.path / "accuracy.svg").read_text()


def test_with_tasks_some_seeds_have_references(tmp_path):
    made = begin(tmp_path, "seeds=[0, 1]", offline={**OFFLINE, "seeds": [0]})
    end(made)
    units = next(iter(made.results().learners.values())).units
    for task in TASKS:
        assert [unit.task(task).numbers.offline_accuracy is None for unit in units] == [False, True]
    write_report(made.folder.path)
    assert "trained offline" in (made.folder.path / "accuracy.svg").read_text()


def test_a_rate_that_diverges_is_left_out(tmp_path):
    tree = {"data": TASKS["low"], "learner": {"model": "mlp", "replay": 3}, "stream": {"test_every": 3}}
    config = make_config({**tree, "offline": {**OFFLINE, "rates": [1e30, 0.01]}})
    made = Experiment.create(config, tmp_path / "runs" / "a")
    end(made)
    jobs = made.references("cold-start", 0)
    assert jobs[0].folder.read("summary.json", OfflineResult).diverged
    assert [reference.rate for _, reference in best_references(jobs)] == [0.01]
    with pytest.raises(ValueError, match="every recipe diverged; give offline.rates lower ones"):
        list(best_references(jobs[:1]))
    alone = make_config({**tree, "offline": {**OFFLINE, "rate": 1e31}})
    with pytest.raises(FloatingPointError, match="diverged"):
        run_jobs(Experiment.create(alone, tmp_path / "runs" / "b"))


@pytest.fixture(scope="module")
def reported(tmp_path_factory):
    learners = {"three": {}, "one": {"replay": 1}}
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(LEARNERS, "one-head", OneHead)
        made = begin(tmp_path_factory.mktemp("reported"), "seeds=[0, 1]", learners=learners, offline=OFFLINE)
        end(made)
    write_report(made.folder.path)
    return made


def test_tables_and_pictures(reported, monkeypatch, capsys):
    folder, run = reported.folder.path, FinishedRun(reported.folder.path)
    results = run.results
    assert {task.task: task.start for task in results.tasks} == {"low": 0, "mid": 18, "high": 28}
    table = learner_table(run)
    assert table[0][:5] == ["learner", "low", "mid", "high", "mean"]
    assert [line[0] for line in table] == ["learner", "three", "one", "offline"]
    units = results.learners["one"].units
    low = [unit.task("low").numbers.final_accuracy for unit in units]
    assert table[2][1] == f"{np.mean(low):.3f} ± {np.std(low, ddof=1):.3f}"
    final = [np.mean([task.numbers.final_accuracy for task in unit.tasks]) for unit in units]
    assert table[2][4] == f"{np.mean(final):.3f} ± {np.std(final, ddof=1):.3f}"
    offline = [unit.task("high").numbers.offline_accuracy for unit in units]
    assert table[3][3] == f"{np.mean(offline):.3f} ± {np.std(offline, ddof=1):.3f}"
    assert len({len(line) for line in table}) == 1
    assert [line[:2] for line in task_table(results)[1:4]] == [["three", task] for task in TASKS]
    events = event_table(results, units[0])
    assert [(line[0], line[2]) for line in events[1:]] == [
        *[("low", "18"), ("low", "28"), ("mid", "28")],
        *[("low", "42"), ("mid", "42"), ("high", "42")],
    ]
    for name in ("results.md", "results.csv", "results.tex"):
        assert "offline" in (folder / name).read_text()
    page = (folder / "report.html").read_text()
    assert page.count("data:image/png;base64,") >= 3
    assert "high" in page
    monkeypatch.setattr(sys, "argv", ["coldstream", "report", str(folder)])
    with pytest.raises(SystemExit) as stopped:
        main()
    assert stopped.value.code == 0
    said = capsys.readouterr().out
    assert all(text in said for text in ("low", "mid", "high", "mean", "offline", "three"))


def test_one_run_on_the_command_line(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "experiments").mkdir()
    (tmp_path / "experiments" / "mt.yaml").write_text(yaml.safe_dump({**TREE, "offline": OFFLINE}, sort_keys=False))
    for command in (["run", "mt"], ["list"], ["compare", "runs/mt", "runs/mt"]):
        monkeypatch.setattr(sys, "argv", ["coldstream", *command])
        with pytest.raises(SystemExit) as stopped:
            main()
        assert stopped.value.code == 0
    said = capsys.readouterr().out
    for text in ("seen", "final accuracy, mean over tasks", "forgetting", "an offline model per task"):
        assert text in said
    assert "  mt: digits; seeds [0]\n" in said
    assert "+0.0000 (1" in said
    saved = yaml.safe_load((tmp_path / "runs" / "mt" / "config.yaml").read_text())
    assert list(saved["tasks"]) == list(TASKS)
    assert write_config(make_config(saved)) == (tmp_path / "runs" / "mt" / "config.yaml").read_text()


def test_where_data_is_can_be_said_once_for_all_tasks():
    tree = {"tasks": {"a": {"name": "cub200"}, "b": {"name": "flowers102", "root": "mine", "download": False}}}
    config = make_config(tree, ["data.root=there", "data.download=true"])
    assert [(data.root, data.download) for data in config.tasks.values()] == [("there", True), ("mine", False)]
    again = make_config(yaml.safe_load(write_config(config)))
    assert again.tasks == config.tasks


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (["data.name=cub200"], "data.name is of an experiment without tasks.*only data.root and data.download"),
        (["data.per_class=4"], "data.per_class is of an experiment without tasks"),
        (["tasks.low.clases=3"], "unknown setting 'tasks.low.clases'; did you mean 'classes'?"),
        (["tasks.low=5"], "setting 'tasks.low'"),
        (["tasks.low.per_class=0"], "setting 'tasks.low.per_class'"),
        (["tasks=[low]"], "setting 'tasks'"),
        (["offline.rates=[0.1, 0]"], "setting 'offline.rates.1'"),
        (["stream.class_order=[a]"], "class_order names the classes of one data set"),
        (["tasks.low.classes=[nine]"], "nine"),
        (["stream.ordering=instance"], "streams clips"),
    ],
)
def test_what_a_user_can_mend_is_said(tmp_path, changes, message):
    with pytest.raises(ValueError, match=message):
        begin(tmp_path, *changes)
    assert not (tmp_path / "runs").exists()


def test_a_learner_without_tasks_is_refused(tmp_path):
    with pytest.raises(
        ValueError, match="learner 'cold-start' .ICaRL. has no tasks; those that have are cold-start, cssl, exstream"
    ):
        begin(tmp_path, "learner.kind=icarl", learner={"model": "mlp"})


REAL = {
    "full+separate": {"kind": "cssl", "strategy": "full+separate", "rate": "linear(0.1, 0.001)"},
    "split+sum": {"kind": "cssl", "strategy": "split+sum", "rate": "linear(0.1, 0.001)"},
    "deep-slda": {"kind": "deep-slda"},
    "exstream": {"kind": "exstream", "per_class": 5},
}


@pytest.mark.parametrize("name", REAL)
def test_learners_with_a_head_for_each_task(tmp_path, name):
    """Stopped and gone on, tested between or beside: the same bits; what is kept is what came."""
    more = {"learner": {"model": "mlp", "replay": 4}, "learners": {name: REAL[name]}}
    more["base"] = {"classes": 2, "epochs": 1, "batch": 8, "augment": "none"}
    straight = begin(tmp_path / "straight", **more)
    expected = end(straight)
    stopped = begin(tmp_path / "stopped", "evaluate=beside", **more)
    for moment in (7, 20, 28, 40):
        with pytest.raises(Stopped):
            stopped.jobs[0].run(lambda done, total, note, moment=moment: done == moment)
    assert end(stopped) == expected
    (unit,) = straight.results().learners[name].units
    assert unit.learner.examples == 42
    if REAL[name]["kind"] == "cssl":
        assert unit.learner.buffer.examples == 42


def test_every_line_and_summary_is_json(straight):
    summary = json.loads(straight["summary.json"])
    tasks = summary["learners"]["cold-start"]["tasks"]
    assert [task["task"] for task in tasks] == list(TASKS)
    assert tasks[0]["numbers"]["final_accuracy"]["n"] == 1
    assert [(task["name"], task["train"], task["test"]) for task in summary["tasks"]] == [
        ("digits", 18, 12),
        ("digits", 10, 12),
        ("digits", 14, 10),
    ]
