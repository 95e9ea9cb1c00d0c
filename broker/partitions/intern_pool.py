"""Interning: one object for all equal ones that are stored for a long time, to save memory and processor caches.

Pure. Interned objects are referenced here as well, so these must be values that are likely to be shared.
"""

from functools import lru_cache
from struct import Struct
from typing import Final

#: Maximum numbers of interned layouts and of interned texts; longer ones are not shared.
_MOST_KNOWN: Final = 1024
_LONGEST: Final = 512


def layout(form: str) -> Struct:
    """Return the one layout of this form."""
    return _layout(form) if len(form) <= _LONGEST else Struct(form)


def text(value: bytes) -> bytes:
    """Return the one object of these bytes."""
    return _text(value) if len(value) <= _LONGEST else value


_layout = lru_cache(_MOST_KNOWN)(Struct)


@lru_cache(_MOST_KNOWN)
def _text(value: bytes) -> bytes:
    return value
