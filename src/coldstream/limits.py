"""How large an image may be, and how much memory decoding may take at once."""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

MAX_PIXELS = 64_000_000
"""Pixels of an image in a file that the user names."""
NETWORK_PIXELS = 16_000_000
"""Pixels of an image that arrives over a network, for `pixel_limit`."""
MAX_BYTES = 64_000_000
"""Bytes of an encoded image."""
MAX_MEMORY = 768_000_000
"""Bytes that decoding may take at once, in all threads together, beside the encoded files."""

_pixels: ContextVar[int] = ContextVar("pixels", default=MAX_PIXELS)


@contextmanager
def pixel_limit(pixels: int) -> Iterator[None]:
    """Refuse images of more pixels inside this block, in this thread or coroutine alone.

    Examples
    --------
    >>> from coldstream.images import as_array
    >>> with pixel_limit(NETWORK_PIXELS):
    ...     as_array(b"BM...")
    Traceback (most recent call last):
    ValueError: cannot read these 5 bytes as BMP: ... (expected a whole, undamaged file; save it again)
    """
    if isinstance(pixels, bool) or not isinstance(pixels, int) or not 1 <= pixels <= MAX_PIXELS:
        raise ValueError(f"a limit of pixels is a whole number from 1 to {MAX_PIXELS:,}, not {pixels!r}")
    token = _pixels.set(pixels)
    try:
        yield
    finally:
        _pixels.reset(token)


def check_size(height: int, width: int) -> None:
    """Refuse an empty image, and one of more pixels than the limit here."""
    if height < 1 or width < 1:
        raise ValueError(f"the image is empty: {height} x {width} pixels")
    if height * width > (limit := _pixels.get()):
        raise ValueError(f"{height} x {width} pixels are over the limit of {limit:,}; shrink the image")


class _Share:
    """One user's share of a budget. It is given back with its last reference, even if an interrupt lost it."""

    def __init__(self, amount: int) -> None:
        self.amount = amount


class _Shares:
    def __init__(self) -> None:
        self.process = os.getpid()
        self.turn = threading.Lock()
        self.change = threading.Condition()
        self.taken: weakref.WeakSet[_Share] = weakref.WeakSet()


class Budget:
    """An amount that threads share. A request for more than is left waits, in order of arrival.

    Parameters
    ----------
    total
        The amount.
    least
        Smaller requests neither wait nor count.
    """

    def __init__(self, total: int, least: int) -> None:
        self.total, self.least = total, least
        self._shares = _Shares()

    @contextmanager
    def take(self, amount: int) -> Iterator[None]:
        """Take an amount while the block runs, at most the total."""
        if amount < self.least:
            yield
            return
        share, shares = _Share(min(amount, self.total)), self._here()
        with shares.turn, shares.change:
            while sum(other.amount for other in shares.taken) + share.amount > self.total:
                shares.change.wait(0.1)  # the end of a share that an interrupt lost tells nobody
            shares.taken.add(share)
        try:
            yield
        finally:
            with shares.change:
                shares.taken.discard(share)
                shares.change.notify()

    def _here(self) -> _Shares:
        # After a fork, locks and shares of the parent's threads would be held for good.
        if self._shares.process != os.getpid():
            self._shares = _Shares()
        return self._shares


DECODING = Budget(MAX_MEMORY, least=MAX_MEMORY // 16)
"""The memory of all images that are being decoded, in bytes. Those of up to 3 megapixels never wait."""
