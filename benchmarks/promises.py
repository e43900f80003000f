"""How often is a promise of accuracy kept? Simulated sessions; `promise` sees the audited labels alone.

    uv run python -m benchmarks.promises

A session audits images, promises, accepts what is above the threshold, and looks at the accuracy of the accepted
images themselves. "fixed" is a learner that stays as it is, with a chance of being right that depends on its
confidence. "stream" labels a pool without replacement, one image in five drawn at random and the most doubtful one
otherwise, by a learner whose skill changes with each label.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from coldstream.metrics.promise import promise
from coldstream.report.tables import Table, markdown

Values = NDArray[np.float64]
Chance = Callable[[Values], Values]


def broken(sessions: int, session: Callable[[np.random.Generator], bool | None]) -> tuple[float, float]:
    """Return the share of sessions with a promise that was not kept, and the share with any promise."""
    outcomes = [session(np.random.default_rng([seed, 5])) for seed in range(sessions)]
    kept = [outcome for outcome in outcomes if outcome is not None]
    return sum(not outcome for outcome in kept) / sessions, len(kept) / sessions


def one_session(
    rng: np.random.Generator,
    chance: Chance,
    *,
    n: int,
    remaining: int,
    wanted: float = 0.9,
    level: float = 0.95,
    known: bool = True,
) -> bool | None:
    """Audit n of n + remaining images, promise, accept; return whether the accuracy was kept, None for no promise."""
    sure = rng.beta(3, 1, n + remaining)
    right = rng.random(n + remaining) < chance(sure)
    made = promise(sure[:n], right[:n], wanted, level, remaining=sure[n:] if known else None)
    if made.threshold is None:
        return None
    accepted = right[n:][sure[n:] >= made.threshold]
    return len(accepted) == 0 or bool(accepted.mean() >= wanted)


CHANCES: dict[str, Chance] = {
    "calibrated": lambda sure: sure,
    "never enough": lambda sure: np.full(len(sure), 0.895),
    "a step at 0.8": lambda sure: np.where(sure > 0.8, 0.97, 0.4),
    "overconfident": lambda sure: sure**2,
    "wrong where it is surest": lambda sure: np.where(sure > 0.97, 0.7, 0.93),
}


def a_stream(
    rng: np.random.Generator,
    *,
    images: int = 1500,
    labels: int = 500,
    audit: float = 0.2,
    wanted: float = 0.9,
    window: int | None = None,
    skill: Callable[[int], float] = lambda step: step / 200,
    now: bool = False,
) -> bool | None:
    """Label a pool without replacement, the most doubtful first but for audits, by a learner whose skill changes.

    An image is right where the skill exceeds its difficulty by a margin of noise. Confidence follows the same margin.
    With `now` the audited images are guessed again by the learner that has learned them.
    """
    hardness, left = rng.normal(1, 1, images), np.ones(images, bool)
    audited = list[tuple[float, bool]]()

    def guess(some: NDArray[np.int64], at: int) -> tuple[Values, NDArray[np.bool_]]:
        margin = skill(at) - hardness[some] + rng.normal(0, 0.7, len(some))
        truth = skill(at) - hardness[some] + rng.normal(0, 0.7, len(some))
        return 1 / (1 + np.exp(-2 * margin)), truth > 0

    for step in range(labels):
        free = np.flatnonzero(left)
        if rng.random() < audit:
            image = int(rng.choice(free))
            sure, right = guess(np.array([image]), step)
            audited.append((float(sure[0]), bool(right[0])))
        else:
            some = rng.choice(free, min(50, len(free)), replace=False)
            image = int(some[guess(some, step)[0].argmin()])
        left[image] = False
    free = np.flatnonzero(left)
    sure, right = guess(free, labels)
    latest = audited[-window:] if window else audited
    told, good = np.array([one[0] for one in latest]), np.array([one[1] for one in latest])
    if now:  # what was learned is known
        told, good = np.full(len(latest), 0.99), np.ones(len(latest), bool)
    made = promise(told, good, wanted, remaining=sure)
    if made.threshold is None:
        return None
    accepted = right[sure >= made.threshold]
    return len(accepted) == 0 or bool(accepted.mean() >= wanted)


def improving(step: int) -> float:
    """Return the skill of a learner that learns."""
    return step / 200


def failing(step: int) -> float:
    """Return the skill of a learner that is spoiled after 350 labels."""
    return 3.0 if step < 350 else 0.3


STREAMS: dict[str, dict[str, Any]] = {
    "it improves, 500 labels": {"labels": 500},
    "it improves, 800 labels": {"labels": 800},
    "it improves, 800 labels, the latest 100 audits": {"labels": 800, "window": 100},
    "it improves, 1,400 of 1,500 labels": {"labels": 1400},
    "it is spoiled": {"labels": 700, "images": 3000, "skill": failing},
    "it is spoiled, the latest 60 audits": {"labels": 700, "images": 3000, "skill": failing, "window": 60},
    "asked again about audited images": {"labels": 300, "now": True},
}
SIZES = ((60, 40), (150, 600), (300, 30), (300, 20_000))


def table(sessions: int, wanted: float) -> Table:
    """Return how often a promise was made, and how often it was made and broken."""
    lines = [["learner", "audited", "remaining", "promises", "broken, of all sessions"]]

    def add(name: str, audited: str, remaining: str, session: Callable[[np.random.Generator], bool | None]) -> None:
        wrong, made = broken(sessions, session)
        lines.append([name, audited, remaining, f"{made:.1%}", f"{wrong:.1%}"])

    for name, chance in CHANCES.items():
        for n, remaining in SIZES:

            def fixed(
                rng: np.random.Generator, chance: Chance = chance, n: int = n, remaining: int = remaining
            ) -> bool | None:
                return one_session(rng, chance, n=n, remaining=remaining, wanted=wanted)

            add(f"fixed: {name}", f"{n:,}", f"{remaining:,}", fixed)
    for name, how in STREAMS.items():

        def stream(rng: np.random.Generator, how: dict[str, Any] = how) -> bool | None:
            return a_stream(rng, wanted=wanted, **how)

        add(f"stream: {name}", "", f"{how.get('images', 1500) - how['labels']:,}", stream)
    return lines


def main(arguments: Sequence[str] | None = None) -> None:
    """Simulate and print the table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.promises", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--sessions", type=int, default=200)
    parser.add_argument("--wanted", type=float, default=0.9)
    given = parser.parse_args(arguments)
    print(markdown(table(given.sessions, given.wanted)), end="")


if __name__ == "__main__":
    main()
