"""Where examples come from."""

from collections.abc import Callable

from coldstream.data.dataset import Dataset
from coldstream.data.digits import digits
from coldstream.phrases import unknown

DATASETS: dict[str, Callable[[], tuple[Dataset, Dataset]]] = {"digits": digits}


def load_dataset(name: str) -> tuple[Dataset, Dataset]:
    """Return the training and the test set of that name."""
    if name not in DATASETS:
        raise unknown("data set", name, DATASETS)
    return DATASETS[name]()


__all__ = ["DATASETS", "Dataset", "digits", "load_dataset"]
