"""Near-duplicates: whether neighbours in the stream are almost the same image, as in a video."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

ALIKE = 0.8
"""Neighbours are near-duplicates if their mean distance is below this fraction of the distance within a class."""
PAIRS = 20
"""Comparisons needed before that is decided."""
_NEWEST = 0.01


@dataclass
class NeighbourDistances:
    """Running mean distances of an example to the one before it, and to a random other one of its class."""

    beside: float = 0.0
    apart: float = 0.0
    pairs: int = 0

    @property
    def duplicates(self) -> bool:
        """Whether neighbours in the stream are near-duplicates."""
        return self.pairs >= PAIRS and self.beside < ALIKE * self.apart

    def compare(self, item: NDArray[Any], before: NDArray[Any], other: NDArray[Any]) -> None:
        """Add the mean absolute distance of an example to the one before it, and to another of its class."""
        beside, apart = (float(np.abs(item.astype(np.float64) - one).mean()) for one in (before, other))
        self.beside += (beside - self.beside) * _NEWEST
        self.apart += (apart - self.apart) * _NEWEST
        self.pairs += 1
