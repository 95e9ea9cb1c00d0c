"""The recent requests in shared memory: the recorder's newest rows, the slowest ones and the open connections.

Written by the recorder alone, at most a few times a second; any process reads, also with a read-only map. Two buffers
alternate (layout.RECENT_BUFFER): the writer fills the unused one, whose sequence is odd meanwhile. A reader copies the
one with the higher even sequence and then checks the sequence again. Rows are REQUEST_ROWs; the names for their numbers
are published with them as one JSON object.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from rotunda.shm.recorder_layout import RECENT_BUFFER, REQUEST_ROW
from rotunda.shm.words import words_of

#: Rows in a buffer: the newest, and the slowest of the last minutes.
NEWEST_ROWS = 1000
SLOWEST_ROWS = 100

#: Size of one buffer; the names use the bytes after the rows.
BUFFER_BYTES = 256 * 1024
BYTES_NEEDED = 2 * BUFFER_BYTES

_SEQUENCE = RECENT_BUFFER.word("sequence")
_NEWEST = RECENT_BUFFER.word("newest_rows")
_SLOWEST = RECENT_BUFFER.word("slowest_rows")
_NAMES_BYTES = RECENT_BUFFER.word("names_bytes")
_EPOCH = RECENT_BUFFER.word("epoch_ns")
_PUBLISHED = RECENT_BUFFER.word("published_ns")
_READ_ATTEMPTS = 8

#: Bytes for the names, whatever the number of rows.
NAMES_BYTES = BUFFER_BYTES - RECENT_BUFFER.size - (NEWEST_ROWS + SLOWEST_ROWS) * REQUEST_ROW.size


@dataclass(frozen=True, slots=True)
class Recent:
    """A copy. Rows are REQUEST_ROW bytes, newest last and slowest first; `partition_row` holds a number in `names`.

    Wall-clock time in ns is monotonic time minus `epoch_ns`; `published_ns` is monotonic.
    """

    newest: bytes
    slowest: bytes
    names: dict[str, Any]
    epoch_ns: int
    published_ns: int


class RecentWriter:
    """The one writer, in the recorder. A successor continues its sequences."""

    __slots__ = ("_buffers", "_view")

    def __init__(self, view: memoryview) -> None:
        self._view = view
        self._buffers = _buffers(view)

    def publish(self, newest: bytes, slowest: bytes, names: bytes, epoch_ns: int, now_ns: int) -> None:
        """Replace the published data. ValueError when it is too large."""
        if len(newest) + len(slowest) + len(names) > BUFFER_BYTES - RECENT_BUFFER.size:
            raise ValueError(f"{len(newest)} + {len(slowest)} + {len(names)} bytes do not fit")
        sequences = [words[_SEQUENCE] for words in self._buffers]
        # Fill the one that a killed predecessor left odd.
        odd = [index for index, sequence in enumerate(sequences) if sequence & 1]
        unused = odd[0] if odd else sequences.index(min(sequences))
        words = self._buffers[unused]
        words[_SEQUENCE] = sequences[unused] | 1
        words[_NEWEST] = len(newest) // REQUEST_ROW.size
        words[_SLOWEST] = len(slowest) // REQUEST_ROW.size
        words[_NAMES_BYTES] = len(names)
        words[_EPOCH] = epoch_ns
        words[_PUBLISHED] = now_ns
        at = unused * BUFFER_BYTES + RECENT_BUFFER.size
        for part in (newest, slowest, names):
            self._view[at : at + len(part)] = part
            at += len(part)
        # SYNC: the contents before the sequence; pairs with the loads in RecentReader.read.
        words[_SEQUENCE] = (max(sequences) | 1) + 1


class RecentReader:
    """A reader, in any process."""

    __slots__ = ("_buffers", "_view")

    def __init__(self, view: memoryview) -> None:
        self._view = view
        self._buffers = _buffers(view)

    def read(self) -> Recent | None:
        """Return the last publication; None before the first, or when the writer is always faster."""
        for _ in range(_READ_ATTEMPTS):
            # SYNC: the sequence, the contents, the sequence; pairs with the stores in RecentWriter.publish.
            even = [words[_SEQUENCE] if not words[_SEQUENCE] & 1 else 0 for words in self._buffers]
            sequence = max(even)
            if sequence == 0:
                return None
            index = even.index(sequence)
            words = self._buffers[index]
            head = words[: RECENT_BUFFER.size // 8].tolist()
            contents = bytes(self._view[index * BUFFER_BYTES + RECENT_BUFFER.size : (index + 1) * BUFFER_BYTES])
            if words[_SEQUENCE] == sequence and head[_SEQUENCE] == sequence:
                return _recent(head, contents)
        return None


def _recent(head: list[int], contents: bytes) -> Recent:
    newest_end = head[_NEWEST] * REQUEST_ROW.size
    slowest_end = newest_end + head[_SLOWEST] * REQUEST_ROW.size
    return Recent(
        newest=contents[:newest_end],
        slowest=contents[newest_end:slowest_end],
        names=json.loads(contents[slowest_end : slowest_end + head[_NAMES_BYTES]]),
        epoch_ns=head[_EPOCH],
        published_ns=head[_PUBLISHED],
    )


def _buffers(view: memoryview) -> tuple[memoryview, memoryview]:
    first = words_of(view, 0, RECENT_BUFFER.size)
    second = words_of(view, BUFFER_BYTES, RECENT_BUFFER.size)
    return first, second
