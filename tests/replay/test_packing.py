"""Bits laid end to end, against bit strings and big integers."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from coldstream import native
from coldstream.replay.packing import pack, packed_bytes, unpack, unpack_high

ALL_BITS = range(1, 9)


def bit_string_pack(values, bits):
    text = "".join(format(value, f"0{bits}b") for value in values)
    text += "0" * (-len(text) % 8)
    return [int(text[i : i + 8], 2) for i in range(0, len(text), 8)]


def big_integer_unpack(packed, count, bits):
    number, total = int.from_bytes(bytes(packed), "big"), 8 * len(packed)
    return [(number >> (total - (i + 1) * bits)) & (2**bits - 1) for i in range(count)]


@st.composite
def numbers(draw):
    bits = draw(st.sampled_from(ALL_BITS))
    values = draw(st.lists(st.integers(0, 2**bits - 1), min_size=1, max_size=70))
    return bits, values


@given(numbers())
def test_bytes_are_the_bit_string(case):
    bits, values = case
    assert pack(np.array(values, np.uint8), bits).tolist() == bit_string_pack(values, bits)


@given(numbers())
def test_numbers_come_back(case):
    bits, values = case
    packed = pack(np.array(values, np.uint8), bits)
    assert len(packed) == packed_bytes(len(values), bits)
    assert unpack(packed[None], len(values), bits).tolist() == [values]


@given(numbers(), st.binary(min_size=70, max_size=70))
def test_unpacking_is_reading_a_big_integer(case, noise):
    # Any bytes at all, so that what `pack` leaves as zeros at the end cannot hide a fault.
    bits, values = case
    packed = np.frombuffer(noise, np.uint8)[: packed_bytes(len(values), bits)]
    assert unpack(packed[None], len(values), bits)[0].tolist() == big_integer_unpack(packed, len(values), bits)


@pytest.mark.parametrize("bits", ALL_BITS)
@pytest.mark.parametrize("length", [1, 2, 3, 5, 7, 8, 9, 15, 16, 17, 63, 64, 65, 2028])
def test_every_width_at_awkward_lengths_in_many_rows(bits, length):
    values = np.random.default_rng(length).integers(0, 2**bits, (5, length), dtype=np.uint8)
    packed = pack(values, bits)
    assert packed.shape == (5, packed_bytes(length, bits))
    assert packed.tolist() == [bit_string_pack(row, bits) for row in values.tolist()]
    before = packed.copy()
    np.testing.assert_array_equal(unpack(packed, length, bits), values)
    np.testing.assert_array_equal(packed, before)


@pytest.mark.parametrize("kernels", [True, False])
@pytest.mark.parametrize("bits", ALL_BITS)
@pytest.mark.parametrize("length", [1, 2, 3, 4, 5, 7, 8, 9, 11, 12, 13, 16, 17, 65, 2028])
def test_high_bits(bits, length, kernels, monkeypatch):
    if kernels and not native.available():
        pytest.skip(native.state())
    monkeypatch.setattr(native, "available", lambda: kernels)
    noise = np.random.default_rng(length).integers(0, 256, (5, packed_bytes(length, bits)), dtype=np.uint8)
    expected = [[v << (8 - bits) for v in big_integer_unpack(row, length, bits)] for row in noise]
    assert unpack_high(noise, length, bits).tolist() == expected
    assert unpack_high(np.asfortranarray(noise), length, bits).tolist() == expected


@pytest.mark.parametrize("bits", ALL_BITS)
def test_the_largest_and_the_smallest_number_do_not_touch_their_neighbours(bits):
    values = np.zeros(17, np.uint8)
    for place in range(17):
        values[:] = 0
        values[place] = 2**bits - 1
        assert unpack(pack(values, bits)[None], 17, bits).tolist() == [values.tolist()]


def test_one_case_by_hand():
    # 0b101 0b001 0b111 -> 10100111 1_______
    assert pack(np.array([5, 1, 7], np.uint8), 3).tolist() == [0b10100111, 0b10000000]


@given(st.integers(0, 10_000), st.sampled_from(ALL_BITS))
def test_packed_bytes_is_the_bits_rounded_up(values, bits):
    whole, rest = divmod(values * bits, 8)
    assert packed_bytes(values, bits) == whole + (rest > 0)
