"""The scikit-learn adapter: all of scikit-learn's own checks, and the same bits as the learner under it."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.base import clone
from sklearn.datasets import load_digits, load_iris
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import StratifiedKFold, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MinMaxScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

from coldstream.learners.cssl import CSSL
from coldstream.sklearn_adapter import ColdStreamClassifier

X, Y = load_iris(return_X_y=True)
X, Y = X[::3], Y[::3]  # 50 rows, sorted by class
FOLDS = StratifiedKFold(3, shuffle=True, random_state=0)


@parametrize_with_checks([ColdStreamClassifier()])
def test_scikit_learns_checks(estimator: Any, check: Any) -> None:
    check(estimator)


def learner(**changes: Any) -> CSSL:
    made = CSSL(
        **{"items": "vectors", "model": "mlp", "augment": "none", "precision": "float64", "replay": 8}
        | {"capacity": None}
        | changes
    )
    return made


@pytest.mark.parametrize("settings", [{}, {"capacity": 20, "rate": "constant(0.01)", "weight_decay": 1e-3}])
def test_the_same_bits_as_a_loop_of_learn_one(settings: dict[str, Any]) -> None:
    one = learner(seed=7, **settings)
    for row, label in zip(X, Y, strict=True):
        one.learn_one(row, label)
    adapter = ColdStreamClassifier(replay=8, random_state=7, **settings)
    assert adapter.fit(X, Y).learner_.fingerprint() == one.fingerprint()
    assert (adapter.predict_proba(X) == one.predict_proba_many(X)).all()


def test_fit_is_partial_fit_of_the_same_rows_and_starts_anew() -> None:
    parts = ColdStreamClassifier(replay=8)
    for start in range(0, len(X), 17):
        parts.partial_fit(X[start : start + 17], Y[start : start + 17])
    whole = ColdStreamClassifier(replay=8).fit(X[::-1], Y[::-1]).fit(X, Y)
    assert whole.learner_.fingerprint() == parts.learner_.fingerprint()


def test_columns_are_sorted_where_the_learner_has_them_first_seen() -> None:
    adapter = ColdStreamClassifier(replay=8).fit(X[::-1], Y[::-1])
    assert adapter.learner_.classes_ == [2, 1, 0]
    assert adapter.classes_.tolist() == [0, 1, 2]
    assert (adapter.predict_proba(X) == adapter.learner_.predict_proba_many(X)[:, ::-1]).all()
    assert adapter.predict(X).tolist() == adapter.learner_.predict_many(X)


def test_a_new_label_may_come_at_any_time() -> None:
    adapter = ColdStreamClassifier(replay=8).partial_fit(X[17:], Y[17:])
    assert adapter.classes_.tolist() == [1, 2]
    adapter.partial_fit(X[:17], Y[:17], classes=[1, 5])
    assert adapter.classes_.tolist() == [0, 1, 2, 5]
    probabilities = adapter.predict_proba(X)
    assert (probabilities[:, :3] > 0).all()
    assert (probabilities[:, 3] == 0).all()
    np.testing.assert_allclose(probabilities.sum(axis=1), 1)
    adapter.partial_fit(X[:1], [5])
    assert (adapter.predict_proba(X)[:, 3] > 0).all()


@pytest.mark.parametrize(
    "names",
    [
        np.array([3, -1, 7], np.int16),
        np.array(["b", "a", "longer"]),
        np.array(["b", "a", "longer"], object),
        np.array([True, False, True]),
        np.array([2.0, 0.0, 3.0]),
        np.array([2, 0, 1], np.float32),
    ],
    ids=["int16", "str", "object", "bool", "float64", "float32"],
)
def test_labels_come_back_in_their_dtype(names: np.ndarray) -> None:
    adapter = ColdStreamClassifier().partial_fit(X[:20], names[Y[:20]]).partial_fit(X[20:], names[Y[20:]])
    assert adapter.classes_.dtype == names.dtype
    assert adapter.classes_.tolist() == sorted(set(names.tolist()))
    assert adapter.predict(X).dtype == names.dtype
    assert adapter.score(X, names[Y]) > 0.7


def test_shorter_and_longer_strings_both_keep_their_length() -> None:
    adapter = ColdStreamClassifier(replay=4).partial_fit(X[:2], ["owl", "owl"]).partial_fit(X[-2:], ["albatross"] * 2)
    assert adapter.classes_.tolist() == ["albatross", "owl"]


def test_what_is_wrong_is_said_and_changes_nothing() -> None:
    adapter = ColdStreamClassifier(replay=4).partial_fit(X, Y)
    before = adapter.learner_.fingerprint()
    with pytest.raises(ValueError, match="all strings or all numbers; got int64 and <U4"):
        adapter.partial_fit(X[:1], ["bird"])
    with pytest.raises(ValueError, match="Unknown label type: continuous"):
        adapter.partial_fit(X[:2], [0.5, 1.5])
    with pytest.raises(ValueError, match="X has 3 features, but ColdStreamClassifier is expecting 4"):
        adapter.partial_fit(X[:, :3], Y)
    with pytest.raises(ValueError, match=r"contains infinity or a value too large for dtype\('float32'\)"):
        adapter.partial_fit(np.full((1, 4), 1e300), [0])
    with pytest.raises(ValueError, match="cannot be told from the known label"):
        adapter.partial_fit(X[:1], [True])
    assert adapter.learner_.fingerprint() == before
    assert adapter.classes_.tolist() == [0, 1, 2]


@pytest.mark.parametrize("wrong", [{"replay": -1}, {"capacity": "x"}, {"rate": "fast"}, {"random_state": "a"}])
def test_wrong_settings_are_refused_when_learning_begins(wrong: dict[str, Any]) -> None:
    adapter = ColdStreamClassifier(**wrong)
    with pytest.raises(ValueError, match=next(iter(wrong)).replace("random_state", "cannot be used to seed")):
        adapter.partial_fit(X, Y)
    with pytest.raises(NotFittedError):
        adapter.predict(X)


def test_random_state_as_scikit_learn_has_it() -> None:
    def bits(random_state: Any) -> str:
        return ColdStreamClassifier(replay=4, random_state=random_state).fit(X, Y).learner_.fingerprint()

    assert bits(0) == bits(0) == ColdStreamClassifier(replay=4).fit(X, Y).learner_.fingerprint()
    assert bits(np.random.RandomState(3)) == bits(np.random.RandomState(3)) != bits(0)
    assert bits(1) != bits(0)
    assert bits(None) != bits(None)


def test_global_generators_are_left_alone() -> None:
    torch_before, numpy_before = torch.get_rng_state(), np.random.get_state()[1].copy()  # noqa: NPY002
    adapter = pickle.loads(pickle.dumps(ColdStreamClassifier(replay=4).fit(X, Y)))
    adapter.partial_fit(X, Y).predict(X)
    assert torch.equal(torch.get_rng_state(), torch_before)
    assert (np.random.get_state()[1] == numpy_before).all()  # noqa: NPY002


@pytest.mark.parametrize(
    "copied", [lambda a: pickle.loads(pickle.dumps(a)), copy.deepcopy], ids=["pickle", "deepcopy"]
)
def test_a_copy_goes_on_to_the_same_bits(copied: Any) -> None:
    straight = ColdStreamClassifier(replay=8, capacity=20).fit(X[:30], Y[:30])
    other = copied(straight)
    assert other.learner_ is not straight.learner_
    assert other.learner_.fingerprint() == straight.learner_.fingerprint()
    other.partial_fit(X[30:], Y[30:])
    assert straight.learner_.step == 30
    straight.partial_fit(X[30:], Y[30:])
    assert other.learner_.fingerprint() == straight.learner_.fingerprint()
    assert (other.predict_proba(X) == straight.predict_proba(X)).all()


def test_unfitted_and_cloned_ones_hold_settings_only() -> None:
    adapter = ColdStreamClassifier(replay=8, capacity=20)
    fitted = copy.deepcopy(adapter).fit(X, Y)
    for same in (pickle.loads(pickle.dumps(adapter)), clone(fitted)):
        assert same.get_params() == adapter.get_params()
        assert not hasattr(same, "learner_")
        assert same.fit(X, Y).learner_.fingerprint() == fitted.learner_.fingerprint()


def test_iris_and_digits_in_a_pipeline_with_cross_validation() -> None:
    flowers, kinds = load_iris(return_X_y=True)
    assert cross_val_score(ColdStreamClassifier(), flowers, kinds, cv=FOLDS).mean() > 0.88
    images, digits = load_digits(return_X_y=True)
    pipeline = make_pipeline(MinMaxScaler(), ColdStreamClassifier())
    assert cross_val_score(pipeline, images[:600], digits[:600], cv=FOLDS).mean() > 0.92


def test_a_stream_sorted_by_class_is_learned_too() -> None:
    images, digits = load_digits(return_X_y=True)
    order = np.argsort(digits[:900], kind="stable")
    adapter = ColdStreamClassifier().fit(images[order], digits[order])
    assert adapter.score(images[900:], digits[900:]) > 0.88
