"""Fetches records of partitions from their leaders, from given offsets on, without fetch sessions.

Used by the commands. Returned records are checked: batch checksums, and visibility under read_committed, the rule of
Kafka's consumers. If a leader moved or is unreachable, the lookup is retried for a while. If an offset no longer
exists, that is reported, and reading resumes at the next one.
"""

from __future__ import annotations

import select
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from rotunda.broker.client.admin.offsets import bounds
from rotunda.broker.client.network.blocking_client import BlockingClient, ConnectionFailed, check
from rotunda.broker.client.topic_partition import TopicPartition
from rotunda.broker.errors import ApiError
from rotunda.broker.protocol.api_keys import ApiKey
from rotunda.broker.protocol.error_codes import ErrorCode
from rotunda.broker.records.record_batch import LOG_OVERHEAD_BYTES, BatchHeader, crc_ok, read_header
from rotunda.broker.records.record_reader import Record, iterate_records

if TYPE_CHECKING:
    from rotunda.broker.clock import Clock

_NEWEST_BY_NAME: Final = 12
_OLDEST: Final = 4
_ABORT_MARKER: Final = 0


class FetchLimits(NamedTuple):
    """Maximum wait, minimum bytes to wait for, and maximum response sizes in bytes."""

    max_wait_ms: int
    min_bytes: int
    max_bytes: int
    partition_max_bytes: int


def fetch(
    client: BlockingClient,
    positions: Mapping[TopicPartition, int],
    limits: FetchLimits,
    *,
    read_committed: bool,
    node_id: int | None = None,
) -> Any:
    """Fetch these partitions from these offsets, in this order, and return the response. Raises ApiError."""
    topics: dict[str, list[dict[str, int]]] = {}
    for (topic, partition), offset in positions.items():
        wanted = {"partition": partition, "fetch_offset": offset, "partition_max_bytes": limits.partition_max_bytes}
        topics.setdefault(topic, []).append(wanted)
    fields = {
        "max_wait_ms": limits.max_wait_ms,
        "min_bytes": limits.min_bytes,
        "max_bytes": limits.max_bytes,
        "isolation_level": int(read_committed),
        "session_epoch": -1,
        "topics": [{"topic": topic, "partitions": asked} for topic, asked in topics.items()],
    }
    response = client.request(ApiKey.FETCH, fields, _NEWEST_BY_NAME, _OLDEST, node_id=node_id)
    check(response)
    return response


def whole_batches(records: memoryview) -> Iterator[tuple[BatchHeader, memoryview]]:
    """Yield the complete batches; a response may end within a batch."""
    offset = 0
    while (header := read_header(records, offset)) is not None:
        size = header.size_bytes
        if size <= LOG_OVERHEAD_BYTES or size > len(records) - offset:
            return
        yield header, records[offset : offset + size]
        offset += size


class AbortedTransactions:
    """Tracks aborted transactions while a partition's batches are examined in order.

    `transactions` are those of the partition's response; empty for isolation level read_uncommitted.
    """

    def __init__(self, transactions: Any) -> None:
        self._ahead = sorted(((int(each.first_offset), int(each.producer_id)) for each in transactions), reverse=True)
        self._open: set[int] = set()

    def hides(self, header: BatchHeader, batch: memoryview) -> bool:
        """Return whether a batch is invisible to consumers: a marker, or part of an aborted transaction."""
        while self._ahead and self._ahead[-1][0] <= header.last_offset:
            self._open.add(self._ahead.pop()[1])
        if header.is_control and _is_abort(batch):
            self._open.discard(header.producer_id)
        return header.is_control or (header.is_transactional and header.producer_id in self._open)


def _is_abort(marker: memoryview) -> bool:
    try:
        key = next((record.key for record in iterate_records(marker)), None)
    except ApiError:
        return False
    return key is not None and int.from_bytes(key[2:4], "big") == _ABORT_MARKER


def check_crc(partition: TopicPartition, header: BatchHeader, batch: memoryview) -> None:
    """Raise ApiError if a batch's checksum is wrong."""
    if not crc_ok(batch, header):
        where = f"{partition.topic}-{partition.partition} at offset {header.base_offset}"
        raise ApiError(ErrorCode.CORRUPT_MESSAGE, f"corrupt batch of {where}: wrong checksum")


_PARTITION_BYTES: Final = 1 << 20
_PAUSE_S: Final = 0.1
_MOVED: Final = frozenset(
    {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.REPLICA_NOT_AVAILABLE,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.OFFSET_NOT_AVAILABLE,
    }
)
"""Errors after which the partition is looked up again: it has moved, or is new."""


class FetchBounds(NamedTuple):
    """Maximum sizes of a response and of an uncompressed batch, and the time for which lookups are retried.

    An unreadable batch ends the reading, or is skipped with a note.
    """

    response_bytes: int = 50 << 20
    uncompressed_bytes: int = 1 << 30
    patience_ns: int = 30_000_000_000
    skips_unreadable: bool = False


USUAL_BOUNDS: Final = FetchBounds()


class Fetched(NamedTuple):
    """A record and its source. `is_log_append_time`: the broker set its timestamp."""

    partition: TopicPartition
    leader_id: int
    is_log_append_time: bool
    record: Record


class Fetcher:
    """Reads partitions from `positions`, which it advances, up to their `ends`, if set.

    Partitions may be added and removed between fetches. One that reached its end, or a record of `until_ms`, is moved
    to `finished`.
    """

    def __init__(
        self,
        client: BlockingClient,
        clock: Clock,
        note: Callable[[str], None],
        *,
        read_committed: bool,
        until_ms: int | None = None,
        within: FetchBounds = USUAL_BOUNDS,
    ) -> None:
        self._within = within
        self._client = client
        self._clock = clock
        self._note = note
        self._read_committed = read_committed
        self._until_ms = until_ms
        self._turn = 0
        self._failing_since_ns: int | None = None
        #: The next offset of each partition being read.
        self.positions: dict[TopicPartition, int] = {}
        #: The exclusive end offset of each bounded partition.
        self.ends: dict[TopicPartition, int] = {}
        #: The end offsets of finished partitions.
        self.finished: dict[TopicPartition, int] = {}

    def begin(self, partition: TopicPartition, start: int, end: int | None) -> None:
        """Read a partition from `start` to below `end`; without limit if that is None."""
        self.positions[partition] = start
        if end is not None:
            self.ends[partition] = end
            self._finish_at_end(partition)

    def forget(self) -> None:
        for each in (self.positions, self.ends, self.finished):
            each.clear()

    def fetch(self, max_wait_ms: int) -> Iterator[Fetched]:
        """Yield the records of one fetch from each leader, and advance the positions past them.

        Raises ApiError for permanent errors, and ConnectionFailed if brokers stay unreachable.
        """
        by_leader: dict[int, list[TopicPartition]] = {}
        try:
            for partition in self._in_turn():
                by_leader.setdefault(self._leader(partition), []).append(partition)
            for leader_id, partitions in by_leader.items():
                positions = {each: self.positions[each] for each in partitions}
                limits = FetchLimits(max_wait_ms // len(by_leader), 1, self._within.response_bytes, _PARTITION_BYTES)
                response = fetch(
                    self._client, positions, limits, read_committed=self._read_committed, node_id=leader_id
                )
                yield from self._fetched(leader_id, response)
                self._finish_what_is_empty(partitions[0], response)
            self._failing_since_ns = None
        except ConnectionFailed as failure:
            self._look_again(failure)
        except ApiError as error:
            if error.code not in _MOVED:
                raise
            self._look_again(error)

    def _in_turn(self) -> list[TopicPartition]:
        """Return the partitions, rotated by one each time: only the first is guaranteed a whole batch."""
        partitions = sorted(self.positions)
        self._turn = (self._turn + 1) % max(1, len(partitions))
        return partitions[self._turn :] + partitions[: self._turn]

    def _leader(self, partition: TopicPartition) -> int:
        leader_id = self._client.leaders.get(partition)
        if leader_id is None:
            raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"{partition.topic}-{partition.partition} was deleted")
        return leader_id

    def _fetched(self, leader_id: int, response: Any) -> Iterator[Fetched]:
        for topic in response.responses:
            for each in topic.partitions:
                partition = TopicPartition(str(topic.topic), int(each.partition_index))
                code = int(each.error_code)
                if code == ErrorCode.OFFSET_OUT_OF_RANGE:
                    self._go_on_inside(partition)
                elif code:
                    raise ApiError(code, f"{partition.topic}-{partition.partition}")
                else:
                    yield from self._records(partition, leader_id, each)

    def _records(self, partition: TopicPartition, leader_id: int, response: Any) -> Iterator[Fetched]:
        aborted = AbortedTransactions(response.aborted_transactions or () if self._read_committed else ())
        for header, batch in whole_batches(memoryview(response.records or b"")):
            if partition not in self.positions:
                return
            if header.last_offset < self.positions[partition]:
                continue
            try:
                check_crc(partition, header, batch)
                if not aborted.hides(header, batch):
                    for record in self._wanted(partition, batch):
                        yield Fetched(partition, leader_id, header.is_log_append_time, record)
            except ApiError as error:
                if not self._within.skips_unreadable:
                    raise
                self._note(f"offsets {header.base_offset} to {header.last_offset} are unreadable: {error.message}")
            if partition in self.positions:
                self.positions[partition] = header.last_offset + 1
                self._finish_at_end(partition)

    def _wanted(self, partition: TopicPartition, batch: memoryview) -> Iterator[Record]:
        """Yield the records of a batch from the partition's position up to its end."""
        position = self.positions[partition]
        end = self.ends.get(partition)
        for record in iterate_records(batch, self._within.uncompressed_bytes):
            if record.offset < position:
                continue
            if end is not None and record.offset >= end:
                self._finish(partition, end)
                return
            if self._until_ms is not None and record.timestamp_ms >= self._until_ms:
                self._finish(partition, record.offset)
                return
            self.positions[partition] = record.offset + 1
            yield record

    def _finish_at_end(self, partition: TopicPartition) -> None:
        end = self.ends.get(partition)
        if end is not None and self.positions[partition] >= end:
            self._finish(partition, end)

    def _finish_what_is_empty(self, partition: TopicPartition, response: Any) -> None:
        """Finish the first requested partition if no batches remain up to its end: compaction may remove them."""
        for topic in response.responses:
            for each in topic.partitions:
                named = TopicPartition(str(topic.topic), int(each.partition_index))
                if named != partition or named not in self.positions or named not in self.ends:
                    continue
                if not int(each.error_code) and not each.records and int(each.high_watermark) >= self.ends[named]:
                    self._finish(named, self.ends[named])

    def _finish(self, partition: TopicPartition, offset: int) -> None:
        self.finished[partition] = offset
        del self.positions[partition]

    def _go_on_inside(self, partition: TopicPartition) -> None:
        """Resume at the oldest record if older ones were deleted, or at the end if the log is shorter."""
        was = self.positions[partition]
        held = bounds(self._client, [partition], self._client.leaders[partition])[partition]
        inside = held.start if was < held.start else min(was, held.end)
        self.positions[partition] = inside
        where = f"{partition.topic}-{partition.partition}"
        self._note(f"{where} has no offset {was}, only {held.start} to below {held.end}; continuing at {inside}")

    def _look_again(self, problem: Exception) -> None:
        """Pause and refresh the leaders; raise the problem if it has persisted."""
        now_ns = self._clock.monotonic_ns()
        if self._failing_since_ns is None:
            self._failing_since_ns = now_ns
        elif now_ns - self._failing_since_ns > self._within.patience_ns:
            raise problem
        select.select((), (), (), _PAUSE_S)
        try:
            self._client.look({each.topic for each in self.positions})
        except ConnectionFailed:
            return
