"""Where examples come from."""

from typing import TYPE_CHECKING

from coldstream._lazy import attribute_loader

if TYPE_CHECKING:
    from coldstream.data.built_in import digits
    from coldstream.data.clips import gtsrb
    from coldstream.data.core50_clips import core50
    from coldstream.data.dataset import Dataset
    from coldstream.data.files import LazyImages
    from coldstream.data.folders import folder
    from coldstream.data.list_files import cub200, mit_scenes
    from coldstream.data.registry import DATASETS, catalog, load_dataset
    from coldstream.data.selection import select
    from coldstream.data.sources import Entry, MissingData, data_root

__all__ = [
    "DATASETS",
    "Dataset",
    "Entry",
    "LazyImages",
    "MissingData",
    "catalog",
    "core50",
    "cub200",
    "data_root",
    "digits",
    "folder",
    "gtsrb",
    "load_dataset",
    "mit_scenes",
    "select",
]
__getattr__ = attribute_loader(
    __name__,
    {
        **dict.fromkeys(("DATASETS", "catalog", "load_dataset"), "registry"),
        **dict.fromkeys(("Entry", "MissingData", "data_root"), "sources"),
        **dict.fromkeys(("cub200", "mit_scenes"), "list_files"),
        "Dataset": "dataset",
        "LazyImages": "files",
        "core50": "core50_clips",
        "digits": "built_in",
        "folder": "folders",
        "gtsrb": "clips",
        "select": "selection",
    },
)
