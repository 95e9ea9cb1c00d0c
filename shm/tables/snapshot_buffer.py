"""Snapshots: state of one process, such as groups and connections, published for read-only processes.

A processor or handler publishes one JSON object in an area of its own, for the status page and the command line. It
does so only while one of them needs it, at most once a second, and writes a buffer that no reader uses yet
(layout.SNAPSHOT), so a reader never sees a mix of two states, whenever the writer dies. Entries that do not fit are
left out and counted. The supervisor publishes the listeners in the same way, when they change, for every process.
"""

from __future__ import annotations

import json
import zlib
from typing import Any

from rotunda.shm.layout import SNAPSHOT, SNAPSHOTS_HEADER
from rotunda.shm.words import words_of

#: Size of each of the two buffers of a snapshot, by publisher.
PROCESSOR_BYTES = 64 * 1024
HANDLER_BYTES = 128 * 1024
LISTENERS_BYTES = 64 * 1024

#: Key in a snapshot for the number of left-out entries of each of its lists.
LEFT_OUT = "left_out"

_SEQUENCE = SNAPSHOT.word("sequence")
_LENGTHS = (SNAPSHOT.word("first_bytes"), SNAPSHOT.word("second_bytes"))
_CHECKED = SNAPSHOT.word("checked_ns")
_WEB = SNAPSHOTS_HEADER.word("web_wants_until_ns")
_COMMAND = SNAPSHOTS_HEADER.word("command_wants_until_ns")
_FASTEST = 1  # compression: snapshots are made in the loops that serve clients
_READ_ATTEMPTS = 100


class Wants:
    """The times until which readers need snapshots (layout.SNAPSHOTS_HEADER). Zeroed memory: no readers."""

    __slots__ = ("_words",)

    def __init__(self, view: memoryview) -> None:
        self._words = words_of(view, 0, SNAPSHOTS_HEADER.size)

    def until_ns(self) -> int:
        """Return the monotonic time up to which a reader needs snapshots."""
        until_ns: int = max(self._words[_WEB], self._words[_COMMAND])
        return until_ns

    def web_looks(self, until_ns: int) -> None:
        """Request snapshots up to this monotonic time. The status page only."""
        self._words[_WEB] = until_ns

    def command_looks(self, until_ns: int) -> None:
        """Request snapshots up to this monotonic time. The command line only."""
        self._words[_COMMAND] = until_ns


class SnapshotWriter:
    """The one writer of a snapshot. It may replace a writer that died at any point."""

    __slots__ = ("_latest", "_view", "_words", "capacity")

    def __init__(self, view: memoryview) -> None:
        self._view = view
        self._words = words_of(view, 0, SNAPSHOT.size)
        self.capacity = (view.nbytes - SNAPSHOT.size) // 2
        self._latest = b""

    def publish(self, document: dict[str, Any], lists: tuple[str, ...], now_ns: int) -> bool:
        """Publish a document, true as of `now_ns`; return whether it differs from the last one.

        Entries at the end of the lists in `lists` are left out until the document fits. ValueError if it still does
        not.
        """
        text = _encode(document)
        packed = zlib.compress(text, _FASTEST) if text != self._latest else b""
        if text == self._latest:
            self._words[_CHECKED] = now_ns
            return False
        while len(packed) > self.capacity:
            _shorten(document, lists)
            packed = zlib.compress(_encode(document), _FASTEST)
        sequence = self._words[_SEQUENCE] + 1
        start = SNAPSHOT.size + (sequence & 1) * self.capacity
        # SYNC: contents, length and time, then the sequence; pairs with the loads in SnapshotReader.read.
        self._view[start : start + len(packed)] = packed
        self._words[_LENGTHS[sequence & 1]] = len(packed)
        self._words[_CHECKED] = now_ns
        self._words[_SEQUENCE] = sequence
        self._latest = text
        return True


def _encode(document: dict[str, Any]) -> bytes:
    return json.dumps(document, ensure_ascii=False, separators=(",", ":")).encode(errors="replace")


def _shorten(document: dict[str, Any], lists: tuple[str, ...]) -> None:
    """Remove a quarter of the longest list."""
    longest = max(lists, key=lambda name: len(document[name]), default="")
    if not longest or not document[longest]:
        raise ValueError("a snapshot does not fit although its lists are empty")
    entries = document[longest]
    keep = len(entries) * 3 // 4
    left_out = document.setdefault(LEFT_OUT, {})
    left_out[longest] = left_out.get(longest, 0) + len(entries) - keep
    document[longest] = entries[:keep]


class SnapshotReader:
    """A reader of one snapshot; the map may be read-only."""

    __slots__ = ("_capacity", "_document", "_sequence", "_view", "_words")

    def __init__(self, view: memoryview) -> None:
        self._view = view
        self._words = words_of(view, 0, SNAPSHOT.size)
        self._capacity = (view.nbytes - SNAPSHOT.size) // 2
        self._sequence = 0
        self._document: dict[str, Any] | None = None

    @property
    def sequence(self) -> int:
        """The number of the last publication; 0 if there was none. HOT: one load."""
        sequence: int = self._words[_SEQUENCE]
        return sequence

    @property
    def checked_ns(self) -> int:
        """The monotonic time as of which the snapshot was true; 0 before the first."""
        checked_ns: int = self._words[_CHECKED]
        return checked_ns

    def read(self) -> dict[str, Any] | None:
        """Return the last publication, or None before the first. It is the reader's own until the next call."""
        for _ in range(_READ_ATTEMPTS):
            # SYNC: the sequence, then length and contents, then the sequence; pairs with SnapshotWriter.publish.
            sequence = self._words[_SEQUENCE]
            if sequence == self._sequence:
                return self._document
            length = self._words[_LENGTHS[sequence & 1]]
            start = SNAPSHOT.size + (sequence & 1) * self._capacity
            packed = bytes(self._view[start : start + length])
            if self._words[_SEQUENCE] == sequence:
                self._document = json.loads(zlib.decompress(packed))
                self._sequence = sequence
                return self._document
        return self._document


class SnapshotSegment:
    """The snapshots of `view`: of each processor, of each handler, then that of the listeners.

    Zeroed memory is valid.
    """

    def __init__(self, view: memoryview, processors: int, handlers: int) -> None:
        self.wants = Wants(view)
        self._view = view
        self.processors = processors
        self.handlers = handlers

    @staticmethod
    def bytes_needed(processors: int, handlers: int) -> int:
        """Return the usable bytes the segment needs."""
        of_targets = processors * _size(PROCESSOR_BYTES) + handlers * _size(HANDLER_BYTES)
        return SNAPSHOTS_HEADER.size + of_targets + _size(LISTENERS_BYTES)

    @staticmethod
    def place(processor: int) -> tuple[int, int]:
        """Return the start of a processor's snapshot, and its bytes."""
        return SNAPSHOTS_HEADER.size + processor * _size(PROCESSOR_BYTES), _size(PROCESSOR_BYTES)

    def of_processor(self, index: int) -> memoryview:
        """Return the memory of a processor's snapshot, for a SnapshotWriter or SnapshotReader."""
        start = SNAPSHOTS_HEADER.size + index * _size(PROCESSOR_BYTES)
        return self._view[start : start + _size(PROCESSOR_BYTES)]

    def of_handler(self, index: int) -> memoryview:
        """Return the memory of a handler's snapshot, for a SnapshotWriter or SnapshotReader."""
        start = SNAPSHOTS_HEADER.size + self.processors * _size(PROCESSOR_BYTES) + index * _size(HANDLER_BYTES)
        return self._view[start : start + _size(HANDLER_BYTES)]

    def of_listeners(self) -> memoryview:
        """Return the memory of the listeners, which the supervisor publishes and every process reads."""
        start = self.bytes_needed(self.processors, self.handlers) - _size(LISTENERS_BYTES)
        return self._view[start : start + _size(LISTENERS_BYTES)]


def _size(buffer_bytes: int) -> int:
    return SNAPSHOT.size + 2 * buffer_bytes
