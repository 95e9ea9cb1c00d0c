"""Handles the results of sent batches: acknowledge, retry, split, fail, expire. Runs on the I/O thread.

The second half of Kafka's Sender. It tracks the batches in flight and their age, and notifies the metadata, the queues
and the sequences. A response for a batch that was already failed changes at most its sequences.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Protocol
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
from rotunda.broker.client.producer.batches.producer_batch import NO_TIMESTAMP, ProducerBatch
from rotunda.broker.client.producer.batches.record_accumulator import RecordAccumulator
from rotunda.broker.client.producer.produce_requests import Outcome
from rotunda.broker.client.producer.transactions.transaction_manager import TransactionManager
from rotunda.broker.client.topic_partition import TopicPartition
from rotunda.broker.protocol.error_codes import ErrorCode

_LOG = logging.getLogger(__name__)


class SenderMetrics(Protocol):
    """Kafka's Sender sensors."""

    def record_sent(self, batches: Sequence[ProducerBatch]) -> None:
        """Record a Produce request with these batches."""

    def record_latency(self, node_id: int, latency_ms: float) -> None:
        """Record the latency of a response."""

    def record_throttle(self, throttle_ms: float) -> None:
        """Record the throttle time of a response (`G33`)."""

    def record_retries(self, topic: str, records: int) -> None:
        """Record records that are retried."""

    def record_errors(self, topic: str, records: int) -> None:
        """Record records that failed."""

    def record_split(self) -> None:
        """Record the split of a batch that was too large."""


class ProduceResponses:
    """The batches in flight, and the handling of their responses."""

    def __init__(
        self,
        accumulator: RecordAccumulator,
        metadata: ProducerMetadata,
        transaction_manager: TransactionManager | None,
        metrics: SenderMetrics,
        *,
        retries: int,
        guarantee_message_order: bool,
    ) -> None:
        self._accumulator = accumulator
        self._metadata = metadata
        self._transactions = transaction_manager
        self._metrics = metrics
        self._retries = retries
        self._guarantee_message_order = guarantee_message_order
        self._in_flight: dict[TopicPartition, list[ProducerBatch]] = {}
        self._next_expiry_ms = -math.inf

    def sent(self, batches: Iterable[ProducerBatch]) -> None:
        """Record batches that are about to be sent."""
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
        answer: Any,
        batches: Mapping[TopicPartition, ProducerBatch],
        topic_names: Mapping[UUID, str],
        now_ms: float,
    ) -> None:
        leaders: dict[tuple[str, int], LeaderIdAndEpoch] = {}
        left = dict(batches)
        for topic in answer.responses:
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
            self._metadata.update_partition_leadership(leaders, _nodes(answer))

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
        if self._guarantee_message_order:
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
