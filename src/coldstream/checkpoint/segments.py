"""The rows of the replay buffers in a checkpoint: segments, appended to and never rewritten as a whole."""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, pairwise
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from coldstream.checkpoint.files import CheckpointError, check_crc, map_file, write_file
from coldstream.checkpoint.manifest import Segment
from coldstream.replay import ReplayBuffer
from coldstream.replay.index import Index
from coldstream.replay.rows import Frozen

SMALL, LARGE = 4_000_000, 16_000_000
"""Bytes below which a last segment is rewritten with the rows that follow it, and above which none is written."""
Blocks = Sequence[tuple[Segment, NDArray[np.uint8]]]
"""Segments of one buffer with the bytes of their files."""


@dataclass
class BufferRows:
    """The rows of one buffer at one moment: segments on disk to keep, and rows to write."""

    buffer: int
    kept: list[Segment]
    jobs: list[int]
    serials: NDArray[np.int64]
    frozen: Frozen
    fixed: bool

    def write(self, folder: Path, step: int) -> list[Segment]:
        """Write the segments that are missing; return all."""
        ends = np.cumsum([0, *self.jobs]).tolist()
        parts = chain.from_iterable(self._parts(left, right) for left, right in pairwise(ends))
        written = [self._write_segment(folder, step, start, stop) for start, stop in parts]
        return sorted(self.kept + written, key=lambda segment: segment.first)

    def _parts(self, left: int, right: int) -> Iterable[tuple[int, int]]:
        """Split a range of rows into segments of bounded size, so that rewriting one is always fast."""
        last = np.cumsum(self.frozen.lengths[left:right]) - 1
        cuts = [left, *(left + np.flatnonzero(np.diff(last // LARGE)) + 1).tolist(), right]
        return pairwise(cuts)

    def _write_segment(self, folder: Path, step: int, start: int, stop: int) -> Segment:
        serials, lengths = self.serials[start:stop], self.frozen.lengths[start:stop]
        head = [serials.tobytes()] if self.fixed else [serials.tobytes(), lengths.tobytes()]
        name = f"rows-{step}-{secrets.token_hex(4)}.bin"
        sizes = write_file(folder / name, chain(head, self.frozen.read(start, stop)))
        ends = {"first": int(serials[0]), "last": int(serials[-1]), "rows": stop - start}
        return Segment(file=name, buffer=self.buffer, **ends, **sizes)


def plan_rows(number: int, buffer: ReplayBuffer, known: list[Segment]) -> BufferRows:
    """Return which rows of a buffer to write, where the files of the `known` segments hold some.

    A small last segment is rewritten together with the new rows. So are the segments with the most dead rows, if more
    than half are dead, up to a fixed number of bytes. This bounds the number of files and the cost of a checkpoint.
    """
    serials = buffer.index.serials.view
    order = np.argsort(serials, kind="stable")
    serials = serials[order].astype(np.int64)
    bounds = (
        np.searchsorted(serials, [(segment.first, segment.last + 1) for segment in known]).reshape(-1, 2).tolist()
    )
    spans = dict(zip(known, bounds, strict=True))
    kept = [segment for segment, (left, right) in spans.items() if left < right]
    if kept and kept[-1].bytes < SMALL and spans[kept[-1]][1] < len(order):
        kept.pop()
    live = {segment: (spans[segment][1] - spans[segment][0]) / segment.rows for segment in kept}
    budget = float(LARGE)
    for segment in sorted(kept, key=lambda segment: live[segment]):
        if live[segment] >= 0.5 or budget <= 0:
            break
        budget -= live[segment] * segment.bytes
        kept.remove(segment)
    edges = [0, *chain.from_iterable(spans[segment] for segment in kept), len(order)]
    jobs = [(left, right) for left, right in zip(edges[::2], edges[1::2], strict=True) if left < right]
    wanted = np.concatenate([np.arange(left, right) for left, right in jobs] or [np.empty(0, np.int64)])
    frozen = buffer.rows.freeze(order[wanted])
    counts = [right - left for left, right in jobs]
    return BufferRows(number, kept, counts, serials[wanted], frozen, buffer.codec.row_bytes is not None)


def is_intact(folder: Path, segment: Segment, *, verify: bool) -> bool:
    """Return whether a segment's file is there with its size, and if `verify`, with its checksum."""
    try:
        data = map_file(folder / segment.file, segment.bytes)
        if verify:
            check_crc(folder / segment.file, data, segment.crc32)
    except CheckpointError:
        return False
    return True


def check_index(folder: Path, arrays: Mapping[str, NDArray[Any]], classes: int, next_serial: int) -> None:
    """Refuse the columns of an index that do not fit each other, before they are used: they may be forged.

    A wrong one would give an example the label or the bytes of another, or ask for memory without end.
    """
    columns = [arrays[name] for name in Index.COLUMNS]
    ids, labels, serials, places, times = columns
    fits = {column.shape for column in columns} == {(len(ids),)} and all(one.dtype.kind == "i" for one in columns)
    if fits and len(ids):
        fits = 0 <= labels.min() <= labels.max() < classes and places.min() >= -1 and times.min() >= 0
        fits = fits and 0 < serials.min() <= serials.max() <= next_serial
        fits = fits and len(np.unique(serials)) == len(np.unique(ids)) == len(ids)
        training = np.flatnonzero(places >= 0)
        training = training[np.lexsort((places[training], labels[training]))]
        sizes = np.bincount(labels[training]) if fits else np.zeros(1, np.int64)
        ranks = np.arange(sizes.sum()) - np.repeat(np.cumsum(sizes) - sizes, sizes)
        fits = fits and np.array_equal(places[training], ranks)
    if not fits:
        raise CheckpointError(f"checkpoint {str(folder)!r} is damaged: the index of a buffer does not fit itself")


def read_rows(folder: Path, buffer: ReplayBuffer, blocks: Blocks) -> None:
    """Append the rows listed by the buffer's restored index, in its order."""
    damaged = CheckpointError(f"checkpoint {str(folder)!r} is damaged: rows of a buffer are missing or do not fit")
    wanted = buffer.index.serials.view.copy()
    stored = [_SegmentRows(segment, data, buffer.codec.row_bytes) for segment, data in blocks]
    if not all(part.valid for part in stored):
        raise damaged
    serials = np.concatenate([part.serials for part in stored]) if stored else np.empty(0, np.int64)
    starts = np.cumsum([0] + [len(part.serials) for part in stored])
    places = np.searchsorted(serials, wanted)
    if len(wanted) and (places.max(initial=0) >= len(serials) or (serials[places] != wanted).any()):
        raise damaged
    parts = np.searchsorted(starts, places, side="right") - 1
    for part, place in zip(parts, places, strict=True):
        buffer.rows.append(stored[part].row(int(place - starts[part])))


class _SegmentRows:
    """The rows of one segment."""

    def __init__(self, segment: Segment, block: NDArray[np.uint8], row_bytes: int | None) -> None:
        head = 8 * segment.rows
        start = head if row_bytes is not None else 2 * head
        self.valid = start <= len(block)
        if not self.valid:
            return
        self.serials = block[:head].view(np.int64)
        if row_bytes is None:
            lengths = block[head:start].view(np.int64)
            self.valid = bool(lengths.min() >= 0 and lengths.max() <= len(block))
        else:
            lengths = np.full(segment.rows, row_bytes, np.int64)
        self._ends = start + np.cumsum(lengths)
        ascending = bool((np.diff(self.serials) > 0).all())
        ends = int(self.serials[0]) == segment.first and int(self.serials[-1]) == segment.last
        self.valid = self.valid and ascending and ends and int(self._ends[-1]) == len(block)
        self._block, self._start = block, start

    def row(self, i: int) -> NDArray[np.uint8]:
        return self._block[self._ends[i - 1] if i else self._start : self._ends[i]]
