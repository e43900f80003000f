"""Base initialisation, of learners that need it."""

from __future__ import annotations

import numpy as np

from coldstream.checks.fixtures import Factory, base_data, refusal, stream


def check_says_that_it_needs_base_init(factory: Factory) -> None:
    """Before a base initialisation that is needed, learning and predicting say so and change nothing."""
    learner = factory()
    if not learner.needs_base_init:
        return
    images, labels = stream(4)
    before = learner.fingerprint()
    for message in (refusal(learner.learn_one, images[0], labels[0]), refusal(learner.predict_one, images[0])):
        assert "base" in message, "the error does not speak of base initialisation"
    assert learner.fingerprint() == before, "an example that was refused changed the learner"


def check_failed_base_init_changes_nothing(factory: Factory) -> None:
    """Base initialisation that is interrupted or refused leaves the learner as it was, ready for another."""
    learner = factory()
    if not learner.needs_base_init:
        return
    base, before = base_data(), learner.fingerprint()

    def interrupt(epoch: int) -> None:
        raise InterruptedError

    try:
        learner.base_init(base, progress=interrupt)
    except InterruptedError:
        pass
    else:
        raise AssertionError("base initialisation swallowed an exception of its progress")
    assert learner.fingerprint() == before, "interrupted base initialisation changed the learner"
    refusal(learner.base_init, base.take(np.arange(0)))
    assert learner.fingerprint() == before, "refused base initialisation changed the learner"
