"""One request about a transaction, from its judgement to its answer, through all that may lie between.

Runs in the handler that coordinates the transactional id. What a judgement leads to may take a while: a record to be
committed, a producer id from the controller, the end of a transaction that is in the way. Knows nothing of the APIs.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

from broker.coordinator.transaction.transaction import (
    ENDING,
    NO_PRODUCER_ID,
    Outcome,
    Step,
    TransactionMetadata,
    completed,
)
from broker.errors import ApiError
from broker.protocol.error_codes import ErrorCode

if TYPE_CHECKING:
    from broker.coordinator.transaction.shard import Done, Transaction, TransactionShard
    from broker.scheduling.timers import Timer

#: How long a request waits for the end of a transaction before its client is asked to try again.
LONGEST_WAIT_MS = 5000


#: Judges a request by what is known of its id and, if there is one, by a new producer id.
Judge = Callable[[TransactionMetadata | None, int], Outcome]

#: Called with a Kafka error code and what is known of the id then.
Answered = Callable[[int, TransactionMetadata | None], None]


class CallCoordinator(Protocol):
    """What a call rests on."""

    def shard_of(self, transactional_id: str) -> TransactionShard:
        """Return the partition that keeps an id. Raises ApiError when this handler does not have it (now)."""

    def write(self, shard: TransactionShard, transactional_id: str, metadata: TransactionMetadata, done: Done) -> None:
        """Write what is known of an id from now on."""

    def after_ms(self, delay_ms: int, callback: Callable[[], None]) -> Timer:
        """Call ``callback`` once, ``delay_ms`` from now."""

    def new_producer_id(self, done: Callable[[int, int], None]) -> None:
        """Get a producer id that was never handed out: ``done(error, producer id)``, in some later turn."""


class TransactionCall:
    """One request from its judgement to its answer, through all that may lie between."""

    __slots__ = ("_answer", "_coordinator", "_deadline", "_judge", "_result", "_transactional_id")

    def __init__(self, coordinator: CallCoordinator, transactional_id: str, judge: Judge, answer: Answered) -> None:
        self._coordinator = coordinator
        self._transactional_id = transactional_id
        self._judge = judge
        self._answer: Answered | None = answer
        self._deadline: Timer | None = None
        #: What is answered: as of this request, whatever others may have made of it by the time of the answer.
        self._result: TransactionMetadata | None = None

    def take(self, new_producer_id: int = NO_PRODUCER_ID) -> None:
        """Judge the request by what is known now, and do what that leads to."""
        if self._answer is None:
            return
        try:
            shard = self._coordinator.shard_of(self._transactional_id)
        except ApiError as error:
            self._finish(error.code)
            return
        transaction = shard.transactions.get(self._transactional_id)
        known = None if transaction is None else transaction.metadata
        outcome = self._judge(known, new_producer_id)
        self._result = known if outcome.metadata is None else outcome.metadata
        _STEPS[outcome.step](self, shard, transaction, outcome)

    def _answer_now(self, shard: TransactionShard, transaction: Transaction | None, outcome: Outcome) -> None:
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
            self._answer_at_end(shard, shard.transactions[self._transactional_id], outcome)
        else:
            self._coordinator.write(shard, self._transactional_id, metadata, self._finish)

    def _answer_at_end(self, shard: TransactionShard, transaction: Transaction | None, outcome: Outcome) -> None:
        """Answer when the markers stand; if that takes long, as soon as the decision does."""
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
                self.take(producer_id)

        self._coordinator.new_producer_id(arrived)

    def _again(self, error: int) -> None:
        if error:
            self._finish(error)
        else:
            self.take()

    def _wait(self, transaction: Transaction, then: Callable[[int], None], error: int) -> None:
        """Do ``then`` when the ending is complete; if that takes long, answer with ``error`` instead."""

        def give_up() -> None:
            if then in transaction.at_end:
                transaction.at_end.remove(then)
            self._finish(error)

        transaction.at_end.append(then)
        if self._deadline is not None:
            # One deadline for the whole of a request; what it does when it comes depends on what it waits for.
            self._deadline.callback = give_up
        else:
            self._deadline = self._coordinator.after_ms(LONGEST_WAIT_MS, give_up)

    def _finish_if_failed(self, error: int) -> None:
        if error:
            self._finish(error)

    def _finish(self, error: int) -> None:
        """Answer, once."""
        answer, self._answer = self._answer, None
        if answer is None:
            return
        if self._deadline is not None:
            self._deadline.cancel()
        result = self._result
        # The end may give the producer another id: that is what it goes on with.
        answer(error, completed(result, 0) if result is not None and result.state in ENDING else result)


_STEPS = {
    Step.ANSWER: TransactionCall._answer_now,
    Step.WRITE: TransactionCall._write,
    Step.AWAIT_END: TransactionCall._await_end,
    Step.ANSWER_AT_END: TransactionCall._answer_at_end,
    Step.ABORT_FIRST: TransactionCall._abort_first,
    Step.NEW_PRODUCER_ID: TransactionCall._get_producer_id,
}
