"""Labels and names as people type them."""

from __future__ import annotations

import unicodedata

from coldstream.serve.errors import Refused

MAX_LABEL = 200


def check_label(text: str, field: str = "body.label") -> str:
    """Return a label without spaces around it; refuse an empty one, a long one and control characters."""
    label = unicodedata.normalize("NFC", text).strip()
    if not label:
        raise Refused("a label has at least one character", field)
    if len(label) > MAX_LABEL:
        raise Refused(f"a label has at most {MAX_LABEL} characters, not {len(label)}", field)
    if any(unicodedata.category(character) in ("Cc", "Cs", "Zl", "Zp") for character in label):
        raise Refused("a label has no control characters and no line breaks", field)
    return label
