"""One object for all that are alike, where many are kept for a long time: less memory, and it stays in the caches.

Pure. What is used again lives on here as well, so these must be values that others are likely to have too.
"""

from functools import lru_cache
from struct import Struct
from typing import Final

#: Layouts and texts of which the one object is known, each.
_MOST_KNOWN: Final = 1024


@lru_cache(_MOST_KNOWN)
def layout(form: str) -> Struct:
    """Return the Struct of a format."""
    return Struct(form)


@lru_cache(_MOST_KNOWN)
def text(value: bytes) -> bytes:
    """Return the one object for these bytes. At most some hundred bytes each."""
    return value
