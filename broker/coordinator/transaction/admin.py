"""Transactions for administrators: the encoded tasks, and the requests to the processes with the data.

Runs in handler processes. The owner of a partition has its producers, the coordinator of an id its state, and all
coordinators together the list of ids. All operations are read-only.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple, overload

from rotunda.broker.coordinator.transaction.records import TRANSACTION_LOG, encode_value, metadata_of
from rotunda.broker.coordinator.transaction.transaction import TransactionMetadata, TransactionState
from rotunda.broker.errors import ApiError
from rotunda.broker.metadata.topics.topic_regex import InvalidPatternError, compiled
from rotunda.broker.partitions.transaction_messages import TopicPartition
from rotunda.broker.protocol.error_codes import ErrorCode
from rotunda.broker.protocol.primitives import read_string, string_bytes
from rotunda.broker.protocol.routing import TRANSACTION_TOPIC
from rotunda.broker.scheduling.long_responses import AT_ONCE, each_of, in_order
from rotunda.broker.scheduling.peer_tasks import TargetTasks, TaskDone
from rotunda.broker.scheduling.slices import Work

if TYPE_CHECKING:
    from rotunda.broker.clock import Clock
    from rotunda.broker.coordinator.locator import CoordinatorLocator
    from rotunda.broker.coordinator.transaction.coordinator import TransactionCoordinator
    from rotunda.broker.coordinator.transaction.shard import Transaction
    from rotunda.broker.log.producers.producer_entry import ProducerEntry
    from rotunda.broker.partitions.partition_manager import PartitionManager

_INT32: Final = struct.Struct(">i")
_PRODUCER: Final = struct.Struct(
    ">q"  # producer id
    "h"  # producer epoch
    "i"  # last sequence
    "q"  # last timestamp
    "i"  # coordinator epoch
    "q"  # start offset of the open transaction
)
_FILTER: Final = struct.Struct(
    ">i"  # states, one bit each
    "q"  # least duration in ms
    "i"  # producer ids
)
_LISTED: Final = struct.Struct(
    ">q"  # producer id
    "b"  # state
)
_FLEXIBLE: Final = 1

#: Longest text in a task.
_LONGEST_BYTES: Final = 2**15 - 1


class ActiveProducer(NamedTuple):
    """A producer in the state of its partition; fields are named as in the response."""

    producer_id: int
    producer_epoch: int
    last_sequence: int
    last_timestamp: int
    coordinator_epoch: int
    current_txn_start_offset: int


class Producers(Sequence[ActiveProducer]):
    """Producers as packed by their owner; unpacked on access."""

    def __init__(self, packed: bytes) -> None:
        self._packed = packed

    def __len__(self) -> int:
        return len(self._packed) // _PRODUCER.size

    @overload
    def __getitem__(self, number: int) -> ActiveProducer: ...

    @overload
    def __getitem__(self, number: slice) -> Sequence[ActiveProducer]: ...

    def __getitem__(self, number: int | slice) -> ActiveProducer | Sequence[ActiveProducer]:
        if isinstance(number, slice):
            return [self[each] for each in range(*number.indices(len(self)))]
        if not 0 <= number < len(self):
            raise IndexError(number)
        return ActiveProducer(*_PRODUCER.unpack_from(self._packed, number * _PRODUCER.size))


class ListFilter(NamedTuple):
    """The filter of a list; an empty field, or a duration below 0, matches all transactions."""

    states: frozenset[TransactionState]
    producer_ids: frozenset[int]
    duration_ms: int
    pattern: str


class Listed(NamedTuple):
    """One transactional id in a list."""

    transactional_id: str
    producer_id: int
    state: str


class TransactionAdmin:
    """One target's requests and tasks about transactions."""

    def __init__(
        self,
        tasks: TargetTasks,
        locator: CoordinatorLocator,
        transactions: TransactionCoordinator,
        partitions: PartitionManager,
        clock: Clock,
    ) -> None:
        self._tasks = tasks
        self._locator = locator
        self._transactions = transactions
        self._partitions = partitions
        self._clock = clock
        tasks.register_sliced("describe_producers", self._describe_producers)
        tasks.register("describe_transaction", self._describe_transaction)
        tasks.register_sliced("list_transactions", self._list_transactions)

    # ---- requests ------------------------------------------------------------------------------------------------

    def ask_producers(self, owner: int, place: TopicPartition) -> Work:
        """Return (error, `Producers`) of a partition, from its owner."""
        payload = string_bytes(place[0]) + _INT32.pack(place[1])
        error, packed = yield from self._tasks.reply_of(owner, "describe_producers", payload)
        return error, Producers(packed)

    def ask_transaction(self, transactional_id: str, done: Callable[[int, TransactionMetadata | None], None]) -> None:
        """Request the metadata of an id from its coordinator: ``done(error, metadata)``."""

        def completed(error: int, payload: bytes) -> None:
            done(error, None if error else metadata_of(TRANSACTION_LOG.read_value(payload)))

        if not transactional_id:
            done(int(ErrorCode.INVALID_REQUEST), None)
            return
        if len(transactional_id.encode()) > _LONGEST_BYTES:
            done(int(ErrorCode.TRANSACTIONAL_ID_NOT_FOUND), None)
            return
        target = self._locator.owner_of(TRANSACTION_TOPIC, transactional_id)
        self._tasks.ask(target, "describe_transaction", string_bytes(transactional_id), completed)

    def ask_list(self, wanted: ListFilter) -> Work:
        """Return (error, the sorted transactions of all handlers)."""
        payload = _filter_bytes(wanted)
        tasks = self._tasks
        asked = [tasks.reply_of(target, "list_transactions", payload) for target in range(self._locator.handlers)]
        found: list[Listed] = []
        for work in asked:
            error, listed = yield from work
            if error:
                return error, []
            found += yield from _read_list(listed)
        return 0, (yield from in_order(found))

    # ---- tasks ---------------------------------------------------------------------------------------------------

    def _describe_producers(self, payload: bytes) -> Work:
        topic, offset = read_string(payload, 0, len(payload))
        owned = self._partitions.own(topic, _INT32.unpack_from(payload, offset)[0])
        if owned is None:
            return int(ErrorCode.NOT_LEADER_OR_FOLLOWER), b""
        parts: list[bytes] = []
        yield from each_of(owned.log.active_producers(), lambda entry: parts.append(_PRODUCER.pack(*_active(entry))))
        return 0, b"".join(parts)

    def _describe_transaction(self, payload: bytes, reply: TaskDone) -> None:
        transactional_id, _ = read_string(payload, 0, len(payload))
        try:
            transaction = self._transactions.find(transactional_id)
        except ApiError as error:
            reply(error.code, b"")
            return
        if transaction is None:
            reply(int(ErrorCode.TRANSACTIONAL_ID_NOT_FOUND), b"")
        else:
            reply(0, encode_value(transaction.metadata, _FLEXIBLE))

    def _list_transactions(self, payload: bytes) -> Work:
        if self._locator.is_loading(TRANSACTION_TOPIC):
            return int(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS), b""
        wanted = _read_filter(payload)
        now_ms = self._clock.wall_ms()
        chosen: list[Transaction] = []
        parts: list[bytes] = []

        def choose(transaction: Transaction) -> None:
            if _passes(wanted, transaction.metadata, now_ms):
                chosen.append(transaction)

        def pack(transaction: Transaction) -> None:
            facts = _LISTED.pack(transaction.metadata.producer_id, transaction.metadata.state)
            parts.append(string_bytes(transaction.transactional_id) + facts)

        yield from each_of(list(self._transactions.transactions()), choose)
        if wanted.pattern:
            try:
                matching = compiled(wanted.pattern).matching(chosen, lambda each: each.transactional_id)
                chosen = yield from matching
            except InvalidPatternError:
                return int(ErrorCode.INVALID_REGULAR_EXPRESSION), b""
        yield from each_of(chosen, pack)
        return 0, b"".join(parts)


def _active(entry: ProducerEntry) -> ActiveProducer:
    last_sequence = entry.last_sequence
    return ActiveProducer(
        entry.producer_id,
        entry.epoch,
        last_sequence,
        entry.last_timestamp_ms,
        entry.coordinator_epoch,
        entry.current_txn_first_offset,
    )


def _passes(wanted: ListFilter, metadata: TransactionMetadata, now_ms: int) -> bool:
    if wanted.states and metadata.state not in wanted.states:
        return False
    if wanted.producer_ids and metadata.producer_id not in wanted.producer_ids:
        return False
    return wanted.duration_ms < 0 or now_ms - metadata.start_ms > wanted.duration_ms


def _filter_bytes(wanted: ListFilter) -> bytes:
    states = sum(1 << state for state in wanted.states)
    head = _FILTER.pack(states, wanted.duration_ms, len(wanted.producer_ids))
    return head + struct.pack(f">{len(wanted.producer_ids)}q", *wanted.producer_ids) + string_bytes(wanted.pattern)


def _read_filter(payload: bytes) -> ListFilter:
    bits, duration_ms, count = _FILTER.unpack_from(payload)
    producer_ids = struct.unpack_from(f">{count}q", payload, _FILTER.size)
    pattern, _ = read_string(payload, _FILTER.size + 8 * count, len(payload))
    states = frozenset(state for state in TransactionState if bits >> state & 1)
    return ListFilter(states, frozenset(producer_ids), duration_ms, pattern)


def _read_list(payload: bytes) -> Work:
    found: list[Listed] = []
    offset = 0
    while offset < len(payload):
        transactional_id, offset = read_string(payload, offset, len(payload))
        producer_id, state = _LISTED.unpack_from(payload, offset)
        offset += _LISTED.size
        found.append(Listed(transactional_id, producer_id, TransactionState(state).text))
        if not len(found) % AT_ONCE:
            yield None
    return found
