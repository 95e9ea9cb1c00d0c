"""The rules of transactions, without log or clock: every state with every request, epochs and producer ids."""

from __future__ import annotations

import pytest

from rotunda.broker.coordinator.transaction.transaction import (
    AT_REST,
    COMPLETE_ABORT,
    COMPLETE_COMMIT,
    DEAD,
    EMPTY,
    ENDING,
    MAX_EPOCH,
    ONGOING,
    PREDECESSORS,
    PREPARE_ABORT,
    PREPARE_COMMIT,
    PREPARE_EPOCH_FENCE,
    End,
    Initialisation,
    Step,
    TransactionMetadata,
    TransactionState,
    completed,
    timed_out,
    validate_add,
    validate_end,
    validate_init,
    validate_partition,
    validate_timeout,
)
from rotunda.broker.partitions.transaction_messages import Producer
from tests.support.results import present

PLAIN, NEWEST = 0, 2
PLACE = ("topic", 1)
UNKNOWN_PRODUCER, FENCED, CONCURRENT, INVALID_STATE, ABORTABLE = 49, 90, 51, 48, 120
STATES = (EMPTY, ONGOING, PREPARE_COMMIT, PREPARE_ABORT, COMPLETE_COMMIT, COMPLETE_ABORT)


def known(state: TransactionState, *, epoch: int = 5, **fields: object) -> TransactionMetadata:
    partitions = frozenset({PLACE}) if state is ONGOING or state in ENDING else frozenset()
    made = TransactionMetadata(7, epoch, 1000, 100, state, partitions, 50 if partitions else -1)
    return made._replace(previous_producer_id=7, **fields)


def init(expected: Producer | None = None, version: int = NEWEST) -> Initialisation:
    return Initialisation(2000, expected, 200, version)


def end(commit: bool, version: int) -> End:
    return End(commit, version, 200)


def test_the_table_of_states_is_kafkas() -> None:
    assert {state: PREDECESSORS[state] for state in (PREPARE_COMMIT, COMPLETE_COMMIT, PREPARE_EPOCH_FENCE)} == {
        PREPARE_COMMIT: {ONGOING},
        COMPLETE_COMMIT: {PREPARE_COMMIT},
        PREPARE_EPOCH_FENCE: {ONGOING},
    }
    assert PREDECESSORS[EMPTY] == PREDECESSORS[DEAD] == AT_REST
    with pytest.raises(ValueError, match="from Empty to PrepareCommit"):
        known(EMPTY).moved(PREPARE_COMMIT)


# ---- InitProducerId -------------------------------------------------------------------------------------------------


def test_a_new_id_gets_a_new_producer_id_with_epoch_0() -> None:
    assert validate_init(None, init()).step is Step.NEW_PRODUCER_ID
    made = present(validate_init(None, init(), 9).metadata)
    assert (made.producer_id, made.epoch, made.state, made.timeout_ms) == (9, 0, EMPTY, 2000)


@pytest.mark.parametrize("state", sorted(AT_REST))
def test_the_next_producer_gets_the_next_epoch(state: TransactionState) -> None:
    outcome = validate_init(known(state), init())
    assert outcome.step is Step.WRITE
    assert outcome.metadata is not None
    assert (outcome.metadata.producer_id, outcome.metadata.epoch, outcome.metadata.last_epoch) == (7, 6, -1)


@pytest.mark.parametrize("state", sorted(ENDING))
def test_an_ending_is_waited_for(state: TransactionState) -> None:
    assert validate_init(known(state), init()).step is Step.AWAIT_END


@pytest.mark.parametrize(("version", "epoch"), [(PLAIN, 6), (NEWEST, 6)])
def test_an_open_transaction_is_aborted_first_in_an_epoch_that_nobody_has(version: int, epoch: int) -> None:
    outcome = validate_init(known(ONGOING), init(version=version))
    assert outcome.step is Step.ABORT_FIRST
    assert outcome.metadata is not None
    assert (outcome.metadata.state, outcome.metadata.epoch) == (PREPARE_ABORT, epoch)
    assert outcome.metadata.partitions == {PLACE}


def test_a_producer_that_names_its_epoch_has_it_raised_once() -> None:
    """KIP-360: the request may be resent, or reread by another process."""
    first = present(validate_init(known(EMPTY), init(Producer(7, 5))).metadata)
    assert (first.epoch, first.last_epoch) == (6, 5)
    again = present(validate_init(first, init(Producer(7, 5))).metadata)
    assert (again.epoch, again.last_epoch) == (6, 5)


@pytest.mark.parametrize("expected", [Producer(7, 4), Producer(8, 5), Producer(7, 6)])
def test_a_producer_that_is_not_the_last_one_is_fenced(expected: Producer) -> None:
    assert validate_init(known(EMPTY), init(expected)).error == FENCED


def test_epochs_that_are_used_up_lead_to_another_producer_id() -> None:
    worn = known(COMPLETE_COMMIT, epoch=MAX_EPOCH - 1)
    assert validate_init(worn, init()).step is Step.NEW_PRODUCER_ID
    made = present(validate_init(worn, init(Producer(7, MAX_EPOCH - 1)), 9).metadata)
    assert (made.producer_id, made.epoch, made.previous_producer_id, made.last_epoch) == (9, 0, 7, MAX_EPOCH - 1)
    again = present(validate_init(made, init(Producer(7, MAX_EPOCH - 1))).metadata)
    assert (again.producer_id, again.epoch) == (9, 0)


# ---- partitions -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("state", STATES)
def test_partitions_are_added_in_every_state_but_while_it_ends(state: TransactionState) -> None:
    outcome = validate_add(known(state), Producer(7, 5), frozenset({("other", 0)}), 200, PLAIN)
    if state in ENDING:
        assert outcome.error == CONCURRENT
        return
    assert outcome.metadata is not None
    assert outcome.metadata.state is ONGOING
    assert outcome.metadata.partitions == known(state).partitions | {("other", 0)}
    assert outcome.metadata.start_ms == (50 if state is ONGOING else 200)


def test_known_partitions_are_not_written_again() -> None:
    outcome = validate_add(known(ONGOING), Producer(7, 5), frozenset({PLACE}), 200, PLAIN)
    assert (outcome.step, outcome.error) == (Step.ANSWER, 0)


@pytest.mark.parametrize(
    ("producer", "error"),
    [(Producer(8, 5), UNKNOWN_PRODUCER), (Producer(7, 4), FENCED), (Producer(7, 6), FENCED)],
)
def test_another_producer_adds_and_verifies_nothing(producer: Producer, error: int) -> None:
    assert validate_add(known(ONGOING), producer, frozenset({PLACE}), 200, PLAIN).error == error
    assert validate_partition(known(ONGOING), producer, PLACE) == error
    assert validate_partition(None, producer, PLACE) == UNKNOWN_PRODUCER


def test_verification_returns_the_partitions_of_the_transaction() -> None:
    assert validate_partition(known(ONGOING), Producer(7, 5), PLACE) == 0
    assert validate_partition(known(ONGOING), Producer(7, 5), ("topic", 2)) == ABORTABLE
    assert validate_partition(known(EMPTY), Producer(7, 5), PLACE) == ABORTABLE
    assert validate_partition(known(PREPARE_COMMIT), Producer(7, 5), PLACE) == CONCURRENT


# ---- the end --------------------------------------------------------------------------------------------------------

#: By state: the results of (abort, commit) below transaction version 2.
PLAIN_ENDS = {
    EMPTY: (INVALID_STATE, INVALID_STATE),
    ONGOING: (Step.WRITE, Step.WRITE),
    PREPARE_COMMIT: (INVALID_STATE, Step.ANSWER_AT_END),
    PREPARE_ABORT: (Step.ANSWER_AT_END, INVALID_STATE),
    COMPLETE_COMMIT: (INVALID_STATE, Step.ANSWER),
    COMPLETE_ABORT: (Step.ANSWER, INVALID_STATE),
}

#: The same from version 2 on, in the current epoch and in the previous one, as in Kafka's table.
NEWEST_ENDS = {
    EMPTY: ((Step.WRITE, INVALID_STATE), (FENCED, FENCED)),
    ONGOING: ((Step.WRITE, Step.WRITE), (FENCED, FENCED)),
    PREPARE_COMMIT: ((FENCED, FENCED), (INVALID_STATE, Step.ANSWER_AT_END)),
    PREPARE_ABORT: ((FENCED, FENCED), (Step.ANSWER_AT_END, INVALID_STATE)),
    COMPLETE_COMMIT: ((Step.WRITE, INVALID_STATE), (INVALID_STATE, Step.ANSWER)),
    COMPLETE_ABORT: ((Step.WRITE, INVALID_STATE), (Step.ANSWER, INVALID_STATE)),
}


@pytest.mark.parametrize("commit", [False, True])
@pytest.mark.parametrize("state", STATES)
def test_end_in_every_state(state: TransactionState, commit: bool) -> None:
    outcome = validate_end(known(state), Producer(7, 5), end(commit, PLAIN))
    assert PLAIN_ENDS[state][commit] == (outcome.error or outcome.step)
    for is_retry in (False, True):
        outcome = validate_end(known(state), Producer(7, 5 - is_retry), end(commit, NEWEST))
        assert NEWEST_ENDS[state][is_retry][commit] == (outcome.error or outcome.step)


@pytest.mark.parametrize("version", [PLAIN, NEWEST])
def test_another_producer_ends_nothing(version: int) -> None:
    assert validate_end(known(ONGOING), Producer(8, 5), end(True, version)).error == UNKNOWN_PRODUCER
    assert validate_end(known(ONGOING), Producer(7, 3), end(True, version)).error == FENCED
    assert validate_end(None, Producer(7, 3), end(True, version)).error == UNKNOWN_PRODUCER


@pytest.mark.parametrize(("version", "epoch"), [(PLAIN, 5), (NEWEST, 6)])
def test_an_end_raises_the_epoch_from_version_2_on(version: int, epoch: int) -> None:
    """KIP-890: delayed requests of the transaction have an outdated epoch."""
    prepared = present(validate_end(known(ONGOING), Producer(7, 5), end(True, version)).metadata)
    done = completed(prepared, 300)
    assert (prepared.state, done.state) == (PREPARE_COMMIT, COMPLETE_COMMIT)
    assert prepared.epoch == done.epoch == epoch
    assert (done.partitions, done.updated_ms) == (frozenset(), 300)


def test_an_end_with_the_last_epoch_gives_another_producer_id() -> None:
    worn = known(ONGOING, epoch=MAX_EPOCH - 1)
    producer = Producer(7, MAX_EPOCH - 1)
    assert validate_end(worn, producer, end(True, NEWEST)).step is Step.NEW_PRODUCER_ID
    prepared = present(validate_end(worn, producer, end(True, NEWEST), 9).metadata)
    assert (prepared.producer_id, prepared.epoch) == (7, MAX_EPOCH)
    done = completed(prepared, 300)
    assert (done.producer_id, done.epoch) == (9, 0)
    assert validate_end(done, producer, end(True, NEWEST)) == (Step.ANSWER, 0, None)


def test_a_timeout_fences_the_producer() -> None:
    open_one = known(ONGOING)
    assert not timed_out(open_one, 1050)
    assert timed_out(open_one, 1051)
    assert not timed_out(known(PREPARE_COMMIT), 10_000)
    assert validate_timeout(open_one, End(False, NEWEST, 1050)) == (Step.ANSWER, 0, None)
    for version in (PLAIN, NEWEST):
        aborting = present(validate_timeout(open_one, End(False, version, 2000)).metadata)
        assert (aborting.state, aborting.epoch) == (PREPARE_ABORT, 6)
        assert validate_add(aborting, Producer(7, 5), frozenset({PLACE}), 2000, version).error == FENCED
    assert validate_end(completed(aborting, 2000), Producer(7, 5), end(False, PLAIN)).error == FENCED


def test_from_version_2_on_a_producer_gets_over_a_timeout_by_aborting() -> None:
    """The coordinator's abort raised the epoch, as its own abort would have: the response has the next epoch."""
    aborting = present(validate_timeout(known(ONGOING), End(False, NEWEST, 2000)).metadata)
    assert validate_end(aborting, Producer(7, 5), end(False, NEWEST)).step is Step.ANSWER_AT_END
    done = completed(aborting, 2000)
    assert validate_end(done, Producer(7, 5), end(False, NEWEST)) == (Step.ANSWER, 0, None)
    assert validate_end(done, Producer(7, 5), end(True, NEWEST)).error == INVALID_STATE
    again = present(validate_init(done, init(Producer(7, 5))).metadata)
    assert (again.producer_id, again.epoch) == (7, 6)


def test_a_producer_with_the_last_epoch_can_be_fenced() -> None:
    """Below version 2 the reserved last epoch is never assigned; from version 2 on the next epoch has a new id."""
    worn = known(ONGOING, epoch=MAX_EPOCH - 1)
    aborting = present(validate_timeout(worn, End(False, PLAIN, 2000)).metadata)
    assert aborting.epoch == MAX_EPOCH
    assert validate_init(completed(aborting, 2000), init()).step is Step.NEW_PRODUCER_ID
    assert (
        validate_timeout(worn, End(False, NEWEST, 2000)).step
        is validate_init(worn, init()).step
        is Step.NEW_PRODUCER_ID
    )
    aborting = present(validate_timeout(worn, End(False, NEWEST, 2000), 9).metadata)
    assert (aborting.producer_id, aborting.epoch) == (7, MAX_EPOCH)
    done = completed(aborting, 2000)
    assert (done.producer_id, done.epoch) == (9, 0)
