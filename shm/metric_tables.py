"""Parts of a metrics page whose values are not known beforehand: keyed numbers, and the texts that keys refer to.

The process that owns the page writes, anyone reads. A table has slots of two words, key and value; a slot is taken by
storing its value first and its key afterwards, and keeps its key for ever. What finds no slot is counted under
OTHER. Keys are up to three small numbers; where one of them stands for a text it is an index into the page's texts.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

SLOT_WORDS = 2
TEXT_WORDS = 16
TEXT_SLOTS = 64

#: The parts of the key that stands for everything that found no slot.
OTHER: tuple[int, ...] = ()

#: The index of the empty text, and of every text that found no slot.
NO_TEXT = 0
OTHER_TEXT = TEXT_SLOTS - 1

_OTHER_KEY = -1
_PART_BITS = 16
_PART_MASK = (1 << _PART_BITS) - 1
_SIGN_BIT = 1 << (_PART_BITS - 1)
_TEXT_BYTES = (TEXT_WORDS - 1) * 8


def pack_key(parts: Sequence[int]) -> int:
    """Return the word of a key; parts are 16-bit numbers with a sign, three at most. It is neither 0 nor negative."""
    key = 0
    for part in parts:
        key = key << _PART_BITS | part & _PART_MASK
    return key + 1


def unpack_key(key: int, parts: int) -> tuple[int, ...]:
    """Return the parts of a key's word."""
    if key == _OTHER_KEY:
        return OTHER
    key -= 1
    shifts = range((parts - 1) * _PART_BITS, -1, -_PART_BITS)
    raw = [key >> shift & _PART_MASK for shift in shifts]
    return tuple(part - (part & _SIGN_BIT) * 2 for part in raw)


class TableWriter:
    """The one writer of a table at word `first` of a page."""

    __slots__ = ("_first", "_places", "_slots", "_words")

    def __init__(self, words: memoryview, first: int, slots: int, parts: int) -> None:
        self._words = words
        self._first = first
        self._slots = slots
        self._places: dict[tuple[int, ...], int] = {}
        for slot in range(slots):
            place = first + slot * SLOT_WORDS
            if not words[place]:
                break
            self._places[unpack_key(words[place], parts)] = place + 1

    def add(self, parts: tuple[int, ...], n: int) -> None:
        """Let the counter of a key grow."""
        self._words[self._place(parts)] += n

    def replace(self, values: dict[tuple[int, ...], int]) -> None:
        """Store these gauges, and 0 for every other key. What finds no slot is added up under OTHER."""
        found: dict[int, int] = dict.fromkeys(self._places.values(), 0)
        for parts, value in values.items():
            place = self._place(parts)
            found[place] = found.get(place, 0) + value
        for place, value in found.items():
            if self._words[place] != value:
                self._words[place] = value

    def _place(self, parts: tuple[int, ...]) -> int:
        place = self._places.get(parts)
        return self._take_slot(parts) if place is None else place

    def _take_slot(self, parts: tuple[int, ...]) -> int:
        """Give the key the next slot; the last one is for all keys that come too late."""
        taken = len(self._places)
        if taken >= self._slots - 1:
            parts = OTHER
            if OTHER in self._places:
                return self._places[OTHER]
        place = self._first + taken * SLOT_WORDS
        self._words[place + 1] = 0
        # SYNC: the value before the key; pairs with the loads in read_table.
        self._words[place] = pack_key(parts) if parts else _OTHER_KEY
        self._places[parts] = place + 1
        return place + 1


def read_table(words: memoryview, first: int, slots: int, parts: int) -> dict[tuple[int, ...], int]:
    """Return the values by key, in the order in which the keys came."""
    found = {}
    for place in range(first, first + slots * SLOT_WORDS, SLOT_WORDS):
        # SYNC: the key before the value; pairs with the stores in TableWriter._take_slot.
        key = words[place]
        if not key:
            break
        found[unpack_key(key, parts)] = words[place + 1]
    return found


class TextWriter:
    """The one writer of a page's texts, at word `first`. A text that is there stays; one that is too long is cut."""

    __slots__ = ("_first", "_indexes", "_words")

    def __init__(self, words: memoryview, first: int) -> None:
        self._words = words
        self._first = first
        self._indexes = {text: index for index, text in read_texts(words, first) if index != OTHER_TEXT}

    def index(self, text: str) -> int:
        """Return the number of a text, which gets one if there is one left."""
        if not text:
            return NO_TEXT
        raw = text.encode(errors="replace")[:_TEXT_BYTES]
        text = raw.decode(errors="replace")
        found = self._indexes.get(text)
        if found is not None:
            return found
        index = len(self._indexes) + 1
        if index >= OTHER_TEXT:
            return OTHER_TEXT
        place = self._first + index * TEXT_WORDS
        padded = raw + bytes(-len(raw) % 8)
        for offset, word in enumerate(memoryview(padded).cast("q"), place + 1):
            self._words[offset] = word
        # SYNC: the text before its length; pairs with the loads in read_texts.
        self._words[place] = len(raw)
        self._indexes[text] = index
        return index


def read_texts(words: memoryview, first: int) -> Iterator[tuple[int, str]]:
    """Yield (number, text) of every text that is there."""
    for index in range(1, OTHER_TEXT):
        place = first + index * TEXT_WORDS
        # SYNC: the length before the text; pairs with the stores in TextWriter.index.
        length = words[place]
        if not length:
            break
        yield index, words[place + 1 : place + TEXT_WORDS].tobytes()[:length].decode(errors="replace")
