"""What REMIND's replay costs: fetch 2B codes, decode, crop every map, mix the halves; and encoding one example.

    uv run python benchmarks/remind_replay.py

The other way is the usual one: a dict of codes from which every item is copied by itself, faiss to decode, one call
of torch's interpolation a map, and the mixture last. Both make the same maps from the same draws (checked first).
They are measured in turns in one process and on one thread; medians, and the ratio.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable

import faiss
import numpy as np
import torch
from rich.console import Console
from rich.progress import track
from rich.table import Table
from torch import Tensor
from torch.nn.functional import interpolate

from coldstream.augment.crops import ResizedCrop
from coldstream.augment.maps import Taps
from coldstream.randomness import generator
from coldstream.replay import ReplayBuffer
from coldstream.replay.quantiser import ProductQuantiser

CROP = ResizedCrop(2 / 7)
SETTINGS = {
    "ResNet18 at 32 px: 512x4x4": (512, 4, 32),
    "ResNet18 at 224 px: 512x7x7": (512, 7, 32),
    "resnet14-16 at 32 px: 64x8x8": (64, 8, 16),
}


class Replay:
    """Stored maps of one shape, and both ways to replay them."""

    def __init__(self, channels: int, side: int, codebooks: int, stored: int, replay: int) -> None:
        rng = np.random.default_rng(0)
        self.channels, self.side, self.codebooks, self.count = channels, side, codebooks, 2 * replay
        table = rng.normal(size=(codebooks, 256, channels // codebooks)).astype(np.float32)
        self.quantiser = ProductQuantiser(table)
        self.faiss = faiss.ProductQuantizer(channels, codebooks, 8)
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
        vectors = self.quantiser.decode(self.buffer.items(rows).reshape(-1, self.codebooks))
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

    def ways(self) -> dict[str, Callable[[int], object]]:
        """Return what is measured, by name."""
        vectors = self.new.numpy()
        return {
            "replay": self.ours,
            "replay one by one": self.one_by_one,
            "encode": lambda step: self.quantiser.encode(self.new),
            "encode by faiss": lambda step: self.faiss.compute_codes(vectors),
        }


def main() -> None:
    """Measure and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--stored", type=int, default=5000)
    parser.add_argument("--replay", type=int, default=100)
    parser.add_argument("--turns", type=int, default=40)
    parser.add_argument("--json", help="also write the numbers to this file")
    given = parser.parse_args()
    torch.set_num_threads(1)
    faiss.omp_set_num_threads(1)
    table = Table(title=f"milliseconds, median of {given.turns} turns; B = {given.replay}, {given.stored:,} stored")
    for column in ("maps", "replay", "one by one", "ratio", "encode one", "by faiss"):
        table.add_column(column, justify="right")
    found = {}
    for name, shape in SETTINGS.items():
        replay = Replay(*shape, given.stored, given.replay)
        assert (replay.ours(0) - replay.one_by_one(0)).abs().max() < 1e-5
        times: dict[str, list[float]] = {way: [] for way in replay.ways()}
        for turn in track(range(given.turns), name, transient=True):
            for way, action in replay.ways().items():
                begin = time.perf_counter()
                action(turn)
                times[way].append(1e3 * (time.perf_counter() - begin))
        mine = found[name] = {way: float(np.median(taken)) for way, taken in times.items()}
        table.add_row(
            name,
            f"{mine['replay']:.2f}",
            f"{mine['replay one by one']:.2f}",
            f"{mine['replay one by one'] / mine['replay']:.1f}",
            f"{mine['encode']:.2f}",
            f"{mine['encode by faiss']:.2f}",
        )
    Console(width=130).print(table)
    if given.json:
        with open(given.json, "w") as file:
            json.dump(found, file, indent=1)


if __name__ == "__main__":
    main()
