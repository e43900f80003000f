"""What REMIND's replay costs: fetch 2B codes, decode, crop every map, mix the halves; and encoding one example.

The other way is the usual one: a dict of codes from which every item is copied by itself, faiss to decode, one call
of torch's interpolation a map, and the mixture last. Both make the same maps from the same draws (checked first).
"""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import interpolate

from benchmarks.measuring import Action, Bench, threads
from coldstream.augment.crops import ResizedCrop
from coldstream.augment.maps import Taps
from coldstream.randomness import generator
from coldstream.replay import ReplayBuffer
from coldstream.replay.quantiser import ProductQuantiser

CROP = ResizedCrop(2 / 7)
STORED, REPLAY = 5000, 100
SETTINGS = {
    "ResNet18 at 32 px: 512x4x4": (512, 4, 32),
    "ResNet18 at 224 px: 512x7x7": (512, 7, 32),
    "resnet14-16 at 32 px: 64x8x8": (64, 8, 16),
}


def remind(bench: Bench) -> None:
    """REMIND's replay all at once and one by one, on one thread."""
    import faiss

    faiss.omp_set_num_threads(1)
    with threads(1):
        for group, shape in SETTINGS.items():
            replay = Replay(*shape, STORED, REPLAY)
            if (replay.ours(0) - replay.one_by_one(0)).abs().max() > 1e-5:
                raise RuntimeError("the two ways to replay made different maps")
            times = bench.measure(f"REMIND, {group}", replay.ways())
            bench.rows.append(times.row("remind", group, "replay"))
            bench.rows.append(times.row("remind", group, "replay one by one", "replay"))
            bench.rows.append(times.row("remind", group, "encode"))
            bench.rows.append(times.row("remind", group, "encode by faiss", "encode"))


class Replay:
    """Stored maps of one shape, and both ways to replay them."""

    def __init__(self, channels: int, side: int, codebooks: int, stored: int, replay: int) -> None:
        import faiss

        rng = np.random.default_rng(0)
        self.channels, self.side, self.codebooks, self.count = channels, side, codebooks, 2 * replay
        table = rng.normal(size=(codebooks, 256, channels // codebooks)).astype(np.float32)
        self.quantiser = ProductQuantiser(table)
        self.faiss: Any = faiss.ProductQuantizer(channels, codebooks, 8)
        faiss.copy_array_to_vector(table.ravel(), self.faiss.centroids)
        codes = rng.integers(0, 256, (stored, side * side * codebooks), dtype=np.uint8)
        self.buffer = ReplayBuffer(codes.shape[1:])
        for id, code in enumerate(codes):
            self.buffer.store(code, id % 100, id)
        self.dict = {id: (code.reshape(side, side, codebooks), np.array(id % 100)) for id, code in enumerate(codes)}
        self.new = torch.from_numpy(rng.normal(size=(side * side, channels)).astype(np.float32))

    def ours(self, step: int) -> Tensor:
        """Return the B mixed maps of a step."""
        rows = self.buffer.sample(self.count, generator(0, step, "sample"))
        self.buffer.targets(rows, 100)
        vectors = self.quantiser.decode(
            self.buffer.items(rows).astype(np.uint8, copy=False).reshape(-1, self.codebooks)
        )
        crops = Taps.cropped(CROP.draw(self.count, self.side, self.side, 0, step), self.side, self.side)
        first, second = np.arange(self.count).reshape(2, -1)
        share = np.full(len(first), generator(0, step, "mixup").beta(0.1, 0.1))
        mixed = crops.mixed(first, second, share)(vectors)
        return mixed.view(-1, self.side, self.side, self.channels).permute(0, 3, 1, 2)

    def one_by_one(self, step: int) -> Tensor:
        """Return the same maps, the usual way."""
        rows = generator(0, step, "sample").choice(len(self.dict), self.count, replace=False)
        codes = np.empty((self.count, self.side, self.side, self.codebooks), np.uint8)
        labels = torch.empty(self.count, dtype=torch.int64)
        for i, row in enumerate(rows):
            codes[i], label = self.dict[int(row)]
            labels[i] = torch.from_numpy(label)
        decoded = self.faiss.decode(codes.reshape(-1, self.codebooks))
        maps = torch.from_numpy(decoded.reshape(-1, self.side, self.side, self.channels).transpose(0, 3, 1, 2))
        cropped = torch.empty_like(maps)
        boxes = CROP.draw(self.count, self.side, self.side, 0, step).T
        for i, (top, left, high, wide) in enumerate(boxes.tolist()):
            piece = maps[i, :, top : top + high, left : left + wide]
            size = (self.side, self.side)
            cropped[i] = interpolate(piece[None], size, mode="bilinear", align_corners=False)[0]
        share = generator(0, step, "mixup").beta(0.1, 0.1)
        half = self.count // 2
        return share * cropped[:half] + (1 - share) * cropped[half:]

    def ways(self) -> dict[str, Action]:
        """Return what is measured, by name."""
        vectors = self.new.numpy()
        ours, theirs = itertools.count(), itertools.count()
        return {
            "replay": lambda: self.ours(next(ours)),
            "replay one by one": lambda: self.one_by_one(next(theirs)),
            "encode": lambda: self.quantiser.encode(self.new),
            "encode by faiss": lambda: self.faiss.compute_codes(vectors),
        }
