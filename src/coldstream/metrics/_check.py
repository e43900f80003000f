"""Checks of the input of every metric; each error says what was expected and what came.

Fractions (probabilities, confidences) may leave [0, 1] by `SLACK`, since an average of float32 softmaxes
does; they are clipped before use. Anything further out is an error: percentages and logits are not fractions.
"""

from __future__ import annotations

import operator
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

SLACK = 1e-6


def whole(value: object, name: str, least: int, most: int | None = None) -> int:
    """Return `value` as an int in [least, most]."""
    bounds = f"an integer >= {least}" if most is None else f"an integer from {least} to {most}"
    if isinstance(value, bool | np.bool_):
        raise ValueError(f"{name}: expected {bounds}, got {value!r}")
    try:
        number = operator.index(value)  # type: ignore[arg-type]
    except TypeError:
        raise ValueError(f"{name}: expected {bounds}, got {value!r}") from None
    if number < least or (most is not None and number > most):
        raise ValueError(f"{name}: expected {bounds}, got {number}")
    return number


def fraction(value: object, name: str) -> float:
    """Return `value` as a float in [0, 1]."""
    number = real(value, name)
    if not 0.0 <= number <= 1.0:
        raise ValueError(f"{name}: expected a number in [0, 1], got {number}")
    return number


def real(value: object, name: str) -> float:
    """Return `value` as a finite float."""
    try:
        number = float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        raise ValueError(f"{name}: expected a finite number, got {value!r}") from None
    if not np.isfinite(number):
        raise ValueError(f"{name}: expected a finite number, got {number}")
    return number


def fractions(values: ArrayLike, name: str, ndim: int = 1) -> NDArray[np.floating[Any]]:
    """Return a non-empty array of `ndim` dimensions clipped to [0, 1], in its own floating type."""
    array = np.asarray(values)
    if not np.issubdtype(array.dtype, np.floating):
        array = numbers(array, name)
    _shape(array, name, ndim)
    with np.errstate(invalid="ignore"):
        low, high = float(array.min()), float(array.max())
    if low >= 0.0 and high <= 1.0:
        return array
    # NaN fails both comparisons, so that it is reported here like any other number out of range.
    if not (low >= -SLACK and high <= 1.0 + SLACK):
        wide = array.astype(np.float64)  # a short type would round SLACK away
        wrong = np.argwhere(~((wide >= -SLACK) & (wide <= 1.0 + SLACK)))[0]
        where = ", ".join(str(index) for index in wrong)
        raise ValueError(f"{name}: expected numbers in [0, 1], got {array[tuple(wrong)]} at [{where}]")
    clipped: NDArray[np.floating[Any]] = np.clip(array, 0.0, 1.0)
    return clipped


def numbers(values: ArrayLike, name: str) -> NDArray[np.float64]:
    """Return `values` as float64, with an error of ours where NumPy cannot."""
    try:
        return np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError):
        raise ValueError(f"{name}: expected an array of numbers, got {values!r:.80}") from None


def labels(values: ArrayLike, name: str, classes: int, what: str = "class indices") -> NDArray[np.int64]:
    """Return a non-empty vector of indices in [0, classes), called `what` in messages."""
    array = np.asarray(values)
    _shape(array, name, 1)
    if not np.issubdtype(array.dtype, np.integer):
        raise ValueError(f"{name}: expected integer {what}, got an array of {array.dtype}")
    wrong = np.flatnonzero((array < 0) | (array >= classes))
    if wrong.size:
        raise ValueError(f"{name}: expected {what} from 0 to {classes - 1}, got {array[wrong[0]]} at [{wrong[0]}]")
    return array.astype(np.int64)


def flags(values: ArrayLike, name: str) -> NDArray[np.bool_]:
    """Return a non-empty vector of booleans; 0 and 1 are taken for them."""
    array = np.asarray(values)
    _shape(array, name, 1)
    if array.dtype == np.bool_:
        return array
    wrong = np.flatnonzero((array != 0) & (array != 1))
    if wrong.size:
        raise ValueError(f"{name}: expected True/False or 1/0, got {array[wrong[0]]} at [{wrong[0]}]")
    return array.astype(np.bool_)


def same_length(first: NDArray[Any], first_name: str, second: NDArray[Any], second_name: str) -> None:
    """Refuse two arrays that do not speak about the same number of things."""
    if len(first) != len(second):
        raise ValueError(
            f"expected one of {second_name} for each of {first_name}, got {len(second)} for {len(first)}"
        )


def keys(data: Mapping[str, Any], expected: tuple[str, ...], name: str) -> None:
    """Refuse a dict that was not written by this class."""
    if not isinstance(data, Mapping) or set(data) != set(expected):
        came = sorted(map(str, data)) if isinstance(data, Mapping) else repr(data)
        raise ValueError(f"{name}: expected a dict with the keys {sorted(expected)}, got {came}")


def row(values: object, name: str) -> tuple[Any, ...]:
    """Return a list out of a report as a tuple."""
    if not isinstance(values, list | tuple):
        raise ValueError(f"{name}: expected a list, got {values!r:.80}")
    return tuple(values)


def _shape(array: NDArray[Any], name: str, ndim: int) -> None:
    if array.ndim != ndim:
        raise ValueError(f"{name}: expected {ndim} dimension(s), got an array of shape {array.shape}")
    if array.size == 0:
        raise ValueError(f"{name}: expected at least one value, got an empty array of shape {array.shape}")
