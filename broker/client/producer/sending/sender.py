"""The producer's I/O thread: drains batches into requests, one per node and iteration. Kafka's Sender (`G21`).

One thread runs it, or a simulation step by step. Each iteration sends pending requests of the transaction
manager first; then it drains ready batches for ready nodes, expires old ones, sends requests and polls the network. The
cost does not depend on the number of records. `produce` handles the results.
"""

from __future__ import annotations

import logging
import math
import threading
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Final

from rotunda.broker.client.errors import (
    AuthenticationFailed,
    ClusterAuthorizationFailed,
    KafkaError,
    TransactionAborted,
    TransactionalIdAuthorizationFailed,
)
from rotunda.broker.client.network.metadata import ProducerMetadata
from rotunda.broker.client.network.network_client import NetworkClient
from rotunda.broker.client.network.requests import ClientRequest, ClientResponse
from rotunda.broker.client.network.snapshot import ClusterSnapshot, Node
from rotunda.broker.client.producer.batches.producer_batch import ProducerBatch
from rotunda.broker.client.producer.config import ProducerSettings
from rotunda.broker.client.producer.metrics import ProducerMetrics
from rotunda.broker.client.producer.sending.produce import (
    OLDEST_VERSION,
    Part,
    ProduceResponses,
    encode_produce,
    newest_version,
)
from rotunda.broker.client.producer.sending.record_accumulator import RecordAccumulator
from rotunda.broker.client.producer.transactions.transaction_manager import TransactionManager
from rotunda.broker.client.producer.transactions.transaction_requests import CoordinatorType, TransactionalRequest
from rotunda.broker.client.topic_partition import TopicPartition
from rotunda.broker.clock import Clock
from rotunda.broker.protocol.api_keys import ApiKey
from rotunda.broker.protocol.primitives import ZERO_TOPIC_ID

_LOG = logging.getLogger(__name__)
_NS_OF_MS: Final = 1_000_000


class Sender:
    """The sender's loop. It closes the client when it ends."""

    def __init__(
        self,
        client: NetworkClient,
        metadata: ProducerMetadata,
        accumulator: RecordAccumulator,
        transaction_manager: TransactionManager | None,
        config: ProducerSettings,
        metrics: ProducerMetrics,
        clock: Clock,
    ) -> None:
        self._client = client
        self._metadata = metadata
        self._accumulator = accumulator
        self._transactions = transaction_manager
        self._config = config
        self._metrics = metrics
        self._clock = clock
        self._running = True
        self._force_close = False
        self._responses = ProduceResponses(
            accumulator,
            metadata,
            transaction_manager,
            metrics,
            retries=config.retries,
            guarantees_message_order=config.guarantees_message_order,
        )

    # Called by any thread.

    @property
    def is_running(self) -> bool:
        return self._running

    def wakeup(self) -> None:
        self._client.wakeup()

    def initiate_close(self) -> None:
        """Start to close: reject appends and send the queued batches (`G36`)."""
        # Close the queues first: records appended after the loop's last check would never be sent.
        self._accumulator.close()
        self._running = False
        self.wakeup()

    def force_close(self) -> None:
        """Close immediately: queued and in-flight batches fail."""
        self._force_close = True
        self.initiate_close()

    # The I/O thread.

    def run(self) -> None:
        """Run until close is requested, then until all batches are complete or `force_close` is called."""
        if self._transactions is not None:
            self._transactions.io_thread = threading.get_ident()
        try:
            self._run_while(lambda: self._running)
            self._run_while(self._has_work_left)
            self._run_while(self._has_transaction_to_abort)
        except BaseException:
            # No other thread would complete the waiting batches.
            self.force_close()
            raise
        finally:
            if self._force_close:
                if self._transactions is not None:
                    self._transactions.close()
                self._accumulator.abort_incomplete_batches()
            self._client.close()

    def _run_while(self, condition: Callable[[], bool]) -> None:
        while condition():
            try:
                self.run_once()
            except Exception:
                _LOG.exception("Unexpected error on the producer's I/O thread; it continues")

    def _has_work_left(self) -> bool:
        if self._force_close:
            return False
        if self._accumulator.has_undrained() or self._client.in_flight_count > 0:
            return True
        transactions = self._transactions
        return transactions is not None and transactions.has_pending_requests and transactions.has_ongoing_transaction

    def _has_transaction_to_abort(self) -> bool:
        transactions = self._transactions
        if self._force_close or transactions is None or not transactions.has_ongoing_transaction:
            return False
        if not transactions.is_completing:
            _LOG.info("Closing the producer: aborting its transaction")
            try:
                transactions.begin_abort()
            except KafkaError:
                _LOG.exception("Closing the producer: cannot abort its transaction")
                self._force_close = True
                return False
        return True

    def run_once(self) -> None:
        if self._transactions is not None and self._run_transactions(self._transactions):
            return
        now_ms = self._now_ms()
        self._poll(self._send_producer_data(now_ms), now_ms)

    def _poll(self, timeout_ms: float, now_ms: float) -> None:
        """Poll the network and expire old batches, independent of other waits (`G27`)."""
        self._client.poll(min(timeout_ms, self._responses.expire(now_ms)), now_ms)

    def _run_transactions(self, transactions: TransactionManager) -> bool:
        """Handle the transaction manager's needs; return whether that ends this iteration."""
        transactions.maybe_resolve_sequences()
        error = transactions.last_error
        if transactions.has_fatal_error:
            if error is not None:
                self._abort_batches(error)
            self._poll(self._config.retry_backoff_ms, self._now_ms())
            return True
        if transactions.has_abortable_error and isinstance(
            error, (TransactionalIdAuthorizationFailed, ClusterAuthorizationFailed)
        ):
            # Authorization may be granted later: the producer stays usable.
            transactions.fail_pending_requests(AuthenticationFailed(str(error)))
            self._abort_batches(error)
            transactions.transition_to_uninitialized(error)
            return True
        transactions.bump_idempotent_epoch_and_reset_id_if_needed()
        return self._maybe_send_and_poll_transactional_request(transactions)

    def _maybe_send_and_poll_transactional_request(self, transactions: TransactionManager) -> bool:
        if transactions.in_flight is not None:
            self._poll(self._config.retry_backoff_ms, self._now_ms())
            return True
        if transactions.has_abortable_error and transactions.last_error is not None:
            self._accumulator.abort_undrained_batches(transactions.last_error)
        elif transactions.is_aborting:
            self._accumulator.abort_undrained_batches(
                TransactionAborted("the record was not sent: its transaction is aborted")
            )
        request = transactions.next_request(self._accumulator.has_incomplete())
        if request is None:
            return False
        try:
            self._send_transactional_request(transactions, request)
        except AuthenticationFailed as error:
            request.fatal(error)
        return True

    def _send_transactional_request(self, transactions: TransactionManager, request: TransactionalRequest) -> None:
        """Send a request to its coordinator; look up the coordinator first if needed."""
        kind = request.coordinator_type
        now_ms = self._now_ms()
        node = self._client.least_loaded_node(now_ms) if kind is None else transactions.coordinators.get(kind)
        if node is None and kind is None:
            request.reenqueue()
            self._poll(self._config.retry_backoff_ms, self._now_ms())
            return
        if node is None or not self._await_node_ready(transactions, node, kind):
            if kind is not None:
                request.find_coordinator_again()
            else:
                self._poll_for(self._config.retry_backoff_ms)
                self._metadata.request_update()
            request.reenqueue()
            return
        if request.is_retry:
            self._poll_for(request.retry_backoff_ms)
            if not self._client.is_ready(node, self._now_ms()):
                request.reenqueue()
                return
        now_ms = self._now_ms()
        sent = ClientRequest(
            node_id=node.id,
            api_key=request.api_key,
            build=request.build,
            correlation_id=self._client.next_correlation_id(),
            created_ms=now_ms,
            timeout_ms=self._config.request_timeout_ms,
            callback=request.on_complete,
            versions=(0, request.newest_version),
        )
        transactions.set_in_flight(request, sent.correlation_id)
        self._client.send(sent, now_ms)
        self._poll(self._config.retry_backoff_ms, self._now_ms())

    def _poll_for(self, wait_ms: float) -> None:
        """Wait before a retry, while polling the network."""
        now_ms = self._now_ms()
        until_ms = now_ms + wait_ms
        while now_ms < until_ms and not self._force_close:
            self._poll(until_ms - now_ms, now_ms)
            now_ms = self._now_ms()

    def _await_node_ready(self, transactions: TransactionManager, node: Node, kind: CoordinatorType | None) -> bool:
        """Wait for a connection up to `request.timeout.ms`; return whether it is ready. Raises AuthenticationFailed."""
        client = self._client
        now_ms = self._now_ms()
        until_ms = now_ms + self._config.request_timeout_ms
        self._poll(0, now_ms)
        is_ready = client.ready(node, now_ms)
        while not is_ready and now_ms < until_ms and not self._force_close:
            if client.connection_failed(node):
                return False
            self._poll(until_ms - now_ms, now_ms)
            client.raise_authentication_error(node)
            now_ms = self._now_ms()
            is_ready = client.is_ready(node, now_ms)
        if is_ready and kind is CoordinatorType.TRANSACTION:
            transactions.handle_coordinator_ready()
        return is_ready

    def _abort_batches(self, error: KafkaError) -> None:
        if self._accumulator.has_incomplete():
            self._accumulator.abort_batches(error)
            self._responses.forget()

    # Produce.

    def _send_producer_data(self, now_ms: float) -> float:
        """Send ready batches; return the time until the next check in milliseconds."""
        snapshot = self._metadata.fetch()
        accumulator = self._accumulator
        result = accumulator.ready(snapshot, now_ms)
        if result.unknown_leader_topics:
            # Some await a leader election, others have expired from the metadata: request them again.
            for topic in result.unknown_leader_topics:
                self._metadata.add(topic, now_ms)
            self._metadata.request_update()
        self._responses.expire(now_ms)
        ready, not_ready_ms = self._ready_nodes(result.ready_nodes, now_ms)
        batches = accumulator.drain(snapshot, ready, self._config.max_request_size, now_ms) if ready else {}
        for drained in batches.values():
            self._responses.sent(drained)
            if self._config.guarantees_message_order:
                for batch in drained:
                    accumulator.mute_partition(batch.topic_partition)
        for node_id, drained in batches.items():
            if drained:
                self._send_produce_request(snapshot, node_id, drained, now_ms)
        if any(batches.values()):
            return 0.0  # the nodes may have more ready batches
        if ready:
            # Ready batches wait for earlier responses, or for the retry backoff of another batch.
            not_ready_ms = min(not_ready_ms, self._config.retry_backoff_ms)
        return max(0.0, min(result.next_ready_check_delay_ms, not_ready_ms))

    def _ready_nodes(self, wanted: Sequence[Node], now_ms: float) -> tuple[list[Node], float]:
        """Return the nodes ready to send to, and the wait for the others; starts to connect where needed."""
        ready, wait_ms = [], math.inf
        for node in wanted:
            is_ready = self._client.ready(node, now_ms)
            self._accumulator.update_node_latency_stats(node.id, now_ms, is_ready)
            if is_ready:
                ready.append(node)
            else:
                wait_ms = min(wait_ms, self._client.poll_delay_ms(node, now_ms))
        return ready, wait_ms

    def _send_produce_request(
        self, snapshot: ClusterSnapshot, node_id: int, batches: Sequence[ProducerBatch], now_ms: float
    ) -> None:
        topic_ids = snapshot.topic_ids
        parts = []
        for batch in batches:
            topic, partition = batch.topic_partition
            topic_id = topic_ids.get(topic)
            parts.append(Part(topic, ZERO_TOPIC_ID if topic_id is None else topic_id.bytes, partition, batch.close()))
        transactions = self._transactions
        transactional_id = None if transactions is None else transactions.transactional_id
        is_v1 = transactions is not None and transactions.is_transactional and not transactions.transaction_v2
        request = ClientRequest(
            node_id=node_id,
            api_key=ApiKey.PRODUCE,
            build=partial(
                encode_produce,
                transactional_id=transactional_id,
                acks=self._config.required_acks,
                timeout_ms=self._config.request_timeout_ms,
                parts=parts,
            ),
            correlation_id=self._client.next_correlation_id(),
            created_ms=now_ms,
            expects_response=self._config.required_acks != 0,
            timeout_ms=self._config.request_timeout_ms,
            callback=partial(self._on_response, {batch.topic_partition: batch for batch in batches}, snapshot),
            versions=(OLDEST_VERSION, newest_version(parts, is_v1)),
        )
        self._metrics.record_sent(batches)
        self._client.send(request, now_ms)

    def _on_response(
        self, batches: Mapping[TopicPartition, ProducerBatch], snapshot: ClusterSnapshot, response: ClientResponse
    ) -> None:
        self._responses.handle(response, batches, snapshot.topic_names, self._now_ms())

    def _now_ms(self) -> float:
        return self._clock.monotonic_ns() / _NS_OF_MS
