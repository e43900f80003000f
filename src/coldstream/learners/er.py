"""Experience replay: Algorithm 1 with crops and flips only, and images as they are."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from coldstream.learners.cssl import CSSL
from coldstream.learners.recipes import paper_recipe


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

    @classmethod
    def paper(cls, name: str, *, counts: Mapping[Any, int] | None = None, **changes: Any) -> CSSL:
        """Return the paper's settings of an experiment, with crops and flips, raw images and a reservoir instead."""
        crop = paper_recipe(name)["augment"].partition("|")[0]
        own = {"augment": f"{crop}|flip", "codec": "raw", "evict": "reservoir"}
        return super().paper(name, counts=counts, **{**own, **changes})
