"""Requests that resemble a cached Produce, and those that may not be cached (the others: test_without_fast_paths)."""

from __future__ import annotations

import random
import secrets
import sys
from typing import Any

import pytest

from rotunda.broker.apis.table import APIS
from rotunda.broker.faults.faulty_session import FaultySession
from rotunda.broker.handler.request_handler import Handle
from rotunda.broker.ipc.request import Request
from rotunda.broker.log.segments.log_segment import LogSegment
from rotunda.broker.metadata.topics.topic_validation import AddedPartitions
from rotunda.broker.native import compiled
from rotunda.broker.partitions.request_cache import CACHED_NS, CachedRequest, RecentlyUsed
from rotunda.broker.protocol import codec
from rotunda.broker.protocol.api_keys import ApiKey
from rotunda.broker.scheduling.deferred import Deferred
from rotunda.broker.server_log.slow_turns import LONG_NS
from rotunda.shm.tables.partitions import PartitionTable
from tests.support.record_batches import record_batch
from tests.support.results import present
from tests.support.stepped_broker import ARENA_BYTES, Client, Sent, SteppedBroker, batch_for
from tests.support.wire_messages import PRODUCE


def produce_frame(version: int, records: bytes, acks: int = 1) -> bytes:
    """Return a Produce of partition 0, from its api key on."""
    topics = [{"name": "topic", "partition_data": [{"index": 0, "records": bytes(records)}]}]
    return codec.encode_request(PRODUCE, version, 0, "test", {"acks": acks, "timeout_ms": 1000, "topic_data": topics})[
        4:
    ]


def outcome(sent: Sent) -> tuple[int, int]:
    """Return (error code, base offset)."""
    payload = sent.answer.payload
    response = codec.decode_response(PRODUCE, sent.version, payload, 4, len(payload))
    [partition] = response.responses[0].partition_responses
    return int(partition.error_code), partition.base_offset


@pytest.mark.parametrize("version", [7, 9])
def test_a_truncated_request_is_not_equal_to_the_cached_one(stepped: SteppedBroker, version: int) -> None:
    client, owner = stepped.client(), stepped.partition("topic", 0).owner
    records = record_batch([b"a"])
    good = produce_frame(version, records)
    client.send_frame(PRODUCE, version, good, owner)
    stepped.settle()
    for wrong in (good[:-1], good[: -len(records)]):
        cut = client.send_frame(PRODUCE, version, wrong, owner)
        stepped.settle()
        assert cut.answers
    assert stepped.end("topic", 0) == 1


@pytest.mark.stepped({}, handlers=1)
def test_a_request_larger_than_the_arena_is_as_exact_as_any(broker: SteppedBroker) -> None:
    broker.create("topic", 1, {"max.message.bytes": str(64 << 20), "segment.bytes": str(256 << 20)})
    value = b"x" * (ARENA_BYTES + 1)
    sent = broker.client().produce([batch_for(0, value)])
    line = 1
    while broker.turn_until_line(0, line):
        broker.replace(0)
        line += 40
    broker.settle()
    assert outcome(sent) == (0, 0)
    assert broker.values("topic", 0) == [value]
    assert broker.released(0, 0)


def test_a_request_with_an_injected_fault_is_not_cached(stepped: SteppedBroker) -> None:
    """The next one would use its session, and fail too."""
    client, handler = stepped.client(), stepped.handler(0)
    struck = FaultySession("ANONYMOUS", "", delay_ms=1)

    def strike(request: Request, handle: Handle) -> None:
        request.session = struck
        handle(request)

    handler.wrap(strike)
    client.produce([("topic", stepped.owned_by("topic", 0)[0], record_batch([b"a"]))])
    stepped.settle()
    assert len(handler._produce.cache) == 0


@pytest.mark.skipif(compiled is None, reason="of compiled code")
def test_a_request_that_fails_in_compiled_code_is_logged_and_handled_by_its_twin(
    stepped: SteppedBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    client, partition = stepped.client(), stepped.owned_by("topic", 0)[0]
    logged: list[object] = []
    outcomes: list[tuple[int, int]] = []
    monkeypatch.setattr(sys, "unraisablehook", lambda each: logged.append(each.exc_value))
    real, error = LogSegment.try_stage, MemoryError()

    def try_stage(*arguments: Any) -> bool:
        if len(outcomes) == 2 and not logged:
            raise error
        return real(*arguments)

    monkeypatch.setattr(LogSegment, "try_stage", try_stage)
    for _ in range(3):
        sent = client.produce([batch_for(partition, b"a")])
        stepped.settle()
        outcomes.append(outcome(sent))
    assert (outcomes, logged) == ([(0, 0), (0, 1), (0, 2)], [error])
    assert stepped.values("topic", partition) == [b"a"] * 3


# ---- responses -------------------------------------------------------------------------------------------------------


def frame_of(key: ApiKey, version: int, client_id: str, values: dict[str, Any]) -> bytes:
    """Return a request from its api key on."""
    return codec.encode_request(key, version, 0, client_id, values)[4:]


def answered(client: Client, broker: SteppedBroker, frame: bytes, key: ApiKey, version: int) -> bytes:
    """Return handler 0's response to a request, without its size."""
    sent = client.send_frame(key, version, frame, 0)
    broker.settle()
    return sent.answer.payload[4:]


def metadata(names: list[str] | None, client_id: str = "a", version: int = 8) -> bytes:
    topics = None if names is None else [{"name": name} for name in names]
    return frame_of(ApiKey.METADATA, version, client_id, {"topics": topics, "allow_auto_topic_creation": False})


def test_a_response_about_a_closed_partition_is_not_repeated(stepped: SteppedBroker) -> None:
    stepped.settle()
    client, table = stepped.client(), stepped.parts(0).partitions.table
    row = stepped.partition("topic", 2).row
    state = table.state(row)
    table.set_state(row, 0)
    closed = answered(client, stepped, metadata(["topic"]), ApiKey.METADATA, 8)
    table.set_state(row, state)
    assert answered(client, stepped, metadata(["topic"]), ApiKey.METADATA, 8)[4:] != closed[4:]


def test_a_response_made_while_the_topics_change_is_not_cached(
    stepped: SteppedBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A response started with the old ACLs must not outlast them."""
    stepped.settle()
    api = APIS[ApiKey.METADATA]
    function = present(api.function)

    due = Deferred()

    def late(request: Any, broker: Any, body: Any) -> Any:
        response = function(request, broker, body)

        def wait() -> Any:
            yield due
            return response

        return wait()

    with monkeypatch.context() as patched:
        patched.setitem(APIS, ApiKey.METADATA, api._replace(function=late))
        before = stepped.client().send_frame(ApiKey.METADATA, 8, metadata(None), 0)
        stepped.settle()
    stepped.create("other", 1)
    answered(stepped.client(), stepped, metadata(["topic"]), ApiKey.METADATA, 8)
    due.complete(True)
    stepped.settle()
    after = answered(stepped.client(), stepped, metadata(None), ApiKey.METADATA, 8)
    assert len(after) > len(before.answer.payload)


def test_repeated_responses_that_take_long_end_with_their_turn(
    stepped: SteppedBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    client, read = stepped.client(), PartitionTable.read_fetched
    fields = {"topics": [{"name": "topic", "partitions": [{"timestamp": -1}]}]}
    frame = frame_of(ApiKey.LIST_OFFSETS, 7, "a", fields)
    for _ in range(3):
        answered(client, stepped, frame, ApiKey.LIST_OFFSETS, 7)

    def slowly(table: PartitionTable, row: int) -> tuple[int, int, int, int, int]:
        stepped.clock.advance_ns(LONG_NS // 4)
        return read(table, row)

    monkeypatch.setattr(PartitionTable, "read_fetched", slowly)
    sent = [client.send_frame(ApiKey.LIST_OFFSETS, 7, frame, 0) for _ in range(20)]
    stepped.run_once(0)
    stepped.drain()
    assert 4 <= sum(bool(each.answers) for each in sent) <= 5


def questions(names: list[str], name: str) -> list[tuple[ApiKey, int, dict[str, Any]]]:
    """Return requests with cached responses, or whose decoded form is cached, about existing and missing topics."""
    topics = [None, [{"name": name}], [{"name": each} for each in names]]
    metadata = [{"topics": each, "allow_auto_topic_creation": False} for each in topics]
    part = {"partition_index": 0, "timestamp": -1}
    fetched = [{"topic": name, "partitions": [{"fetch_offset": at, "partition_max_bytes": 1000}]} for at in (0, 1)]
    return [
        *((ApiKey.METADATA, version, fields) for version in range(5, 9) for fields in metadata),
        *((ApiKey.LIST_OFFSETS, 7, {"topics": [{"name": name, "partitions": [part]}]}),) * 4,
        *((ApiKey.FETCH, 11, {"session_epoch": -1, "max_bytes": 1000, "topics": [each]}) for each in fetched * 2),
    ]


def test_a_response_is_that_to_a_new_connection_of_a_new_client(stepped: SteppedBroker) -> None:
    """Topics are created, deleted, recreated, extended and written to; requests of new client ids are not cached."""
    seed = secrets.randbits(32)
    print(f"seed {seed}")
    chance = random.Random(seed)
    names = [f"t{number}" for number in range(4)]
    there: dict[str, int] = {}
    client = stepped.client()
    for step in range(200):
        name = chance.choice(names)
        match chance.randrange(7):
            case 0 if name not in there:
                there[name] = chance.randint(1, 3)
                stepped.create(name, there[name])
            case 1 if name in there:
                del there[name]
                stepped.delete(name)
            case 2 if name in there:
                there[name] += 1
                stepped.controller.create_partitions([AddedPartitions(name, there[name])])
                stepped.announce()
            case 3 | 4 if name in there:
                stepped.client().produce([(name, 0, record_batch([b"a"]))])
                stepped.settle()
        key, version, fields = chance.choice(questions(names, name))
        kept = answered(client, stepped, frame_of(key, version, "same", fields), key, version)
        fresh = answered(stepped.client(), stepped, frame_of(key, version, f"new {step}", fields), key, version)
        assert kept[4:] == fresh[4:], (seed, step, key)


# ---- the size of the cache -------------------------------------------------------------------------------------------


class Entry(CachedRequest):
    """A request of a given size."""

    __slots__ = ("_size",)

    def __init__(self, size: int = 1) -> None:
        self._size = size

    @property
    def size_bytes(self) -> int:
        return self._size

    def varying(self, view: memoryview, start: int, end: int) -> None:
        """Equal no request."""


def test_entries_used_in_each_period_stay_and_the_rest_expire() -> None:
    kept: RecentlyUsed[int, Entry] = RecentlyUsed(100)
    kept.forget_unused(0)
    first = Entry()
    kept.put(1, first)
    kept.put(2, Entry())
    for now_ns in (CACHED_NS, 2 * CACHED_NS, 3 * CACHED_NS):
        kept.forget_unused(now_ns - 1)
        assert kept.recent.get(1) is first
        kept.forget_unused(now_ns)
        assert kept.recent.get(1) is None
        assert kept.recall(1) is first
    assert kept.recall(2) is None
    assert len(kept) == 1


def test_their_memory_is_bounded() -> None:
    kept: RecentlyUsed[int, Entry] = RecentlyUsed(30)
    for key in range(100):
        kept.put(key, Entry(10))
        assert len(kept) <= 6
    for size in (1, 20, 10, 5):
        # Only the present entry of a key counts.
        kept.put(99, Entry(size))
    assert len(kept) > 3
    kept.put(99, Entry(31))
    assert kept.recent.get(99) is None
    kept.clear()
    assert len(kept) == 0
    assert kept.recall(98) is None
