"""Where examples come from."""

from coldstream.data.clips import gtsrb
from coldstream.data.core50 import core50
from coldstream.data.dataset import Dataset
from coldstream.data.digits import digits
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
