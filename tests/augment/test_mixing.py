"""Mixup and CutMix by brute force, and the distributions behind them."""

import numpy as np
import pytest
import torch
from scipy import stats

from coldstream.augment.mixing import Mixing

LEVEL = 1e-4  # see test_crops.py
BOTH = Mixing(0.1, 0.8)
N, H, W, K = 40, 12, 17, 7


def batch(dtype=torch.float32):
    rng = np.random.default_rng(0)
    images = torch.from_numpy(rng.normal(size=(N, 3, H, W))).to(dtype)
    targets = torch.from_numpy(rng.dirichlet(np.ones(K), N)).to(dtype)
    return images, targets


@pytest.mark.parametrize("mixing", [BOTH, Mixing(mixup=0.7), Mixing(cutmix=0.7)], ids=str)
@pytest.mark.parametrize("step", range(5))
def test_mixing_by_brute_force(mixing, step):
    images, targets = batch()
    before = images.clone(), targets.clone()
    mixed, soft = mixing(images, targets, 3, step)
    drawn = mixing.draw(N, H, W, 3, step)
    assert {*drawn.partner.tolist()} == {*range(N)}
    kinds = {*drawn.cut.tolist()}
    assert kinds == {kind for kind, on in ((False, mixing.mixup), (True, mixing.cutmix)) if on is not None}
    for i in range(N):
        j, kept = int(drawn.partner[i]), float(drawn.kept[i])
        if drawn.cut[i]:
            top, bottom, left, right = drawn.box[:, i]
            expected = images[i].clone()
            pasted = 0
            for y in range(top, bottom):
                for x in range(left, right):
                    expected[:, y, x] = images[j, :, y, x]
                    pasted += 1
            assert torch.equal(mixed[i], expected)
            assert kept == pytest.approx(1 - pasted / (H * W), abs=1e-12)
        else:
            torch.testing.assert_close(mixed[i], kept * images[i] + (1 - kept) * images[j])
        torch.testing.assert_close(soft[i], kept * targets[i] + (1 - kept) * targets[j])
    torch.testing.assert_close(soft.sum(1), torch.ones(N))
    assert torch.equal(images, before[0])
    assert torch.equal(targets, before[1])


def test_provenance_of_pixels_tells_the_target():
    """An image of ones and a target of one-hots: what the image kept is what the target says."""
    size = 30
    images = torch.arange(size, dtype=torch.float64).view(-1, 1, 1, 1).expand(-1, 1, 8, 9).contiguous()
    mixed, soft = Mixing(cutmix=0.8)(images, torch.eye(size, dtype=torch.float64), 0, 1)
    for i in range(size):
        shares = torch.bincount(mixed[i].flatten().long(), minlength=size) / 72
        torch.testing.assert_close(soft[i], shares.double(), atol=1e-6, rtol=0)


def test_both_kinds_are_each_the_kind_alone():
    images, targets = batch()
    cut = BOTH.draw(N, H, W, 5, 6).cut
    for which, alone in ((~cut, Mixing(mixup=0.1)), (cut, Mixing(cutmix=0.8))):
        assert 5 < which.sum() < N
        for ours, theirs in zip(BOTH(images, targets, 5, 6), alone(images, targets, 5, 6), strict=True):
            assert torch.equal(ours[which], theirs[which])


@pytest.mark.parametrize("alpha", [0.1, 0.8, 1.0, 3.0])
def test_mixup_shares_follow_the_beta_distribution(alpha):
    kept = Mixing(mixup=alpha).draw(20_000, 8, 8, 1, 0).kept
    assert stats.kstest(kept, stats.beta(alpha, alpha).cdf).pvalue > LEVEL


@pytest.mark.parametrize("alpha", [0.8, 2.0])
def test_cutmix_areas_follow_the_beta_distribution(alpha):
    """Boxes that no edge cuts off have the area that was drawn; on a fine grid rounding does not matter."""
    side = 4000
    top, bottom, left, right = Mixing(cutmix=alpha).draw(20_000, side, side, 1, 0).box
    inside = (top > 0) & (bottom < side) & (left > 0) & (right < side)
    edge = (bottom - top)[inside] / side
    np.testing.assert_array_equal((bottom - top)[inside], (right - left)[inside])

    # The chance that nothing is cut off falls with the square of what is left beside the box.
    grid = np.linspace(0, 1, 20_001)
    density = stats.beta(alpha, alpha).pdf(np.clip(1 - grid**2, 1e-12, 1 - 1e-12)) * 2 * grid * (1 - grid) ** 2
    cumulative = np.concatenate([[0], np.cumsum((density[1:] + density[:-1]) / 2)])
    assert stats.kstest(edge, lambda e: np.interp(e, grid, cumulative / cumulative[-1])).pvalue > LEVEL


def test_centres_are_uniform_over_the_pixels():
    # Beta(1e9, 1e9) is one half, so that a box has 23 x 14 pixels and its clipped edges tell its centre.
    mixture = Mixing(cutmix=1e9).draw(20_000, 32, 20, 2, 3)
    top, bottom, left, right = mixture.box
    for start, end, side, length in ((top, bottom, 32, 23), (left, right, 20, 14)):
        centres = np.arange(side)
        lows = np.maximum(0, centres - length // 2)
        highs = np.minimum(side, centres - length // 2 + length)
        counts = [np.count_nonzero((start == low) & (end == high)) for low, high in zip(lows, highs, strict=True)]
        assert sum(counts) == 20_000
        assert stats.chisquare(counts).pvalue > LEVEL
    assert abs(np.corrcoef(top + bottom, left + right)[0, 1]) < 0.03


def test_partner_is_a_uniform_permutation():
    counts: dict[tuple[int, ...], int] = {}
    for step in range(4800):
        partner = tuple(BOTH.draw(4, 8, 8, 0, step).partner.tolist())
        counts[partner] = counts.get(partner, 0) + 1
    assert len(counts) == 24
    assert stats.chisquare(list(counts.values())).pvalue > LEVEL


def test_coin_is_fair_and_its_own():
    drawn = [BOTH.draw(4, 8, 8, 9, step) for step in range(4000)]
    cut = np.array([mixture.cut for mixture in drawn])
    assert stats.binomtest(int(cut.sum()), cut.size, 0.5).pvalue > LEVEL
    patterns = np.bincount(cut @ np.array([1, 2, 4, 8]), minlength=16)
    assert stats.chisquare(patterns).pvalue > LEVEL
    kept = np.array([Mixing(mixup=0.1).draw(4, 8, 8, 9, step).kept for step in range(4000)])
    assert abs(np.corrcoef(kept.ravel(), cut.ravel())[0, 1]) < 0.03
    assert np.abs(np.corrcoef(kept.T)[~np.eye(4, dtype=bool)]).max() < 0.06


@pytest.mark.parametrize(
    ("mixing", "part"),
    [(BOTH, "partner"), (BOTH, "cut"), (Mixing(mixup=0.7), "kept"), (Mixing(cutmix=0.7), "kept"), (BOTH, "box")],
)
def test_every_draw_depends_on_seed_and_step(mixing, part):
    once, again, other_step, other_seed = (
        getattr(mixing.draw(N, H, W, seed, step), part) for seed, step in ((1, 2), (1, 2), (1, 3), (2, 2))
    )
    np.testing.assert_array_equal(once, again)
    assert (once != other_step).any()
    assert (once != other_seed).any()


@pytest.mark.parametrize("mixing", [BOTH, Mixing(mixup=0.7), Mixing(cutmix=0.7)], ids=str)
def test_a_single_row_is_left_as_it_is(mixing):
    images, targets = torch.randn(1, 3, 8, 8, generator=torch.Generator().manual_seed(0)), torch.tensor([[0.3, 0.7]])
    for step in range(20):
        mixed, soft = mixing(images, targets, 0, step)
        assert torch.equal(mixed, images)
        assert torch.equal(soft, targets)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_types_are_kept(dtype):
    images, targets = batch(dtype)
    mixed, soft = BOTH(images, targets.float(), 0, 0)
    assert mixed.dtype == dtype
    assert soft.dtype == torch.float32
