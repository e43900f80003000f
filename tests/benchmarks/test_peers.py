"""Peers get the same network and a batch of B + 1, and are refused where they are not installed."""

import importlib.util
import warnings

import pytest
import torch

from benchmarks import peers, run_bench
from benchmarks.measuring import Scale

TINY = Scale(0.01, 1, 1, 0.001, stored=110, replay=20)


def test_without_the_packages(monkeypatch, tmp_path):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ValueError, match="avalanche and kornia not installed; run uv run --extra peers coldstream"):
        run_bench([], tmp_path / "out", with_peers=True)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("policy", ["ReservoirSamplingBuffer", "ClassBalancedBuffer"])
def test_avalanche(policy):
    pytest.importorskip("avalanche")
    with warnings.catch_warnings(record=True, action="ignore"):
        step = peers.Avalanche("linear", 50, policy, replay=20)
        sizes, before = peers.Sizes(step.network), step.network.weight.detach().clone()
        for _ in range(3):
            step()
    assert sizes.seen == {21}
    assert len(step.buffer.buffer) == 50
    assert (step.network.weight != before).any()


@pytest.mark.parametrize("mode", ["slice", "resample"])
def test_reference(mode):
    pytest.importorskip("kornia")
    step = peers.Reference("linear", 50, mode, replay=20)
    sizes, before = peers.Sizes(step.network), step.network.weight.detach().clone()
    step()
    assert sizes.seen == {21}
    assert (step.network.weight != before).any()
    images = peers.tensors(4)[0]
    changed = step.augment(torch.cat([images] * 8))
    assert changed.shape == (32, 3, 32, 32)
    assert len({tuple(image.flatten()[::97].tolist()) for image in changed}) > 8  # each image by itself


def test_a_wrong_batch_is_not_measured(monkeypatch, tmp_path):
    pytest.importorskip("avalanche")
    pytest.importorskip("kornia")
    real = peers.Reference
    monkeypatch.setattr(peers, "Reference", lambda model, stored, mode, replay: real(model, stored, mode, 19))
    with pytest.raises(RuntimeError, match=r"was measured on batches of \[20\], not of 21"):
        run_bench(["peers"], tmp_path, scale=TINY)
