"""Real photographs: every kind and size of image reaches the network as the same pixels."""

import io

import numpy as np
import pytest
import torch
from PIL import Image

from coldstream import CSSL, ColdStart

SCENE = np.random.default_rng(0).integers(0, 256, (48, 40, 3), dtype=np.uint8)


def encoded(picture, kind="PNG", **options):
    out = io.BytesIO()
    picture.save(out, kind, **options)
    return out.getvalue()


def rotated_by_exif():
    exif = Image.Exif()
    exif[0x0112] = 6  # the camera was held on its side: turn clockwise to see it upright
    return encoded(Image.fromarray(np.rot90(SCENE).copy()), "PNG", exif=exif)


SAME = {
    "array": SCENE,
    "PIL": Image.fromarray(SCENE),
    "tensor": torch.from_numpy(SCENE).permute(2, 0, 1),
    "float tensor": torch.from_numpy(SCENE).permute(2, 0, 1) / 255,
    "PNG": encoded(Image.fromarray(SCENE)),
    "lossless WebP": encoded(Image.fromarray(SCENE), "WEBP", lossless=True),
    "BMP": encoded(Image.fromarray(SCENE), "BMP"),
    "TIFF": encoded(Image.fromarray(SCENE), "TIFF"),
    "opaque alpha": np.dstack([SCENE, np.full((48, 40), 255, np.uint8)]),
    "EXIF": rotated_by_exif(),
    "16 bit": SCENE.astype(np.uint16) * 257,
}


@pytest.mark.parametrize("form", SAME)
def test_every_form_is_the_same_image(form):
    learner, other = (ColdStart(model="linear", replay=2, size=32) for _ in range(2))
    learner.learn_one(SAME[form], "scene")
    other.learn_one(SCENE, "scene")
    assert learner.fingerprint() == other.fingerprint()


def test_a_stream_of_mixed_photographs():
    rng = np.random.default_rng(1)
    learner = ColdStart(model="linear", replay=4)
    large = Image.fromarray(rng.integers(0, 256, (300, 420, 3), dtype=np.uint8))
    stream = [
        encoded(large, "JPEG", quality=90),
        encoded(large.convert("P"), "GIF"),
        encoded(large.convert("RGBA"), "PNG"),
        encoded(large.convert("L"), "PNG"),
        encoded(large.convert("CMYK"), "JPEG"),
        Image.fromarray(rng.integers(0, 65536, (90, 70), dtype=np.uint16)),
        large.convert("1"),
        rng.integers(0, 256, (1, 500, 3), dtype=np.uint8),
        rng.integers(0, 256, (7, 9), dtype=np.uint8),
    ]
    for i, photograph in enumerate(stream):
        learner.predict_one(photograph)
        learner.learn_one(photograph, i % 3)
    assert learner.shape == (64, 64, 3)
    assert len(learner.tasks[None].buffer) == len(stream)


def test_the_first_image_decides_what_was_not_said():
    for image, shape in [
        (np.zeros((28, 20), np.uint8), (28, 20, 1)),
        (np.zeros((64, 10, 3), np.uint8), (64, 10, 3)),
        (np.zeros((65, 10, 3), np.uint8), (64, 64, 3)),
    ]:
        learner = ColdStart(model="linear")
        learner.learn_one(image, 0)
        assert learner.shape == shape
    learner = ColdStart(model="linear", size=(16, 24), channels=3)
    learner.learn_one(np.zeros((28, 20), np.uint8), 0)
    assert learner.shape == (16, 24, 3)


def test_predictions_use_the_test_crop():
    """With zoom 0.5, only the inner half of the scaled sides is looked at."""
    learner = CSSL(model="linear", size=8, zoom=0.5, replay=2, augment="none", normalize="none")
    learner.learn_one(np.zeros((8, 8, 3), np.uint8), "a")
    learner.learn_one(np.full((8, 8, 3), 255, np.uint8), "b")
    inner = np.zeros((16, 16, 3), np.uint8)
    inner[4:12, 4:12] = 255
    np.testing.assert_array_equal(
        learner.predict_proba_many([inner]), learner.predict_proba_many([np.full((16, 16, 3), 255, np.uint8)])
    )
