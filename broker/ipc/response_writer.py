"""Writes responses into the response rings, in batches, with one bell per processor.

Runs in handler processes and the controller. If a ring is full its response is queued here, and nothing more is read
from that processor until the response is in the ring. This is the whole back-pressure; no process blocks.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Sequence
from itertools import count
from pathlib import Path
from struct import Struct
from typing import NamedTuple

from rotunda.broker.ipc.request import Request
from rotunda.broker.ipc.request_channel import (
    CLOSE_CONNECTION,
    FAILED,
    NO_OP,
    RANGE,
    RESPONSE_TO_KIND,
    RESPONSE_TO_SUBJECT,
    SEND,
    THROTTLED,
    RequestChannel,
)
from rotunda.broker.ipc.request_facts import NO_RECORDS, NO_SUBJECT, Records
from rotunda.broker.ipc.response_spool import ResponseSpool
from rotunda.broker.ipc.segment_file_cache import ONE_RESPONSE
from rotunda.broker.protocol.schema.marks import throttle_place, throttle_time, with_throttle_time
from rotunda.broker.quotas.client_sensors import ClientSensors
from rotunda.shm.rings.bell import EventBell
from rotunda.shm.rings.ring import RingProducer
from rotunda.shm.tables.current_request import Identity

_ENVELOPE_BYTES = RESPONSE_TO_SUBJECT.size
_pack_to_kind, _pack_range = RESPONSE_TO_KIND.pack_into, RANGE.pack

#: Offset of the correlation id in a response, after its size.
_CORRELATION_ID_AT = 4
_pack_correlation_id = Struct(">i").pack_into

#: A response with file ranges whose own fields need more than this may not fit a ring: all of it is sent as a file.
MOST_ENVELOPE_BYTES = 64 * 1024


class ResponseFacts(NamedTuple):
    """A response's facts for the request log beyond its timestamps; ``about`` is a `request_facts.subject`.

    ``throttled_by``: the quota behind ``throttle_ms``, and ``denial``: the number of the denial, as in REQUEST_ROW.
    """

    error_code: int = 0
    records: Records = NO_RECORDS
    about: bytes = NO_SUBJECT
    throttle_ms: int = 0
    throttled_by: int = 0
    denial: int = 0


NO_FACTS = ResponseFacts()


class FileRange(NamedTuple):
    """``inline_before`` bytes of the response, then ``length`` bytes of the file from ``position`` on."""

    inline_before: int
    path: bytes
    inode: int
    position: int
    length: int


class ResponseWriter:
    """The producing ends of one target's response rings."""

    def __init__(
        self,
        channel: RequestChannel,
        target: int,
        bells: tuple[EventBell, ...],
        run_dir: Path,
        has_ended: Callable[[int], bool] = lambda _: False,
    ) -> None:
        """Use ``has_ended`` to find processors that have ended for good, whose responses nobody reads."""
        self.view = channel.view
        self._channel = channel
        self._target = target
        self._has_ended = has_ended
        self.rings: list[RingProducer] = []
        self._claims: list[Callable[[int], int]] = []
        self._bells = bells
        self._kept: list[deque[tuple[bytes, bytes]]] = []
        #: Whether responses wait for room in any ring.
        self.are_waiting = False
        self.grow(channel.processors)
        self.touched: set[int] = set()
        self._largest_inline = self.rings[0].max_payload - _ENVELOPE_BYTES
        self._large_names = (run_dir / f"answer-{target}-{os.getpid()}-{n}" for n in count())
        self.errors = 0
        #: Returns the denial of a request (connection id, sequence) whose response has an error code.
        self.denial_of: Callable[[Identity, int], int] = _nothing_denied
        #: The last charged request and the throttle time of its response: no request is charged twice.
        self._charged: tuple[Request | None, int] = None, 0

    def grow(self, processors: int) -> None:
        """Open the rings to further processors, up to this number."""
        for processor in range(len(self.rings), processors):
            ring = self._channel.response_producer(processor, self._target)
            self.rings.append(ring)
            self._claims.append(ring.claim)
            self._kept.append(deque())

    def send(
        self, request: Request, local_ns: int, complete_ns: int, payload: bytes, facts: ResponseFacts = NO_FACTS
    ) -> None:
        """Send ``payload``, a complete response from its size prefix on."""
        if request.quotas is not None:
            facts = self._with_throttle_time(request, complete_ns, facts)
            if facts.throttle_ms:
                payload = with_throttle_time(request.api_key, request.api_version, payload, facts.throttle_ms)
        size = len(payload)
        if size > self._largest_inline:
            self.send_ranges(request, (local_ns, complete_ns), b"", [self._in_a_file(payload)], facts)
            return
        processor = request.processor
        if facts.error_code:
            self.errors += 1
        envelope = self._envelope(request, (local_ns, complete_ns), (SEND, size, 0, size), facts)
        if not self._kept[processor]:
            at = self._claims[processor](_ENVELOPE_BYTES + size)
            if at >= 0:
                middle = at + _ENVELOPE_BYTES
                self.view[at:middle] = envelope
                self.view[middle : middle + size] = payload
                self.touched.add(processor)
                return
        self._put(processor, envelope, payload)

    def spool(self) -> ResponseSpool:
        """Return a spool for a response of any length."""
        return ResponseSpool(next(self._large_names))

    def send_spooled(
        self, request: Request, local_ns: int, complete_ns: int, spool: ResponseSpool, facts: ResponseFacts = NO_FACTS
    ) -> None:
        """Send the contents of a spool: a complete response from its size prefix on. Raises OSError."""
        payload = spool.payload()
        if payload is not None:
            self.send(request, local_ns, complete_ns, payload, facts)
            return
        if request.quotas is not None:
            facts = self._with_throttle_time(request, complete_ns, facts)
            if facts.throttle_ms:
                spool.overwrite(
                    throttle_place(request.api_key, request.api_version, b""), throttle_time(facts.throttle_ms)
                )
        path = spool.finish()
        self.send_ranges(
            request, (local_ns, complete_ns), b"", [FileRange(0, bytes(path), ONE_RESPONSE, 0, spool.size)], facts
        )

    def try_repeat(self, request: Request, now_ns: int, payload: bytes, tail: bytes) -> bool:
        """Send a response without error again, under the correlation id of this request; False without room. HOT."""
        size = len(payload)
        at = self.try_begin(request, now_ns, size, NO_RECORDS, tail)
        if at < 0:
            return False
        self.view[at : at + size] = payload
        _pack_correlation_id(self.view, at + _CORRELATION_ID_AT, request.correlation_id)
        return True

    def try_begin(self, request: Request, now_ns: int, size: int, records: Records, tail: bytes) -> int:
        """Charge a request, and begin its response as `try_put` does; also -1 if it needs a throttle time. HOT."""
        quotas = request.quotas
        if quotas is None:
            return self.try_put(request, now_ns, size, records, tail)
        throttle_ms = 0
        if not self._kept[request.processor]:
            throttle_ms = quotas.record_response(request.api_key, request.size_bytes, now_ns)
            self._charged = request, throttle_ms
        return -1 if throttle_ms else self.try_put(request, now_ns, size, records, tail)

    def try_put(self, request: Request, now_ns: int, size: int, records: Records, tail: bytes) -> int:
        """Begin a response of ``size`` bytes, which the caller writes at the returned offset. HOT.

        Returns -1 if there is no room: then pass the bytes to ``send``, which queues them. Only for responses that are
        known to fit. ``tail`` is common to the requests of a connection (`request_facts.tail`).
        """
        processor = request.processor
        if self._kept[processor]:
            return -1
        record_count, record_bytes, codec = records
        at = self._claims[processor](_ENVELOPE_BYTES + size)
        if at < 0:
            return -1
        _pack_to_kind(
            self.view, at, request.connection_id, request.sequence, size, 0, SEND, request.received_ns,
            request.dequeued_ns, now_ns, now_ns, request.correlation_id, request.size_bytes, size, 0, record_count,
            codec, 0, record_bytes, 0, tail,
        )  # fmt: skip
        self.touched.add(processor)
        return at + _ENVELOPE_BYTES

    def try_ranges(
        self,
        request: Request,
        stamps: tuple[int, int],
        chunks: Sequence[bytes],
        ranges: Sequence[tuple[bytes, int, int, int, int]],
        facts: tuple[Records, bytes],
    ) -> bool:
        """Send byte ranges of files and the ``chunks`` around them without an error, if there is room. HOT.

        ``ranges`` are (path, inode, position, length, anything), one fewer than ``chunks``; ``stamps`` are those of
        `send_ranges`, which must be called after False; ``facts`` are the records and the ``tail`` of `try_put`.
        """
        processor = request.processor
        inline_bytes = wire_bytes = sum(map(len, chunks))
        rows, paths = [], []
        for before, (path, inode, position, length, _) in zip(chunks, ranges, strict=False):
            rows.append(_pack_range(len(before), inode, position, length, len(path)))
            paths.append(path)
            wire_bytes += length
        body = b"".join((*rows, *paths, *chunks))
        size = len(body)
        if size > MOST_ENVELOPE_BYTES or self._kept[processor]:
            return False
        at = self._claims[processor](_ENVELOPE_BYTES + size)
        if at < 0:
            return False
        (record_count, record_bytes, codec), tail = facts
        local_ns, complete_ns = stamps
        view = self.view
        _pack_to_kind(
            view, at, request.connection_id, request.sequence, inline_bytes, len(ranges), SEND, request.received_ns,
            request.dequeued_ns, local_ns, complete_ns, request.correlation_id, request.size_bytes, wire_bytes, 0,
            record_count, codec, 0, record_bytes, 0, tail,
        )  # fmt: skip
        at += _ENVELOPE_BYTES
        view[at : at + size] = body
        self.touched.add(processor)
        return True

    def note_charged(self, request: Request, throttle_ms: int) -> None:
        """Record that the next request to get a response is already charged, and its throttle time."""
        self._charged = request, throttle_ms

    def send_ranges(
        self,
        request: Request,
        stamps: tuple[int, int],
        inline: bytes,
        ranges: Sequence[FileRange],
        facts: ResponseFacts = NO_FACTS,
    ) -> None:
        """Send ``inline`` bytes interleaved with byte ranges of files; ``stamps``: (local, complete) in ns."""
        size = len(inline)
        rows, paths = [], []
        for inline_before, path, inode, position, length in ranges:
            rows.append(_pack_range(inline_before, inode, position, length, len(path)))
            paths.append(path)
            size += length
        body = b"".join((*rows, *paths, inline))
        if len(body) > self._largest_inline:
            raise ValueError(f"a response with {len(ranges)} file ranges has {len(body)} bytes of envelope")
        if facts.error_code:
            self.errors += 1
        self._put(
            request.processor, self._envelope(request, stamps, (SEND, len(inline), len(ranges), size), facts), body
        )

    def no_response(self, request: Request, local_ns: int, complete_ns: int, facts: ResponseFacts = NO_FACTS) -> None:
        """End a request that has no response on the wire (``C13``)."""
        quotas = request.quotas
        if quotas is not None:
            throttle_ms = quotas.produced_silently(request.size_bytes, complete_ns)
            facts = facts._replace(throttle_ms=throttle_ms, throttled_by=quotas.throttled_by if throttle_ms else 0)
        self._put(request.processor, self._envelope(request, (local_ns, complete_ns), (NO_OP, 0, 0, 0), facts), b"")

    def close_connection(self, request: Request, local_ns: int, facts: ResponseFacts = NO_FACTS) -> None:
        """Close the connection after the responses to its earlier requests are sent (``D12``)."""
        self._put(
            request.processor, self._envelope(request, (local_ns, local_ns), (CLOSE_CONNECTION, 0, 0, 0), facts), b""
        )

    def blocked(self, processor: int) -> bool:
        """Return whether responses to this processor wait for room in its ring."""
        return bool(self._kept[processor])

    def retry(self) -> None:
        """Move queued responses into rings that have room again."""
        for processor, kept in enumerate(self._kept):
            while kept and self._try_put(processor, *kept[0]):
                kept.popleft()
            if kept and self._has_ended(processor):
                kept.clear()
        self.are_waiting = any(self._kept)

    def publish(self) -> None:
        """Publish the batch. ``ring_bells`` must follow, after the requests are released."""
        for processor in self.touched:
            self.rings[processor].publish()

    def ring_bells(self) -> None:
        """Wake the processors that have responses."""
        for processor in self.touched:
            self._bells[processor].ring()
        self.touched.clear()

    def _throttle_ms(self, request: Request, quotas: ClientSensors, now_ns: int) -> int:
        """Charge a request whose response is sent now, unless it is charged already; return its throttle time."""
        charged, throttle_ms = self._charged
        if charged is not request:
            throttle_ms = quotas.record_response(request.api_key, request.size_bytes, now_ns)
            self._charged = request, throttle_ms
        return throttle_ms

    def _with_throttle_time(self, request: Request, now_ns: int, facts: ResponseFacts) -> ResponseFacts:
        """Return a response's facts with the throttle time for all quotas: the longest of them (``E14``)."""
        quotas = request.quotas
        throttle_ms = 0 if quotas is None else self._throttle_ms(request, quotas, now_ns)
        if quotas is None or throttle_ms <= facts.throttle_ms:
            return facts
        return facts._replace(throttle_ms=throttle_ms, throttled_by=quotas.throttled_by)

    def _envelope(
        self, request: Request, stamps: tuple[int, int], shape: tuple[int, int, int, int], facts: ResponseFacts
    ) -> bytes:
        """Return an envelope; ``shape`` is (kind, inline bytes, file ranges, bytes on the wire)."""
        kind, inline_bytes, ranges, wire_bytes = shape
        if facts.error_code and wire_bytes:
            kind += FAILED
        if facts.throttle_ms:
            kind += THROTTLED
        record_count, record_bytes, codec = facts.records
        denial = facts.denial or self.denial_of(request.identity, facts.error_code)
        return RESPONSE_TO_SUBJECT.pack(
            request.connection_id, request.sequence, inline_bytes, ranges, kind, request.received_ns,
            request.dequeued_ns, *stamps, request.correlation_id, request.size_bytes, wire_bytes, facts.throttle_ms,
            record_count, codec, facts.throttled_by, record_bytes, denial, request.api_key, request.api_version,
            self._target, facts.error_code, facts.about,
        )  # fmt: skip

    def _put(self, processor: int, envelope: bytes, body: bytes) -> None:
        if self._kept[processor] or not self._try_put(processor, envelope, body):
            self._kept[processor].append((envelope, body))
            self.are_waiting = True

    def _try_put(self, processor: int, envelope: bytes, body: bytes) -> bool:
        size = len(body)
        at = self._claims[processor](_ENVELOPE_BYTES + size)
        if at < 0:
            return False
        middle = at + _ENVELOPE_BYTES
        self.view[at:middle] = envelope
        self.view[middle : middle + size] = body
        self.touched.add(processor)
        return True

    def _in_a_file(self, payload: bytes) -> FileRange:
        """Write a response too large for a ring to a file, which its processor unlinks as it opens it."""
        path = next(self._large_names)
        path.write_bytes(payload)
        return FileRange(0, bytes(path), ONE_RESPONSE, 0, len(payload))


def with_correlation_id(payload: bytes, correlation_id: int) -> bytes:
    """Return a response under another correlation id."""
    before, after = _CORRELATION_ID_AT, _CORRELATION_ID_AT + 4
    return b"".join((payload[:before], correlation_id.to_bytes(4, "big", signed=True), payload[after:]))


def _nothing_denied(_identity: Identity, _error: int) -> int:
    return 0
