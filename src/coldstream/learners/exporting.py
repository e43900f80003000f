"""A learner's network as a file that needs no Coldstream: images in, calibrated probabilities out."""

from __future__ import annotations

import copy
import io
import json
import logging
import warnings
from collections.abc import Sequence
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor, nn

from coldstream._version import __version__
from coldstream.checkpoint import write_atomically
from coldstream.learners.tasks import known_task

if TYPE_CHECKING:
    from coldstream.learners.base import Learner

SUFFIXES = (".onnx", ".pt2")


class Scores(nn.Module):
    """A network and a linear layer behind it: normalised images to scores, a column per row of the head."""

    weight: Tensor
    bias: Tensor

    def __init__(self, body: nn.Module, weight: Tensor, bias: Tensor) -> None:
        super().__init__()
        self.body = body
        self.register_buffer("weight", weight.detach().clone())
        self.register_buffer("bias", bias.detach().clone())

    def forward(self, inputs: Tensor) -> Tensor:
        return nn.functional.linear(self.body(inputs).to(self.weight.dtype), self.weight, self.bias)


class Answer(nn.Module):
    """The whole way from images to probabilities, as `Learner.predict_proba_many` goes it.

    Parameters
    ----------
    scores
        Normalised images (N, C, H, W), or vectors (N, d), to scores.
    normalise
        Scale and shift of each channel's bytes; None for vectors.
    rows
        The columns of the scores that count.
    classes
        For each of them the class that it counts for; several after a merge.
    unseen
        The probability of a class that has not come, which all classes share.
    """

    scale: Tensor
    shift: Tensor
    rows: Tensor
    summed: Tensor

    def __init__(
        self,
        scores: Scores,
        normalise: tuple[Tensor, Tensor] | None,
        rows: Sequence[int],
        classes: Sequence[int],
        unseen: float,
    ) -> None:
        super().__init__()
        self.scores, self.images, self.unseen = scores, normalise is not None, unseen
        scale, shift = normalise or (torch.ones(1), torch.zeros(1))
        summed = np.zeros((len(rows), max(classes) + 1), np.float32)
        summed[np.arange(len(rows)), classes] = 1
        self.register_buffer("scale", scale.float())
        self.register_buffer("shift", shift.float())
        self.register_buffer("rows", torch.tensor(rows))
        self.register_buffer("summed", torch.from_numpy(summed))

    def forward(self, images: Tensor) -> Tensor:
        """Return probabilities (N, classes) of uint8 images (N, H, W, C), or of float32 vectors (N, d)."""
        inputs = images.permute(0, 3, 1, 2).float() * self.scale + self.shift if self.images else images
        probabilities: Tensor = self.scores(inputs)[:, self.rows].softmax(dim=1).float() @ self.summed
        return (1 - self.unseen) * probabilities + self.unseen / self.summed.shape[1]


def answer(learner: Learner[Any], name: object) -> tuple[Answer, dict[str, Any]]:
    """Return what a learner answers with now, on the CPU in float32, and the description that goes with it."""
    task = known_task(learner, name)
    seen = task.classes.seen()
    if not seen:
        raise ValueError("there is no class to predict: everything that was learned was taken back")
    column = {row: i for i, row in enumerate(seen)}
    rows = [row for row, into in enumerate(task.classes.into) if into in column]
    _refuse_other_answers(learner)
    engine, shape = learner.engine, learner.shape
    assert shape is not None
    images = learner.settings.items != "vectors"
    whole = Answer(
        Scores(*learner._linear(task)),
        engine.scale_and_shift(shape[2]) if images else None,
        rows,
        [column[task.classes.into[row]] for row in rows],
        learner._unseen(task),
    )
    whole = copy.deepcopy(whole).to("cpu").eval()
    whole.scores.body.float()
    for parameter in whole.parameters():
        parameter.requires_grad_(False)
    description = {
        "classes": [task.classes.labels[row] for row in seen],
        "learner": type(learner).__name__,
        "step": learner.step,
        "coldstream": __version__,
        "input": {"shape": ["batch", *shape], "dtype": "uint8" if images else "float32"},
    }
    if images:
        description["preparation"] = {
            "resize": "cover, bilinear",
            "crop": "centre",
            "zoom": learner.settings.zoom,
            "channels": "grey" if shape[2] == 1 else "RGB",
        }
    return whole, description


def _refuse_other_answers(learner: Learner[Any]) -> None:
    """Refuse a method that says how it answers, but not how that is exported."""
    classes = type(learner).__mro__
    says, exports = (next(i for i, one in enumerate(classes) if name in vars(one)) for name in ("_logits", "_linear"))
    if says < exports:
        raise ValueError(
            f"{type(learner).__name__} does not answer with a network and one linear layer behind it, so that an "
            "exported file would answer otherwise; keep the learner itself with save(path)"
        )


def check_target(path: Path) -> None:
    """Refuse a file that cannot be written, before anything is computed."""
    kind = path.suffix.lower()
    if kind not in SUFFIXES:
        raise ValueError(f"a network is exported to a file NAME.onnx or NAME.pt2, not {str(path)!r}")
    if kind == ".onnx" and (missing := [one for one in ("onnx", "onnxscript") if find_spec(one) is None]):
        raise ValueError(
            f"to write an .onnx file install {' and '.join(missing)}: pip install 'coldstream[onnx]'; a .pt2 file "
            "needs torch alone"
        )
    if not path.absolute().parent.is_dir():
        raise ValueError(f"there is no folder {str(path.absolute().parent)!r} to write {path.name} to")


def write(whole: Answer, description: dict[str, Any], path: Path) -> None:
    """Write what `answer` returned into a file, atomically."""
    shape, dtype = description["input"]["shape"][1:], description["input"]["dtype"]
    example = torch.zeros((2, *shape), dtype=torch.uint8 if dtype == "uint8" else torch.float32)
    kind = path.suffix.lower()
    try:
        data = (_onnx if kind == ".onnx" else _pt2)(whole, example, description)
    except Exception as error:  # of whatever kind: a user's own network is traced
        raise ValueError(f"this network cannot be exported to {kind}: {type(error).__name__}: {error}") from error
    write_atomically(path, data)


def _onnx(whole: Answer, example: Tensor, description: dict[str, Any]) -> bytes:
    log = logging.getLogger("torch.onnx")
    level = log.level
    log.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of how the exporter calls torch
            program = torch.onnx.export(
                whole,
                (example,),
                dynamo=True,
                dynamic_shapes={"images": {0: torch.export.Dim("batch")}},
                input_names=["images"],
                output_names=["probabilities"],
                verbose=False,
            )
    finally:
        log.setLevel(level)
    assert program is not None
    model = program.model_proto
    for key, value in {**description, "torch": version("torch")}.items():
        model.metadata_props.add(key=key, value=value if isinstance(value, str) else json.dumps(value))
    data: bytes = model.SerializeToString()
    return data


def _pt2(whole: Answer, example: Tensor, description: dict[str, Any]) -> bytes:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        program = torch.export.export(whole, (example,), dynamic_shapes={"images": {0: torch.export.Dim("batch")}})
        file = io.BytesIO()
        torch.export.save(program, file, extra_files={"coldstream.json": json.dumps(description)})
    return file.getvalue()
