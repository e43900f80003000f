"""Class orders in files, and what is said about wrong ones."""

import pytest

from coldstream.streams import draw_class_order, make_stream, read_class_order


@pytest.fixture
def data(build, grid):
    return build(grid(4, 1, 1, 2), ["class 03", "class 01", "class 00", "class 02"])


def test_a_text_file_written_by_hand(tmp_path):
    path = tmp_path / "order.txt"
    path.write_bytes("\ufeff# easy first\r\nC#\r\n\r\n   no  \r\n  # then\r\n007\r\nété".encode())
    assert read_class_order(str(path)) == ["C#", "no", "007", "été"]


def test_a_yaml_file_written_by_hand(tmp_path):
    path = tmp_path / "order.YML"
    path.write_text("# easy first\n- 'C#'\n- no   # not a boolean\n- 007\n- 1e3\n")
    assert read_class_order(path) == ["C#", "no", "007", "1e3"]


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("order.yaml", b"a: 1", "list of class names"),
        ("order.yaml", b"- [a, b]", "list of class names"),
        ("order.yaml", b"", "list of class names"),
        ("order.yaml", b"[]", "names no classes"),
        ("order.yaml", b"- 'a", "is not YAML"),
        ("order.yaml", b"!!python/object/apply:os.getcwd []", "names no classes"),
        ("order.txt", b"# nothing\n\n", "names no classes"),
        ("order.txt", b"\xff\xfe\x00", "is not UTF-8"),
    ],
)
def test_files_that_are_no_class_order(tmp_path, name, content, message):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(ValueError, match=message):
        read_class_order(tmp_path / name)


def test_a_file_that_is_not_there(tmp_path):
    with pytest.raises(ValueError, match="there is no class order file '.*gone.txt'"):
        read_class_order(tmp_path / "gone.txt")


@pytest.mark.parametrize("ordering", ["class-incremental", "class-iid", "class-instance"])
@pytest.mark.parametrize("suffix", ["txt", "yaml"])
def test_a_drawn_order_written_and_read_gives_the_same_stream(tmp_path, data, ordering, suffix):
    path = tmp_path / f"order.{suffix}"
    mark = "- " if suffix == "yaml" else ""
    path.write_text("# seed 7\n" + "".join(f"{mark}{name}\n" for name in draw_class_order(data, 7)))
    stream = make_stream(data, ordering, 7, class_order=read_class_order(path))
    assert stream.fingerprint() == make_stream(data, ordering, 7).fingerprint()


def test_the_order_given_is_the_order_taken(data):
    names = ["class 02", "class 00", "class 03", "class 01"]
    stream = make_stream(data, "class-incremental", 0, class_order=names)
    assert [data.names[label] for label in data.labels[stream.order[::2]]] == names


def test_the_order_of_seed_0_stays_what_it_was(data):
    assert draw_class_order(data, 0) == ["class 01", "class 03", "class 02", "class 00"]


@pytest.mark.parametrize(
    ("names", "message"),
    [
        (["class 00", "clas 01", "class 02", "class 03"], "unknown class 'clas 01'; did you mean 'class 01'?"),
        (["zebra", "klass 01", "class 02", "class 03"], r"unknown class 'zebra'.*also unknown: 'klass 01'"),
        (["class 00", 1, "class 02", "class 03"], "unknown class 1;"),
        (["class 00", ["class 01"], "class 02", "class 03"], r"unknown class \['class 01'\]"),
        (["class 00", "class 02"], "lacks 'class 01', 'class 03', of which 'rows' has examples"),
        ([], "lacks 'class 00', 'class 01', 'class 02', 'class 03'"),
        ([f"class 0{i}" for i in (0, 1, 2, 3, 1)], "names 'class 01' more than once"),
        ("class 00", "a list of class names, not 'class 00'"),
    ],
)
def test_wrong_orders_are_told_by_name(data, names, message):
    with pytest.raises(ValueError, match=message):
        make_stream(data, "class-iid", 0, class_order=names)


def test_known_classes_without_examples_may_be_named_or_not(build, grid):
    data = build(grid(2, 1, 1, 1), ["empty", "class 00", "class 01"])
    named = make_stream(data, "class-incremental", 0, class_order=["class 01", "empty", "class 00"])
    assert (
        named.fingerprint()
        == make_stream(data, "class-incremental", 0, class_order=["class 01", "class 00"]).fingerprint()
    )
    assert [event.classes for event in named.events] == [(2,), (2, 1)]
