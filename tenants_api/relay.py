"""A backend's words on their way to a tenant: one line, not long, nothing that a terminal or a page would act on."""

import unicodedata
from typing import Final

MOST_BYTES: Final = 512
_BLANKS: Final = dict.fromkeys("\n\t\u2028\u2029", " ")
"""What would begin another line, or leap in this one."""
_DROPPED: Final = frozenset({"Cc", "Cf", "Cs"})
"""Control and format characters (escapes, but also what turns the direction of text or has no width); half pairs."""


def relayed(text: str, *, otherwise: str) -> str:
    """The text as a tenant may see it, cut at a character after 512 bytes; `otherwise` when nothing is left of it."""
    kept = "".join(_BLANKS.get(ch, ch) for ch in text if ch in _BLANKS or unicodedata.category(ch) not in _DROPPED)
    encoded = kept.encode()
    if len(encoded) > MOST_BYTES:
        kept = encoded[:MOST_BYTES].decode(errors="ignore") + "…"
    return kept or otherwise
