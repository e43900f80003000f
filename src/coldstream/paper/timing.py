"""What the pieces of a step cost: the paper's appendix B.7. Measured, not streamed."""

from __future__ import annotations

from coldstream.paper import common
from coldstream.paper.catalog import Claim, PaperExperiment, each_better

PART = "milliseconds"
_PIECES = ("encode", "forward", "backward", "update")
_PAPER = {
    "CSSL": (None, (3.67, 0.45), (5.41, 0.97), (1.53, 0.06)),
    "REMIND": ((23.37, 1.13), (2.65, 0.02), (1.62, 0.03), (0.52, 0.01)),
    "REMIND + extra params": ((23.37, 1.13), (2.95, 0.12), (1.84, 0.09), (0.69, 0.04)),
}

TIMING = PaperExperiment(
    name="T:cssl_timing",
    title="What the pieces of a step cost",
    varies="the method",
    fixed="network, 100 replayed examples per step, full buffers; methods take their steps in turns",
    setting=common.short,
    parts=lambda setting: {},
    metrics=_PIECES,
    numbers={
        (PART, name, piece): number
        for name, times in _PAPER.items()
        for piece, number in zip(_PIECES, times, strict=True)
        if number is not None
    },
    claims=(
        Claim(
            "CSSL's forward pass, backward pass and update take longer than REMIND's",
            tuple(c for piece in _PIECES[1:] for c in each_better(PART, "CSSL", "REMIND", metric=piece)),
        ),
        Claim(
            "Extra layers make REMIND's pieces longer",
            tuple(
                c for piece in _PIECES[1:] for c in each_better(PART, "REMIND + extra params", "REMIND", metric=piece)
            ),
        ),
    ),
    about={
        "lab": "A ResNet of 155,000 parameters at 32 x 32 on two threads, 50 steps; step by step they are compared. "
        "The paper has ResNet18 at 224 x 224 on a GPU and five steps. Encoding is that of the new example alone; "
        "ours is batched arithmetic, the paper's the official code."
    },
    measured={
        "lab": {"model": "resnet10-16", "size": 32, "replay": 100, "iterations": 50},
        "paper": {"model": "resnet18", "size": 224, "replay": 100, "iterations": 5, "normalize": "imagenet"},
    },
)
