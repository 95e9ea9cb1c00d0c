"""The response to a Produce of one partition, by far the most common one: only its numbers are filled in. HOT.

Runs in handler processes. A template is cached with its request (`cached_produce`).
"""

from __future__ import annotations

import struct
from typing import Final

from rotunda.broker.protocol.messages.produce import PartResponse, encode_produce_response

_LOG_START_OFFSET_FROM: Final = 5


class ProduceResponseTemplate:
    """The whole response to a request of one partition, but for its numbers.

    See `single_partition_response`.
    """

    __slots__ = ("_middle", "_pack_into", "_prefix", "_suffix", "_with_start", "size_bytes")

    def __init__(self, prefix: bytes, middle: bytes, suffix: bytes, *, with_start: bool) -> None:
        self._prefix = prefix
        self._middle = middle
        self._suffix = suffix
        self._with_start = with_start
        numbers = _numbers(with_start=with_start).removeprefix(">")
        layout = struct.Struct(f">{len(prefix)}si{len(middle)}s{numbers}{len(suffix)}s")
        self._pack_into = layout.pack_into
        #: Length of the whole response, size prefix included: the same for all.
        self.size_bytes = layout.size

    @property
    def offset_at(self) -> int | None:
        """Return where the base offset is, two numbers before the log start offset; None: the response has none."""
        return len(self._prefix) + 4 + len(self._middle) + 2 if self._with_start else None

    def fill(
        self,
        correlation_id: int,
        error_code: int,
        base_offset: int,
        log_append_time_ms: int,
        log_start_offset: int,
    ) -> bytes:
        """Return the wire bytes, size and header included; no error message, no throttle time."""
        wire = bytearray(self.size_bytes)
        self.fill_into(wire, 0, correlation_id, error_code, (base_offset, log_append_time_ms, log_start_offset))
        return bytes(wire)

    def fill_into(
        self,
        buffer: bytearray | memoryview,
        at: int,
        correlation_id: int,
        error_code: int,
        offsets: tuple[int, int, int],
    ) -> None:
        """Write the same bytes into ``buffer``; ``offsets`` are base offset, append time and log start. HOT."""
        if not self._with_start:
            offsets = offsets[:2]  # type: ignore[assignment]  # versions below 5 have no log start offset
        self._pack_into(buffer, at, self._prefix, correlation_id, self._middle, error_code, *offsets, self._suffix)


def single_partition_response(
    version: int, topic_name: str | None, topic_id: bytes | None, partition: int
) -> ProduceResponseTemplate:
    """Return the template for responses about exactly this topic-partition in this version.

    Its numbers are contiguous: they are the bytes in which responses with other numbers differ.
    """
    wire, other = (
        encode_produce_response(
            version, 0, 0, [PartResponse(topic_name, topic_id, partition, number, number, number, number)]
        )
        for number in (0, -1)
    )
    with_start = version >= _LOG_START_OFFSET_FROM
    numbers_at = next(at for at, byte in enumerate(wire) if byte != other[at])
    numbers_end = numbers_at + struct.calcsize(_numbers(with_start=with_start))
    return ProduceResponseTemplate(wire[:4], wire[8:numbers_at], wire[numbers_end:], with_start=with_start)


def _numbers(*, with_start: bool) -> str:
    """Return the layout of error code, base offset, append time and, from version 5 on, log start."""
    return ">hqqq" if with_start else ">hqq"
