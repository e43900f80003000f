"""Reading from directories and zips: the same pixels, from any thread and process, and nothing too large."""

import multiprocessing
import pickle
import threading
import tracemalloc
import zipfile

import numpy as np
import pytest

from coldstream.data import LazyImages, files
from coldstream.data.files import Files, ZipFiles, in_memory_if_small, open_files


@pytest.fixture
def both(tmp_path, tree, zipped, picture):
    """A directory and a zip of the same 40 images."""
    content = {f"{i:02d}.png": picture(i) for i in range(40)}
    folder = tree(tmp_path / "folder", content)
    return Files(folder), ZipFiles(zipped(folder, tmp_path / "folder.zip"))


def test_zip_is_directory(both, picture):
    one, other = (LazyImages(where, where.images()) for where in both)
    assert one.members == other.members
    assert one.sizes() == other.sizes()
    for number, (a, b) in enumerate(zip(one, other, strict=True)):
        assert (a == b).all()
        assert (a == picture(number)).all()


def test_lazy_is_eager(both):
    lazy = LazyImages(both[0], both[0].images())
    array = in_memory_if_small(lazy)
    assert isinstance(array, np.ndarray)
    assert array.dtype == np.uint8
    assert (array == np.stack(list(lazy))).all()
    assert (lazy[np.int64(-1)] == array[-1]).all()
    assert (np.stack(list(lazy[3:5])) == array[3:5]).all()
    with pytest.raises(IndexError):
        lazy[40]


def test_what_stays_lazy(both, monkeypatch, tmp_path, tree, picture):
    lazy = LazyImages(both[0], both[0].images())
    monkeypatch.setattr(files, "EAGER_BYTES", 40 * 8 * 8 * 3)
    assert isinstance(in_memory_if_small(lazy), np.ndarray)
    monkeypatch.setattr(files, "EAGER_BYTES", 40 * 8 * 8 * 3 - 1)
    assert in_memory_if_small(lazy) is lazy
    mixed = Files(tree(tmp_path / "mixed", {"a.png": picture(0), "b.png": picture(1, 8, 9)}))
    images = LazyImages(mixed, mixed.images())
    assert in_memory_if_small(images) is images
    assert in_memory_if_small(images[:0]).shape == (0, 1, 1, 3)


def test_many_threads_read_one_zip(both, picture):
    lazy = LazyImages(both[1], both[1].images())
    wrong = []

    def read(seed):
        for index in np.random.default_rng(seed).integers(0, 40, 60):
            if not (lazy[index] == picture(index)).all():
                wrong.append(index)

    threads = [threading.Thread(target=read, args=(seed,)) for seed in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def _sum_of_all(lazy, queue):
    queue.put(sum(int(image.sum()) for image in lazy))


def test_forked_processes_read_one_open_zip(both):
    lazy = LazyImages(both[1], both[1].images())
    expected = sum(int(image.sum()) for image in lazy)  # the zip is open now
    context = multiprocessing.get_context("fork")
    queue = context.Queue()
    with both[1]._open().lock:  # held by a thread at the moment of the fork
        processes = [context.Process(target=_sum_of_all, args=(lazy, queue)) for _ in range(2)]
        for process in processes:
            process.start()
    assert [queue.get(timeout=20) for _ in processes] == [expected] * 2
    for process in processes:
        process.join()


def test_pickled(both):
    for where in both:
        lazy = LazyImages(where, where.images())
        assert (pickle.loads(pickle.dumps(lazy))[7] == lazy[7]).all()


def test_too_large_is_not_read(both, monkeypatch):
    monkeypatch.setattr(files, "MAX_BYTES", 100)
    for where in both:
        monkeypatch.setattr(where, "_read", lambda name, most: pytest.fail("it was read"))
        with pytest.raises(ValueError, match="07.png.*the limit is 100"):
            LazyImages(where, ["07.png"])[0]


def test_a_zip_that_lies_about_sizes(tmp_path, encoded, picture):
    path = tmp_path / "lies.zip"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("a.png", encoded(picture(0)) + bytes(5_000_000))
        archive.getinfo("a.png").file_size = 50  # written to the central directory only
    with pytest.raises(ValueError, match="a.png"):
        LazyImages(ZipFiles(path), ["a.png"])[0]


@pytest.mark.parametrize("claim", [50, 4_000_000, 63_000_000, 70_000_000])
def test_a_member_that_unpacks_to_more_than_it_says_takes_no_more(tmp_path, claim):
    path = tmp_path / "lies.zip"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        with archive.open("a.png", "w") as member:
            for _ in range(300):
                member.write(bytes(1_000_000))
        archive.getinfo("a.png").file_size = claim
    tracemalloc.start()
    try:
        with pytest.raises(ValueError, match="a.png"):
            ZipFiles(path).read("a.png")
        assert tracemalloc.get_traced_memory()[1] < 2 * min(claim, 64_000_000) + 1_000_000
    finally:
        tracemalloc.stop()


def test_no_more_than_the_limit_is_read_of_a_file_that_grows(both, monkeypatch):
    monkeypatch.setattr(files, "MAX_BYTES", 200)
    monkeypatch.setattr(both[0], "size", lambda name: 10)
    asked = []
    real = both[0]._read
    monkeypatch.setattr(both[0], "_read", lambda name, most: asked.append(most) or real(name, most))
    with pytest.raises(ValueError, match="07.png.*11 bytes or more, not 10"):
        both[0].read("07.png")
    assert asked == [11]


def test_names_that_lead_outside(tmp_path, tree, zipped, picture):
    tree(tmp_path, {"secret.png": picture(0), "inside/a.png": picture(1)})
    for name in ("../secret.png", str(tmp_path / "secret.png"), "a/../../secret.png"):
        with pytest.raises(ValueError, match="not a path inside"):
            Files(tmp_path / "inside").read(name)
    path = zipped(tmp_path / "inside", tmp_path / "evil.zip", top="../../")
    before = sorted(tmp_path.rglob("*"))
    inside = ZipFiles(path)
    assert inside.images() == ["../../a.png"]
    assert (LazyImages(inside, inside.images())[0] == picture(1)).all()
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.parametrize("method", [zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_packings_without_bound_are_refused(tmp_path, tree, zipped, picture, method):
    path = zipped(tree(tmp_path / "x", {"a.png": picture(0)}), tmp_path / "x.zip", method=method)
    with pytest.raises(ValueError, match="a.png.*stored or deflate"):
        LazyImages(ZipFiles(path), ["a.png"])[0]


def test_damage_names_the_file(tmp_path, both, tree):
    data = bytearray(both[1].path.read_bytes())
    with zipfile.ZipFile(both[1].path) as archive:
        start = archive.getinfo("05.png").header_offset
    data[start + 60 : start + 90] = bytes(30)
    damaged = ZipFiles(tree(tmp_path / "d", {"x.zip": bytes(data)}) / "x.zip")
    with pytest.raises(ValueError, match="05.png"):
        LazyImages(damaged, ["05.png"])[0]
    for where in both:
        with pytest.raises(ValueError, match="nothing.png"):
            LazyImages(where, ["nothing.png"])[0]
    with pytest.raises(ValueError, match="expected a directory or a zip"):
        open_files(tree(tmp_path / "n", {"no.zip": b"PK?"}) / "no.zip")


def test_hidden_files_links_and_loops(tmp_path, tree, picture):
    root = tree(
        tmp_path / "r", {"a/1.png": picture(1), ".git/2.png": picture(2), "__MACOSX/a/._1.png": b"", "b.txt": ""}
    )
    (root / "again").symlink_to(root, target_is_directory=True)
    tree(tmp_path / "other", {"3.JPG": picture(3)})
    (root / "linked").symlink_to(tmp_path / "other", target_is_directory=True)
    assert Files(root).names == ["a/1.png", "b.txt", "linked/3.JPG"]
    assert Files(root).images() == ["a/1.png", "linked/3.JPG"]
    assert Files(root).base("3.JPG") == "linked/"
    assert Files(root).base("b.txt", "3.JPG") is None
