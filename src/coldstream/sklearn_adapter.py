"""The streaming learner as a scikit-learn classifier: flat inputs, row by row through the same `learn_one`."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, check_random_state, column_or_1d, validate_data

from coldstream.learners.cssl import CSSL


class ColdStreamClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """A small network that learns from one row at a time, from nothing, and replays what it saw.

    One pass: every row is learned once, when it comes, together with `replay` stored ones. The order of the rows
    may be anything, sorted by class too. Features are scaled by the network itself, by running statistics.

    Parameters
    ----------
    replay
        Stored rows that are learned again beside each new one.
    capacity, rate, weight_decay
        As in `coldstream.CSSL`; a capacity of None is no bound.
    random_state
        The seed of every draw. An int gives the same bits each time, and so does the default; a RandomState, or
        None for NumPy's global one, is asked for a seed once, when a stream begins.

    Attributes
    ----------
    classes_
        The labels so far, sorted, in the dtype in which they came.
    learner_
        The `coldstream.CSSL` that does the work; its own `classes_` are in first-seen order.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> X, y = load_iris(return_X_y=True)
    >>> flowers = ColdStreamClassifier().partial_fit(X[:100], y[:100])  # kinds 0 and 1
    >>> flowers.partial_fit(X[100:], y[100:]).classes_  # a new kind comes
    array([0, 1, 2])
    >>> flowers.score(X, y) > 0.9
    True
    """

    def __init__(
        self,
        *,
        replay: int = 64,
        capacity: str | int | None = None,
        rate: str | float = "inverse-sqrt(0.1)",
        weight_decay: float = 1e-5,
        random_state: int | np.random.RandomState | None = 0,
    ) -> None:
        self.replay = replay
        self.capacity = capacity
        self.rate = rate
        self.weight_decay = weight_decay
        self.random_state = random_state

    def fit(self, X: ArrayLike, y: ArrayLike) -> Self:
        """Forget everything and learn the rows of `X` once, in the order given."""
        return self._stream(X, y, None, None)

    def partial_fit(self, X: ArrayLike, y: ArrayLike, classes: ArrayLike | None = None) -> Self:
        """Go on learning, row by row; a label never seen before opens a new class at any time.

        `classes` may name labels that are yet to come: they get a column, with probability 0 until they do.
        """
        return self._stream(X, y, classes, getattr(self, "learner_", None))

    def predict_proba(self, X: ArrayLike) -> NDArray[np.float64]:
        """Return probabilities (rows, classes), columns in the order of `classes_`."""
        check_is_fitted(self, "learner_")
        rows = self._validated(X, reset=False)
        seen = np.array(self.learner_.classes_, dtype=self.classes_.dtype)
        probabilities = np.zeros((len(rows), len(self.classes_)))
        probabilities[:, np.searchsorted(self.classes_, seen)] = self.learner_.predict_proba_many(rows)
        return probabilities

    def predict(self, X: ArrayLike) -> NDArray[Any]:
        """Return the most probable label of each row."""
        best = self.predict_proba(X).argmax(axis=1)
        return np.asarray(self.classes_[best])

    def _stream(self, X: Any, y: Any, classes: Any, learner: CSSL | None) -> Self:
        X, y = self._validated(X, y, reset=learner is None)
        check_classification_targets(y)
        before = None if learner is None else self.classes_
        merged = _union([column_or_1d(labels) for labels in (before, classes, y) if labels is not None])
        learner = learner or self._new_learner()
        learner.learn_many(X, [int(label) if isinstance(label, float) else label for label in y.tolist()])
        self.learner_: CSSL = learner
        self.classes_: NDArray[Any] = merged
        return self

    def _validated(self, *data: Any, reset: bool) -> Any:
        with np.errstate(over="ignore"):  # too large for float32: an error follows, not a warning before it
            return validate_data(self, *data, reset=reset, dtype=np.float32)

    def _new_learner(self) -> CSSL:
        seed = self.random_state
        if not isinstance(seed, (int, np.integer)):
            seed = int(check_random_state(seed).randint(2**31))
        settings = {name: getattr(self, name) for name in ("replay", "capacity", "rate", "weight_decay")}
        # float64: what a row is given must not depend on the rows asked with it (scikit-learn allows 1e-7).
        learner = CSSL(items="vectors", model="mlp", augment="none", precision="float64", seed=seed, **settings)
        return learner

    # A learner holds a lock and a network: it is pickled as the files of its checkpoint.
    def __getstate__(self) -> dict[str, Any]:
        state = dict(super().__getstate__())
        if "learner_" in state:
            with TemporaryDirectory() as folder:
                state["learner_"].save(folder)
                state["learner_"] = {file.name: file.read_bytes() for file in Path(folder).iterdir()}
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        if "learner_" in state:
            with TemporaryDirectory() as folder:
                for name, data in state["learner_"].items():
                    (Path(folder) / name).write_bytes(data)
                state = {**state, "learner_": CSSL.load(folder)}
        super().__setstate__(state)


def _union(parts: list[NDArray[Any]]) -> NDArray[Any]:
    """Return the labels of all parts, sorted; NumPy would turn numbers beside strings into strings."""
    if len({part.dtype.kind in "OSU" for part in parts}) > 1:
        raise ValueError(f"labels are all strings or all numbers; got {' and '.join(str(p.dtype) for p in parts)}")
    return np.unique(np.concatenate(parts))
