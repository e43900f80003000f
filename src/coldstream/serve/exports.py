"""What a person takes away: labels as CSV, JSON lines, class folders or Label Studio JSON, and the learner."""

from __future__ import annotations

import csv
import io
import json
import re
import shutil
import tempfile
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from coldstream.serve.errors import Refused
from coldstream.serve.images import Unreadable
from coldstream.serve.live import export_learner

if TYPE_CHECKING:
    from coldstream.serve.project import Project

FORMATS = {
    "csv": ("labels.csv", "text/csv; charset=utf-8"),
    "jsonl": ("labels.jsonl", "application/jsonl"),
    "folders": ("images.zip", "application/zip"),
    "label-studio": ("label-studio.json", "application/json"),
    "learner": ("learner.zip", "application/zip"),
}
_COLUMNS = ("image", "name", "label", "by", "confidence", "audit", "guess")
_FORMULA = ("=", "+", "-", "@", "\t", "\r")
_SAFE = re.compile(r"[^\w .()-]", flags=re.ASCII)


def rows(project: Project) -> list[dict[str, Any]]:
    """Return all labels, of people and of the machine, in the order of the images."""
    with project.lock:
        records = project.records
        shown = {one.image: one.guess for one in records.recent}
        return [
            {
                "image": id,
                "name": record.path or record.name,
                "label": records.name_of(record.label),
                "by": record.by,
                "confidence": record.confidence,
                "audit": record.audit,
                "guess": guess[0] if (guess := shown.get(id)) else None,
            }
            for id, record in records.images.items()
            if record.label is not None
        ]


@contextmanager
def exported(project: Project, format: str) -> Iterator[BinaryIO]:
    """Give a file with what was asked for, at its beginning; it is removed afterwards."""
    if format not in FORMATS:
        raise Refused(f"there is no format {format[:50]!r}; there are: {', '.join(FORMATS)}", "query.format")
    with tempfile.TemporaryFile(dir=project.folder) as file:
        _WRITERS[format](project, file)
        file.seek(0)
        yield file


def _csv(project: Project, file: BinaryIO) -> None:
    text = io.TextIOWrapper(file, encoding="utf-8", newline="", write_through=True)
    writer = csv.DictWriter(text, _COLUMNS)
    writer.writeheader()
    for row in rows(project):
        writer.writerow({name: _no_formula(value) for name, value in row.items()})
    text.detach()


def _no_formula(value: Any) -> Any:
    """Keep a spreadsheet from taking a text for a formula."""
    if isinstance(value, str) and value.startswith(_FORMULA):
        return "'" + value
    return "" if value is None else value


def _jsonl(project: Project, file: BinaryIO) -> None:
    for row in rows(project):
        file.write(json.dumps(row, ensure_ascii=False).encode() + b"\n")


def _label_studio(project: Project, file: BinaryIO) -> None:
    tasks = []
    for row in rows(project):
        result = {
            "from_name": "choice",
            "to_name": "image",
            "type": "choices",
            "value": {"choices": [row["label"]]},
        }
        machine = row["by"] == "machine"
        tasks.append(
            {
                "data": {"image": row["name"], "coldstream_image": row["image"]},
                "predictions" if machine else "annotations": [
                    {"result": [result], **({"score": row["confidence"]} if machine else {})}
                ],
            }
        )
    file.write(json.dumps(tasks, ensure_ascii=False, indent=1).encode())


def _folders(project: Project, file: BinaryIO) -> None:
    used: dict[str, str] = {}
    with zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as archive:
        for row in rows(project):
            folder = used.setdefault(row["label"], _folder_name(row["label"], set(used.values())))
            record = project.records.images[row["image"]]
            try:
                data = project.images.read(row["image"], record.path)
            except Unreadable:
                continue
            name = _SAFE.sub("_", Path(row["name"]).name)[-80:]
            archive.writestr(zipfile.ZipInfo(f"{folder}/{row['image'][:12]}-{name}"), data)


def _folder_name(label: str, taken: set[str]) -> str:
    """Return a name for a class's folder that is safe on every system and not taken."""
    name = _SAFE.sub("_", label).strip(" .")[:60] or "class"
    number, answer = 2, name
    while answer.lower() in {other.lower() for other in taken}:
        answer, number = f"{name} ({number})", number + 1
    return answer


def _learner(project: Project, file: BinaryIO) -> None:
    """Pack the learner as it is now, with the names of the classes as labels."""
    with tempfile.TemporaryDirectory(dir=project.folder) as place:
        folder = Path(place) / "learner"
        with project.lock:
            names = {number: one.name for number, one in enumerate(project.records.classes) if one.into is None}
        if not export_learner(project.live, folder, names):
            raise Refused("the learner has learned nothing yet; label some images first", "query.format", 409)
        with zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as archive:
            for path in sorted(folder.iterdir()):
                if path.is_file():
                    with path.open("rb") as source, archive.open(f"learner/{path.name}", "w") as target:
                        shutil.copyfileobj(source, target)


_WRITERS = {
    "csv": _csv,
    "jsonl": _jsonl,
    "folders": _folders,
    "label-studio": _label_studio,
    "learner": _learner,
}
