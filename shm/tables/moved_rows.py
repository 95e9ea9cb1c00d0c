"""The moved rows: from each owner to each handler that waits for some of its rows, a list in shared memory.

Runs in handlers. An owner that has moved a row for which a handler has raised its flag adds the row to its list for
that handler, and rings its bell. So a handler's checks grow with the moved rows, not with those that it watches. A list
holds the last CAPACITY rows and a count of all rows ever added; each reader has its own position in it. For a reader
that was overtaken any row may have moved; every reader is treated as overtaken after the replacement of an owner, which
does not know its predecessor's last entries. Knows nothing of requests.
"""

from __future__ import annotations

from rotunda.shm.layout import MOVED_ROWS
from rotunda.shm.words import words_of

_LIST = MOVED_ROWS.size // 8
_NOTED = MOVED_ROWS.word("noted")
_FIRST = _NOTED + 1

#: Rows that a list holds.
CAPACITY = _LIST - _FIRST


class MovedRows:
    """The lists at `base` of `view`; zeroed memory is a set of empty ones."""

    __slots__ = ("_handlers", "_words")

    def __init__(self, view: memoryview, base: int, handlers: int) -> None:
        self._handlers = handlers
        self._words = words_of(view, base, self.bytes_needed(handlers))

    @staticmethod
    def bytes_needed(handlers: int) -> int:
        """Return the bytes of shared memory for the lists of this number of handlers."""
        return handlers * handlers * MOVED_ROWS.size

    def note(self, owner: int, waiter: int, row: int) -> None:
        """Add a moved row, after publishing its end; ring the waiter's bell afterwards. Owner only."""
        words = self._words
        at = (owner * self._handlers + waiter) * _LIST
        noted = words[at]
        # SYNC: the row before the count; pairs with the loads in MovedRowsReader.read.
        words[at + _FIRST + noted % CAPACITY] = row
        words[at] = noted + 1

    def note_all(self, owner: int) -> None:
        """Publish to every waiter that any row of the owner may have moved. Owner only."""
        for waiter in range(self._handlers):
            self._words[(owner * self._handlers + waiter) * _LIST] += CAPACITY

    def reader(self, waiter: int) -> MovedRowsReader:
        """Return the reader of one handler's lists, from here on; other processes have no lists."""
        owners = range(self._handlers) if waiter < self._handlers else range(0)
        lists = [(owner * self._handlers + waiter) * _LIST for owner in owners if owner != waiter]
        return MovedRowsReader(self._words, lists)


class MovedRowsReader:
    """The reading end of all lists of one handler."""

    __slots__ = ("_places", "_words")

    def __init__(self, words: memoryview, lists: list[int]) -> None:
        self._words = words
        #: The start of each list, and the reader's position in it.
        self._places = {at: words[at] for at in lists}

    def read(self) -> list[int] | None:
        """Return the rows added since the last call; None: any row may have moved. HOT."""
        words = self._words
        rows: list[int] = []
        is_outdated = False
        for at, place in self._places.items():
            # SYNC: the count, the rows, the count again; pairs with the stores in MovedRows.note.
            noted = words[at]
            if noted == place:
                continue
            if noted - place < CAPACITY:
                first = at + _FIRST
                rows += [words[first + number % CAPACITY] for number in range(place, noted)]
            self._places[at] = noted
            # The place of the oldest row may already contain the next one, before it is counted.
            is_outdated |= words[at] - place >= CAPACITY
        return None if is_outdated else rows
