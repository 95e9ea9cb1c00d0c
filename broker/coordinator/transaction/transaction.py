"""A transactional id in its coordinator: the states, their transitions, and the outcome of each request.

Pure: no log, no clock, no client. A request is validated against the metadata, an immutable value, and the outcome
names the response, the write before it, or the event to wait for. Errors and epochs are Kafka's (KIP-98, KIP-360,
KIP-890); where Kafka makes clients retry during an ending, the outcome is to wait for its end.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from types import MappingProxyType
from typing import Final, NamedTuple

from rotunda.broker.partitions.transaction_messages import Producer, TopicPartition
from rotunda.broker.protocol.error_codes import ErrorCode

NO_PRODUCER_ID: Final = -1
NO_EPOCH: Final = -1
MAX_EPOCH: Final = 2**15 - 1

#: From this transaction version on, the end of every transaction raises the epoch (KIP-890).
EPOCH_BUMP_FROM: Final = 2


class TransactionState(enum.IntEnum):
    """Kafka's states, numbered as in `__transaction_state` records."""

    EMPTY = 0
    ONGOING = 1
    PREPARE_COMMIT = 2
    PREPARE_ABORT = 3
    COMPLETE_COMMIT = 4
    COMPLETE_ABORT = 5
    DEAD = 6
    PREPARE_EPOCH_FENCE = 7

    @property
    def text(self) -> str:
        """Kafka's name of the state, as in ListTransactions."""
        return "".join(word.capitalize() for word in self.name.split("_"))


EMPTY, ONGOING, PREPARE_COMMIT, PREPARE_ABORT, COMPLETE_COMMIT, COMPLETE_ABORT, DEAD, PREPARE_EPOCH_FENCE = (
    TransactionState
)

#: The valid predecessors of each state. Below transaction version 2 only an ongoing transaction can be aborted.
PREDECESSORS: Final[Mapping[TransactionState, frozenset[TransactionState]]] = MappingProxyType(
    {
        EMPTY: frozenset({EMPTY, COMPLETE_COMMIT, COMPLETE_ABORT}),
        ONGOING: frozenset({EMPTY, ONGOING, COMPLETE_COMMIT, COMPLETE_ABORT}),
        PREPARE_COMMIT: frozenset({ONGOING}),
        PREPARE_ABORT: frozenset({ONGOING, PREPARE_EPOCH_FENCE, EMPTY, COMPLETE_COMMIT, COMPLETE_ABORT}),
        COMPLETE_COMMIT: frozenset({PREPARE_COMMIT}),
        COMPLETE_ABORT: frozenset({PREPARE_ABORT}),
        DEAD: frozenset({EMPTY, COMPLETE_COMMIT, COMPLETE_ABORT}),
        PREPARE_EPOCH_FENCE: frozenset({ONGOING}),
    }
)

#: No transaction is open: the next one may start, and the id may expire.
AT_REST: Final = frozenset({EMPTY, COMPLETE_COMMIT, COMPLETE_ABORT})

#: The outcome of the transaction is decided, and the markers are being written.
ENDING: Final = frozenset({PREPARE_COMMIT, PREPARE_ABORT})


class TransactionMetadata(NamedTuple):
    """The log's state of a transactional id. ``start_ms`` is -1 while no partition has been added."""

    producer_id: int
    epoch: int
    timeout_ms: int
    updated_ms: int
    state: TransactionState = EMPTY
    partitions: frozenset[TopicPartition] = frozenset()
    start_ms: int = -1
    last_epoch: int = NO_EPOCH
    previous_producer_id: int = NO_PRODUCER_ID
    next_producer_id: int = NO_PRODUCER_ID
    client_version: int = 0

    @property
    def is_commit(self) -> bool:
        return self.state is PREPARE_COMMIT

    @property
    def epoch_exhausted(self) -> bool:
        """Whether all epochs for clients are used; one more is reserved for fencing."""
        return self.epoch >= MAX_EPOCH - 1

    def moved(self, state: TransactionState, **changes: object) -> TransactionMetadata:
        """Return the metadata in another state. ValueError for an invalid transition."""
        if self.state not in PREDECESSORS[state]:
            raise ValueError(f"a transaction cannot go from {self.state.text} to {state.text}")
        return self._replace(state=state, previous_producer_id=self.producer_id, **changes)  # type: ignore[arg-type]


class Step(enum.Enum):
    """The coordinator's next step before the response."""

    ANSWER = enum.auto()
    """Respond with the error, or 0 if nothing changes."""
    WRITE = enum.auto()
    """Write the metadata, then respond."""
    AWAIT_END = enum.auto()
    """Wait for the end in progress, then validate again."""
    ANSWER_AT_END = enum.auto()
    """The end in progress is the requested one: wait for it, then respond."""
    ABORT_FIRST = enum.auto()
    """Write the metadata, which aborts the ongoing transaction, wait for the end, then validate again."""
    NEW_PRODUCER_ID = enum.auto()
    """Get a new producer id, then validate again with it."""


class Outcome(NamedTuple):
    """The outcome of a request."""

    step: Step
    error: int = 0
    metadata: TransactionMetadata | None = None


def _rejected(error: ErrorCode) -> Outcome:
    return Outcome(Step.ANSWER, int(error))


def _written(metadata: TransactionMetadata) -> Outcome:
    return Outcome(Step.WRITE, 0, metadata)


# ---- InitProducerId --------------------------------------------------------------------------------------------------


class Initialisation(NamedTuple):
    """An InitProducerId with a transactional id. ``expected``: the producer's previous id and epoch (KIP-360)."""

    timeout_ms: int
    expected: Producer | None
    now_ms: int
    server_version: int


def validate_init(
    metadata: TransactionMetadata | None, request: Initialisation, new_producer_id: int = NO_PRODUCER_ID
) -> Outcome:
    """Return the next epoch of a producer; it fences all others of its transactional id."""
    if metadata is None:
        if new_producer_id == NO_PRODUCER_ID:
            return Outcome(Step.NEW_PRODUCER_ID)
        fresh = TransactionMetadata(new_producer_id, NO_EPOCH, request.timeout_ms, request.now_ms)
        return _written(_bumped(fresh, request, last_epoch=NO_EPOCH))
    if request.expected is not None and not _is_known(metadata, request.expected):
        return _rejected(ErrorCode.PRODUCER_FENCED)
    if metadata.state in ENDING:
        return Outcome(Step.AWAIT_END)
    if metadata.state is ONGOING:
        end = End(commit=False, client_version=request.server_version, now_ms=request.now_ms)
        return _fenced(metadata, end, new_producer_id, Step.ABORT_FIRST)
    return _validate_init_at_rest(metadata, request, new_producer_id)


def _validate_init_at_rest(metadata: TransactionMetadata, request: Initialisation, new_producer_id: int) -> Outcome:
    expected = request.expected
    if metadata.epoch_exhausted and (expected is None or expected.epoch == metadata.epoch):
        if new_producer_id == NO_PRODUCER_ID:
            return Outcome(Step.NEW_PRODUCER_ID)
        last_epoch = NO_EPOCH if expected is None else metadata.epoch
        return _written(_idle(metadata, request, producer_id=new_producer_id, epoch=0, last_epoch=last_epoch))
    if expected is None:
        return _written(_bumped(metadata, request, last_epoch=NO_EPOCH))
    if expected.epoch == metadata.epoch:
        return _written(_bumped(metadata, request, last_epoch=metadata.epoch))
    if expected.epoch == metadata.last_epoch:
        # The response to the request that raised the epoch was lost; no other request has changed it since.
        return _written(_idle(metadata, request))
    return _rejected(ErrorCode.PRODUCER_FENCED)


def _is_known(metadata: TransactionMetadata, expected: Producer) -> bool:
    """Return whether the producer may be the one of this metadata; its epoch is validated later."""
    if expected.producer_id == metadata.producer_id:
        return True
    # Its id was exhausted and replaced, but the producer did not receive the new one.
    return expected.producer_id == metadata.previous_producer_id and expected.epoch >= MAX_EPOCH - 1


def _idle(metadata: TransactionMetadata, request: Initialisation, **changes: int) -> TransactionMetadata:
    return metadata.moved(
        EMPTY,
        timeout_ms=request.timeout_ms,
        partitions=frozenset(),
        start_ms=-1,
        updated_ms=request.now_ms,
        next_producer_id=NO_PRODUCER_ID,
        **changes,
    )


def _bumped(metadata: TransactionMetadata, request: Initialisation, *, last_epoch: int) -> TransactionMetadata:
    return _idle(metadata, request, epoch=metadata.epoch + 1, last_epoch=last_epoch)


# ---- adding and verifying partitions ---------------------------------------------------------------------------------


def validate_add(
    metadata: TransactionMetadata | None,
    producer: Producer,
    partitions: frozenset[TopicPartition],
    now_ms: int,
    client_version: int,
) -> Outcome:
    """Return the metadata with partitions added to the producer's transaction; the first ones start it."""
    error = _validate_producer(metadata, producer)
    if metadata is None or error:
        return Outcome(Step.ANSWER, error)
    if metadata.state is ONGOING and partitions <= metadata.partitions:
        return Outcome(Step.ANSWER)
    start_ms = metadata.start_ms if metadata.state is ONGOING else now_ms
    known = metadata.partitions if metadata.state is ONGOING else frozenset()
    return _written(
        metadata.moved(
            ONGOING,
            partitions=known | partitions,
            start_ms=start_ms,
            updated_ms=now_ms,
            client_version=client_version,
        )
    )


def validate_partition(metadata: TransactionMetadata | None, producer: Producer, partition: TopicPartition) -> int:
    """Return 0 if a partition is part of the producer's transaction, else the error (KIP-890)."""
    error = _validate_producer(metadata, producer)
    if metadata is None or error:
        return error
    return 0 if partition in metadata.partitions else int(ErrorCode.TRANSACTION_ABORTABLE)


def _validate_producer(metadata: TransactionMetadata | None, producer: Producer) -> int:
    if metadata is None or metadata.producer_id != producer.producer_id:
        return int(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
    if metadata.epoch != producer.epoch:
        return int(ErrorCode.PRODUCER_FENCED)
    return int(ErrorCode.CONCURRENT_TRANSACTIONS) if metadata.state in ENDING else 0


# ---- the end ---------------------------------------------------------------------------------------------------------


class End(NamedTuple):
    """An EndTxn. ``client_version``: the client's transaction version."""

    commit: bool
    client_version: int
    now_ms: int


class _Reaction(enum.Enum):
    END = enum.auto()
    DONE = enum.auto()
    JOIN = enum.auto()
    FENCED = enum.auto()
    INVALID = enum.auto()


_END, _DONE, _JOIN, _FENCED, _INVALID = _Reaction

#: Below transaction version 2: by state, the reaction to (abort, commit).
_PLAIN_ENDS: Final[Mapping[TransactionState, tuple[_Reaction, _Reaction]]] = MappingProxyType(
    {
        EMPTY: (_INVALID, _INVALID),
        ONGOING: (_END, _END),
        PREPARE_COMMIT: (_INVALID, _JOIN),
        PREPARE_ABORT: (_JOIN, _INVALID),
        COMPLETE_COMMIT: (_INVALID, _DONE),
        COMPLETE_ABORT: (_DONE, _INVALID),
    }
)

#: With version 2: by state and by whether the epoch is that before the last end (a repeated request), the reaction to
#: (abort, commit). Aborting without a transaction is allowed, and raises the epoch.
_BUMPING_ENDS: Final[Mapping[tuple[TransactionState, bool], tuple[_Reaction, _Reaction]]] = MappingProxyType(
    {
        (EMPTY, False): (_END, _INVALID),
        (EMPTY, True): (_FENCED, _FENCED),
        (ONGOING, False): (_END, _END),
        (ONGOING, True): (_FENCED, _FENCED),
        (PREPARE_COMMIT, False): (_FENCED, _FENCED),
        (PREPARE_COMMIT, True): (_INVALID, _JOIN),
        (PREPARE_ABORT, False): (_FENCED, _FENCED),
        (PREPARE_ABORT, True): (_JOIN, _INVALID),
        (COMPLETE_COMMIT, False): (_END, _INVALID),
        (COMPLETE_COMMIT, True): (_INVALID, _DONE),
        (COMPLETE_ABORT, False): (_END, _INVALID),
        (COMPLETE_ABORT, True): (_DONE, _INVALID),
    }
)

_OUTCOMES: Final = MappingProxyType(
    {
        _DONE: Outcome(Step.ANSWER),
        _JOIN: Outcome(Step.ANSWER_AT_END),
        _FENCED: Outcome(Step.ANSWER, int(ErrorCode.PRODUCER_FENCED)),
        _INVALID: Outcome(Step.ANSWER, int(ErrorCode.INVALID_TXN_STATE)),
    }
)


def validate_end(
    metadata: TransactionMetadata | None, producer: Producer, end: End, new_producer_id: int = NO_PRODUCER_ID
) -> Outcome:
    """Return the metadata that ends the producer's transaction; the markers follow."""
    if metadata is None:
        return _rejected(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
    bumps = end.client_version >= EPOCH_BUMP_FROM
    is_retry = bumps and _ended_already(metadata, producer)
    if metadata.producer_id != producer.producer_id and not is_retry:
        return _rejected(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
    if metadata.epoch != producer.epoch and not is_retry:
        return _rejected(ErrorCode.PRODUCER_FENCED)
    reactions = _BUMPING_ENDS[metadata.state, is_retry] if bumps else _PLAIN_ENDS[metadata.state]
    reaction = reactions[end.commit]
    if reaction is not _END:
        return _OUTCOMES[reaction]
    return _prepared(metadata, end, new_producer_id, Step.WRITE)


def _ended_already(metadata: TransactionMetadata, producer: Producer) -> bool:
    """Return whether a producer has the epoch from before the last end, which raised it."""
    if metadata.producer_id == producer.producer_id:
        return metadata.epoch == producer.epoch + 1
    rotated = metadata.previous_producer_id == producer.producer_id and metadata.epoch == 0
    return rotated and producer.epoch == MAX_EPOCH - 1


def timed_out(metadata: TransactionMetadata, now_ms: int) -> bool:
    """Return whether a transaction has been open for longer than its producer's timeout."""
    return metadata.state is ONGOING and metadata.start_ms + metadata.timeout_ms < now_ms


def validate_timeout(metadata: TransactionMetadata | None, end: End, new_producer_id: int = NO_PRODUCER_ID) -> Outcome:
    """Return the metadata that aborts a transaction open for too long, and fences its producer."""
    if metadata is None or not timed_out(metadata, end.now_ms):
        return Outcome(Step.ANSWER)
    return _fenced(metadata, end, new_producer_id, Step.WRITE)


def completed(metadata: TransactionMetadata, now_ms: int) -> TransactionMetadata:
    """Return the metadata once every marker of an ending transaction is written."""
    state = COMPLETE_COMMIT if metadata.state is PREPARE_COMMIT else COMPLETE_ABORT
    rotates = metadata.client_version >= EPOCH_BUMP_FROM and metadata.next_producer_id != NO_PRODUCER_ID
    return metadata.moved(
        state,
        producer_id=metadata.next_producer_id if rotates else metadata.producer_id,
        epoch=0 if rotates else metadata.epoch,
        next_producer_id=NO_PRODUCER_ID,
        partitions=frozenset(),
        updated_ms=now_ms,
    )


def _fenced(metadata: TransactionMetadata, end: End, new_producer_id: int, step: Step) -> Outcome:
    """Return the metadata that aborts an ongoing transaction in an epoch that its producer does not have."""
    fenced = metadata.moved(PREPARE_EPOCH_FENCE)
    if end.client_version < EPOCH_BUMP_FROM:
        fenced = fenced._replace(epoch=min(metadata.epoch + 1, MAX_EPOCH), last_epoch=NO_EPOCH)
    return _prepared(fenced, end, new_producer_id, step)


def _prepared(metadata: TransactionMetadata, end: End, new_producer_id: int, step: Step) -> Outcome:
    """Return the decision; if the epochs are exhausted, from version 2 on, it includes a new producer id."""
    epoch, last_epoch, client_version, next_producer_id = metadata.epoch, metadata.last_epoch, 0, NO_PRODUCER_ID
    if end.client_version >= EPOCH_BUMP_FROM:
        if metadata.epoch_exhausted and new_producer_id == NO_PRODUCER_ID:
            return Outcome(Step.NEW_PRODUCER_ID)
        next_producer_id = new_producer_id if metadata.epoch_exhausted else NO_PRODUCER_ID
        epoch, last_epoch, client_version = min(epoch + 1, MAX_EPOCH), epoch, end.client_version
    prepared = metadata.moved(
        PREPARE_COMMIT if end.commit else PREPARE_ABORT,
        epoch=epoch,
        last_epoch=last_epoch,
        next_producer_id=next_producer_id,
        start_ms=end.now_ms if metadata.state in AT_REST else metadata.start_ms,
        updated_ms=end.now_ms,
        client_version=client_version,
    )
    return Outcome(step, 0, prepared)
