"""`coldstream data`: which data sets there are, and how to get them."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from coldstream.cli.output import say, show


def data_list(
    root: Annotated[
        Path | None, typer.Option(help="Where data sets are; default COLDSTREAM_DATA or a cache.")
    ] = None,
) -> None:
    """Show each data set, whether it is here, where it is looked for and how to get it."""
    from coldstream.data import catalog

    entries = catalog(root)
    rows = [["name", "what", "images (train + test)", "classes", "here"]]
    for entry in entries:
        sizes = f"{entry.train:,} + {entry.test:,}"
        rows.append([entry.name, entry.title, sizes, f"{entry.classes:,}", "yes" if entry.present else "no"])
    show(rows, "data sets")
    for entry in entries:
        if entry.present:
            say(f"{entry.name}: {entry.where}" if entry.where else f"{entry.name}: embedded")
        else:
            say(f"{entry.name}: not at {entry.where}; to get it: {entry.how}")


def data_get(
    name: Annotated[str, typer.Argument(help="A name of `coldstream data list`, or hf:NAME for Hugging Face.")],
    root: Annotated[
        Path | None, typer.Option(help="Where data sets are; default COLDSTREAM_DATA or a cache.")
    ] = None,
) -> None:
    """Download a data set where that is possible; otherwise say how to get it."""
    from coldstream.data import DATASETS, catalog, load_dataset
    from coldstream.parsing import unknown

    if name not in DATASETS and not name.startswith("hf:"):
        raise unknown("data set", name, [*DATASETS, "hf:NAME"])
    here = {entry.name: entry for entry in catalog(root)}
    if name in here and here[name].present:
        say(f"{name} is here already: {here[name].where or 'it comes with this program'}")
        return
    train, test = load_dataset(name, root, download=True)
    where = next((f" in {entry.where}" for entry in catalog(root) if entry.name == name), "")
    say(f"{name}: {len(train):,} + {len(test):,} images, {len(train.names):,} classes{where}")
