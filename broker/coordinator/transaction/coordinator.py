"""The transaction coordinator: the producer of each transactional id, and the end of its transactions.

Runs in handler processes, each for the ids that hash to its partitions of `__transaction_state`. `transaction`
validates requests, `shard` writes the outcome, and `markers` sends the markers of an end. Every request may be read
twice, before and after the death of a handler; the second time has the same effect as the first.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING

from rotunda.broker.coordinator.coordinator_log import call_each, nobody_waits
from rotunda.broker.coordinator.transaction.markers import TransactionEnd, TransactionPeers
from rotunda.broker.coordinator.transaction.shard import Done, Transaction, TransactionShard, id_bytes
from rotunda.broker.coordinator.transaction.transaction import (
    AT_REST,
    ENDING,
    NO_PRODUCER_ID,
    ONGOING,
    End,
    Initialisation,
    Outcome,
    Step,
    TransactionMetadata,
    completed,
    timed_out,
    validate_add,
    validate_end,
    validate_init,
    validate_partition,
    validate_timeout,
)
from rotunda.broker.errors import ApiError
from rotunda.broker.metadata.features import TRANSACTION_VERSION
from rotunda.broker.partitions.transaction_messages import Producer, TopicPartition
from rotunda.broker.protocol.error_codes import ErrorCode
from rotunda.broker.protocol.routing import TRANSACTION_TOPIC, coordinator_partition
from rotunda.broker.scheduling.long_responses import each_of
from rotunda.broker.server_log.log_setup import RepeatedWarnings
from rotunda.broker.steps import Steps

if TYPE_CHECKING:
    from rotunda.broker.clock import Clock
    from rotunda.broker.coordinator.coordinator_loader import Replayer
    from rotunda.broker.coordinator.coordinator_log import CoordinatorLog
    from rotunda.broker.coordinator.group_coordinator import OpenNow
    from rotunda.broker.coordinator.locator import CoordinatorLocator
    from rotunda.broker.metadata.metadata_cache import MetadataCache
    from rotunda.broker.scheduling.timers import Timer, Timers

logger = logging.getLogger(__name__)

#: From this level of `transaction.version` on, records of the log have tagged fields.
_FLEXIBLE_RECORDS_FROM = 1

#: Longest id in a key of `__transaction_state`.
_LONGEST_BYTES = 2**15 - 1


#: Longest wait of a request for the end of a transaction; then its client has to retry.
LONGEST_WAIT_MS = 5000


#: Validates a request against the metadata of its id and, if there is one, a new producer id.
Validator = Callable[[TransactionMetadata | None, int], Outcome]

#: Called with a Kafka error code and the metadata of the id.
OnMetadata = Callable[[int, TransactionMetadata | None], None]


class TransactionCoordinator:
    """The transactions of one handler."""

    def __init__(
        self,
        locator: CoordinatorLocator,
        metadata: MetadataCache,
        clock: Clock,
        timers: Timers,
        open_now: OpenNow,
        peers: TransactionPeers,
    ) -> None:
        self._locator = locator
        self._metadata = metadata
        self._clock = clock
        self._open_now = open_now
        self._timers = timers
        self._peers = peers
        self._shards: dict[int, TransactionShard] = {}
        self._abort_timer: Timer | None = None
        self._expiry_timer: Timer | None = None
        self._warnings = RepeatedWarnings(logger, timers.now_ns)
        #: New ids rejected because the memory limit was reached.
        self.rejections = 0

    # ---- partitions ----------------------------------------------------------------------------------------------

    def open_partition(self, log: CoordinatorLog) -> Replayer:
        """Return the shard of a partition, to be loaded."""
        return TransactionShard(log, self._loaded)

    def close_partition(self, partition: int) -> None:
        shard = self._shards.pop(partition, None)
        if shard is not None:
            self._timers.in_steps(shard.close())

    def metadata_changed(self) -> None:
        """Do nothing: markers look up their partitions at each attempt."""

    def transactions(self) -> Iterator[Transaction]:
        for shard in self._shards.values():
            yield from shard.transactions.values()

    def find(self, transactional_id: str) -> Transaction | None:
        """Return the transaction of an id, or None. Raises ApiError as `shard_of`."""
        return self.shard_of(transactional_id).transactions.get(transactional_id)

    # ---- requests ------------------------------------------------------------------------------------------------

    def init_producer_id(
        self, transactional_id: str, timeout_ms: int, expected: Producer | None, respond: OnMetadata
    ) -> None:
        """Return the next epoch of an id to its producer; an open transaction is aborted first."""
        if not transactional_id:
            respond(int(ErrorCode.INVALID_REQUEST), None)
        elif not 0 < timeout_ms <= self._metadata.broker_config.transaction_max_timeout_ms:
            respond(int(ErrorCode.INVALID_TRANSACTION_TIMEOUT), None)
        elif not self._admits(transactional_id):
            respond(int(ErrorCode.POLICY_VIOLATION), None)
        else:

            def validate(metadata: TransactionMetadata | None, new_producer_id: int) -> Outcome:
                request = Initialisation(timeout_ms, expected, self._now_ms(), self.version)
                return validate_init(metadata, request, new_producer_id)

            TransactionCall(self, transactional_id, validate, respond).run()

    def add_partitions(
        self,
        transactional_id: str,
        producer: Producer,
        partitions: frozenset[TopicPartition],
        client_version: int,
        done: Done,
    ) -> None:
        """Add partitions to the producer's transaction, with this loop pass's commit."""

        def validate(metadata: TransactionMetadata | None, new_producer_id: int) -> Outcome:
            del new_producer_id
            return validate_add(metadata, producer, partitions, self._now_ms(), client_version)

        if not transactional_id:
            done(int(ErrorCode.INVALID_REQUEST))
        else:
            TransactionCall(self, transactional_id, validate, lambda error, _: done(error)).run()

    def verify_partition(self, transactional_id: str, producer: Producer, place: TopicPartition, done: Done) -> None:
        """Check whether a partition belongs to the producer's transaction. Completes in this loop pass."""
        try:
            shard = self.shard_of(transactional_id)
        except ApiError as error:
            done(error.code)
            return
        transaction = shard.transactions.get(transactional_id)
        error_code = validate_partition(None if transaction is None else transaction.metadata, producer, place)
        if transaction is None or error_code:
            done(error_code)
        else:
            shard.when_committed(transaction, done)

    def end(self, transactional_id: str, producer: Producer, end: tuple[bool, int], respond: OnMetadata) -> None:
        """Commit or abort the producer's transaction: ``end`` is (commit, the client's transaction version).

        Uses that version instead of the finalized one: a client uses the level it saw when it connected. The response
        is sent when all markers are written, or after a timeout if the decision is committed.
        """
        commit, client_version = end

        def validate(metadata: TransactionMetadata | None, new_producer_id: int) -> Outcome:
            return validate_end(metadata, producer, End(commit, client_version, self._now_ms()), new_producer_id)

        if not transactional_id:
            respond(int(ErrorCode.INVALID_REQUEST), None)
        else:
            TransactionCall(self, transactional_id, validate, respond).run()

    @property
    def used_bytes(self) -> int:
        return sum(shard.size_bytes for shard in self._shards.values())

    def _admits(self, transactional_id: str) -> bool:
        """Return whether an id is known, belongs to another handler, or has room."""
        partitions = self._locator.counts.transactions
        shard = self._shards.get(coordinator_partition(transactional_id, partitions))
        if shard is None or transactional_id in shard.transactions:
            return True
        limit_bytes = self._metadata.broker_config.transaction_state_max_bytes * len(self._shards) // partitions
        if self.used_bytes + id_bytes(transactional_id) <= limit_bytes:
            return True
        self.rejections += 1
        self._warnings.warning(
            "full",
            "transactional id %s rejected: ids use %d of %d bytes, this handler's share of "
            "transaction.state.max.bytes; they expire after transactional.id.expiration.ms",
            transactional_id[:255],
            self.used_bytes,
            limit_bytes,
        )
        return False

    # ---- deadlines -----------------------------------------------------------------------------------------------

    def abort_timed_out(self) -> Steps[None]:
        """Abort transactions open for too long, and fence their producers."""
        self._abort_timer = None
        now_ms = self._now_ms()
        is_any_open = False

        def validate(metadata: TransactionMetadata | None, new_producer_id: int) -> Outcome:
            return validate_timeout(
                metadata, End(commit=False, client_version=self.version, now_ms=now_ms), new_producer_id
            )

        def look_at(transaction: Transaction) -> None:
            nonlocal is_any_open
            if timed_out(transaction.metadata, now_ms):
                logger.info("aborting the transaction of %s: timed out", transaction.transactional_id)
                TransactionCall(self, transaction.transactional_id, validate, nobody_waits).run()
            is_any_open |= transaction.metadata.state is ONGOING

        yield from each_of(list(self.transactions()), look_at)
        if is_any_open:
            self._look_again_later()

    def remove_expired(self) -> Steps[None]:
        before_ms = self._now_ms() - self._metadata.broker_config.transactional_id_expiration_ms
        for shard in list(self._shards.values()):
            forgotten = 0

            def look_at(transaction: Transaction, shard: TransactionShard = shard) -> None:
                nonlocal forgotten
                metadata = transaction.metadata
                if metadata.state in AT_REST and metadata.updated_ms <= before_ms and shard.is_open:
                    shard.forget(transaction.transactional_id)
                    forgotten += 1

            yield from each_of(list(shard.transactions.values()), look_at)
            if forgotten:
                logger.info("deleted %d expired transactional ids", forgotten)

    def _remove_expired_again(self) -> None:
        """Delete expired ids now and after each interval."""
        self._timers.in_steps(self.remove_expired())
        interval_ms = self._metadata.broker_config.transaction_remove_expired_transaction_cleanup_interval_ms
        self._expiry_timer = self._timers.after_ms(interval_ms, self._remove_expired_again)

    # ---- services for calls --------------------------------------------------------------------------------------

    @property
    def version(self) -> int:
        """The finalized level of `transaction.version`."""
        return self._metadata.finalized_features[TRANSACTION_VERSION]

    def write(self, shard: TransactionShard, transactional_id: str, metadata: TransactionMetadata, done: Done) -> None:
        """Write the metadata of an id; once an ending is committed, its markers are sent."""
        version = int(self.version >= _FLEXIBLE_RECORDS_FROM)
        if metadata.state in ENDING:
            transaction = shard.write(transactional_id, metadata, version, nobody_waits)
            shard.when_committed(transaction, partial(self._decided, shard, transaction))
            shard.when_committed(transaction, done)
        else:
            shard.write(transactional_id, metadata, version, done)
            if metadata.state is ONGOING:
                self._look_again_later()

    def after_ms(self, delay_ms: int, callback: Callable[[], None]) -> Timer:
        return self._timers.after_ms(delay_ms, callback)

    def new_producer_id(self, done: Callable[[int, int], None]) -> None:
        """Get an unused producer id: ``done(error, producer id)``, in a later loop pass."""
        self._peers.new_producer_id(done)

    def shard_of(self, transactional_id: str) -> TransactionShard:
        """Return the shard of an id. Raises ApiError if this handler does not serve it now."""
        if len(transactional_id.encode()) > _LONGEST_BYTES:
            raise ApiError(ErrorCode.INVALID_REQUEST, "a transactional id is too long")
        partition = coordinator_partition(transactional_id, self._locator.counts.transactions)
        if partition not in self._shards:
            self._open_now(TRANSACTION_TOPIC, partition)
        shard = self._shards.get(partition)
        if shard is None or shard.has_failed:
            raise self._locator.absent(TRANSACTION_TOPIC, transactional_id)
        return shard

    def _loaded(self, shard: TransactionShard) -> Steps[None]:
        """Resume the endings that a predecessor started, and watch its open transactions.

        Not now: a process that loads its logs at its start cannot write to them yet.
        """
        ending: list[Transaction] = []

        def look_at(transaction: Transaction) -> None:
            if transaction.metadata.state in ENDING:
                ending.append(transaction)

        yield from each_of(shard.transactions.values(), look_at)
        self._shards[shard.partition] = shard
        self._timers.in_steps(self._resume(shard, ending))

    def _resume(self, shard: TransactionShard, ending: list[Transaction]) -> Steps[None]:
        for transaction in ending:
            if not shard.is_open:
                return
            shard.when_committed(transaction, partial(self._decided, shard, transaction))
            yield
        self._look_again_later()
        if self._expiry_timer is None:
            self._remove_expired_again()

    def _look_again_later(self) -> None:
        """Start the timer of timeouts while a transaction is open."""
        if self._abort_timer is None:
            config = self._metadata.broker_config
            interval_ms = config.transaction_abort_timed_out_transaction_cleanup_interval_ms
            self._abort_timer = self._timers.after_ms(
                interval_ms, lambda: self._timers.in_steps(self.abort_timed_out())
            )

    def _decided(self, shard: TransactionShard, transaction: Transaction, error: int) -> None:
        """Send the markers of a committed decision."""
        metadata = transaction.metadata
        if error or not shard.is_open or metadata.state not in ENDING:
            return

        def wanted() -> bool:
            return shard.is_open and transaction.metadata is metadata

        def done() -> None:
            self.write(shard, transaction.transactional_id, completed(metadata, self._now_ms()), report)

        def report(error: int) -> None:
            waiting, transaction.at_end = transaction.at_end, []
            call_each(waiting, error)

        epoch = self._peers.coordinator_epoch(shard.partition)
        TransactionEnd(metadata, epoch, self._peers, self._timers, wanted).start(done)

    def _now_ms(self) -> int:
        return self._clock.wall_ms()


class TransactionCall:
    """One request from its validation to its response, including all waits in between."""

    __slots__ = ("_coordinator", "_deadline", "_respond", "_result", "_transactional_id", "_validate")

    def __init__(
        self, coordinator: TransactionCoordinator, transactional_id: str, validate: Validator, respond: OnMetadata
    ) -> None:
        self._coordinator = coordinator
        self._transactional_id = transactional_id
        self._validate = validate
        self._respond: OnMetadata | None = respond
        self._deadline: Timer | None = None
        #: The metadata for the response: that of this request, even if later ones change it before the response.
        self._result: TransactionMetadata | None = None

    def run(self, new_producer_id: int = NO_PRODUCER_ID) -> None:
        """Validate the request against the current metadata, and run the resulting step."""
        if self._respond is None:
            return
        try:
            shard = self._coordinator.shard_of(self._transactional_id)
        except ApiError as error:
            self._finish(error.code)
            return
        transaction = shard.transactions.get(self._transactional_id)
        known = None if transaction is None else transaction.metadata
        outcome = self._validate(known, new_producer_id)
        self._result = known if outcome.metadata is None else outcome.metadata
        _STEPS[outcome.step](self, shard, transaction, outcome)

    def _respond_now(self, shard: TransactionShard, transaction: Transaction | None, outcome: Outcome) -> None:
        if transaction is None or outcome.error:
            self._finish(outcome.error)
        else:
            shard.when_committed(transaction, self._finish)

    def _write(self, shard: TransactionShard, transaction: Transaction | None, outcome: Outcome) -> None:
        del transaction
        metadata = outcome.metadata
        assert metadata is not None  # noqa: S101 - part of the outcome
        if metadata.state in ENDING:
            self._coordinator.write(shard, self._transactional_id, metadata, self._finish_if_failed)
            self._respond_at_end(shard, shard.transactions[self._transactional_id], outcome)
        else:
            self._coordinator.write(shard, self._transactional_id, metadata, self._finish)

    def _respond_at_end(self, shard: TransactionShard, transaction: Transaction | None, outcome: Outcome) -> None:
        """Respond once all markers are written; after a timeout once the decision is."""
        del shard, outcome
        assert transaction is not None  # noqa: S101 - something of it is ending
        self._wait(transaction, self._finish, 0)

    def _await_end(self, shard: TransactionShard, transaction: Transaction | None, outcome: Outcome) -> None:
        del shard, outcome
        assert transaction is not None  # noqa: S101 - something of it is ending
        self._wait(transaction, self._again, ErrorCode.CONCURRENT_TRANSACTIONS)

    def _abort_first(self, shard: TransactionShard, transaction: Transaction | None, outcome: Outcome) -> None:
        metadata = outcome.metadata
        assert metadata is not None  # noqa: S101 - part of the outcome
        self._coordinator.write(shard, self._transactional_id, metadata, self._finish_if_failed)
        self._await_end(shard, transaction, outcome)

    def _get_producer_id(self, shard: TransactionShard, transaction: Transaction | None, outcome: Outcome) -> None:
        del shard, transaction, outcome

        def arrived(error: int, producer_id: int) -> None:
            if error:
                self._finish(int(ErrorCode.COORDINATOR_NOT_AVAILABLE))
            else:
                self.run(producer_id)

        self._coordinator.new_producer_id(arrived)

    def _again(self, error: int) -> None:
        if error:
            self._finish(error)
        else:
            self.run()

    def _wait(self, transaction: Transaction, then: Callable[[int], None], error: int) -> None:
        """Call ``then`` when the ending is complete; after a timeout respond with ``error``."""

        def give_up() -> None:
            if then in transaction.at_end:
                transaction.at_end.remove(then)
            self._finish(error)

        transaction.at_end.append(then)
        if self._deadline is not None:
            # One deadline for the whole request; its action depends on the current wait.
            self._deadline.callback = give_up
        else:
            self._deadline = self._coordinator.after_ms(LONGEST_WAIT_MS, give_up)

    def _finish_if_failed(self, error: int) -> None:
        if error:
            self._finish(error)

    def _finish(self, error: int) -> None:
        respond, self._respond = self._respond, None
        if respond is None:
            return
        if self._deadline is not None:
            self._deadline.cancel()
        result = self._result
        # The end may assign another producer id: the producer continues with that one.
        respond(error, completed(result, 0) if result is not None and result.state in ENDING else result)


_STEPS = {
    Step.ANSWER: TransactionCall._respond_now,
    Step.WRITE: TransactionCall._write,
    Step.AWAIT_END: TransactionCall._await_end,
    Step.ANSWER_AT_END: TransactionCall._respond_at_end,
    Step.ABORT_FIRST: TransactionCall._abort_first,
    Step.NEW_PRODUCER_ID: TransactionCall._get_producer_id,
}
