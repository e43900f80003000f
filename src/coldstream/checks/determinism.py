"""The same stream gives the same bits."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import torch

from coldstream.checks.fixtures import Factory, fresh, stream, taught


def check_deterministic(factory: Factory) -> None:
    """The same stream gives the same bits, whatever the global generators do meanwhile."""
    first = taught(factory).fingerprint()
    saved = random.getstate(), np.random.get_state(), torch.get_rng_state()  # noqa: NPY002 - it is what is checked
    try:
        random.seed(5)
        np.random.seed(5)  # noqa: NPY002
        torch.manual_seed(5)
        second = taught(factory).fingerprint()
    finally:
        random.setstate(saved[0])
        np.random.set_state(saved[1])  # noqa: NPY002
        torch.set_rng_state(saved[2])
    assert first == second, (
        "two equal streams gave different learners: a draw depends on a global generator or a clock"
    )


def check_leaves_global_generators(factory: Factory) -> None:
    """Learning and predicting draw nothing from Python's, NumPy's or torch's global generator."""

    def states() -> tuple[Any, ...]:
        return random.getstate(), np.random.get_state()[1].tobytes(), torch.get_rng_state().numpy().tobytes()  # type: ignore[index]  # noqa: NPY002

    before = states()
    learner = taught(factory)
    learner.predict_proba_many(stream(4)[0])
    assert states() == before, "a global random generator was moved"


def check_many_is_the_loop(factory: Factory) -> None:
    """`learn_many` with per_update=1 gives the loop's bits."""
    images, labels = stream(12)
    one_by_one, together = fresh(factory), fresh(factory)
    ids = [one_by_one.learn_one(image, label) for image, label in zip(images, labels, strict=True)]
    assert together.learn_many(images, labels) == ids, "learn_many returned other ids than learn_one"
    assert one_by_one.fingerprint() == together.fingerprint(), "learn_many and the loop gave different learners"
