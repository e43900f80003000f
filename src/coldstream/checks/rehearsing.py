"""Updates on replayed examples alone: they learn, they resume bit for bit, and they leave everything else."""

from __future__ import annotations

import tempfile
from typing import Any

import numpy as np

from coldstream.checks.fixtures import Factory, fresh, load, refusal, stream, taught
from coldstream.learners.base import Learner


def check_saved_between_rehearsals(factory: Factory) -> None:
    """`rehearse` gives the same bits in one call, in several, and with a checkpoint between."""
    if not taught(factory).rehearses:
        return
    images, labels = stream(4, seed=3)
    learners = [taught(factory) for _ in range(3)]
    together, apart, stopped = learners
    together.rehearse(3)
    for _ in range(3):
        apart.rehearse()
    with tempfile.TemporaryDirectory() as folder:
        stopped.rehearse(2)
        before = stopped.fingerprint()
        stopped.save(folder)
        stopped = load(stopped, factory, folder)
        assert stopped.fingerprint() == before, "a learner that was saved after rehearse differs when it is loaded"
        stopped.rehearse()
    assert together.fingerprint() == apart.fingerprint(), "rehearse(3) is not three times rehearse()"
    assert together.fingerprint() == stopped.fingerprint(), "rehearse went another way after a checkpoint"
    for learner in (together, stopped):
        learner.learn_many(images, labels)
        learner.rehearse()
    assert together.fingerprint() == stopped.fingerprint(), (
        "a stream went another way after rehearse and a checkpoint"
    )


def check_rehearse_changes_only_the_network(factory: Factory) -> None:
    """`rehearse` changes the network, and nothing of what is stored or counted; before the first example nothing."""
    learner = fresh(factory)
    if not learner.rehearses:
        assert "rehearse" not in type(learner).Settings.model_fields, "a setting that the method does not have"
        message = refusal(learner.rehearse)
        assert type(learner).__name__ in message, f"the refusal of rehearse does not name the learner: {message}"
        return
    before = learner.fingerprint()
    learner.rehearse(2)
    assert learner.fingerprint() == before, "rehearse changed a learner that has learned nothing"
    learner = taught(factory)
    images, _ = stream(6, seed=4)
    answers, kept = learner.predict_proba_many(images), _kept(learner)
    learner.rehearse(3)
    assert not np.array_equal(learner.predict_proba_many(images), answers), "rehearse changed no prediction"
    assert _kept(learner) == kept, "rehearse changed what is stored or counted"
    before = learner.fingerprint()
    for wrong in (0, -1, 1.5, True, "3", None):
        refusal(learner.rehearse, wrong)
    assert learner.fingerprint() == before, "a refused call of rehearse changed the learner"


def _kept(learner: Learner[Any]) -> list[Any]:
    """Return what an update on replayed examples must leave: step, last example, classes, stored bytes."""
    task = next(iter(learner.tasks.values()))
    rows = task.buffer.rows.get(np.arange(len(task.buffer)))
    labels = task.buffer.index.labels.view.tolist()
    return [learner.step, learner._last, learner._next_id, task.classes.state(), labels, [bytes(row) for row in rows]]
