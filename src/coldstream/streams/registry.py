"""All orderings by name."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from coldstream._lazy import FunctionsOf

if TYPE_CHECKING:
    from coldstream.streams.stream import Stream

orderings = FunctionsOf("coldstream.streams.orderings")


@dataclass(frozen=True)
class Ordering:
    """A function that orders, the options it takes, and whether it needs clips."""

    order: Callable[..., Stream]
    options: tuple[str, ...]
    clips: bool = False


ORDERINGS: dict[str, Ordering] = {
    "class-incremental": Ordering(orderings.class_incremental, ("test_every", "class_order")),
    "iid": Ordering(orderings.iid, ("batches",)),
    "class-iid": Ordering(orderings.class_iid, ("classes_per_batch", "class_order")),
    "instance": Ordering(orderings.instance, ("batches",), clips=True),
    "class-instance": Ordering(orderings.class_instance, ("classes_per_batch", "class_order"), clips=True),
}
