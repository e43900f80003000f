"""Image classification sets of Hugging Face, through the optional package `datasets`."""

from __future__ import annotations

import importlib
import os
import re
import shutil
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl

import numpy as np

from coldstream.data.dataset import Dataset, Pixels, View
from coldstream.data.files import in_memory_if_small
from coldstream.data.folders import TEST, TRAIN
from coldstream.data.selection import split_fifth
from coldstream.data.sources import MissingData, how_to_download
from coldstream.images import as_array
from coldstream.limits import MAX_BYTES
from coldstream.parsing import unknown

OPTIONS = ("config", "image", "label", "train", "test")


def huggingface(spec: str, *, root: Path, download: bool = False) -> tuple[Dataset, Dataset]:
    """Return the training and the test set of a Hugging Face data set.

    It is read from a copy in `root`, which `download` makes once; later calls need no network. A folder
    that `save_to_disk` wrote is read where it is.

    Parameters
    ----------
    spec
        `NAME` or a folder, and options as in `owner/name?config=full&label=fine_label`: `config`, the columns
        `image` and `label`, and the splits `train` and `test`. Columns are inferred if only one is possible;
        the test split is the first of test, val, valid and validation that has labels, and without any, every fifth
        of each class by a hash of its number is taken from training.
    root
        The folder of data sets.
    download
        Whether to download what is not there.
    """
    name, _, query = spec.partition("?")
    options = dict(parse_qsl(query))
    for option in options:
        if option not in OPTIONS:
            raise unknown("option", option, OPTIONS)
    return read_splits(name, _open(name, options.pop("config", None), root, download), **options)


def read_splits(
    name: str,
    splits: dict[str, Any],
    image: str | None = None,
    label: str | None = None,
    train: str | None = None,
    test: str | None = None,
) -> tuple[Dataset, Dataset]:
    """Return the training and the test set of a `datasets.DatasetDict`, or of a plain dictionary of its sets."""
    train = train or TRAIN
    for wanted in filter(None, (train, test)):
        if wanted not in splits:
            raise unknown(f"split of {name!r}", wanted, list(splits))
    features = splits[train].features
    image = _column(name, features, "image", image, ("image", "img"))
    label = _column(name, features, "label", label, ("label", "labels"))
    candidates = [test] if test else [part for part in TEST if part in splits]
    raw = {part: list(splits[part][label][:]) for part in (train, *candidates)}
    labelled = {part: np.array([value not in (None, -1) for value in values]) for part, values in raw.items()}
    tested = next((part for part in candidates if labelled[part].any()), None)
    names, numbers = _classes(features[label], [raw[part] for part in (train, *([tested] if tested else []))])
    sets = []
    for part in (train, *([tested] if tested else [])):
        # Competitions hide test labels as -1.
        rows = np.flatnonzero(labelled[part])
        labels = np.array([numbers[raw[part][row]] for row in rows], np.int64)
        images = View(_HubImages(splits[part], image, f"{name}/{part}"), rows)
        keys = tuple(f"{part}/{row}" for row in rows)
        sets.append(Dataset(name, in_memory_if_small(images), labels, names, keys=keys))
    if tested:
        return sets[0], sets[1]
    for_training, for_testing = split_fifth(sets[0].labels, sets[0].identities())
    return sets[0].take(for_training), sets[0].take(for_testing)


class _HubImages(Sequence[Pixels]):
    """The images of one split, decoded on access by this library: `datasets` would do it by other rules."""

    def __init__(self, table: Any, column: str, where: str) -> None:
        kind = type(table.features[column])
        table = table.select_columns([column])
        self._table = table.cast_column(column, kind(decode=False)) if kind.__name__ == "Image" else table
        self._column, self._where = column, where

    def __len__(self) -> int:
        return len(self._table)

    def __getitem__(self, index: Any) -> Any:
        value = self._table[int(index)][self._column]
        try:
            data = value if isinstance(value, bytes) else value["bytes"]
            if data is None:
                with open(value["path"], "rb") as file:
                    data = file.read(MAX_BYTES + 1)
            return as_array(data, channels=3)
        except (ValueError, OSError) as error:
            raise ValueError(f"cannot decode image {index} of {self._where!r}: {error}") from error


def _column(name: str, features: Any, what: str, wanted: str | None, usual: tuple[str, ...]) -> str:
    if wanted is not None:
        if wanted not in features:
            raise unknown(f"column of {name!r}", wanted, list(features))
        return wanted
    kind = {"image": "Image", "label": "ClassLabel"}[what]
    columns = [column for column, feature in features.items() if type(feature).__name__ == kind]
    if len(columns) != 1:
        columns = [column for column in usual if column in (columns or features)][:1] or columns
    if len(columns) != 1:
        raise ValueError(
            f"{name!r} has {len(columns) or 'no'} columns that can be the {what}; choose one as in "
            f"hf:{name}?{what}=COLUMN, of {', '.join(columns or features)}"
        )
    return str(columns[0])


def _classes(feature: Any, columns: Iterable[Sequence[Any]]) -> tuple[tuple[str, ...], dict[Any, int]]:
    """Return the classes' names, and the number of each value that stands for one."""
    known = getattr(feature, "names", None)
    if known is not None:
        return tuple(known), {number: number for number in range(len(known))}
    values = sorted({value for column in columns for value in column if value not in (None, -1)})
    return tuple(str(value) for value in values), {value: number for number, value in enumerate(values)}


def _open(name: str, config: str | None, root: Path, download: bool) -> dict[str, Any]:
    local = Path(name).expanduser()
    copy = root / "huggingface" / re.sub(r"[^\w.-]", "--", name + (f"@{config}" if config else ""))
    folder = local if local.is_dir() else copy
    if not folder.is_dir() and not download:
        how = how_to_download(f"hf:{name}" + (f"?config={config}" if config else ""))
        raise MissingData(f"data set 'hf:{name}' is not here: looked for {str(copy)!r}. To get it: {how}")
    try:
        datasets = importlib.import_module("datasets")
    except ImportError:
        raise MissingData(
            f"data set 'hf:{name}' needs the package datasets, which is not installed. To get it: "
            "pip install datasets, or uv run --with datasets"
        ) from None
    if not folder.is_dir():
        try:
            _save(datasets.load_dataset(name, config), copy)
        except Exception as error:  # its errors have no common base
            raise MissingData(f"data set 'hf:{name}' could not be downloaded: {error}") from error
    try:
        loaded = datasets.load_from_disk(str(folder))
    except (OSError, ValueError) as error:
        raise MissingData(f"{str(folder)!r} is not a folder that save_to_disk wrote: {error}") from error
    return dict(loaded) if hasattr(loaded, "keys") else {TRAIN: loaded}


def _save(loaded: Any, copy: Path) -> None:
    """Write to a temporary folder and rename it, so that the copy is complete or absent."""
    copy.parent.mkdir(parents=True, exist_ok=True)
    beside = tempfile.mkdtemp(dir=copy.parent, prefix=".new-")
    try:
        loaded.save_to_disk(os.path.join(beside, "set"))
        os.replace(os.path.join(beside, "set"), copy)
    finally:
        shutil.rmtree(beside, ignore_errors=True)
