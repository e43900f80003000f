"""Experience replay: Algorithm 1 with crops and flips only, and images as they are."""

from __future__ import annotations

from typing import Any

from coldstream.learners.cssl import CSSL


class ER(CSSL):
    """Plain experience replay, the usual baseline: CSSL without its augmentation and its compression.

    Parameters
    ----------
    augment, codec, evict
        As in `coldstream.CSSL`; crops and flips, raw images and a reservoir unless given.
    **settings
        Those of `coldstream.CSSL`.
    """

    def __init__(
        self, *, augment: str = "crop|flip", codec: str = "raw", evict: str = "reservoir", **settings: Any
    ) -> None:
        super().__init__(augment=augment, codec=codec, evict=evict, **settings)
