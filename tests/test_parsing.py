"""Short strings read into calls, and wrong names answered with the nearest right one."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coldstream.parsing import Call, parse_call, parse_chain, unknown


@pytest.mark.parametrize(
    ("text", "call"),
    [
        ("raw", Call("raw")),
        ("raw()", Call("raw")),
        ("  raw ( ) ", Call("raw")),
        ("largest-class", Call("largest-class")),
        ("quantize(6)", Call("quantize", (6,))),
        ("resize( 0.66 )", Call("resize", (0.66,))),
        ("a(1, 2.5, word)", Call("a", (1, 2.5, "word"))),
        ("a(-3, 1e-4, 1E3)", Call("a", (-3, 1e-4, 1000.0))),
        ("a(1.0)", Call("a", (1.0,))),
        ("a(limit=2)", Call("a", (), (("limit", 2),))),
        ("a(0.4, limit = 2, kind= soft)", Call("a", (0.4,), (("limit", 2), ("kind", "soft")))),
        ("consolidate-mixup(0.4, limit=2)", Call("consolidate-mixup", (0.4,), (("limit", 2),))),
    ],
)
def test_calls(text, call):
    assert parse_call(text, "thing") == call


@pytest.mark.parametrize(("text", "kind"), [("6", int), ("6.0", float), ("6e0", float), ("six", str), ("-6", int)])
def test_whole_numbers_stay_whole(text, kind):
    assert type(parse_call(f"a({text})", "thing").args[0]) is kind


@pytest.mark.parametrize(
    "text", ["", " ", "6", "(6)", "a(", "a)", "a(1", "a(1))", "a((1))", "a b", "a(1)b", "-a", "a|b"]
)
def test_what_cannot_be_read_is_quoted(text):
    with pytest.raises(ValueError, match="thing: cannot read") as raised:
        parse_call(text, "thing")
    assert repr(text) in str(raised.value)


def test_unnamed_arguments_come_first():
    with pytest.raises(ValueError, match="the unnamed argument '2' follows a named one"):
        parse_call("a(x=1, 2)", "thing")


def test_chains_keep_their_order():
    chain = parse_chain("resize(0.66) | quantize(6)|raw", "codec")
    assert chain == [Call("resize", (0.66,)), Call("quantize", (6,)), Call("raw")]
    assert parse_chain("raw", "codec") == [Call("raw")]


@pytest.mark.parametrize("text", ["", "a|", "|a", "a||b"])
def test_a_chain_has_no_empty_links(text):
    with pytest.raises(ValueError, match="codec: cannot read ''"):
        parse_chain(text, "codec")


names = st.from_regex(r"[A-Za-z][A-Za-z0-9_-]{0,8}", fullmatch=True)
numbers = st.one_of(st.integers(-(10**6), 10**6), st.floats(-1e6, 1e6).map(float))


@given(st.lists(st.tuples(names, st.lists(numbers, max_size=3)), min_size=1, max_size=4))
def test_what_is_written_is_read(calls):
    text = "|".join(f"{name}({', '.join(map(repr, args))})" for name, args in calls)
    read = parse_chain(text, "thing")
    assert [(call.name, call.args, call.kwargs) for call in read] == [(name, tuple(args), ()) for name, args in calls]
    assert [[type(value) for value in call.args] for call in read] == [[type(v) for v in args] for _, args in calls]


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("quantise", "unknown codec 'quantise'; did you mean 'quantize'? valid: jpeg, quantize, raw"),
        ("jpg", "unknown codec 'jpg'; did you mean 'jpeg'? valid: jpeg, quantize, raw"),
        ("zstd", "unknown codec 'zstd'; valid: jpeg, quantize, raw"),
        (7, "unknown codec 7; valid: jpeg, quantize, raw"),
    ],
)
def test_a_wrong_name_gets_the_nearest_right_one(name, message):
    error = unknown("codec", name, ["raw", "quantize", "jpeg"])
    assert isinstance(error, ValueError)
    assert str(error) == message


def test_names_with_commas_can_be_told_apart():
    assert str(unknown("part", 7, ["b, c", "a"])) == "unknown part 7; valid: a, 'b, c'"
