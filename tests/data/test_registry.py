"""Names, places and what is said when a set is not there."""

import ast
from pathlib import Path

import pytest

import coldstream.data
from coldstream.data import DATASETS, MissingData, catalog, data_root, load_dataset
from coldstream.data.sources import Source


@pytest.mark.parametrize("name", [name for name, source in DATASETS.items() if source.places])
def test_a_missing_set_says_where_and_how(name, tmp_path):
    with pytest.raises(MissingData) as caught:
        load_dataset(name, tmp_path / "nothing")
    message = str(caught.value)
    for part in (
        repr(name),
        str(tmp_path / "nothing"),
        DATASETS[name].places[0].pattern,
        "To get it: ",
        "COLDSTREAM_DATA",
    ):
        assert part in message
    assert not (tmp_path / "nothing").exists()


@pytest.mark.parametrize("name", ["core50", "cub200", "mit-scenes", "imagenet", "gtsrb"])
def test_what_cannot_be_downloaded_says_so(name, tmp_path):
    with pytest.raises(MissingData, match="cannot be downloaded by this program. To get it"):
        load_dataset(name, tmp_path, download=True)


def test_downloading_only_when_asked(tmp_path, monkeypatch, pets, zipped):
    calls = []

    def fetch(root):
        calls.append(root)
        zipped(pets, root / "flowers102.zip")

    source = DATASETS["flowers102"]
    monkeypatch.setitem(DATASETS, "flowers102", Source(source.title, 1, 1, 1, "how", source.places, fetch))
    with pytest.raises(MissingData):
        load_dataset("flowers102", tmp_path)
    assert calls == []
    assert len(load_dataset("flowers102", tmp_path, download=True)[0]) == 5
    assert len(load_dataset("flowers102", tmp_path, download=True)[0]) == 5
    assert calls == [tmp_path]  # what is there is not fetched again


def test_a_failed_download_is_told(tmp_path, monkeypatch):
    from urllib.error import URLError

    import torchvision.datasets

    def no_network(root, download):
        raise URLError("no route to host")

    monkeypatch.setattr(torchvision.datasets, "CIFAR10", no_network)
    with pytest.raises(MissingData, match="Downloading failed: .*no route to host.* To get it: coldstream data"):
        load_dataset("cifar10", tmp_path, download=True)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("cifra100", "did you mean 'cifar100'"),
        ("core-50", "did you mean 'core50'"),
        ("photos/mine", "no image folder or zip 'photos/mine'"),
        ("mine.zip", "no image folder or zip"),
        ("folder:mine", "no image folder or zip 'mine'"),
    ],
)
def test_wrong_names(name, message):
    with pytest.raises(ValueError, match=message):
        load_dataset(name)


def test_data_root(monkeypatch, tmp_path):
    monkeypatch.setenv("COLDSTREAM_DATA", str(tmp_path / "a"))
    assert data_root() == tmp_path / "a"
    assert data_root(tmp_path / "b") == tmp_path / "b"
    monkeypatch.delenv("COLDSTREAM_DATA")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "c"))
    assert data_root() == tmp_path / "c/coldstream/data"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert data_root() == tmp_path / ".cache/coldstream/data"
    assert data_root("~/d") == tmp_path / "d"


def test_catalog(tmp_path, pets, zipped):
    before = {entry.name: entry for entry in catalog(tmp_path)}
    assert before.keys() == DATASETS.keys()
    assert [name for name, entry in before.items() if entry.present] == ["digits"]
    packed = zipped(pets, tmp_path / "flowers102_128.zip")
    after = {entry.name: entry for entry in catalog(tmp_path)}
    assert [name for name, entry in after.items() if entry.present] == ["digits", "flowers102"]
    assert after["flowers102"].where == str(packed)
    assert (after["core50"].classes, after["core50"].train, after["core50"].test) == (10, 6_000, 2_250)
    assert str(tmp_path) in after["core50"].where
    assert all(entry.title and entry.how for entry in after.values())
    train, test = load_dataset("digits")
    assert (len(train), len(test), train.name) == (after["digits"].train, after["digits"].test, "digits")


def test_every_set_is_in_the_page():
    page = Path(__file__).parents[2] / "docs/data.md"
    text = page.read_text()
    for name, source in DATASETS.items():
        row = next(line for line in text.splitlines() if line.startswith(f"| `{name}`"))
        for number in (source.classes, source.train, source.test):
            assert f"{number:,}" in row


def test_importing_loads_nothing_heavy():
    # tests/test_house.py looks at what really is loaded; this names the line.
    for path in Path(coldstream.data.__file__).parent.glob("*.py"):
        for node in ast.parse(path.read_text()).body:
            modules = [a.name for a in node.names] if isinstance(node, ast.Import) else [getattr(node, "module", "")]
            heavy = {"torchvision", "sklearn", "scipy", "datasets", "torch"}
            assert not heavy & {str(name).split(".")[0] for name in modules}, f"{path.name}:{node.lineno}"
