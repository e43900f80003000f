"""What makes room: distributions over many seeds, and merged entries taken apart again."""

from collections import Counter

import numpy as np
import pytest
from scipy.stats import chi2, chisquare

from coldstream.randomness import generator
from coldstream.replay import ReplayBuffer
from coldstream.replay.eviction import EVICTORS, get_evictor

RARE = 1e-4
CONSOLIDATE = ["consolidate-mixup", "consolidate-cutmix", "consolidate-samplepairing"]
POLICIES = list(EVICTORS)


def fill(policy, labels, capacity, step=0, held_out=()):
    """Store examples 0..n-1 (constant images of their number) and evict after each."""
    buffer = ReplayBuffer((2, 2, 1), capacity=capacity, evict=policy)
    for id, label in enumerate(labels):
        buffer.store(buffer.compress(np.full((2, 2, 1), id, np.uint8)), label, id, held_out=id in held_out)
        if len(buffer) > capacity:  # else nothing is drawn, and generators take the most of these tests' time
            buffer.evict(generator(step, id, "evict"))
    return buffer


def stored(buffer):
    return buffer.index.ids.view.tolist()


def assert_equally_likely(outcomes, possible):
    counts = Counter(outcomes)
    assert set(counts) <= set(possible)
    assert chisquare([counts[outcome] for outcome in possible]).pvalue > RARE


def dropped(policy, labels, times=2000, held_out=()):
    """Return which of the examples went when the last one came, over many seeds."""
    gone = []
    for seed in range(times):
        buffer = fill(policy, labels, len(labels) - 1, seed, held_out)
        (missing,) = set(range(len(labels))) - set(stored(buffer))
        gone.append(missing)
    return gone


# Dropping one.


@pytest.mark.parametrize(
    ("labels", "largest"),
    [
        ([0, 0, 0, 1, 1, 2], [0, 1, 2]),
        ([2, 0, 2, 1, 0, 2], [0, 2, 5]),  # the new example makes its class the largest, and may go itself
        ([0, 1, 0, 1, 2, 1, 0], [0, 1, 2, 3, 5, 6]),  # two classes of three: ties are drawn
        ([0, 1, 2, 3, 4], [0, 1, 2, 3, 4]),
    ],
)
def test_a_random_member_of_a_largest_class_goes(labels, largest):
    assert_equally_likely(dropped("largest-class", labels), largest)


def test_ties_are_drawn_by_class_not_by_position():
    counts = Counter(label for label in (id % 2 for id in dropped("largest-class", [0, 1, 0, 1, 0, 1])))
    assert chisquare([counts[0], counts[1]]).pvalue > RARE


def test_largest_class_over_a_long_stream():
    rng = np.random.default_rng(0)
    buffer = ReplayBuffer((2, 2, 1), capacity=30, evict="largest-class")
    packed = buffer.compress(np.zeros((2, 2, 1), np.uint8))
    for id in range(1500):
        label = int(rng.choice(6, p=[0.6, 0.2, 0.1, 0.05, 0.04, 0.01]))
        buffer.store(packed, label, id)
        before = Counter(buffer.index.labels.view.tolist())
        buffer.evict(generator(0, id, "evict"))
        (lost,) = (before - Counter(buffer.index.labels.view.tolist())) or (None,)
        assert (lost is None) == (id < 30)
        assert lost is None or before[lost] == max(before.values())
    counts = Counter(buffer.index.labels.view.tolist())
    assert max(counts.values()) <= min(counts.values()) + 1


def test_uniform_drops_any_the_new_one_included():
    assert_equally_likely(dropped("uniform", [0, 0, 0, 0, 1, 1]), range(6))


# Reservoir.


def test_reservoir_against_its_definition_with_the_same_draws():
    capacity, total = 5, 60
    for seed in range(20):
        slots = []
        for k in range(1, total + 1):
            if k <= capacity:
                slots.append(k - 1)
                continue
            i = int(generator(seed, k - 1, "evict").integers(k))
            if i < capacity:
                slots[i] = k - 1
        assert stored(fill("reservoir", [k % 3 for k in range(total)], capacity, seed)) == slots


def test_reservoir_keeps_every_example_with_the_same_probability():
    capacity, total, times = 5, 20, 2000
    kept = np.zeros(total)
    for seed in range(times):
        kept[stored(fill("reservoir", [0] * total, capacity, seed))] += 1
    # The inclusions of a uniform subset have the covariance p(1-p) n/(n-1) (I - 1/n).
    p = capacity / total
    statistic = ((kept - times * p) ** 2).sum() / (times * p * (1 - p) * total / (total - 1))
    assert chi2.sf(statistic, total - 1) > RARE
    assert kept.sum() == times * capacity


def test_reservoir_counts_examples_not_overwrites():
    buffer = fill("reservoir", [0] * 12, 5)
    assert buffer.offered == 12
    again = stored(buffer)[2]
    buffer.store(buffer.compress(np.zeros((2, 2, 1), np.uint8)), 0, again)
    assert buffer.offered == 12
    assert len(buffer) == 5


# Merging two.


def image_buffer(policy, capacity, codec="raw", shape=(8, 12, 3)):
    return ReplayBuffer(shape, codec=codec, capacity=capacity, evict=policy)


def colour(id, shape=(8, 12, 3)):
    return np.full(shape, id, np.uint8)


def shares_of(buffer, slot):
    """Return {source id: share} of the entry in `slot`."""
    entry = buffer.index.ids[slot]
    blend = buffer.blends.get(entry)
    return {id: share for id, _, share in blend.sources} if blend else {entry: 1.0}


@pytest.mark.parametrize("policy", CONSOLIDATE)
def test_two_become_one_with_both_labels(policy):
    for seed in range(30):
        buffer = image_buffer(policy, 2)
        images = [np.random.default_rng([seed, id]).integers(0, 256, (8, 12, 3), dtype=np.uint8) for id in range(3)]
        for id, label in enumerate([0, 1, 1]):
            buffer.store(buffer.compress(images[id]), label, id)
        buffer.evict(generator(seed, 2, "evict"))
        assert len(buffer) == 2
        assert buffer.nbytes == 2 * 288
        (entry,) = buffer.blends
        slot = buffer.index.find(entry)
        (one, _, share), (other, _, rest) = buffer.blends[entry].sources
        assert share + rest == pytest.approx(1)
        assert entry == one
        assert one in (1, 2)  # the first of the two is of the largest class
        assert {one, other} | set(stored(buffer)) == {0, 1, 2}
        target = np.zeros(2)
        target[[0, 1, 1][one]] += share
        target[[0, 1, 1][other]] += rest
        np.testing.assert_allclose(buffer.targets(np.array([slot]), 2)[0], target, rtol=1e-6)
        assert buffer.merges(slot) == 1
        assert buffer.merges(1 - slot) == 0
        item = buffer.items(np.array([slot]))[0]
        if policy == "consolidate-cutmix":
            from_one, from_other = item == images[one], item == images[other]
            assert (from_one | from_other).all()
        else:
            blend = share * images[one].astype(float) + rest * images[other]
            assert np.abs(item - blend).max() <= 0.5 + 1e-9
            assert policy != "consolidate-samplepairing" or share == 0.5
        np.testing.assert_array_equal(buffer.items(np.array([1 - slot]))[0], images[({0, 1, 2} - {one, other}).pop()])


@pytest.mark.parametrize("policy", CONSOLIDATE)
def test_a_long_stream_loses_nobody(policy):
    buffer = image_buffer(policy, 6)
    for id in range(60):
        buffer.store(buffer.compress(colour(id)), id % 4, id)
        buffer.evict(generator(0, id, "evict"))
        assert len(buffer) == min(id + 1, 6)
        sources = [source for slot in range(len(buffer)) for source in shares_of(buffer, slot)]
        assert sorted(sources) == list(range(id + 1))
        assert [buffer.label_of(source) for source in range(id + 1)] == [source % 4 for source in range(id + 1)]
        targets = buffer.targets(np.arange(len(buffer)), 4)
        np.testing.assert_allclose(targets.sum(1), 1, rtol=1e-5)
        assert (targets >= 0).all()
        for slot in range(len(buffer)):
            by_class = np.zeros(4)
            for source, share in shares_of(buffer, slot).items():
                by_class[source % 4] += share
            np.testing.assert_allclose(targets[slot], by_class, atol=1e-6)
            assert by_class[buffer.index.labels[slot]] >= by_class.max() - 1e-12


def test_cutmix_shares_are_the_pixels_that_are_there():
    # Every image has a colour of its own, so that each pixel of a merged one tells where it came from.
    boxes, unclipped = set(), 0
    for seed in range(150):
        buffer = image_buffer("consolidate-cutmix", 1)
        for id in range(2):
            buffer.store(buffer.compress(colour(id + 1)), id, id)
        buffer.evict(generator(seed, 0, "evict"))
        item = buffer.items(np.array([0]))[0, :, :, 0]
        for id, share in shares_of(buffer, 0).items():
            assert share == pytest.approx(np.mean(item == id + 1), abs=1e-12)
            assert buffer.targets(np.array([0]), 2)[0, id] == pytest.approx(share)
        other = buffer.blends[buffer.index.ids[0]].sources[1][0]
        rows, columns = np.nonzero(item == other + 1)
        if len(rows):  # what was cut in is one full box
            height, width = np.ptp(rows) + 1, np.ptp(columns) + 1
            assert height * width == len(rows)
            boxes.add((int(height), int(width)))
            inner = rows.min() > 0 and rows.max() < 7 and columns.min() > 0 and columns.max() < 11
            if inner:  # not clipped: as high and as wide, in even numbers of pixels, as the image's own sides say
                cut = np.arange(0, 1, 1e-3)
                assert (height, width) in zip(
                    (8 * cut).astype(int) // 2 * 2, (12 * cut).astype(int) // 2 * 2, strict=True
                )
                unclipped += 1
    assert len(boxes) > 10
    assert unclipped > 5


def test_cutmix_of_merged_entries_weighs_their_labels_by_the_box():
    checked = 0
    for seed in range(40):
        buffer = image_buffer("consolidate-cutmix", 2)
        for id in range(8):
            before = {frozenset(shares_of(buffer, slot)): shares_of(buffer, slot) for slot in range(len(buffer))}
            buffer.store(buffer.compress(colour(id + 1)), 0, id)
            before[frozenset([id])] = {id: 1.0}
            buffer.evict(generator(seed, id, "evict"))
            after = {frozenset(shares_of(buffer, slot)): slot for slot in range(len(buffer))}
            for merged in after.keys() - before.keys():
                slot = after[merged]
                one, other = (part for part in before if part <= merged)
                item = buffer.items(np.array([slot]))[0, :, :, 0]
                area = np.isin(item, [source + 1 for source in one]).mean()
                expected = {source: share * area for source, share in before[one].items()}
                expected |= {source: share * (1 - area) for source, share in before[other].items()}
                assert shares_of(buffer, slot) == pytest.approx(expected)
                checked += len(merged) > 2
    assert checked > 50


@pytest.mark.parametrize("policy", ["consolidate-mixup(0.5)", "consolidate-samplepairing"])
def test_mixing_merged_entries_is_mixing_their_pixels(policy):
    for seed in range(20):
        buffer = ReplayBuffer((3,), "float32", capacity=1, evict=policy)
        vectors = np.random.default_rng(seed).standard_normal((6, 3)).astype(np.float32)
        for id in range(6):
            buffer.store(buffer.compress(vectors[id]), id, id)
            buffer.evict(generator(seed, id, "evict"))
        weights = np.array([shares_of(buffer, 0)[id] for id in range(6)])
        np.testing.assert_allclose(buffer.items(np.array([0]))[0], weights @ vectors, atol=1e-5)
        np.testing.assert_allclose(buffer.targets(np.array([0]), 6)[0], weights, atol=1e-6)


@pytest.mark.parametrize("codec", ["quantize(6)", "resize(0.66)", "jpeg(95)"])
def test_a_merged_entry_is_compressed_like_any_other(codec):
    buffer = image_buffer("consolidate-samplepairing", 1, codec, (32, 32, 3))
    for id, level in enumerate([100, 201]):
        buffer.store(buffer.compress(colour(level, (32, 32, 3))), id, id)
    levels = buffer.items(np.arange(2)).astype(float).mean((1, 2, 3))
    buffer.evict(generator(0, 0, "evict"))
    merged = buffer.codec.encode(np.full((32, 32, 3), np.rint(levels.mean()), np.uint8))
    rows = merged[None] if buffer.codec.row_bytes else [merged.tobytes()]
    np.testing.assert_array_equal(buffer.items(np.array([0])), buffer.codec.decode(rows))
    assert buffer.nbytes == len(merged)


@pytest.mark.parametrize("policy", CONSOLIDATE)
@pytest.mark.parametrize("limit", [1, 2, 3])
def test_no_example_is_merged_more_often_than_the_limit(policy, limit):
    buffer = image_buffer(f"{policy}(limit={limit})", 6)
    most = 0
    for id in range(120):
        buffer.store(buffer.compress(colour(id)), id % 4, id)
        buffer.evict(generator(0, id, "evict"))
        assert len(buffer) == min(id + 1, 6)
        merges = [buffer.merges(slot) for slot in range(len(buffer))]
        sources = [len(shares_of(buffer, slot)) for slot in range(len(buffer))]
        most = max(most, *merges)
        for slot, (times, count) in enumerate(zip(merges, sources, strict=True)):
            assert times <= limit
            assert times < count <= 2**times or times == 0
            assert (times == 0) == (buffer.index.ids[slot] not in buffer.blends)
    assert most == limit
    known = sum(buffer.label_of(id) is not None for id in range(120))
    assert known == sum(len(shares_of(buffer, slot)) for slot in range(6)) < 120
    assert set(buffer.blended) == {s for entry in buffer.blends.values() for s, _, _ in entry.sources}


def test_a_limit_gives_the_first_of_the_two_away_when_it_was_merged_before():
    buffer = image_buffer("consolidate-samplepairing(1)", 1)
    for id in range(3):
        buffer.store(buffer.compress(colour(id)), 0, id)
        buffer.evict(generator(0, id, "evict"))
    # 0 and 1 were merged; when 2 came the merged entry was dropped, not blended a second time.
    assert stored(buffer) == [2]
    assert buffer.blends == {}
    assert buffer.blended == {}


@pytest.mark.parametrize("policy", CONSOLIDATE)
def test_both_of_the_two_are_drawn_fairly(policy):
    firsts, pairs = [], []
    for seed in range(2000):
        buffer = fill(policy, [0, 0, 0, 1], 3, seed)
        ((entry, blend),) = buffer.blends.items()
        firsts.append(entry)
        pairs.append(tuple(source for source, _, _ in blend.sources))
    assert_equally_likely(firsts, [0, 1, 2])
    assert_equally_likely(pairs, [(one, other) for one in range(3) for other in range(4) if one != other])


def merged_pair():
    """Return a buffer with an entry of 0 (class 0, a quarter) and 1 (class 1, three quarters), and a plain 2."""
    buffer = image_buffer("uniform", None)
    for id in range(3):
        buffer.store(buffer.compress(colour(id)), id, id)
    buffer.merge(0, 1, colour(9), 0.25)
    return buffer


def test_the_sources_of_a_merged_entry_keep_their_labels():
    buffer = merged_pair()
    assert len(buffer) == 2
    assert [buffer.label_of(id) for id in range(4)] == [0, 1, 2, None]
    slot = buffer.index.find(0)
    assert buffer.index.find(1) is None
    assert buffer.index.labels[slot] == 1
    assert buffer.index.sizes.view.tolist() == [0, 1, 1]
    np.testing.assert_array_equal(buffer.targets(np.array([slot]), 3), [[0.25, 0.75, 0]])


def test_relabelling_a_source_moves_its_share():
    buffer = merged_pair()
    slot = buffer.index.find(0)
    assert buffer.relabel(0, 2)  # a quarter: class 1 still leads
    np.testing.assert_array_equal(buffer.targets(np.array([slot]), 3), [[0, 0.75, 0.25]])
    assert buffer.index.labels[slot] == 1
    assert buffer.index.sizes.view.tolist() == [0, 1, 1]
    assert buffer.relabel(0, 0)
    assert buffer.relabel(1, 2)
    assert buffer.label_of(1) == 2
    np.testing.assert_array_equal(buffer.targets(np.array([slot]), 3), [[0.25, 0, 0.75]])
    assert buffer.index.labels[slot] == 2
    assert buffer.index.sizes.view.tolist() == [0, 0, 2]
    assert buffer.relabel(0, 2)
    np.testing.assert_array_equal(buffer.targets(np.array([slot]), 3), [[0, 0, 1]])
    assert [buffer.label_of(id) for id in range(3)] == [2, 2, 2]


@pytest.mark.parametrize("id", [0, 1])
def test_forgetting_a_source_removes_the_entry(id):
    buffer = merged_pair()
    assert buffer.forget(id)
    assert stored(buffer) == [2]
    assert [buffer.label_of(source) for source in range(3)] == [None, None, 2]
    assert not buffer.forget(0)
    assert not buffer.forget(1)
    assert not buffer.relabel(1, 0)
    assert buffer.blends == {}
    assert buffer.blended == {}
    np.testing.assert_array_equal(buffer.items(np.array([0]))[0], colour(2))


def test_merging_a_merged_entry_again():
    buffer = merged_pair()
    buffer.merge(buffer.index.find(2), buffer.index.find(0), colour(7), 0.5)
    assert stored(buffer) == [2]
    assert buffer.merges(0) == 2
    assert shares_of(buffer, 0) == {2: 0.5, 0: 0.125, 1: 0.375}
    assert [buffer.label_of(id) for id in range(3)] == [0, 1, 2]
    np.testing.assert_array_equal(buffer.items(np.array([0]))[0], colour(7))
    assert buffer.forget(1)
    assert len(buffer) == 0
    assert buffer.nbytes == 0


# Held out.


@pytest.mark.parametrize("policy", POLICIES)
def test_held_out_examples_are_not_evicted_while_there_are_others(policy):
    held_out = {0, 3, 4, 8, 11}
    for seed in range(40):
        buffer = fill(policy, [id % 2 for id in range(20)], 8, seed, held_out)
        assert len(buffer) == 8
        kept = [id for id in stored(buffer) if buffer.index.is_held_out(buffer.index.find(id))]
        assert sorted(kept) == sorted(held_out)
        assert not held_out & set(buffer.blended)


@pytest.mark.parametrize("policy", POLICIES)
def test_held_out_examples_are_evicted_when_nothing_else_is_left(policy):
    buffer = fill(policy, [0] * 9, 4, 0, held_out=set(range(9)))
    assert len(buffer) == buffer.index.held_out == 4
    assert buffer.blends == {}


def test_uniform_eviction_stays_uniform_beside_held_out_examples():
    assert_equally_likely(dropped("uniform", [0] * 8, held_out={1, 2, 6}), [0, 3, 4, 5, 7])


# Names and arguments.


@pytest.mark.parametrize("policy", [*POLICIES, "consolidate-mixup(0.4, 2)", "consolidate-cutmix(limit=3, alpha=2)"])
def test_policies_are_found_by_name(policy):
    assert callable(get_evictor(policy))


@pytest.mark.parametrize(
    ("text", "alpha", "limit"),
    [
        ("consolidate-mixup", 1.0, None),
        ("consolidate-mixup(0.4)", 0.4, None),
        ("consolidate-mixup(0.4, 2)", 0.4, 2),
        ("consolidate-cutmix(0.4, limit=2)", 0.4, 2),
        ("consolidate-cutmix(limit=3, alpha=2)", 2.0, 3),
        ("consolidate-samplepairing(2)", 1.0, 2),
        ("consolidate-samplepairing(limit=2)", 1.0, 2),
    ],
)
def test_arguments_of_consolidation(text, alpha, limit):
    policy = get_evictor(text)
    assert (policy.alpha, policy.limit) == (alpha, limit)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("largest_class", "unknown eviction policy 'largest_class'; did you mean 'largest-class'"),
        ("resevoir", "did you mean 'reservoir'"),
        ("consolidate-cutmx", "did you mean 'consolidate-cutmix'"),
        ("", "eviction policy: cannot read ''"),
        ("uniform(1)", "'uniform' takes no arguments"),
        ("reservoir(size=1)", "'reservoir' takes no arguments"),
        ("consolidate-mixup(0)", "alpha is a number above 0, not 0"),
        ("consolidate-mixup(-1)", "alpha is a number above 0, not -1"),
        ("consolidate-mixup(inf)", "alpha is a number above 0, not inf"),
        ("consolidate-mixup(nan)", "alpha is a number above 0, not nan"),
        ("consolidate-mixup(much)", "alpha is a number above 0, not 'much'"),
        ("consolidate-mixup(limit=0)", "limit is a whole number from 1, not 0"),
        ("consolidate-mixup(limit=1.5)", "limit is a whole number from 1, not 1.5"),
        ("consolidate-mixup(limit=inf)", "limit is a whole number from 1, not inf"),
        ("consolidate-mixup(limit=nan)", "limit is a whole number from 1, not nan"),
        ("consolidate-mixup(limit=two)", "limit is a whole number from 1, not 'two'"),
        ("consolidate-mixup(1, 2, 3)", "does not take 3; it takes alpha and limit"),
        ("consolidate-mixup(beta=1)", "does not take 'beta'; it takes alpha and limit"),
        ("consolidate-mixup(0.4, alpha=2)", "is given alpha twice"),
        ("consolidate-mixup(0.4, 2, limit=3)", "is given limit twice"),
        ("consolidate-mixup(limit=2, limit=3)", "is given limit twice"),
        ("consolidate-samplepairing(alpha=2)", "does not take 'alpha'; it takes limit"),
        ("consolidate-samplepairing(0.4, 2)", "does not take 2; it takes limit"),
    ],
)
def test_wrong_policies_say_what_is_wrong(text, message):
    with pytest.raises(ValueError, match=message):
        get_evictor(text)


def test_cutmix_needs_images():
    with pytest.raises(ValueError, match="'consolidate-cutmix' needs images"):
        ReplayBuffer((3,), "float32", capacity=1, evict="consolidate-cutmix(limit=2)")
