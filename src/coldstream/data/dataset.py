"""One small type for every source of examples."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class Dataset:
    """Images with the number of their class, and the classes' names.

    Parameters
    ----------
    name
        What it is called in reports.
    images
        uint8 (N, H, W, C), or any sequence that gives such images one by one.
    labels
        The class of each image, an index into `names`.
    names
        The classes' labels, as a learner is told them.
    """

    name: str
    images: NDArray[np.uint8] | Sequence[NDArray[np.uint8]]
    labels: NDArray[np.int64]
    names: tuple[str, ...]

    def __post_init__(self) -> None:
        if len(self.images) != len(self.labels):
            raise ValueError(f"dataset {self.name!r}: {len(self.images)} images but {len(self.labels)} labels")
        if len(self.labels) and not 0 <= self.labels.min() <= self.labels.max() < len(self.names):
            raise ValueError(f"dataset {self.name!r}: labels must be indices into its {len(self.names)} names")

    def __len__(self) -> int:
        return len(self.labels)

    def take(self, indices: NDArray[np.int64]) -> Dataset:
        """Return the examples at `indices`, in that order."""
        images = self.images[indices] if isinstance(self.images, np.ndarray) else [self.images[i] for i in indices]
        return Dataset(self.name, images, self.labels[indices], self.names)
