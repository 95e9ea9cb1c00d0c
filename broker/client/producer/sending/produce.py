"""Produce, versions 3-13: its request, and the results of sent batches (acknowledge, retry, split, fail, expire).

Runs on the I/O thread. A request is a list of buffers that alternates a few encoded bytes with a batch's own memory. It
is sent by one `sendmsg` without joining, so batch memory must not change until the response is received. A response for
a batch that was already failed changes at most its sequences. The second half of Kafka's Sender. HOT: once per node and
drain.
"""

from __future__ import annotations

import logging
import math
import struct
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple
from uuid import UUID

from rotunda.broker.client.errors import (
    ClusterAuthorizationFailed,
    DeliveryTimeout,
    InvalidMetadata,
    InvalidRecord,
    KafkaError,
    TopicAuthorizationFailed,
    error_of,
)
from rotunda.broker.client.network.metadata import LeaderIdAndEpoch, ProducerMetadata
from rotunda.broker.client.network.requests import ClientResponse
from rotunda.broker.client.network.snapshot import Node
from rotunda.broker.client.producer.batches.producer_batch import ProducerBatch
from rotunda.broker.client.producer.futures import NO_TIMESTAMP
from rotunda.broker.client.producer.metrics import ProducerMetrics
from rotunda.broker.client.producer.sending.record_accumulator import RecordAccumulator
from rotunda.broker.client.producer.transactions.batch_sequences import Outcome
from rotunda.broker.client.producer.transactions.transaction_manager import TransactionManager
from rotunda.broker.client.topic_partition import TopicPartition
from rotunda.broker.protocol.api_keys import ApiKey
from rotunda.broker.protocol.error_codes import ErrorCode
from rotunda.broker.protocol.headers import request_header
from rotunda.broker.protocol.primitives import (
    INT32,
    ZERO_TOPIC_ID,
    Buffer,
    compact_nullable_string_bytes,
    compact_string_bytes,
    nullable_string_bytes,
    string_bytes,
    unsigned_varint_bytes,
)

OLDEST_VERSION: Final = 3
"""The first version with record batches of format 2."""
NEWEST_VERSION: Final = 13
NEWEST_OF_TRANSACTION_V1: Final = 11
"""From 12 on a Produce adds its partitions to the transaction (KIP-890)."""
NEWEST_WITH_NAMES: Final = 12
"""Version 13 has topic ids only."""
_FLEXIBLE_FROM: Final = 9
_TOPIC_ID_FROM: Final = 13

_ACKS_TIMEOUT: Final = struct.Struct(">hi")
_pack_int32 = INT32.pack


class Part(NamedTuple):
    """A partition's batch in a request. `topic_id` is 16 zero bytes if unknown."""

    topic: str
    topic_id: bytes
    partition: int
    records: Buffer


def newest_version(parts: Iterable[Part], transactional_v1: bool) -> int:
    """Return the newest usable version: with topic ids only if all are known (KIP-516), limited by KIP-890."""
    if transactional_v1:
        return NEWEST_OF_TRANSACTION_V1
    return NEWEST_VERSION if all(part.topic_id != ZERO_TOPIC_ID for part in parts) else NEWEST_WITH_NAMES


def encode_produce(
    version: int,
    correlation_id: int,
    client_id: str,
    transactional_id: str | None,
    acks: int,
    timeout_ms: int,
    parts: Sequence[Part],
) -> list[Buffer]:
    """Return the request's buffers, including the size prefix. The batches' memory is included without copying."""
    text, nullable, no_tags = string_bytes, nullable_string_bytes, b""
    count: Callable[[int], bytes] = _pack_int32
    if version >= _FLEXIBLE_FROM:
        text, nullable, no_tags = compact_string_bytes, compact_nullable_string_bytes, b"\x00"
        count = _compact_count
    topics: dict[str, list[Part]] = {}
    for part in parts:
        topics.setdefault(part.topic, []).append(part)
    buffers: list[Buffer] = []
    pending = request_header(ApiKey.PRODUCE, version, correlation_id, client_id)
    pending += nullable(transactional_id) + _ACKS_TIMEOUT.pack(acks, timeout_ms) + count(len(topics))
    for topic, own in topics.items():
        pending += own[0].topic_id if version >= _TOPIC_ID_FROM else text(topic)
        pending += count(len(own))
        for part in own:
            buffers += pending + _pack_int32(part.partition) + count(len(part.records)), part.records
            pending = no_tags
        pending += no_tags
    pending += no_tags
    if pending:
        buffers.append(pending)
    buffers[0] = _pack_int32(sum(map(len, buffers))) + bytes(buffers[0])
    return buffers


def _compact_count(count: int) -> bytes:
    return unsigned_varint_bytes(count + 1)


_LOG = logging.getLogger(__name__)


class ProduceResponses:
    """The batches in flight, and the handling of their responses."""

    def __init__(
        self,
        accumulator: RecordAccumulator,
        metadata: ProducerMetadata,
        transaction_manager: TransactionManager | None,
        metrics: ProducerMetrics,
        *,
        retries: int,
        guarantees_message_order: bool,
    ) -> None:
        self._accumulator = accumulator
        self._metadata = metadata
        self._transactions = transaction_manager
        self._metrics = metrics
        self._retries = retries
        self._guarantees_message_order = guarantees_message_order
        self._in_flight: dict[TopicPartition, list[ProducerBatch]] = {}
        self._next_expiry_ms = -math.inf

    def sent(self, batches: Iterable[ProducerBatch]) -> None:
        for batch in batches:
            self._in_flight.setdefault(batch.topic_partition, []).append(batch)

    def forget(self) -> None:
        """Clear the batches in flight: all were aborted."""
        self._in_flight.clear()

    def expire(self, now_ms: float) -> float:
        """Fail batches older than `delivery.timeout.ms`, queued or in flight (`G27`).

        Return the milliseconds until the next call. Batches are only examined once the first of them may expire.
        """
        if now_ms >= self._next_expiry_ms:
            accumulator = self._accumulator
            accumulator.reset_next_batch_expiry_time()
            in_flight = self._expired_in_flight(now_ms)
            for batch in accumulator.expired_batches(now_ms):
                self._expire(batch, now_ms, batch.in_retry)
            for batch in in_flight:
                self._expire(batch, now_ms, was_sent=True)
            # Batches created after this expire later.
            self._next_expiry_ms = min(accumulator.next_expiry_time_ms(), now_ms + accumulator.delivery_timeout_ms)
        return self._next_expiry_ms - now_ms

    def _expired_in_flight(self, now_ms: float) -> list[ProducerBatch]:
        expired = []
        for batches in self._in_flight.values():
            for batch in batches:
                if batch.has_reached_delivery_timeout(self._accumulator.delivery_timeout_ms, now_ms):
                    expired.append(batch)
                else:
                    self._accumulator.maybe_update_next_batch_expiry_time(batch)
        return expired

    def _expire(self, batch: ProducerBatch, now_ms: float, was_sent: bool) -> None:
        what = "was sent, and not acknowledged" if was_sent else "was not sent"
        text = f"{batch.record_count} records of {batch.topic_partition} have expired after"
        self._fail(batch, DeliveryTimeout(f"{text} {now_ms - batch.created_ms:.0f} ms: their batch {what}"), {}, False)
        if self._transactions is not None and was_sent:
            # The broker may or may not have appended it: no new batch may be sent before those in flight have
            # responses.
            self._transactions.mark_sequence_unresolved(batch)

    def handle(
        self,
        response: ClientResponse,
        batches: Mapping[TopicPartition, ProducerBatch],
        topic_names: Mapping[UUID, str],
        now_ms: float,
    ) -> None:
        """Handle a response. `topic_names` are as of the request: a topic may have been recreated since."""
        if response.timed_out or response.disconnected:
            code = ErrorCode.REQUEST_TIMED_OUT if response.timed_out else ErrorCode.NETWORK_EXCEPTION
            how = "timed out after request.timeout.ms" if response.timed_out else "the connection was closed"
            lost = Outcome(error_code=code, error_message=f"no response of node {response.node_id}: {how}")
            self._handle_all(lost, batches, now_ms)
        elif response.version_mismatch is not None:
            text = str(response.version_mismatch)
            self._handle_all(Outcome(error_code=ErrorCode.UNSUPPORTED_VERSION, error_message=text), batches, now_ms)
        elif response.body is None:
            self._handle_all(Outcome(), batches, now_ms)  # acks=0: sent completely, no response expected
        else:
            self._handle_answer(response.body, batches, topic_names, now_ms)
            self._metrics.record_latency(response.node_id, response.latency_ms)
            self._metrics.record_throttle(response.body.throttle_time_ms)

    def _handle_all(self, outcome: Outcome, batches: Mapping[TopicPartition, ProducerBatch], now_ms: float) -> None:
        for batch in batches.values():
            self._complete(batch, outcome, now_ms)

    def _handle_answer(
        self,
        response: Any,
        batches: Mapping[TopicPartition, ProducerBatch],
        topic_names: Mapping[UUID, str],
        now_ms: float,
    ) -> None:
        leaders: dict[tuple[str, int], LeaderIdAndEpoch] = {}
        left = dict(batches)
        for topic in response.responses:
            name = topic.name or topic_names.get(UUID(bytes=topic.topic_id), "")
            for each in topic.partition_responses:
                batch = left.pop(TopicPartition(name, each.index), None)
                if batch is None:
                    _LOG.error("response for partition %s of '%s', which was not in the request", each.index, name)
                    continue
                self._complete(batch, _outcome(each), now_ms)
                leader = each.current_leader
                if leader.leader_id >= 0 and leader.leader_epoch >= 0:
                    leaders[batch.topic_partition] = LeaderIdAndEpoch(leader.leader_id, leader.leader_epoch)
        if left:
            text = "the response does not contain this partition"
            self._handle_all(Outcome(error_code=ErrorCode.NETWORK_EXCEPTION, error_message=text), left, now_ms)
        if leaders:
            self._metadata.update_partition_leadership(leaders, _nodes(response))

    def _complete(self, batch: ProducerBatch, outcome: Outcome, now_ms: float) -> None:
        """Handle a batch's result (`G26`)."""
        code = outcome.error_code
        if code == ErrorCode.NONE:
            self._succeed(batch, outcome)
        elif code == ErrorCode.MESSAGE_TOO_LARGE and batch.record_count > 1 and not batch.is_done:
            self._split(batch)
        else:
            error = error_of(code, outcome.error_message)
            if self._can_retry(batch, outcome, error, now_ms):
                _LOG.warning("Retrying a batch of %s: %s", batch.topic_partition, error)
                self._reenqueue(batch, now_ms)
            elif code == ErrorCode.DUPLICATE_SEQUENCE_NUMBER:
                # The broker appended the batch so long ago that its offset is no longer known.
                self._succeed(batch, outcome._replace(base_offset=-1, log_append_time_ms=-1))
            else:
                # If retries remain, the broker rejected the batch itself, and its sequences are free.
                self._fail_all(batch, outcome, error, adjust_sequences=batch.attempts < self._retries)
            if isinstance(error, InvalidMetadata):
                self._metadata.request_update()
        if self._guarantees_message_order:
            self._accumulator.unmute_partition(batch.topic_partition)

    def _can_retry(self, batch: ProducerBatch, outcome: Outcome, error: KafkaError, now_ms: float) -> bool:
        """Return whether a batch can be retried; may change its sequences."""
        if batch.is_done or batch.attempts >= self._retries:
            return False
        if batch.has_reached_delivery_timeout(self._accumulator.delivery_timeout_ms, now_ms):
            return False
        return error.retriable if self._transactions is None else self._transactions.can_retry(outcome, batch)

    def _succeed(self, batch: ProducerBatch, outcome: Outcome) -> None:
        if self._transactions is not None:
            self._transactions.handle_completed_batch(batch, outcome)
        append_time_ms = outcome.log_append_time_ms
        if batch.in_retry and append_time_ms == batch.max_timestamp_ms:
            # Kafka answers a batch that it has already appended with the batch's largest timestamp (G26).
            append_time_ms = NO_TIMESTAMP
        if batch.done(outcome.base_offset, append_time_ms):
            self._remove(batch)

    def _split(self, batch: ProducerBatch) -> None:
        """Split a batch that is too large for the broker and queue its parts. Does not count as a retry."""
        _LOG.warning("A batch of %s is too large for the broker and is split", batch.topic_partition)
        if self._transactions is not None:
            self._transactions.remove_in_flight_batch(batch)
        self._accumulator.split_and_reenqueue(batch)
        self._remove(batch)
        self._metrics.record_split()

    def _reenqueue(self, batch: ProducerBatch, now_ms: float) -> None:
        self._accumulator.reenqueue(batch, now_ms)
        self._remove_from_in_flight(batch)
        self._metrics.record_retries(batch.topic_partition.topic, batch.record_count)

    def _fail_all(self, batch: ProducerBatch, outcome: Outcome, error: KafkaError, adjust_sequences: bool) -> None:
        """Fail a batch; records named in the response get their own errors (KIP-467)."""
        if outcome.error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED:
            error = TopicAuthorizationFailed(f"the user may not write to the topic '{batch.topic_partition.topic}'")
        elif outcome.error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED:
            error = ClusterAuthorizationFailed("the user may not write idempotently: set enable.idempotence=false")
        named: dict[int, KafkaError] = {}
        for each in outcome.record_errors:
            message = each.batch_index_error_message or outcome.error_message
            # With several records, their messages are more specific than the shared error code.
            several = len(outcome.record_errors) > 1
            named[each.batch_index] = InvalidRecord(message) if several else error_of(outcome.error_code, message)
        if named:
            others = KafkaError("the record was not appended: other records of its batch are invalid")
            named = {index: named.get(index, others) for index in range(batch.record_count)}
        self._fail(batch, error, named, adjust_sequences)

    def _fail(
        self, batch: ProducerBatch, error: KafkaError, record_errors: dict[int, KafkaError], adjust_sequences: bool
    ) -> None:
        if batch.is_done:
            return
        self._metrics.record_errors(batch.topic_partition.topic, batch.record_count)
        try:
            if self._transactions is not None:
                self._transactions.handle_failed_batch(batch, error, adjust_sequences)
        except KafkaError:
            _LOG.exception("Unexpected failure of a batch in this state of the producer")
        finally:
            if batch.complete_exceptionally(error, record_errors):
                self._remove(batch)

    def _remove(self, batch: ProducerBatch) -> None:
        self._remove_from_in_flight(batch)
        self._accumulator.deallocate(batch)

    def _remove_from_in_flight(self, batch: ProducerBatch) -> None:
        batches = self._in_flight.get(batch.topic_partition, [])
        kept = [each for each in batches if each is not batch]
        if kept:
            self._in_flight[batch.topic_partition] = kept
        else:
            self._in_flight.pop(batch.topic_partition, None)


def _outcome(response: Any) -> Outcome:
    return Outcome(
        response.error_code,
        response.error_message,
        response.base_offset,
        response.log_append_time_ms,
        response.log_start_offset,
        response.record_errors,
    )


def _nodes(response: Any) -> list[Node]:
    return [Node(each.node_id, each.host, each.port, each.rack) for each in response.node_endpoints]
