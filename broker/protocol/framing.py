"""Cutting a byte stream into frames: a four-byte big-endian signed size, then that many bytes (`C01`).

Processors scan their receive buffers with `frame_end`; `Framer` is the same rule for whoever reads in
chunks. The size is judged before a byte is set aside for it, and what is set aside grows with what arrives
(`C02`, `C04`).
"""

import struct
from typing import Final

from broker.errors import InvalidReceive
from broker.protocol.primitives import Buffer

SIZE_BYTES: Final = 4
NEED_SIZE: Final = -1
"""`frame_end` cannot say yet: the size itself has not arrived."""

_unpack_size = struct.Struct(">i").unpack_from


def frame_end(buffer: Buffer, start: int, filled: int, limit: int) -> int:
    """Position just past the frame whose size stands at `start`, of which bytes up to `filled` have arrived.

    The result may exceed `filled`: the frame is not all there yet. `NEED_SIZE` when the size is not there.
    InvalidReceive when the size is negative or above `limit` bytes; a size of exactly `limit` is fine
    (`C02`).
    """
    if filled - start < SIZE_BYTES:
        return NEED_SIZE
    size: int = _unpack_size(buffer, start)[0]
    if size < 0 or size > limit:
        raise InvalidReceive(f"size {size} is not between 0 and {limit}")
    return start + SIZE_BYTES + size


class Framer:
    """Frames out of chunks that may be cut anywhere."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._pending = bytearray()

    @property
    def pending_bytes(self) -> int:
        """Bytes of an incomplete frame; not 0 at the end of the stream means that it was cut off (`C05`)."""
        return len(self._pending)

    def feed(self, chunk: Buffer) -> list[bytes]:
        """Return the frames that `chunk` completes, in order and without their size.

        InvalidReceive as `frame_end`.
        """
        pending = self._pending
        pending += chunk
        frames = []
        start, filled = 0, len(pending)
        while True:
            stop = frame_end(pending, start, filled, self._limit)
            if stop == NEED_SIZE or stop > filled:
                break
            frames.append(bytes(memoryview(pending)[start + SIZE_BYTES : stop]))
            start = stop
        del pending[:start]
        return frames
