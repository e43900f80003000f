"""Features of a frozen network, for methods that learn from those."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from coldstream.learners.changes import UnusableExample
from coldstream.learners.training.engine import Engine


def frozen_features(engine: Engine, items: NDArray[Any]) -> NDArray[np.float32]:
    """Return the features (N, d) of items, and refuse those of a network that diverged."""
    features = engine.features_of(items).to("cpu", torch.float32).numpy()
    if not np.isfinite(features).all():
        raise UnusableExample(
            "the network's features are not finite: it diverged; begin again with other weights or a lower rate"
        )
    return features
