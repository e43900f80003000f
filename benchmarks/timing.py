"""What the pieces of a step cost, where the whole network learns and where its end does (T:cssl_timing)."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from benchmarks.measuring import Bench, Row, spread
from benchmarks.workloads import CLASSES, pictures
from coldstream.data import Dataset
from coldstream.learners import CSSL, REMIND, OfflineRecipe
from coldstream.learners.method import Example
from coldstream.learners.tasks import TaskState

LEARNERS: dict[str, tuple[type[CSSL | REMIND], dict[str, Any]]] = {
    "CSSL": (CSSL, {"augment": "crop|flip", "prefetch": False}),  # nothing else is to run beside what is timed
    "REMIND": (REMIND, {}),
    "REMIND + extra params": (REMIND, {"extra_params": True}),
}
Spread = tuple[float, float]
"""Mean and standard deviation of milliseconds."""


def timing(bench: Bench) -> None:
    """The pieces of a step: the forward pass over new and replayed examples, the backward pass, the loss included,
    and the change of the parameters. REMIND's forward pass is that of its plastic part; before it, the new example
    goes through the frozen part, and its map is encoded by product quantisation.
    """
    model, size, replay = "resnet10-16", 32, bench.scale.replay
    group = f"{model} at {size} px, B = {replay}"
    taken = pieces(bench, model=model, size=size, replay=replay)
    for name, by_piece in taken.items():
        for piece, values in by_piece.items():
            mean, deviation = _mean(values)
            note = f"mean {mean:.2f} ± {deviation:.2f} ms"
            bench.rows.append(Row("timing", group, f"{name}: {piece}", *spread(values), note=note))


def _mean(values: NDArray[np.float64]) -> Spread:
    return float(values.mean()), float(values.std(ddof=1)) if len(values) > 1 else 0.0


def pieces(
    bench: Bench, *, model: str, size: int, replay: int, iterations: int | None = None, **network: Any
) -> dict[str, dict[str, NDArray[np.float64]]]:
    """Return the milliseconds of the pieces of each step, by learner and piece.

    The learners are in mid-stream, with full buffers, and take their steps in turns.

    Parameters
    ----------
    bench
        Whose scale says how much is stored, and how many steps are measured where `iterations` does not.
    model, size, replay
        The network, the side of its images, and B.
    **network
        Other settings that all three have, such as ``device="cuda"``.
    """
    watches = {}
    for name, (kind, settings) in LEARNERS.items():
        watches[name] = Watch(
            _in_stream(bench.scale.stored, kind, model=model, size=size, replay=replay, **network, **settings)
        )
    images, labels = pictures()
    stream = itertools.cycle(zip(images, labels.tolist(), strict=True))
    for turn in bench.track("pieces of a step", range(-2, iterations or bench.scale.most)):
        if turn == 0:  # the first two fill caches
            for watch in watches.values():
                watch.taken.clear()
        image, label = next(stream)
        for watch in watches.values():
            watch.learner.learn_one(image, str(label))
    return {
        name: {piece: np.array(values) for piece, values in watch.taken.items()} for name, watch in watches.items()
    }


def _in_stream(stored: int, kind: type[CSSL | REMIND], **settings: Any) -> CSSL | REMIND:
    """Return a learner of ten classes with a full buffer; its network is random, which takes the same time."""
    images, labels = pictures()
    stored = min(stored, len(images))
    names = tuple(str(label) for label in range(CLASSES))
    learner = kind(classes=CLASSES, rate="constant(0.01)", capacity=stored, **settings)
    learner.base_init(Dataset("pictures", images[:stored], labels[:stored], names), OfflineRecipe(epochs=0))
    if isinstance(learner, CSSL):  # REMIND keeps what it was initialised on
        for id, (image, label) in enumerate(zip(images[:stored], labels.tolist(), strict=False)):
            item, buffer = learner._inputs.admit(image, learner.shape), learner.tasks[None].buffer
            buffer.store(buffer.compress(item), label, id)
    return learner


@dataclass
class Watch:
    """Milliseconds of the pieces of every step that a learner makes from now on, by piece.

    It is the learner's own pieces that are timed, where they are: what comes between the network's forward pass and
    the change of the parameters is the backward pass.
    """

    learner: CSSL | REMIND
    taken: dict[str, list[float]] = field(default_factory=dict)
    _forward_ended: float = 0.0
    _learning: bool = False

    def __post_init__(self) -> None:
        engine, learn = self.learner.engine, self.learner._learn
        self._waits = engine.device.type == "cuda"

        def watched(task: TaskState, new: Sequence[Example]) -> None:
            self._learning = True  # some pieces are used in predictions, too
            try:
                learn(task, new)
            finally:
                self._learning = False

        vars(self.learner)["_learn"] = watched
        if isinstance(self.learner, REMIND):
            self._time(self.learner, "_vectors", "frozen")
            self._time(self.learner.quantiser, "encode", "encode")
            self._time(self.learner, "_plastic", "forward")
        else:
            self._time(engine, "_forward", "forward")
        self._time(engine._sgd, "step", "update")

    def _time(self, owner: Any, name: str, piece: str) -> None:
        function: Callable[..., Any] = getattr(owner, name)

        def timed(*arguments: Any) -> Any:
            if not self._learning:
                return function(*arguments)
            begin = self._now()
            if piece == "update":
                self._add("backward", begin - self._forward_ended)
            result = function(*arguments)
            end = self._now()
            self._add(piece, end - begin)
            if piece == "forward":
                self._forward_ended = end
            return result

        vars(owner)[name] = timed

    def _now(self) -> float:
        if self._waits:
            torch.cuda.synchronize()
        return time.perf_counter()

    def _add(self, piece: str, seconds: float) -> None:
        self.taken.setdefault(piece, []).append(1e3 * seconds)
