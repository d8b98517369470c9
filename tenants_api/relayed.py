"""Words of a backend that its tenants may read: the text of its error body, made harmless. Pure."""

import unicodedata
from typing import Final

MOST_BYTES: Final = 512
_BLANKS: Final = str.maketrans({"\n": " ", "\t": " "})
_UNSEEN: Final = frozenset({"Cc", "Cf"})  # controls, and marks that change how the text around them is shown


def relayed(words: str, *, otherwise: str) -> str:
    """These words in one line without control characters, at most 512 bytes of UTF-8 and an ellipsis.

    When nothing is left of them, the route's own text stands for them.
    """
    text = "".join(sign for sign in words.translate(_BLANKS) if unicodedata.category(sign) not in _UNSEEN)
    raw = text.encode(errors="replace")
    if len(raw) > MOST_BYTES:
        text = raw[:MOST_BYTES].decode(errors="ignore") + "…"
    return text or otherwise
