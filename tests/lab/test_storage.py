"""Results do not depend on how a data set happens to be stored."""

from dataclasses import replace

import numpy as np

from coldstream.data import Dataset, digits, select
from coldstream.lab import Experiment, inputs, make_config, run_jobs

CHANGES = [
    "learner.model=resnet8-16",
    "learner.capacity=20",
    "learner.replay=4",
    "learner.evict=reservoir",
    "stream.test_every=2",
    "offline.epochs=1",
]


def stored(dataset: Dataset, seed: int) -> Dataset:
    """Return the same images in another order, under other class numbers."""
    rng = np.random.default_rng(seed)
    renamed = rng.permutation(len(dataset.names))
    other = dataset.take(rng.permutation(len(dataset)))
    return replace(other, labels=renamed[other.labels], names=tuple(dataset.names[i] for i in np.argsort(renamed)))


def test_the_same_summary_whatever_the_order_of_storage(tmp_path, monkeypatch):
    train, test = select(*digits(), classes=4, per_class=10, test_per_class=30)
    train = train.take(np.array([*range(40), 0, 0, 39]))  # equal images of one class are examples of their own
    written = []
    for seed in (1, 2):
        sets = stored(train, seed), stored(test, seed + 10)
        monkeypatch.setattr(inputs, "load_dataset", lambda *_, sets=sets: sets)
        one = Experiment.create(make_config({}, CHANGES), tmp_path / str(seed) / "run")
        run_jobs(one)
        assert one.results().learners["cold-start"].units[0].learner.buffer.examples == 20
        written.append({name: (one.folder.path / name).read_bytes() for name in ("summary.json", "metrics.jsonl")})
    assert written[0] == written[1]


def test_equal_images_do_not_replace_each_other(tmp_path, monkeypatch):
    train, test = select(*digits(), classes=2, per_class=4, test_per_class=5)
    train = train.take(np.array([0, 0, 0, *range(1, 8)]))
    monkeypatch.setattr(inputs, "load_dataset", lambda *_: (train, test))
    changes = ["learner.model=linear", "offline.enabled=false"]
    one = Experiment.create(make_config({}, changes), tmp_path / "run")
    run_jobs(one)
    assert one.results().learners["cold-start"].units[0].learner.buffer.examples == 10
