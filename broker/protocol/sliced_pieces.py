"""Answers of hand-written codecs a piece at a time: what such a codec yields goes into a sink, or into one answer.

Run by handlers. A codec yields lists of bytes, each about half a millisecond of work, and notes the error codes that it
meets. What `broker.protocol.kio.kio_slices` is for messages by kio's schema.
"""

import struct
from collections.abc import Callable, Generator, Iterable, Iterator
from typing import Any, Final, TypeAlias

from broker.protocol.sinks import AnswerTooLargeError, Sink

_SIZE_BYTES: Final = 4

_pack_int32 = struct.Struct(">i").pack
_pack_size_and_correlation = struct.Struct(">ii").pack

Pieces: TypeAlias = Callable[[int, Any, Callable[[int], None]], Iterator[list[bytes]]]
"""(version, response, what notes an error code) -> the bytes behind the correlation id, in pieces."""


class SlicedPieces:
    """One answer on its way into a sink. ``error_code`` is the first one noted."""

    def __init__(self, pieces: Pieces, version: int, sink: Sink, most_bytes: int) -> None:
        self._pieces = pieces
        self._version = version
        self._sink = sink
        self._most_bytes = most_bytes
        self.error_code = 0

    def encode(self, correlation_id: int, response: Any) -> Generator[None, None, None]:
        """Write the answer, size and header included. Raises AnswerTooLargeError."""
        sink = self._sink
        sink.append(_pack_size_and_correlation(0, correlation_id))
        for pieces in self._pieces(self._version, response, self._note_error):
            data = b"".join(pieces)
            if sink.size + len(data) > self._most_bytes:
                raise AnswerTooLargeError
            sink.append(data)
            yield
        sink.put_size(_pack_int32(sink.size - _SIZE_BYTES))

    def _note_error(self, error_code: int) -> None:
        self.error_code = self.error_code or error_code


def joined(correlation_id: int, pieces: Iterable[list[bytes]]) -> bytes:
    """Return an answer that is short, size and header included."""
    body = b"".join([piece for some in pieces for piece in some])
    return _pack_size_and_correlation(len(body) + 4, correlation_id) + body


def not_noted(error_code: int) -> None:
    """Note no error code."""
    del error_code
