"""A partition's batch: its records and its result. HOT: the fast path.

Records are encoded into the batch's own buffer when they are appended, under the accumulator's lock. The I/O thread
closes it (header, codec, checksum), sends its memory, and completes it once for all of its records. Waiting for a
record means waiting for its batch; only records with a callback have a per-record cost on the I/O thread.

The fast path is a generator that receives values and yields futures, without the lock. One thread at a time can run it;
other threads get a ValueError, and closing it waits until it is suspended. Its state is in local variables, and the
common part of records is built once, as long as they have the same size and millisecond. Received records are counted
by the stored pieces, so that an exception between any two steps is safe.
"""

from __future__ import annotations

import threading
from collections.abc import Generator, Iterator
from itertools import count, repeat
from typing import Final, NamedTuple, TypeAlias

from rotunda.broker.client.producer.batches.record_layout import (
    MAX_RECORD_OVERHEAD,
    SMALLEST_RECORD_BYTES,
    records_alike,
)
from rotunda.broker.client.producer.config import Compression
from rotunda.broker.client.producer.futures import NO_TIMESTAMP, DeliveryCallback, ProduceResult, RecordFuture
from rotunda.broker.client.topic_partition import TopicPartition
from rotunda.broker.clock import Clock
from rotunda.broker.records.compression import compress
from rotunda.broker.records.record_batch import BATCH_HEADER_BYTES, TRANSACTIONAL_BIT, write_header
from rotunda.broker.records.record_reader import iterate_records
from rotunda.broker.records.record_writer import NO_HEADERS, encode_record, headers_bytes

NO_SEQUENCE: Final = -1
#: Pause that lets a thread inside the generator run.
_OTHERS_TURN_S: Final = 0.0001
#: Its `send` accepts bytes or a `TimedValue`, and returns the record's future.
Lane: TypeAlias = Generator[RecordFuture, object, None]
#: Raised by a lane if it is full, for another value type, and while another thread runs it.
NOT_OPEN: Final = (StopIteration, ValueError)


class TimedValue(NamedTuple):
    """A value with its timestamp or callback."""

    value: bytes
    timestamp_ms: int | None
    callback: DeliveryCallback | None


class _Alike(NamedTuple):
    """Records of one size and time: index of the first, its position, and the pieces.

    The pieces alternate between the bytes before a value and the value.
    """

    first: int
    start: int
    time_ms: int
    pieces: list[bytes]


_NOTHING_YET: Final = _Alike(0, 0, NO_TIMESTAMP, [])


class ProducerBatch(ProduceResult):
    """Records of one partition. `size_bytes` is the memory granted by the buffer pool."""

    __slots__ = (
        "_alike", "_base_timestamp_ms", "_compression", "_lane", "_leader_attempts", "_wire", "_wire_producer",
        "attempts", "backoff_ms", "base_sequence", "buffer", "created_ms", "current_leader_epoch", "drained_ms",
        "in_retry", "is_closed", "is_transactional", "lane_counted_bytes", "last_attempt_ms", "limit_bytes",
        "max_timestamp_ms", "pooled_bytes", "producer_epoch", "producer_id", "record_count",
    )  # fmt: skip

    def __init__(
        self, topic_partition: TopicPartition, size_bytes: int, now_ms: float, compression: Compression
    ) -> None:
        super().__init__(topic_partition)
        self.buffer = bytearray(BATCH_HEADER_BYTES)
        self.record_count = 0
        #: The maximum length of `buffer`; 0 once it is closed for appends.
        self.limit_bytes = size_bytes
        #: Bytes to return to the buffer pool.
        self.pooled_bytes = size_bytes
        #: The fast path while it is open, and its start position.
        self._lane: Lane | None = None
        self.lane_counted_bytes = 0
        self._alike = _NOTHING_YET
        self.created_ms = self.last_attempt_ms = self.drained_ms = now_ms
        self.attempts = 0
        self.backoff_ms = 0.0
        self.in_retry = self.is_closed = self.is_transactional = False
        self.current_leader_epoch = -1
        self._leader_attempts = 0
        self.producer_id = self.producer_epoch = -1
        self.base_sequence = NO_SEQUENCE
        self._compression = compression
        self._base_timestamp_ms = self.max_timestamp_ms = NO_TIMESTAMP
        self._wire: bytearray | None = None
        self._wire_producer: tuple[int, int, int] | None = None

    # Appending, under the accumulator's lock.

    def try_append(
        self,
        timestamp_ms: int,
        key: bytes | None,
        value: bytes | None,
        headers: bytes,
        callback: DeliveryCallback | None,
    ) -> RecordFuture | None:
        """Append a record, or return None if it does not fit: only a first record may exceed the limit."""
        count = self.record_count
        least = SMALLEST_RECORD_BYTES if value is None else SMALLEST_RECORD_BYTES + len(value)
        if count and len(self.buffer) + least > self.limit_bytes:
            return None  # without encoding it
        record = encode_record(count, key, value, headers, self._timestamp_delta(timestamp_ms))
        if count and len(self.buffer) + len(record) > self.limit_bytes:
            return None
        self.buffer += record
        self.record_count = count + 1
        self.max_timestamp_ms = max(self.max_timestamp_ms, timestamp_ms)
        place = (self, timestamp_ms, -1 if key is None else len(key), -1 if value is None else len(value))
        future = RecordFuture((place, count))
        if callback is not None:
            self._callbacks.append((count, future, callback))
        return future

    def _timestamp_delta(self, timestamp_ms: int) -> int:
        """Return the timestamp delta of a record; the first record sets the batch's base timestamp."""
        if not self.record_count:
            self._base_timestamp_ms = self.max_timestamp_ms = timestamp_ms
        return timestamp_ms - self._base_timestamp_ms

    def open_lane(self, most_bytes: int, clock: Clock) -> Lane:
        """Open the fast path for up to `most_bytes` more bytes, counted from here."""
        self.lane_counted_bytes = len(self.buffer)
        self._lane = self._short_way(min(self.limit_bytes, len(self.buffer) + most_bytes), clock)
        next(self._lane)
        return self._lane

    def close_lane(self) -> int:
        """Close the fast path; return the number of bytes appended by it. It must be unreachable for other threads."""
        while self._lane is not None:
            try:
                self._lane.close()
                self._lane = None
            except ValueError:
                # A thread inside the generator was preempted by this one.
                threading.Event().wait(_OTHERS_TURN_S)
        self._settle()
        return len(self.buffer) - self.lane_counted_bytes

    def _short_way(self, limit_bytes: int, clock: Clock) -> Lane:
        """Receive values; they are appended when the size or time changes, or by `close_lane`."""
        wall_s = clock.wall_s
        records: Iterator[tuple[bytes, RecordFuture]]
        size = time_ms = -1
        value = yield RecordFuture()  # not returned to a caller: for `next`
        while True:
            given_ms = callback = None
            if type(value) is TimedValue:
                value, given_ms, callback = value
            if type(value) is not bytes:
                return
            now_ms = clock.wall_ms() if given_ms is None else given_ms
            if len(value) != size or now_ms != time_ms:
                self._settle()
                records = self._records_alike(len(value), now_ms, limit_bytes)
                first = next(records, None)
                if first is None:
                    return
                add, size, time_ms = self._alike.pieces.append, len(value), now_ms
                since_s, until_s = (now_ms / 1000, (now_ms + 1) / 1000) if given_ms is None else (0.0, 0.0)
                between, future = first
                between = between[len(NO_HEADERS) :]
            add(between)
            add(value)
            if callback is not None:
                self._callbacks.append((future[1], future, callback))
            value = yield future
            for between, future in records:
                if type(value) is not bytes or len(value) != size or not since_s <= wall_s() < until_s:
                    break
                add(between)
                add(value)
                value = yield future
            else:
                size = -1

    def _records_alike(self, size: int, time_ms: int, limit_bytes: int) -> Iterator[tuple[bytes, RecordFuture]]:
        """Return, for each record that fits, the bytes before its value, and its future."""
        first, start = self.record_count, len(self.buffer)
        room_bytes = limit_bytes - MAX_RECORD_OVERHEAD - start - size
        between = records_alike(self._timestamp_delta(time_ms), first, size, room_bytes)
        futures = map(RecordFuture, zip(repeat((self, time_ms, -1, size)), count(first), strict=False))
        self._alike = _Alike(first, start, time_ms, [])
        return zip(between, futures, strict=False)

    def _settle(self) -> None:
        """Append the records received by the fast path, complete ones only.

        If an exception interrupts this, the next call repeats it; completed steps have no further effect.
        """
        first, start, time_ms, pieces = self._alike
        records = len(pieces) // 2
        if records:
            del pieces[2 * records :]
            pieces.append(NO_HEADERS)
            self.buffer[start:] = b"".join(pieces)
            self.record_count = first + records
            self.max_timestamp_ms = max(self.max_timestamp_ms, time_ms)
            pieces.clear()

    def close_for_appends(self) -> None:
        self.limit_bytes = 0

    @property
    def is_full(self) -> bool:
        """Whether no more records should be appended."""
        return len(self.buffer) + MAX_RECORD_OVERHEAD > self.limit_bytes

    @property
    def estimated_size_bytes(self) -> int:
        """Size in a request: exact once it is closed."""
        return len(self._wire) if self._wire is not None else len(self.buffer)

    # Sending.

    @property
    def has_sequence(self) -> bool:
        return self.base_sequence != NO_SEQUENCE

    @property
    def last_sequence(self) -> int:
        """The sequence of its last record, with wrap-around to 0."""
        return (self.base_sequence + self.record_count - 1) & 0x7FFF_FFFF

    @property
    def compression_ratio(self) -> float:
        """Compressed size relative to uncompressed size."""
        if not self._compression.codec:
            return 1.0
        records = len(self.buffer) - BATCH_HEADER_BYTES
        return (self.estimated_size_bytes - BATCH_HEADER_BYTES) / records if records else 1.0

    def set_producer_state(
        self, producer_id: int, producer_epoch: int, base_sequence: int, is_transactional: bool
    ) -> None:
        self.producer_id, self.producer_epoch, self.base_sequence = producer_id, producer_epoch, base_sequence
        self.is_transactional = is_transactional

    def reset_producer_state(self, producer_id_and_epoch: tuple[int, int], base_sequence: int) -> None:
        """Change the producer state of a closed batch: its header is rewritten before the next send."""
        self.set_producer_state(*producer_id_and_epoch, base_sequence, self.is_transactional)

    @property
    def sequence_has_been_reset(self) -> bool:
        written = self._wire_producer
        return written is not None and written != (self.producer_id, self.producer_epoch, self.base_sequence)

    def close(self) -> memoryview:
        """Return the batch's wire bytes. They stay unchanged until the producer's state changes."""
        self.close_for_appends()
        self.is_closed = True
        codec, level = self._compression
        if self._wire is None:
            self._wire = self.buffer
            if codec:
                packed = compress(codec, memoryview(self.buffer)[BATCH_HEADER_BYTES:], level)
                self._wire = bytearray(BATCH_HEADER_BYTES) + packed
        producer = (self.producer_id, self.producer_epoch, self.base_sequence)
        if producer != self._wire_producer:
            if self._wire_producer is not None:
                self._wire = bytearray(self._wire)  # an earlier request may still be in flight
            attributes = codec | (TRANSACTIONAL_BIT if self.is_transactional else 0)
            times_ms = (self._base_timestamp_ms, self.max_timestamp_ms)
            write_header(self._wire, attributes, self.record_count, times_ms, producer)
            self._wire_producer = producer
        return memoryview(self._wire)

    def release(self) -> None:
        """Free the records' memory: they are acknowledged, or will not be sent."""
        self.buffer = bytearray()
        self._wire = None

    @property
    def records(self) -> memoryview:
        return self.close()

    def drained(self, now_ms: float) -> None:
        self.drained_ms = max(self.drained_ms, now_ms)

    def reenqueued(self, now_ms: float, backoff_ms: float) -> None:
        """Record a retry, not before `backoff_ms` have passed."""
        self.attempts += 1
        self.last_attempt_ms = max(now_ms, self.last_attempt_ms)
        self.backoff_ms = backoff_ms
        self.in_retry = True

    def waited_ms(self, now_ms: float) -> float:
        """Return the time since it was created or last attempted."""
        return max(0.0, now_ms - self.last_attempt_ms)

    def has_reached_delivery_timeout(self, delivery_timeout_ms: float, now_ms: float) -> bool:
        """Return whether the batch is older than the delivery timeout (G27)."""
        return delivery_timeout_ms <= now_ms - self.created_ms

    def maybe_update_leader_epoch(self, leader_epoch: int | None) -> None:
        """Update the partition's leader epoch and the attempt at which it changed (G19)."""
        if leader_epoch is not None and leader_epoch > self.current_leader_epoch:
            self._leader_attempts = self.attempts
            self.current_leader_epoch = leader_epoch

    @property
    def has_new_leader(self) -> bool:
        """Whether this is a retry and the first attempt with the current leader, which needs no backoff."""
        return 0 < self.attempts == self._leader_attempts

    # Too large for the broker.

    def split(self, size_bytes: int) -> list[ProducerBatch]:
        """Return batches of up to `size_bytes` with the same records; they inherit the waiters (G26)."""
        parts: list[tuple[int, ProducerBatch]] = []
        first, part = 0, self._part(size_bytes)
        for index, record in enumerate(iterate_records(self.close(), len(self.buffer))):
            fields = record.timestamp_ms, record.key, record.value, headers_bytes(record.headers), None
            if part.try_append(*fields) is None:
                parts.append((first, part))
                first, part = index, self._part(size_bytes)
                part.try_append(*fields)
        parts.append((first, part))
        sequence = self.base_sequence
        for _, part in parts:
            part.close_for_appends()
            if self.has_sequence:
                part.set_producer_state(self.producer_id, self.producer_epoch, sequence, self.is_transactional)
                sequence = (sequence + part.record_count) & 0x7FFF_FFFF
        self.hand_over(parts)
        return [part for _, part in parts]

    def _part(self, size_bytes: int) -> ProducerBatch:
        part = ProducerBatch(self.topic_partition, size_bytes, self.created_ms, self._compression)
        part.pooled_bytes = 0
        return part
