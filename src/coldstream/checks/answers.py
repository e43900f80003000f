"""Predictions agree with each other and change nothing."""

from __future__ import annotations

import threading

import numpy as np

from coldstream.checks.fixtures import Factory, fresh, refusal, stream, taught, teach


def check_predicts_before_learning(factory: Factory) -> None:
    """A learner that knows nothing answers with nothing."""
    learner = factory()
    images, _ = stream(2)
    if learner.needs_base_init:
        return
    assert learner.predict_one(images[0]) is None
    assert learner.predict_proba_one(images[0]) == {}
    assert learner.predict_many(images) == [None, None]
    assert learner.predict_proba_many(images).shape == (2, 0)
    assert learner.classes_ == []


def check_answers_agree(factory: Factory) -> None:
    """The four ways of asking give one answer: probabilities in `classes_` order that sum to 1."""
    learner = taught(factory)
    images, _ = stream(5, seed=1)
    table = learner.predict_proba_many(images)
    assert table.shape == (5, len(learner.classes_)), f"expected one column per class, got {table.shape}"
    assert np.allclose(table.sum(axis=1), 1) and (table >= 0).all(), "rows are not probabilities"
    for image, row, label in zip(images, table, learner.predict_many(images), strict=True):
        one = learner.predict_proba_one(image)
        assert list(one) == learner.classes_, "predict_proba_one lists other classes than classes_"
        assert np.allclose(list(one.values()), row, atol=1e-5), "predict_proba_one and _many disagree"
        best = max(one.values()) - 1e-5
        assert label is not None and one[label] >= best, "predict_many is not the most probable class"
        guess = learner.predict_one(image)
        assert guess is not None and one[guess] >= best, "predict_one is not the most probable class"


def check_features(factory: Factory) -> None:
    """`features` gives one finite vector for each image, the same every time, and changes nothing."""
    images, _ = stream(5, seed=1)
    learner = factory()
    if not learner.needs_base_init:
        assert learner.features(images).shape == (5, 0), "there are features before there is a network"
    learner = taught(factory)
    before = learner.fingerprint()
    values = learner.features(images)
    assert values.dtype == np.float32 and values.shape == (5, learner.engine.features), f"got {values.shape}"
    assert np.isfinite(values).all() and np.array_equal(values, learner.features(images))
    assert np.allclose(values[:1], learner.features([images[0]]), atol=1e-3), "features depend on the other images"
    assert np.array_equal(values, learner.snapshot().features(images)), "a snapshot has other features"
    assert learner.features([]).shape == (0, values.shape[1])
    assert learner.fingerprint() == before, "asking for features changed the learner"
    refusal(learner.features, ["no image"])


def check_evaluation_changes_nothing(factory: Factory) -> None:
    """Asking, however often, leaves the learner bit-identical."""
    learner = taught(factory)
    before = learner.fingerprint()
    images, _ = stream(5, seed=1)
    first = learner.predict_proba_many(images)
    learner.predict_one(images[0])
    learner.predict_proba_one(images[0])
    assert learner.fingerprint() == before, "predicting changed the learner"
    assert np.array_equal(first, learner.predict_proba_many(images)), "the same question got two answers"


def check_snapshot_answers_alike(factory: Factory) -> None:
    """A snapshot predicts bit for bit as the learner did, even after that learned on, and refuses to learn."""
    learner = taught(factory)
    images, _ = stream(5, seed=1)
    before, labels, fingerprint = learner.predict_proba_many(images), learner.classes_, learner.fingerprint()
    snapshot = learner.snapshot()
    assert learner.fingerprint() == fingerprint, "taking a snapshot changed the learner"
    teach(learner, images, ["new"] * 5)
    learner.end_batch()
    assert np.array_equal(snapshot.predict_proba_many(images), before), (
        "a snapshot answers otherwise than its learner"
    )
    assert snapshot.classes_ == labels, f"a snapshot of {labels} knows {snapshot.classes_}"
    refusal(snapshot.learn_one, images[0], labels[0])


def check_threads_may_predict(factory: Factory) -> None:
    """Others may predict while one thread learns: they see whole states, and the learner the same bits."""
    alone = taught(factory, 24).fingerprint()
    learner, stop, wrong = fresh(factory), threading.Event(), []
    images, _ = stream(3, seed=4)

    def ask() -> None:
        while not stop.is_set():
            try:
                table = learner.predict_proba_many(images)
                if table.shape[1] and not np.allclose(table.sum(axis=1), 1):
                    wrong.append("rows do not sum to 1")
            except Exception as error:
                wrong.append(repr(error))
                return

    threads = [threading.Thread(target=ask) for _ in range(2)]
    for thread in threads:
        thread.start()
    try:
        teach(learner, *stream(24))
        learner.end_batch()
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    assert not wrong, f"predicting while learning failed: {wrong[0]}"
    assert learner.fingerprint() == alone, "predicting from other threads changed what was learned"
