"""Networks trained on other classes before the stream: what is trained, who begins from it, how it is kept."""

import fcntl
import threading
import time

import numpy as np
import pytest
import torch
import yaml
from safetensors.torch import load_file

from coldstream.data import load_dataset, select
from coldstream.lab import Experiment, Stopped, make_config, run_jobs
from coldstream.lab.evaluation import evaluate
from coldstream.lab.reading import write_config
from coldstream.lab.records import FinalLearner, JobTiming, OfflineResult, PretrainResult
from coldstream.learners import CSSL, ColdStart, DeepSLDA, OfflineRecipe
from coldstream.streams import sorted_by_content

BEFORE = {"data": {"classes": ["7", "8", "9"], "per_class": 8, "test_per_class": 4}, "epochs": 3, "batch": 8}
TINY = {
    "data": {"classes": ["0", "1", "2"], "per_class": 4},
    "learner": {"model": "mlp", "replay": 3, "augment": "none", "init": "pretrained"},
    "pretrain": {**BEFORE, "augment": "none"},
    "offline": {"epochs": 1, "augment": "none"},
    "base": {"epochs": 1, "augment": "none"},
}


def experiment(tmp_path, name="one", **changes):
    return Experiment.create(make_config({**TINY, **changes}), tmp_path / "runs" / name)


def by_hand(seed=0):
    """Return the learner that pre-training is: trained offline on those images, by its recipe."""
    train, test = select(*load_dataset("digits"), classes=["7", "8", "9"], per_class=8, test_per_class=4)
    learner = CSSL(model="mlp", seed=seed)
    learner.base_init(sorted_by_content(train), OfflineRecipe(epochs=3, batch=8, augment="none"))
    return learner, train, test


def body(learner):
    return learner.engine.body.state_dict()


def test_the_weights_are_those_of_offline_training(tmp_path):
    made = experiment(tmp_path, offline={"enabled": False})
    assert [job.title for job in made.jobs] == ["pre-training, 3 classes, seed 0", "cold-start, seed 0"]
    run_jobs(made)
    job = made.jobs[0]
    learner, train, test = by_hand()
    state = load_file(job.weights)
    assert state.keys() == body(learner).keys()
    assert all(torch.equal(state[name], value) for name, value in body(learner).items())
    result = job.folder.read("summary.json", PretrainResult)
    for part, key in ((train, "train_accuracy"), (test, "test_accuracy")):
        right = [a == part.names[b] for a, b in zip(learner.predict_many(part.images), part.labels, strict=True)]
        assert getattr(result, key) == np.mean(right)
    assert (result.images, result.test_images, result.classes) == (24, 12, ("7", "8", "9"))
    assert result.parameters == (64 + 1) * 64 + (64 + 1) * 64
    assert job.folder.read("timing.json", JobTiming).seconds > 0


def test_learners_and_references_begin_from_them(tmp_path):
    made = experiment(tmp_path)
    run_jobs(made)
    first = made.jobs[0]
    stream, train, ends = made.inputs.stream(0).parts[None], made.inputs.train[None], {}
    for init in (str(first.weights), "random"):
        learner = ColdStart(model="mlp", replay=3, augment="none", init=init)
        for index, id in zip(stream.order, stream.ids(), strict=True):
            learner.predict_one(train.images[index])
            learner.learn_one(train.images[index], train.names[train.labels[index]], id=id)
        ends[init] = learner.fingerprint()
    begun = made.unit("cold-start", 0).folder.read("summary.json", FinalLearner).fingerprint
    assert begun == ends[str(first.weights)] != ends["random"]
    job, results = made.references("cold-start", 0)[-1], {}
    for init in (str(first.weights), "random"):
        reference = CSSL(model="mlp", init=init)
        recipe = OfflineRecipe(epochs=1, batch=64, augment="none")
        reference.base_init(train.take(np.sort(stream.order)), recipe)
        results[init] = evaluate(reference, made.inputs.test[None], stream.events[-1])
    trained = job.folder.read("summary.json", OfflineResult).event
    assert trained == results[str(first.weights)] != results["random"]


def test_results_are_not_those_of_random_weights(tmp_path):
    made = experiment(tmp_path, learners={"pre": {}, "cold": {"init": "random"}}, offline={"enabled": False})
    run_jobs(made)
    learners = made.results().learners
    prints = {name: result.units[0].learner.fingerprint for name, result in learners.items()}
    assert prints["pre"] != prints["cold"]
    assert made.unit("cold", 0).needs == ()


def test_one_job_for_all_learners_of_a_network_and_all_experiments(tmp_path):
    learners = {"one": {}, "two": {"replay": 2}, "wide": {"size": 9}, "offline": {"kind": "offline", "epochs": 1}}
    made = experiment(tmp_path, learners=learners, seeds=[0, 1])
    before = [job for job in made.jobs if job.counted == "epochs" and job.title.startswith("pre-training")]
    assert len(before) == 4  # two networks, two seeds
    assert made.jobs[:4] == before
    assert made.unit("one", 0).needs == made.unit("two", 0).needs == made.unit("offline", 0).needs
    assert made.unit("one", 1).needs != made.unit("one", 0).needs != made.unit("wide", 0).needs
    other = experiment(tmp_path, "two", stream={"ordering": "iid"})
    assert other.jobs[0].folder.path == made.unit("one", 0).needs[0].folder.path


@pytest.mark.parametrize(
    "change",
    [
        {"epochs": 4},
        {"rate": 0.05},
        {"data": {**BEFORE["data"], "per_class": 7}},
        {"data": {**BEFORE["data"], "classes": ["7", "8"]}},
    ],
)
def test_other_pretraining_is_another_key_of_all(tmp_path, change):
    one = experiment(tmp_path)
    two = experiment(tmp_path, "two", pretrain={**TINY["pretrain"], **change})
    assert not {job.key for job in one.jobs} & {job.key for job in two.jobs}


def test_keys_do_not_know_where_the_store_is(tmp_path):
    one = experiment(tmp_path)
    two = Experiment.create(make_config(dict(TINY)), tmp_path / "elsewhere" / "x")
    assert [job.key for job in one.jobs] == [job.key for job in two.jobs]
    run_jobs(one)  # neither does it matter whether the weights are there
    assert [job.key for job in one.jobs] == [job.key for job in Experiment.open(one.folder.path).jobs]


def test_a_unit_runs_what_it_needs_first(tmp_path):
    made = experiment(tmp_path, offline={"enabled": False})
    before, unit = made.jobs
    notes = []
    unit.run(lambda done, total, note: bool(notes.append((done, total, note))))
    assert before.finished
    assert unit.finished
    assert notes[0] == (0, 12, "pre-training, 3 classes, seed 0: 0 of 3 epochs")
    assert {total for _, total, _ in notes} == {12}


def test_weights_that_another_process_makes_are_waited_for(tmp_path):
    made = experiment(tmp_path, offline={"enabled": False})
    before, unit = made.jobs
    before.folder.make()
    notes = []
    with open(before.folder.path / "lock", "w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        thread = threading.Thread(target=unit.run, args=(lambda done, total, note: notes.append(note),))
        thread.start()
        while not notes:
            time.sleep(0.01)
    thread.join()
    assert notes[0] == "another process is at it"
    assert unit.finished


def test_stopped_and_gone_on(tmp_path):
    straight = experiment(tmp_path)
    run_jobs(straight)
    made = Experiment.create(make_config(dict(TINY)), tmp_path / "again" / "runs" / "one")
    with pytest.raises(Stopped):
        made.jobs[0].run(lambda done, total, note: done == 2)
    assert not made.jobs[0].weights.exists()
    run_jobs(Experiment.open(made.folder.path))
    assert made.results() == straight.results()
    assert made.jobs[0].weights.read_bytes() == straight.jobs[0].weights.read_bytes()


def test_remind_is_base_initialised_from_them(tmp_path):
    small = {"model": "resnet10-16", "replay": 3, "augment": "none", "init": "pretrained", "centroids": 4}
    learners = {"remind": {"kind": "remind"}, "more": {"kind": "remind", "extra_params": True}}
    made = experiment(tmp_path, learner=small, learners=learners, offline={"enabled": False})
    run_jobs(made)
    assert len(made.jobs) == 3
    assert (made.unit("remind", 0).folder.path / "checkpoint").is_dir()


def test_what_is_refused(tmp_path):
    with pytest.raises(ValueError, match="learner 'cold-start' has init: pretrained, and nothing says on what"):
        make_config({**TINY, "pretrain": None})
    with pytest.raises(ValueError, match=r"unknown setting 'pretrain.data.nme'; did you mean 'name'"):
        make_config({**TINY, "pretrain": {"data": {"nme": 3}}})
    with pytest.raises(ValueError, match="unknown setting 'pretrain.epoch'"):
        make_config({**TINY, "pretrain": {**BEFORE, "epoch": 3}})
    with pytest.raises(ValueError, match="setting 'pretrain.data': field required"):
        make_config({**TINY, "pretrain": {"epochs": 3}})
    both = {**TINY["pretrain"], "data": {"classes": ["1", "2", "9"], "per_class": 4}}
    with pytest.raises(ValueError, match=r"classes of 'digits' that come in the stream too \(1, 2\)"):
        experiment(tmp_path, pretrain=both)
    assert len(experiment(tmp_path, pretrain={**both, "overlap": True}).jobs) == 5
    # A section that no learner asks for is not even loaded.
    unused = {**TINY["learner"], "init": "random"}
    assert len(experiment(tmp_path, "three", learner=unused, pretrain={"data": {"name": "cifar100"}}).jobs) == 4


def test_the_config_spells_it_out():
    config = make_config(dict(TINY))
    text = write_config(config)
    assert make_config(yaml.safe_load(text)).pretrain == config.pretrain
    assert "init: pretrained" in text


def test_base_initialisation_from_given_weights(tmp_path):
    """What the paper does with ExStream and Deep SLDA on CIFAR-100, followed by hand."""
    learners = {"plain": {"kind": "deep-slda"}, "based": {"kind": "deep-slda", "base_init": True}}
    made = experiment(tmp_path, learners=learners, offline={"enabled": False}, prequential=False)
    run_jobs(Experiment.open(made.folder.path))
    plain, based = (made.unit(name, 0) for name in learners)
    assert plain.key != based.key
    stream, train = made.inputs.stream(0).parts[None], made.inputs.train[None]
    for job in (plain, based):
        learner = DeepSLDA(model="mlp", init=str(made.jobs[0].weights))
        if job is based:
            first = train.take(stream.order[: stream.batches[0]])
            learner.base_init(first, OfflineRecipe(epochs=1, batch=128, augment="none"))
        for index, id in zip(stream.order, stream.ids(), strict=True):
            learner.learn_one(train.images[index], train.names[train.labels[index]], id=id)
        assert job.folder.read("summary.json", FinalLearner).fingerprint == learner.fingerprint()
    assert made.jobs[0].key in (need.key for need in based.needs)


def test_base_init_that_cannot_be():
    for settings, message in (
        ({"kind": "offline", "base_init": True}, "learner 'x' .Offline. has no base initialisation"),
        ({"base_init": "yes"}, "'learners.x.base_init': true or false, not 'yes'"),
    ):
        with pytest.raises(ValueError, match=message):
            make_config({**TINY, "learners": {"x": settings}})
    with pytest.raises(ValueError, match="unknown setting of a learner 'base_init'"):
        make_config({**TINY, "learner": {**TINY["learner"], "base_init": True}})


def test_threads_are_in_the_key_where_they_are_set(tmp_path):
    keys = []
    for number, changes in enumerate([{}, {"threads": torch.get_num_threads()}, {"threads": 3}, {}]):
        before = torch.get_num_threads()
        keys.append([job.key for job in experiment(tmp_path, f"run{number}", **changes).jobs])
        torch.set_num_threads(before)
    assert keys[0] == keys[3]
    assert len({*keys[0], *keys[1], *keys[2]}) == 3 * len(keys[0]) == 15


def test_a_stream_of_tasks(tmp_path):
    parts = {"first": {"classes": ["0", "1"], "per_class": 3}, "then": {"classes": ["2", "3"], "per_class": 3}}
    tree = {key: value for key, value in TINY.items() if key != "data"}
    made = Experiment.create(make_config({**tree, "tasks": parts}), tmp_path / "runs" / "one")
    run_jobs(made)
    assert all(job.needs == (made.jobs[0],) for job in made.jobs[1:])
    both = {**TINY["pretrain"], "data": {"classes": ["3", "9"], "per_class": 4}}
    with pytest.raises(ValueError, match=r"come in the stream too \(3\)"):
        Experiment.create(make_config({**tree, "tasks": parts, "pretrain": both}), tmp_path / "runs" / "two")
