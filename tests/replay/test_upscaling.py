"""The compiled resize against torch's, bit for bit."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn.functional import interpolate

from coldstream import native
from coldstream.replay import Codec
from coldstream.replay.upscaling import enlarge

pytestmark = pytest.mark.skipif(not native.available(), reason=f"no compiled kernels: {native.state()}")


@settings(max_examples=300, deadline=None)
@given(
    *(st.integers(1, 40) for _ in range(2)),
    *(st.integers(0, 60) for _ in range(2)),
    st.sampled_from([1, 3]),
    st.integers(0, 9),
)
def test_bits_of_torch(height, width, more_height, more_width, channels, seed):
    images = np.random.default_rng(seed).integers(0, 256, (2, height, width, channels), dtype=np.uint8)
    images[1] = 255 * (images[1] > 127)
    size = (height + more_height, width + more_width)
    tensor = torch.from_numpy(images).permute(0, 3, 1, 2)
    expected = interpolate(tensor, size, mode="bilinear", antialias=True).permute(0, 2, 3, 1).numpy()
    np.testing.assert_array_equal(enlarge(images, size), expected)


@pytest.mark.parametrize("chain", ["resize(0.66)|quantize(6)", "quantize(5)", "resize(0.3)", "resize(0.5)|jpeg(80)"])
@pytest.mark.parametrize("shape", [(32, 32, 3), (28, 28, 1), (17, 9, 3)], ids=str)
def test_decoding_does_not_depend_on_kernels(chain, shape, monkeypatch):
    codec = Codec.parse(chain, shape)
    encoded = [
        codec.encode(image) for image in np.random.default_rng(0).integers(0, 256, (6, *shape), dtype=np.uint8)
    ]
    rows = [row.tobytes() for row in encoded] if codec.row_bytes is None else np.stack(encoded)
    with_kernels = codec.decode(rows)
    monkeypatch.setattr(native, "available", lambda: False)
    np.testing.assert_array_equal(codec.decode(rows), with_kernels)
