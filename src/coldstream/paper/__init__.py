"""The paper's tables and figures, each a named experiment at two scales."""

from __future__ import annotations

from coldstream.paper import buffers, cifar100, core50, crossing, imagenet, multitask, timing
from coldstream.paper.catalog import SCALES, Row
from coldstream.parsing import unknown

ROWS: dict[str, Row] = {
    row.name: row
    for row in (
        cifar100.FREEZING,
        imagenet.BASE,
        cifar100.CAPACITY,
        imagenet.METHODS,
        core50.ORDERINGS,
        multitask.METHODS,
        cifar100.CALIBRATION,
        cifar100.IID,
        cifar100.TRACK,
        imagenet.NETWORKS,
        cifar100.AUGMENTATION,
        buffers.COMPRESSION,
        buffers.CONSOLIDATION,
        buffers.EVICTION,
        multitask.STRATEGY,
        cifar100.GAP,
        timing.TIMING,
        crossing.CROSSING,
    )
}
"""In the order in which the paper has them."""


def get_row(name: str) -> Row:
    """Return the row of a name, the colon written as a dash too."""
    for row in ROWS.values():
        if name in (row.name, row.slug):
            return row
    raise unknown("table or figure of the paper", name, ROWS)


__all__ = ["ROWS", "SCALES", "Row", "get_row"]
