"""What the learner knows: accuracy before learning, its curve, per class, calibration, and what may be promised.

Only labels of the audit count for the estimates: they were drawn at random, while the others were chosen because the
learner was in doubt.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from coldstream.metrics import reliability
from coldstream.metrics.promise import Promise, clopper_pearson, promise
from coldstream.serve.errors import Refused
from coldstream.serve.records import Records, Tested
from coldstream.serve.scores import Scores

LEVEL = 0.95
"""Confidence of every bound."""

_WINDOW = 200
"""Audited labels, the latest, that the accuracy of now and the promise are computed from."""
_POINTS = 40
_BINS = 10


def tests(records: Records) -> list[Tested]:
    """Return the first test of each image that still has a label of a person's, against the label it has now."""
    first: dict[str, Tested] = {}
    for test in [*records.tested]:
        record = records.images[test.image]
        if test.image not in first and record.by == "human" and record.label is not None:
            guess = None if test.guess is None else records.resolve(test.guess)
            first[test.image] = test._replace(label=records.resolve(record.label), guess=guess)
    return list(first.values())


def summary(records: Records, tests: Sequence[Tested]) -> dict[str, Any]:
    """Return all but the promise."""
    every = [test for test in tests if test.guess is not None]
    audited = [test for test in every if test.audit]
    recent = audited[-_WINDOW:]
    return {
        "audited": len(audited),
        "audit_share": records.settings["audit"],
        "accuracy": _share(recent),
        "curve": _curve(tests),
        "classes": [
            {"name": records.classes[number].name, "labels": records.classes[number].count, **_bounds(part)}
            for number, part in _by_class(records, audited)
        ],
        **_reliability(recent),
    }


def _right(some: Sequence[Tested]) -> int:
    return sum(test.guess == test.label for test in some)


def _share(some: Sequence[Tested]) -> dict[str, Any] | None:
    if not some:
        return None
    right = _right(some)
    low, high = clopper_pearson(right, len(some), LEVEL)
    return {"value": right / len(some), "low": low, "high": high, "n": len(some)}


def _bounds(some: Sequence[Tested]) -> dict[str, Any]:
    share = _share(some)
    if share is None:
        return {"right": 0, "n": 0, "value": None, "low": None, "high": None}
    return {"right": _right(some), **share}


def _by_class(records: Records, audited: Sequence[Tested]) -> list[tuple[int, list[Tested]]]:
    shown = [number for number, one in enumerate(records.classes) if one.into is None and one.count]
    return [(number, [test for test in audited if test.label == number]) for number in shown]


def _curve(tests: Sequence[Tested]) -> list[dict[str, Any]]:
    """Return accuracy over the number of labels; each point is of the audited labels since the one before."""
    audited = [(count, test) for count, test in enumerate(tests, 1) if test.audit and test.guess is not None]
    size = max(10, -(-len(audited) // _POINTS))
    points = []
    for start in range(0, len(audited) - size + 1, size):
        part = audited[start : start + size]
        points.append({"labels": part[-1][0], **(_share([test for _, test in part]) or {})})
    return points


def _reliability(some: Sequence[Tested]) -> dict[str, Any]:
    if not some:
        return {"reliability": [], "ece": None}
    measured = reliability([test.confidence for test in some], [test.guess == test.label for test in some], _BINS)
    edges = measured.edges
    return {
        "reliability": [
            {"low": edges[i], "high": edges[i + 1], "confidence": confidence, "accuracy": accuracy, "n": n}
            for i, (confidence, accuracy, n) in enumerate(
                zip(measured.confidence, measured.accuracy, measured.count, strict=True)
            )
            if n
        ],
        "ece": measured.ece,
    }


def audited_now(records: Records, tests: Sequence[Tested]) -> list[Tested]:
    """Return the audited labels that speak for the images that remain: those since the last acceptance.

    An acceptance takes the images out that the learner is sure of, so that earlier labels were drawn from others.
    """
    return [test for test in tests if test.guess is not None and test.audit and test.seq > records.accepted_at]


def _promise(
    records: Records, tests: Sequence[Tested], wanted: float, remaining: Sequence[float] | None = None
) -> Promise:
    """Return the promise for images with these confidences, from the latest audited labels.

    Each of these was guessed before it was learned. The latest are enough for a bound, and the learner that made them
    is nearest to the one that answers now.
    """
    audited = audited_now(records, tests)[-_WINDOW:]
    right = [test.guess == test.label for test in audited]
    return promise([test.confidence for test in audited], right, wanted, LEVEL, remaining=remaining)


def threshold_of(
    records: Records, tests: Sequence[Tested], wanted: float, remaining: Sequence[float] | None = None
) -> float:
    """Return the confidence from which on predictions are accurate enough; refuse where too little is known."""
    answer = _promise(records, tests, wanted, remaining)
    if answer.threshold is None:
        raise Refused(answer.reason, "body.accuracy", 409)
    return answer.threshold


def promise_of(records: Records, scores: Scores, tests: Sequence[Tested], wanted: float) -> dict[str, Any]:
    """Return how many of the remaining images the learner may label by itself."""
    ids = records.unlabelled.all()
    confidences = [score.confidence for id in ids if (score := scores.score_of(id)) is not None]
    answer = _promise(records, tests, wanted, confidences or None)
    count = 0 if answer.threshold is None else sum(one >= answer.threshold for one in confidences)
    scored, remaining = len(confidences), len(ids)
    return {
        "wanted": wanted,
        "confidence_level": LEVEL,
        "ready": answer.threshold is not None,
        "reason": answer.reason,
        "threshold": answer.threshold,
        "bound": answer.bound,
        "count": count,
        "scored": scored,
        "remaining": remaining,
    }


def accepts(records: Records) -> list[dict[str, Any]]:
    """Return all acceptances, the latest first."""
    return [{**one, "revoked": one["seq"] not in records.accepted} for one in reversed(records.acceptances)]
