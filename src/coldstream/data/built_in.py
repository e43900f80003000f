"""scikit-learn's handwritten digits: 1,797 grey 8x8 images that come with the library."""

from __future__ import annotations

import numpy as np

from coldstream.data.dataset import Dataset


def digits() -> tuple[Dataset, Dataset]:
    """Return the training and the test set: of each class every fifth image is for testing.

    Examples
    --------
    >>> train, test = digits()
    >>> len(train), len(test), train.images.shape[1:]
    (1442, 355, (8, 8, 1))
    """
    from sklearn.datasets import load_digits

    raw = load_digits()
    images = np.rint(raw.images * (255 / 16)).astype(np.uint8)[..., None]
    labels = raw.target.astype(np.int64)
    rank = np.zeros(len(labels), np.int64)
    for label in range(10):
        members = labels == label
        rank[members] = np.arange(members.sum())
    names = tuple(str(digit) for digit in range(10))
    whole = Dataset("digits", images, labels, names)
    return whole.take(np.flatnonzero(rank % 5 != 4)), whole.take(np.flatnonzero(rank % 5 == 4))
