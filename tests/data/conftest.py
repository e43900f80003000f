"""Small pictures, and trees of files made of them."""

import io
import zipfile
from pathlib import Path

import numpy as np
import pytest
from PIL import Image


def _picture(number, height=8, width=8):
    return np.random.default_rng(number).integers(0, 256, (height, width, 3), np.uint8)


def _encoded(pixels, kind="PNG"):
    buffer = io.BytesIO()
    Image.fromarray(pixels).save(buffer, kind, **({"lossless": True} if kind == "WEBP" else {}))
    return buffer.getvalue()


def _tree(root, content):
    """Write {path: array, bytes or text}; arrays as what the path's ending says."""
    for name, value in content.items():
        path = Path(root) / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if isinstance(value, np.ndarray):
            value = _encoded(value, {".webp": "WEBP", ".jpg": "JPEG", ".bmp": "BMP"}.get(path.suffix.lower(), "PNG"))
        path.write_bytes(value.encode() if isinstance(value, str) else value)
    return Path(root)


def _zipped(folder, target, top="", method=zipfile.ZIP_DEFLATED):
    with zipfile.ZipFile(target, "w", method) as archive:
        # Against the order of names, which must not matter.
        for path in sorted((p for p in Path(folder).rglob("*") if p.is_file()), reverse=True):
            archive.write(path, top + path.relative_to(folder).as_posix())
    return Path(target)


@pytest.fixture(scope="session")
def picture():
    return _picture


@pytest.fixture(scope="session")
def encoded():
    return _encoded


@pytest.fixture(scope="session")
def tree():
    return _tree


@pytest.fixture(scope="session")
def zipped():
    return _zipped


@pytest.fixture
def pets(tmp_path):
    """An image folder of one size: 3 + 2 cats and 2 + 1 dogs."""
    content = {f"train/cat/{i}.png": _picture(i) for i in range(3)}
    content |= {f"train/dog/{i}.png": _picture(10 + i) for i in range(2)}
    content |= {f"test/cat/{i}.png": _picture(20 + i) for i in range(2)} | {"test/dog/0.png": _picture(30)}
    return _tree(tmp_path / "pets", content)
