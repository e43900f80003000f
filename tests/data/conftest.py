"""Small pictures, and trees of files made of them."""

import pytest

import layouts


@pytest.fixture(scope="session")
def picture():
    return layouts.picture


@pytest.fixture(scope="session")
def encoded():
    return layouts.encoded


@pytest.fixture(scope="session")
def tree():
    return layouts.tree


@pytest.fixture(scope="session")
def zipped():
    return layouts.zipped


@pytest.fixture
def pets(tmp_path):
    """An image folder of one size: 3 + 2 cats and 2 + 1 dogs."""
    picture = layouts.picture
    content = {f"train/cat/{i}.png": picture(i) for i in range(3)}
    content |= {f"train/dog/{i}.png": picture(10 + i) for i in range(2)}
    content |= {f"test/cat/{i}.png": picture(20 + i) for i in range(2)} | {"test/dog/0.png": picture(30)}
    return layouts.tree(tmp_path / "pets", content)
