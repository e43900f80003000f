"""New classes, batches of new examples, the capacity of replay, the frozen part."""

from __future__ import annotations

from typing import Any

from coldstream.checks.fixtures import Factory, fresh, stream, taught, teach
from coldstream.learners.base import Learner


def check_new_labels_any_time(factory: Factory) -> None:
    """A new label opens a class at once; the order of `classes_` is that of first sight."""
    learner = taught(factory)
    before = learner.classes_
    images, _ = stream(3, seed=2)
    learner.learn_one(images[0], ("new", 1))
    learner.learn_one(images[1], 7)
    learner.end_batch()
    assert learner.classes_ == [*before, ("new", 1), 7], f"classes_ is {learner.classes_}"
    assert set(learner.predict_proba_one(images[2])) == {*before, ("new", 1), 7}


def check_several_per_update(factory: Factory) -> None:
    """`learn_many` with several new examples per update counts every example, and knows their classes."""
    images, labels = stream(12)
    learner = fresh(factory)
    before = _counts(learner)
    learner.learn_many(images, labels, per_update=5)
    learner.end_batch()
    assert learner.step == 12, f"12 examples were learned, {learner.step} counted"
    assert set(labels) <= set(learner.classes_), f"of {sorted(set(labels))} only {learner.classes_} are known"
    for label, count in _counts(learner).items():
        assert count >= before.get(label, 0), f"class {label!r} lost examples"


def _counts(learner: Learner[Any]) -> dict[Any, int]:
    """Return the examples of each class so far."""
    classes = [task.classes for task in learner.tasks.values()]
    return {label: count for each in classes for label, count in zip(each.labels, each.counts, strict=True)}


def check_within_budget(factory: Factory) -> None:
    """A replay buffer never holds more than its capacity."""
    learner = fresh(factory)
    for image, label in zip(*stream(32), strict=True):
        learner.learn_one(image, label)
        buffer = next(iter(learner.tasks.values())).replay_buffer
        if buffer is not None:
            limit = buffer.capacity
            assert limit.bytes is None or buffer.nbytes <= limit.bytes, "more bytes stored than the capacity"
            assert limit.examples is None or len(buffer) <= limit.examples, "more examples than the capacity"


def check_frozen_part_stays(factory: Factory) -> None:
    """The part that a learner declares as frozen keeps its bits, statistics included; the rest learns."""
    learner = fresh(factory)
    teach(learner, *stream(1))
    frozen = learner._frozen()
    if frozen is None:
        assert learner.frozen_share() == 0, "a share is said to be frozen, and no part is"
        return
    before = {name: value.clone() for name, value in frozen.state_dict().items()}
    fingerprint = learner.fingerprint()
    teach(learner, *stream(12, seed=3))
    after = frozen.state_dict()
    assert all(before[name].equal(after[name]) for name in before), "the frozen part changed"
    assert learner.fingerprint() != fingerprint, "nothing was learned"
