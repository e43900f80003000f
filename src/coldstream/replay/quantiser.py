"""A product quantiser: a vector as a few bytes, each the number of the nearest centroid of a part of it."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from coldstream.replay.packing import Bytes

POINTS_PER_CENTROID = 256
"""More than these do not make better centroids; faiss leaves the others out as well."""
_BLOCK = 256


class ProductQuantiser:
    """The codebooks of Jégou et al. (2011), as faiss trains them; encoding and decoding are our own.

    A vector is cut into as many parts as there are codebooks. Encoding takes the nearest centroid of each part by
    squared distance, one matrix product per codebook. Decoding is a lookup in one table.

    Parameters
    ----------
    table : ndarray of float32, shape (codebooks, centroids, channels / codebooks)
        The centroids; at most 256 in a codebook.
    device
        Where vectors come from and go to.
    """

    def __init__(self, table: NDArray[np.float32], device: torch.device | None = None) -> None:
        self.table = np.ascontiguousarray(table, np.float32)
        self.codebooks, self.centroids, self.part = table.shape
        self._first = np.arange(self.codebooks) * self.centroids
        self._lookup = torch.from_numpy(self.table.reshape(-1, self.part)).to(device or "cpu")
        stacked = self._lookup.view(table.shape)
        self._half_squares = stacked.square().sum(2)[:, None] / 2
        self._columns = stacked.transpose(1, 2).contiguous()

    @classmethod
    def fit(
        cls,
        vectors: NDArray[np.float32],
        codebooks: int,
        centroids: int,
        seed: int,
        device: torch.device | None = None,
    ) -> ProductQuantiser:
        """Find the centroids of each codebook by faiss' k-means, as its ProductQuantizer does.

        Where there are fewer vectors than `centroids`, each is a centroid of its own and there are no others.
        """
        import faiss  # its library need not be loaded to stream on from a checkpoint

        if not np.isfinite(vectors).all():
            raise FloatingPointError(
                "the features to be quantised are not finite: the network diverged; train it with a lower rate"
            )
        parts = np.split(np.ascontiguousarray(vectors, np.float32), codebooks, axis=1)
        trained = []
        for part in parts:
            # One point per centroid is enough: few examples allow no better quantiser.
            means = faiss.Kmeans(
                part.shape[1],
                min(centroids, len(part)),
                niter=25,
                seed=seed,
                min_points_per_centroid=1,
                max_points_per_centroid=POINTS_PER_CENTROID,
            )
            means.train(np.ascontiguousarray(part))
            trained.append(np.asarray(means.centroids))
        return cls(np.stack(trained), device)

    def encode(self, vectors: Tensor) -> Tensor:
        """Return the codes (N, codebooks), uint8 and in main memory, of vectors (N, channels)."""
        codes = torch.empty((len(vectors), self.codebooks), dtype=torch.uint8)
        with torch.autocast(vectors.device.type, enabled=False):
            # In blocks: all distances at once would be 256 numbers for each byte of the result.
            for start in range(0, len(vectors), _BLOCK):
                block = vectors[start : start + _BLOCK].to(torch.float32)
                parts = block.reshape(-1, self.codebooks, self.part).transpose(0, 1)
                # |x - c|^2 / 2 without |x|^2, which is the same for all centroids
                far = torch.baddbmm(self._half_squares, parts, self._columns, alpha=-1)
                # NumPy finds the smallest of a row three times as fast as torch does on a CPU.
                nearest = torch.from_numpy(far.numpy().argmin(2)) if far.is_cpu else far.argmin(2)
                codes[start : start + _BLOCK] = nearest.t()
        return codes

    def decode(self, codes: Bytes) -> Tensor:
        """Return the vectors (N, channels), float32 and on the device, of codes (N, codebooks)."""
        places = self._first + codes
        if self._lookup.is_cpu:  # NumPy's lookup takes half the time of torch's
            parts = torch.from_numpy(self._lookup.numpy().take(places, axis=0, mode="clip"))
        else:
            parts = self._lookup[torch.from_numpy(places).to(self._lookup.device)]
        return parts.view(len(codes), self.codebooks * self.part)
