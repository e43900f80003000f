"""Save, load and continue equals never having stopped."""

from __future__ import annotations

import tempfile

import numpy as np

from coldstream.checks.fixtures import LOOK, Factory, fresh, load, stream, taught, teach


def check_resumes_bit_for_bit(factory: Factory) -> None:
    """Save, load and continue equals never having stopped; saving changes nothing."""
    images, labels = stream(24)
    straight, stopped = fresh(factory), fresh(factory)
    with tempfile.TemporaryDirectory() as folder:
        for i, (image, label) in enumerate(zip(images, labels, strict=True)):
            straight.learn_one(image, label)
            stopped.learn_one(image, label)
            if i in (0, 7, 8, 17):
                before = stopped.fingerprint()
                stopped.save(folder)
                assert stopped.fingerprint() == before, "saving changed the learner"
                stopped = load(stopped, factory, folder)
                assert stopped.fingerprint() == before, f"a loaded learner differs from the saved one: {LOOK}"
    straight.end_batch()
    stopped.end_batch()
    assert straight.fingerprint() == stopped.fingerprint(), f"a stopped and resumed stream went another way: {LOOK}"


def check_saves_the_moment(factory: Factory) -> None:
    """A checkpoint written in the background is the learner at the call, however that one goes on meanwhile."""
    learner = taught(factory)
    images, _ = stream(8, seed=1)
    before = learner.fingerprint()
    state = learner._state()[1] | learner._task_state(learner.tasks[None])[1]
    copies = {name: array.copy() for name, array in state.items()}
    with tempfile.TemporaryDirectory() as folder:
        saving = learner.save(folder, wait=False)
        teach(learner, images, ["new"] * 8)
        learner.end_batch()
        saving.result()
        loaded = load(learner, factory, folder)
    assert loaded.fingerprint() == before, "a checkpoint written in the background is not of the moment of the call"
    for name, array in state.items():
        assert np.array_equal(array, copies[name], equal_nan=True), f"_state gave {name!r} itself instead of a copy"
