"""Pixels of b bits in b bits: rows of small integers packed without a spare bit between them."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from coldstream import native

Bytes = NDArray[np.uint8]


def packed_bytes(values: int, bits: int) -> int:
    """Return how many bytes `values` numbers of `bits` bits take.

    Examples
    --------
    >>> packed_bytes(26 * 26 * 3, 6)
    1521
    """
    return -(-values * bits // 8)


def pack(values: Bytes, bits: int) -> Bytes:
    """Pack the last axis of `values`, each below ``2**bits``, most significant bit first."""
    if bits == 8:
        return values
    eight = np.unpackbits(values[..., None], axis=-1)
    return np.packbits(eight[..., 8 - bits :].reshape(*values.shape[:-1], -1), axis=-1)


def unpack(packed: Bytes, values: int, bits: int) -> Bytes:
    """Return the `values` numbers that `pack` put into each row of `packed` (rows, bytes).

    Eight values fill exactly `bits` bytes, so one shift and mask serves the j-th value of every group of
    eight in all rows at once; a value that straddles two bytes takes its high part from the first.
    """
    if bits == 8:
        return packed[:, :values]
    groups = -(-values // 8)
    if packed.shape[1] < groups * bits:
        packed = np.pad(packed, ((0, 0), (0, groups * bits - packed.shape[1])))
    source = packed.reshape(-1, bits)
    out = np.empty((len(source), 8), np.uint8)
    mask = (1 << bits) - 1
    for j in range(8):
        byte, offset = divmod(j * bits, 8)
        spare = 8 - offset - bits
        if spare >= 0:
            value = source[:, byte] >> spare
        else:
            value = (source[:, byte] << -spare) | (source[:, byte + 1] >> (8 + spare))
        np.bitwise_and(value, mask, out=out[:, j])
    return out.reshape(len(packed), -1)[:, :values]


def unpack_high(packed: Bytes, values: int, bits: int) -> Bytes:
    """Return the numbers of each row as the high bits of bytes: ``unpack(...) << (8 - bits)``."""
    if bits < 8 and native.available():
        out = np.empty((len(packed), values), np.uint8)
        native.call("unpack", np.ascontiguousarray(packed), len(packed), packed.shape[1], values, bits, out)
        return out
    return np.left_shift(unpack(packed, values, bits), 8 - bits, dtype=np.uint8)
