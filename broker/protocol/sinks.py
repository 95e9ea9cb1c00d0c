"""The sinks of an answer that is written a piece at a time.

A sink can take back the last of what it was given, so an element with which an answer would become too long can be
replaced by a short one. `broker.ipc.answer_spool` is the sink for answers of any length.
"""

from __future__ import annotations

from typing import Protocol


class AnswerTooLargeError(Exception):
    """An answer would have more bytes than an answer may have."""


class Sink(Protocol):
    """The bytes written so far. ``size``: how many there are."""

    size: int

    def append(self, data: bytes) -> None:
        """Add bytes at the end."""

    def cut(self, size: int) -> None:
        """Take back what lies behind the first ``size`` bytes."""

    def put_size(self, size_bytes: bytes) -> None:
        """Overwrite the first bytes."""


class MemorySink:
    """A sink for what is known to be short."""

    def __init__(self) -> None:
        self.data = bytearray()
        self.size = 0

    def append(self, data: bytes) -> None:
        """Add bytes at the end."""
        self.data += data
        self.size += len(data)

    def cut(self, size: int) -> None:
        """Take back what lies behind the first ``size`` bytes."""
        del self.data[size:]
        self.size = size

    def put_size(self, size_bytes: bytes) -> None:
        """Overwrite the first bytes."""
        self.data[: len(size_bytes)] = size_bytes
