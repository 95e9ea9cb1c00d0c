"""Parts of a metrics page with values unknown beforehand: keyed numbers, and the texts that keys refer to.

The page's process writes, any process reads. A table has slots of two words, key and value; a slot is allocated by
storing its value first and its key afterwards. Keys without a slot are counted under OTHER. Keys are up to three small
numbers; a text in a key is an index into the page's texts. Clients choose some of both, so neither is permanent: rare
counters are merged into OTHER, and gauges that are 0 and texts without a key are replaced by others.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

SLOT_WORDS = 2
TEXT_WORDS = 16
TEXT_SLOTS = 64

#: The parts of the key for everything without a slot.
OTHER: tuple[int, ...] = ()

#: The index of the empty text; OTHER_TEXT is that of every text without a slot.
NO_TEXT = 0
OTHER_TEXT = TEXT_SLOTS - 1

_NO_KEY = 0
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
    """The one writer of a table at word `first` of a page. The last slot is that of OTHER."""

    __slots__ = ("_free", "_other", "_places", "_words")

    def __init__(self, words: memoryview, first: int, slots: int, parts: int) -> None:
        self._words = words
        #: The position of each key's value.
        self._places: dict[tuple[int, ...], int] = {}
        self._free: list[int] = []
        self._other = first + (slots - 1) * SLOT_WORDS + 1
        for place in range(first, self._other - 1, SLOT_WORDS):
            if words[place] > 0:
                self._places[unpack_key(words[place], parts)] = place + 1
            else:
                self._free.append(place + 1)
        self._free.reverse()

    def add(self, parts: tuple[int, ...], n: int) -> None:
        """Increment the counter of a key. When the table is full, the rarest keys are merged into OTHER."""
        place = self._places.get(parts)
        if place is None:
            if not self._free:
                self._merge_rarest()
            place = self._allocate_slot(parts)
        self._words[place] += n

    def replace(self, values: dict[tuple[int, ...], int]) -> None:
        """Store these gauges, and 0 for every other key. Values without a slot are added up under OTHER."""
        if len(self._free) < len(values.keys() - self._places.keys()):
            for parts in self._places.keys() - values.keys():
                self._free_slot(parts)
        found: dict[int, int] = dict.fromkeys((*self._places.values(), self._other), 0)
        for parts, value in values.items():
            place = self._places.get(parts)
            if place is None:
                place = self._allocate_slot(parts)
            found[place] = found.get(place, 0) + value
        for place, value in found.items():
            if self._words[place] != value:
                self._words[place] = value
                if place == self._other:
                    self._words[place - 1] = _OTHER_KEY

    def known(self) -> list[tuple[int, ...]]:
        """Return the keys that have slots."""
        return list(self._places)

    def _allocate_slot(self, parts: tuple[int, ...]) -> int:
        """Allocate a slot for a key and return its position, or that of OTHER when there is none."""
        if not self._free:
            self._words[self._other - 1] = _OTHER_KEY
            return self._other
        place = self._free.pop()
        self._words[place] = 0
        # SYNC: the value before the key; pairs with the loads in read_table.
        self._words[place - 1] = pack_key(parts)
        self._places[parts] = place
        return place

    def _merge_rarest(self) -> None:
        """Merge the smaller half into OTHER, so that a client that invents keys does not hide the others."""
        by_value = sorted(self._places, key=lambda parts: self._words[self._places[parts]])
        for parts in by_value[: (len(by_value) + 1) // 2]:
            value = self._words[self._places[parts]]
            self._free_slot(parts)
            self._words[self._other] += value
        self._words[self._other - 1] = _OTHER_KEY

    def _free_slot(self, parts: tuple[int, ...]) -> None:
        place = self._places.pop(parts)
        # SYNC: the key is cleared before the value changes; pairs with the second load in read_table.
        self._words[place - 1] = _NO_KEY
        self._free.append(place)


def read_table(words: memoryview, first: int, slots: int, parts: int) -> dict[tuple[int, ...], int]:
    """Return the values by key, in the order of their slots."""
    found = {}
    for place in range(first, first + slots * SLOT_WORDS, SLOT_WORDS):
        # SYNC: the key, the value, the key again; pairs with the stores in TableWriter._take_slot and _free_slot.
        key = words[place]
        if key == _NO_KEY:
            continue
        value = words[place + 1]
        if words[place] == key:
            found[unpack_key(key, parts)] = value
    return found


class TextWriter:
    """The one writer of a page's texts, at word `first`. A text that is too long is cut."""

    __slots__ = ("_first", "_free", "_indexes", "_words")

    def __init__(self, words: memoryview, first: int) -> None:
        self._words = words
        self._first = first
        self._indexes = {text: index for index, text in read_texts(words, first)}
        in_use = set(self._indexes.values())
        self._free = [index for index in range(OTHER_TEXT - 1, 0, -1) if index not in in_use]

    @property
    def has_room(self) -> bool:
        """Whether another text gets a number of its own."""
        return bool(self._free)

    def find(self, text: str) -> int:
        """Return a text's number if it has one, or NO_TEXT."""
        return self._indexes.get(_cut(text)[1], NO_TEXT)

    def index(self, text: str) -> int:
        """Return the number of a text, allocating one if any is free."""
        if not text:
            return NO_TEXT
        raw, text = _cut(text)
        found = self._indexes.get(text)
        if found is not None:
            return found
        if not self._free:
            return OTHER_TEXT
        index = self._free.pop()
        place = self._first + index * TEXT_WORDS
        padded = raw + bytes(-len(raw) % 8)
        for offset, word in enumerate(memoryview(padded).cast("q"), place + 1):
            self._words[offset] = word
        # SYNC: the text before its length; pairs with the loads in read_texts.
        self._words[place] = len(raw)
        self._indexes[text] = index
        return index

    def keep(self, used: Collection[int]) -> None:
        """Free the numbers of all other texts. No key of a table may contain one of them."""
        for text, index in list(self._indexes.items()):
            if index not in used:
                # SYNC: clear the length before another text; pairs with the second load in read_texts.
                self._words[self._first + index * TEXT_WORDS] = 0
                del self._indexes[text]
                self._free.append(index)


def read_texts(words: memoryview, first: int) -> Iterator[tuple[int, str]]:
    """Yield (number, text) of every text."""
    for index in range(1, OTHER_TEXT):
        place = first + index * TEXT_WORDS
        # SYNC: the length, the text, the length again; pairs with the stores in TextWriter.index and keep.
        length = words[place]
        if not length:
            continue
        raw = words[place + 1 : place + TEXT_WORDS].tobytes()[:length]
        if words[place] == length:
            yield index, raw.decode(errors="replace")


def _cut(text: str) -> tuple[bytes, str]:
    """Return a text cut to its room, as bytes and as text."""
    raw = text.encode(errors="replace")[:_TEXT_BYTES]
    return raw, raw.decode(errors="replace")
