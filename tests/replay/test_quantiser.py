"""The product quantiser against faiss' own, and against the nearest centroids by brute force."""

import faiss
import numpy as np
import pytest
import torch

from coldstream.replay.quantiser import ProductQuantiser

RNG = np.random.default_rng(0)


def vectors(count, channels):
    return np.maximum(RNG.normal(size=(count, channels)), 0).astype(np.float32)


def faiss_quantiser(table):
    codebooks, centroids, part = table.shape
    assert centroids == 256
    quantiser = faiss.ProductQuantizer(codebooks * part, codebooks, 8)
    faiss.copy_array_to_vector(table.ravel(), quantiser.centroids)
    return quantiser


@pytest.mark.parametrize(("channels", "codebooks"), [(64, 16), (64, 4), (20, 4), (6, 6)])
def test_codes_and_vectors_are_faisss(channels, codebooks):
    table = RNG.normal(size=(codebooks, 256, channels // codebooks)).astype(np.float32)
    ours, theirs = ProductQuantiser(table), faiss_quantiser(table)
    x = vectors(700, channels)
    codes = ours.encode(torch.from_numpy(x)).numpy()
    assert codes.dtype == np.uint8
    expected = theirs.compute_codes(x)
    # Rounding may decide between two centroids that are equally near, and only there.
    parts = x.reshape(len(x), codebooks, 1, -1).astype(float)
    far = ((parts - table.astype(float)) ** 2).sum(3)
    our_far, their_far = (np.take_along_axis(far, c[:, :, None].astype(int), 2) for c in (codes, expected))
    assert np.abs(our_far - their_far).max() < 1e-5
    assert np.abs(our_far[..., 0] - far.min(2)).max() < 1e-5
    assert (codes != expected).mean() < 0.001
    assert np.array_equal(ours.decode(codes).numpy(), theirs.decode(codes))
    assert torch.equal(ours.encode(torch.from_numpy(x[3:4]))[0], torch.from_numpy(codes[3]))


def test_training_is_faisss():
    x = vectors(1100, 8)
    theirs = faiss.ProductQuantizer(8, 2, 8)
    theirs.cp.seed = 5
    theirs.cp.min_points_per_centroid = 1
    theirs.train(x)
    ours = ProductQuantiser.fit(x, 2, 256, 5)
    assert np.array_equal(ours.table.ravel(), faiss.vector_to_array(theirs.centroids))
    assert not np.array_equal(ours.table, ProductQuantiser.fit(x, 2, 256, 6).table)


def test_the_number_of_threads_changes_nothing():
    x, before, tables = vectors(900, 32), faiss.omp_get_max_threads(), []
    try:
        for threads in (1, 2):
            faiss.omp_set_num_threads(threads)
            tables.append(ProductQuantiser.fit(x, 2, 64, 0).table)
    finally:
        faiss.omp_set_num_threads(before)
    assert np.array_equal(*tables)


def test_fewer_vectors_than_centroids_are_kept_as_they_are(capfd):
    x = vectors(5, 6)
    quantiser = ProductQuantiser.fit(x, 3, 256, 0)
    assert quantiser.table.shape == (3, 5, 2)
    assert np.array_equal(quantiser.decode(quantiser.encode(torch.from_numpy(x)).numpy()).numpy(), x)
    assert ProductQuantiser.fit(x[:1], 3, 256, 0).table.shape == (3, 1, 2)
    assert ProductQuantiser.fit(x, 3, 2, 0).table.shape == (3, 2, 2)
    assert capfd.readouterr() == ("", "")


def test_autocast_does_not_make_codes_coarser():
    x = torch.from_numpy(vectors(300, 16))
    quantiser = ProductQuantiser.fit(x.numpy(), 2, 256, 0)
    codes = quantiser.encode(x)
    with torch.autocast("cpu", torch.bfloat16):
        assert torch.equal(quantiser.encode(x), codes)


def test_a_network_that_diverged():
    with pytest.raises(FloatingPointError, match="diverged"):
        ProductQuantiser.fit(np.full((9, 4), np.nan, np.float32), 2, 4, 0)
