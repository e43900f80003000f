"""Parse strings such as ``resize(0.66)|quantize(6)``, and suggest the nearest valid name for a wrong one."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable
from dataclasses import dataclass

_CALL = re.compile(r"^([A-Za-z][\w-]*)\s*(?:\(([^()]*)\))?$")


@dataclass(frozen=True)
class Call:
    """A parsed call: its name, positional and keyword arguments."""

    name: str
    args: tuple[float | str, ...] = ()
    kwargs: tuple[tuple[str, float | str], ...] = ()


def parse_call(text: str, what: str) -> Call:
    """Parse ``name`` or ``name(1, word, key=2)``; `what` names the thing in error messages.

    Examples
    --------
    >>> parse_call("autoaugment(cifar10)", "augmentation")
    Call(name='autoaugment', args=('cifar10',), kwargs=())
    """
    match = _CALL.match(text.strip())
    if match is None:
        raise ValueError(f"{what}: cannot read {text!r}; expected a form such as name or name(1, 2)")
    name, inside = match.group(1), (match.group(2) or "").strip()
    args: list[float | str] = []
    kwargs: list[tuple[str, float | str]] = []
    for part in inside.split(",") if inside else []:
        key, equals, value = part.partition("=")
        if equals:
            kwargs.append((key.strip(), _value(value)))
        elif kwargs:
            raise ValueError(f"{what}: in {text!r} the unnamed argument {part.strip()!r} follows a named one")
        else:
            args.append(_value(part))
    return Call(name, tuple(args), tuple(kwargs))


def parse_chain(text: str, what: str) -> list[Call]:
    """Parse calls joined by ``|``, in the order in which they are applied.

    Examples
    --------
    >>> [call.name for call in parse_chain("resize(0.66)|quantize(6)", "codec")]
    ['resize', 'quantize']
    """
    return [parse_call(part, what) for part in text.split("|")]


_UNPRINTABLE = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")


def plain(value: object) -> str:
    r"""Return a value as one line of text: control characters and bytes that are not UTF-8 become escapes.

    Examples
    --------
    >>> print(plain("two\nlines"), plain("caf\udce9"), plain(0.5))
    two\nlines caf\xe9 0.5
    """
    return _UNPRINTABLE.sub(lambda match: _escaped(match.group()), str(value))


def _escaped(character: str) -> str:
    code = ord(character)
    byte = code - 0xDC00 if 0xDC80 <= code <= 0xDCFF else None  # how Python reads a file name's byte
    return f"\\x{byte:02x}" if byte is not None else character.encode("unicode_escape").decode()


def _value(text: str) -> float | str:
    text = text.strip()
    try:
        number = float(text)
    except ValueError:
        return text
    return int(number) if number.is_integer() and "." not in text and "e" not in text.lower() else number


def unknown(what: str, name: object, valid: Iterable[str]) -> ValueError:
    """Return the error for a name that does not exist, with the nearest one that does.

    Examples
    --------
    >>> unknown("codec", "quantise", ["raw", "quantize", "jpeg"])
    ValueError("unknown codec 'quantise'; did you mean 'quantize'? valid: jpeg, quantize, raw")
    """
    names = sorted(valid)
    near = difflib.get_close_matches(str(name), names, n=1, cutoff=0.5)
    hint = f" did you mean {near[0]!r}?" if near else ""
    shown = ", ".join(repr(one) if "," in one else one for one in names)
    return ValueError(f"unknown {what} {name!r};{hint} valid: {shown}")
