"""Every random choice is a function of (seed, step, role), never of how many draws came before.

A stream that is prefetched, checkpointed, or edited between two steps therefore draws the same numbers as an
uninterrupted one. No global generator is read or advanced.
"""

from __future__ import annotations

import zlib
from typing import Any

import numpy as np

_WORD = (1 << 64) - 1


class _NoSeed(np.random.bit_generator.ISeedSequence):
    """Keeps Philox from asking the system for entropy, which is slow and would be overwritten."""

    def generate_state(self, n_words: int, dtype: Any = np.uint32) -> Any:
        return np.zeros(n_words, dtype)


_NO_SEED = _NoSeed()


def generator(seed: int, step: int, role: str) -> np.random.Generator:
    """Return the generator for the draws of one `role` at one `step` of a stream.

    The Philox counter-based generator is keyed by (seed, role); the step sits in a high word of its
    counter, so that two steps never share a block of numbers however many each of them draws.

    Examples
    --------
    >>> int(generator(0, 7, "evict").integers(1000)) == int(generator(0, 7, "evict").integers(1000))
    True
    """
    bits = np.random.Philox(_NO_SEED)  # type: ignore[arg-type]  # NumPy's stubs forget the interface
    state: Any = {
        "bit_generator": "Philox",
        "state": {"counter": (0, 0, step & _WORD, 0), "key": (seed & _WORD, zlib.crc32(role.encode()))},
        "buffer": (0, 0, 0, 0),
        "buffer_pos": 4,  # empty, so that the first draw starts a block
        "has_uint32": 0,
        "uinteger": 0,
    }
    bits.state = state
    return np.random.Generator(bits)


def torch_seed(seed: int, step: int, role: str) -> int:
    """Return a seed for code that can only draw from a torch generator (weights, a user's dropout)."""
    return int(generator(seed, step, role).integers(1 << 63))
