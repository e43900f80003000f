"""`coldstream predict` and `export`: use a learner that was saved."""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from coldstream.cli.output import complain, complaints, say

if TYPE_CHECKING:
    from coldstream.learners import Learner
    from coldstream.learners.files import FilePrediction

FORMATS = (".csv", ".jsonl")
_FIELDS = ("path", "label", "confidence", "runner_up", "runner_up_confidence", "error")
_Checkpoint = Annotated[Path, typer.Argument(help="A folder given to `learner.save`, or the folder of a run.")]
_Task = Annotated[str | None, typer.Option(help="On a stream with tasks: which task.")]
_Class = Annotated[
    str | None, typer.Option("--learner", help="For a learner of your own: module:Class, which is imported.")
]


def predict(
    checkpoint: _Checkpoint,
    images: Annotated[Path, typer.Argument(help="A folder or zip of images, or one image.")],
    out: Annotated[Path | None, typer.Option(help="A .csv or .jsonl file; default: CSV on the terminal.")] = None,
    threshold: Annotated[
        float, typer.Option(min=0, max=1, help="Leave the label empty below this confidence.")
    ] = 0.0,
    strict: Annotated[bool, typer.Option("--strict", help="Stop at the first file that cannot be read.")] = False,
    task: _Task = None,
    learner: _Class = None,
) -> None:
    """Predict every image of a folder: path, label, confidence, and the second-best label.

    A file that cannot be read is named, counted and left without a label, unless `--strict`.
    """
    from coldstream.data.files import Files, open_files
    from coldstream.learners.files import predict_files

    kind = ".csv" if out is None else out.suffix.lower()
    if kind not in FORMATS:
        raise ValueError(f"--out is a file NAME.csv or NAME.jsonl, not {str(out)!r}")
    if out is not None and not out.absolute().parent.is_dir():
        raise ValueError(f"there is no folder {str(out.absolute().parent)!r} to write {out.name} to")
    model = _load(checkpoint, learner)
    if images.is_file() and images.suffix.lower() != ".zip":
        files, names = Files(images.absolute().parent), [images.name]
    else:
        files = open_files(images)
        names = files.images()
    if not names:
        raise ValueError(f"there are no images in {str(images)!r}")
    predictions = _watched(predict_files(model, files, names, task=task), len(names))
    kept, broken = [], 0
    for prediction in predictions:
        if prediction.error is not None:
            if strict:
                raise ValueError(prediction.error)
            broken += 1
            complain(f"skipped: {prediction.error}")
        kept.append(prediction)
    text = _as_text(kept, kind, threshold)
    if out is None:
        sys.stdout.write(text)
    else:
        from coldstream.checkpoint import write_atomically

        write_atomically(out, text.encode("utf-8", "backslashreplace"))
    sure = sum(one.error is None and one.confidence >= threshold for one in kept)
    where = "" if out is None else f" in {out}"
    skipped = f"; {broken:,} could not be read" if broken else ""
    complain(f"{sure:,} of {len(kept):,} images have a label{where}{skipped}")


def export(
    checkpoint: _Checkpoint,
    file: Annotated[Path, typer.Argument(help="NAME.onnx, or NAME.pt2 for torch.export.load.")],
    task: _Task = None,
    learner: _Class = None,
) -> None:
    """Write the network of a saved learner into a file that needs no Coldstream to run.

    Images as bytes go in, calibrated probabilities come out; docs/take-away.md has a script that serves it.
    """
    from coldstream.learners.exporting import check_target

    check_target(file)
    _load(checkpoint, learner).export(file, task=task)
    say(f"{file}: {file.stat().st_size:,} bytes")


def _load(path: Path, learner: str | None) -> Learner[Any]:
    """Return the learner of a checkpoint, or of a run that has one learner and seed."""
    from coldstream.lab.learners import learner_class
    from coldstream.learners.loading import load_learner

    model = path / "model"
    where = model if model.is_dir() and not (path / "manifest.json").exists() else path
    return load_learner(where, None if learner is None else lambda name: learner_class(learner))


def _watched(predictions: Iterator[FilePrediction], total: int) -> Iterable[FilePrediction]:
    if not complaints.is_terminal:
        return predictions
    from rich.progress import track

    return track(predictions, "predicting", total, console=complaints)


def _as_text(predictions: Iterable[FilePrediction], kind: str, threshold: float) -> str:
    """Return a line for each file; a label below the threshold is left out, and its confidence is not."""
    rows = []
    for one in predictions:
        row = {name: getattr(one, name) for name in _FIELDS}
        if one.error is not None:
            row |= {"confidence": None, "runner_up_confidence": None}
        elif one.confidence < threshold:
            row["label"] = None
        rows.append(row)
    if kind == ".jsonl":
        return "".join(json.dumps(row) + "\n" for row in rows)
    import csv

    from coldstream.report.tables import csv_cell

    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(_FIELDS)
    for row in rows:
        writer.writerow(
            f"{value:.6f}" if isinstance(value, float) else csv_cell("" if value is None else str(value))
            for value in row.values()
        )
    return text.getvalue()
