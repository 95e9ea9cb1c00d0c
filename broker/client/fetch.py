"""Fetch requests without a session, and the consumer-visible batches of their responses.

Visible batches are complete, not markers, and not aborted: the rule of Kafka's consumers for isolation level
read_committed. Used by the commands.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from rotunda.broker.client.network.blocking_client import check
from rotunda.broker.errors import ApiError
from rotunda.broker.protocol.api_keys import ApiKey
from rotunda.broker.protocol.record_reader import iterate_records
from rotunda.broker.protocol.records import LOG_OVERHEAD_BYTES, BatchHeader, read_header

if TYPE_CHECKING:
    from rotunda.broker.client.network.blocking_client import BlockingClient
    from rotunda.broker.client.topic_partition import TopicPartition

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
