"""Every random choice is a function of (seed, step, role), never of how many draws came before.

A stream that is prefetched, checkpointed in flight, or edited between two steps therefore makes exactly
the same choices as one that runs straight through, and nothing here reads or moves a global generator.
"""

from __future__ import annotations

import zlib

import numpy as np

_WORD = (1 << 64) - 1


def generator(seed: int, step: int, role: str) -> np.random.Generator:
    """Return the generator that makes the draws of one `role` at one `step` of a stream.

    The Philox counter-based generator is keyed by (seed, role); the step sits in a high word of its
    counter, so that two steps never share a block of numbers however many each of them draws.

    Examples
    --------
    >>> int(generator(0, 7, "evict").integers(1000)) == int(generator(0, 7, "evict").integers(1000))
    True
    """
    key = np.array([seed & _WORD, zlib.crc32(role.encode())], dtype=np.uint64)
    counter = np.array([0, 0, step & _WORD, 0], dtype=np.uint64)
    return np.random.Generator(np.random.Philox(key=key, counter=counter))


def torch_seed(seed: int, step: int, role: str) -> int:
    """Return a seed for code that can only draw from a torch generator (weights, a user's dropout)."""
    return int(generator(seed, step, role).integers(1 << 63))
