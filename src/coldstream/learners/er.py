"""Experience replay: Algorithm 1 with crops and flips only, and images as they are."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Self

from coldstream.learners.cssl import CSSL, CSSLSettings
from coldstream.learners.recipes import paper_recipe
from coldstream.learners.settings import PolicyText, checked
from coldstream.replay.eviction import get_evictor


class ERSettings(CSSLSettings):
    """Settings of experience replay."""

    augment: PolicyText = "crop|flip"
    """The policy of augmentation."""
    evict: Annotated[str, checked(get_evictor)] = "reservoir"
    """What leaves a full buffer: ``"reservoir"``, ``"largest-class"``, ``"uniform"``, or as for CSSL."""


class ER(CSSL):
    """Plain experience replay, the usual baseline: CSSL without its augmentation and its compression."""

    Settings = ERSettings
    settings: ERSettings

    @classmethod
    def paper(cls, name: str, *, counts: Mapping[Any, int] | None = None, **changes: Any) -> Self:
        """Return the paper's settings of an experiment, with crops and flips, raw images and a reservoir instead."""
        crop = paper_recipe(name)["augment"].partition("|")[0]
        plain = {"augment": f"{crop}|flip", "codec": "raw", "evict": "reservoir"}
        return super().paper(name, counts=counts, **{**plain, **changes})
