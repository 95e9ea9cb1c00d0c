"""The request loop by frames: dispatch, rejections, faults, responses of any size, full rings."""

from __future__ import annotations

import random
import sqlite3
import struct

import pytest

from rotunda.broker.apis import table
from rotunda.broker.handler.request_handler import BATCH
from rotunda.broker.ipc.request_channel import CLOSE_CONNECTION, NO_OP
from rotunda.broker.log.log_manager import LogManager
from rotunda.broker.log.partition_log import PartitionLog, PartitionName
from rotunda.broker.metadata.store.metadata_reader import MetadataReader
from rotunda.broker.metadata.topics.topic_validation import NewTopic
from rotunda.broker.protocol.api_keys import ApiKey
from tests.support.fakes import failing
from tests.support.interruptions import interrupted_at_line
from tests.support.record_batches import record_batch
from tests.support.stepped_broker import Sent, SteppedBroker, batch_for, produced
from tests.support.wire_messages import (
    API_VERSIONS,
    CREATE_TOPICS,
    METADATA,
    PRODUCE,
    SASL_HANDSHAKE,
    Reader,
    metadata_body,
    produce_body,
    string,
)

CONTROLLER = 2

HANDLER_KINDS = pytest.mark.parametrize(
    ("api_key", "version", "body"),
    [
        pytest.param(999, 0, b"", id="unknown key"),
        pytest.param(4, 0, b"", id="a key of another kind of server"),
        pytest.param(METADATA, 99, metadata_body([]), id="version too high"),
        pytest.param(CREATE_TOPICS, 0, b"", id="version too low"),
        pytest.param(PRODUCE, 2, produce_body([("topic", 0, b"")])[2:], id="C12 produce 2"),
        pytest.param(METADATA, 4, b"\x00\x00", id="body too short"),
        pytest.param(METADATA, 4, struct.pack(">i", 1 << 30), id="count beyond the body"),
        pytest.param(PRODUCE, 7, struct.pack(">hhii", -1, 1, 0, 1 << 20), id="produce cut off"),
        pytest.param(1, 11, b"\x00" * 7, id="fetch cut off"),
    ],
)


@HANDLER_KINDS
def test_c07_a_request_that_cannot_be_read_closes_its_connection(
    stepped: SteppedBroker, api_key: int, version: int, body: bytes
) -> None:
    """No response is sent; requests of others, and of the same batch, are not affected. `C07`, `C12`."""
    other = stepped.client()
    before = other.produce([batch_for(0, b"before")])
    bad = stepped.client().send(api_key, version, body, before.target)
    after = other.produce([batch_for(0, b"after")])
    stepped.settle()
    assert [(answer.kind, answer.payload) for answer in bad.answers] == [(CLOSE_CONNECTION, b"")]
    assert [produced(sent) for sent in (before, after)] == [[(0, 0)], [(0, 1)]]
    assert stepped.released(0, before.target)


def test_c07_a_header_that_is_cut_off_closes_its_connection(stepped: SteppedBroker) -> None:
    sent = stepped.client().send_frame(METADATA, 4, struct.pack(">hhih", METADATA, 4, 0, 500), 0)
    stepped.settle()
    assert sent.answer.kind == CLOSE_CONNECTION


def test_c08_api_versions_of_an_unknown_version_get_a_response_of_version_0(stepped: SteppedBroker) -> None:
    """`C08`: error 35 and the range of ApiVersions itself; the body is not parsed."""
    sent = stepped.client().send(API_VERSIONS, 99, b"\xff\xff garbage")
    stepped.settle()
    reader = Reader(sent.answer.payload)
    assert reader.take("iihi") == (len(sent.answer.payload) - 4, 0, 35, 1)
    key, low, high = reader.take("hhh")
    assert (key, low) == (API_VERSIONS, 0)
    assert high >= 3
    assert reader.at == len(sent.answer.payload)


def test_api_versions_lists_the_served_and_the_rejected_produce_versions(stepped: SteppedBroker) -> None:
    """`C12`: Produce 0-2 are listed, although they are rejected."""
    sent = stepped.client().send(API_VERSIONS, 0, b"")
    stepped.settle()
    reader = Reader(sent.answer.payload[8:])
    error, count = reader.take("hi")
    listed = {key: (low, high) for key, low, high in (reader.take("hhh") for _ in range(count))}
    assert error == 0
    # T01: as in a Kafka without a receiver of clients' metrics.
    assert set(table.APIS) - set(listed) == {ApiKey.GET_TELEMETRY_SUBSCRIPTIONS, ApiKey.PUSH_TELEMETRY}
    assert listed[PRODUCE][0] == 0
    assert table.APIS[PRODUCE].min_version == 3


def test_c15_any_correlation_id_is_returned(stepped: SteppedBroker) -> None:
    client, ids = stepped.client(), [7, 7, -2]
    headers = [struct.pack(">hhi", API_VERSIONS, 0, each) + string("test") for each in ids]
    sent = [client.send_frame(API_VERSIONS, 0, header) for header in headers]
    stepped.settle()
    assert [[struct.unpack_from(">i", answer.payload, 4) for answer in each.answers] for each in sent] == [
        [(each,)] for each in ids
    ]


def test_c16_sasl_without_sasl_is_error_34(stepped: SteppedBroker) -> None:
    sent = stepped.client().send(SASL_HANDSHAKE, 1, string("PLAIN"))
    stepped.settle()
    assert struct.unpack_from(">h", sent.answer.payload, 8) == (34,)


def test_e08_a_fault_in_an_api_closes_that_connection_and_the_loop_continues(
    stepped: SteppedBroker, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """`E02`, `E08`: an internal fault is not mapped to an error code; other connections are unaffected."""
    api = table.APIS[METADATA]
    monkeypatch.setitem(table.APIS, METADATA, api._replace(function=failing(ZeroDivisionError("ours"))))
    broken = stepped.client().send(METADATA, 4, metadata_body(["topic"]), 0)
    good = stepped.client().produce([("topic", stepped.owned_by("topic", 0)[0], record_batch([b"a"]))])
    stepped.settle()
    assert [answer.kind for answer in broken.answers] == [CLOSE_CONNECTION]
    assert produced(good) == [(0, 0)]
    assert "ours" in caplog.text


def test_e08_a_fault_in_produce_gives_its_memory_back(
    stepped: SteppedBroker, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    partition = stepped.owned_by("topic", 0)[0]
    log = stepped.parts(0).partitions.owned[stepped.partition("topic", partition).row].log
    with monkeypatch.context() as patch:
        patch.setattr(type(log), "stage", failing(ZeroDivisionError("ours")))
        broken = stepped.client().produce([batch_for(partition, b"a")])
        stepped.settle()
    assert broken.answer.kind == CLOSE_CONNECTION
    assert "ours" in caplog.text
    assert stepped.released(0, 0)
    assert stepped.handler(0).wait_ms() == 300


def test_e08_a_fault_while_metadata_is_applied_loses_no_request(
    stepped: SteppedBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`E08`: neither requests nor messages of other targets; the next turn continues with them."""
    for_both = stepped.client().produce([batch_for(p, b"both") for p in range(4)])
    owner = 1 - for_both.target
    stepped.run_once(for_both.target)
    partition = stepped.owned_by("topic", owner)[0]
    for_one = stepped.client().produce([batch_for(partition, b"one")])
    asked = stepped.client().send(METADATA, 4, metadata_body(["topic"]), owner)
    stepped.controller.create_topics([NewTopic("other", 1)])
    stepped.announce_metadata()
    with monkeypatch.context() as patch:
        patch.setattr(MetadataReader, "read_in_steps", failing(sqlite3.OperationalError("disk I/O error")))
        with pytest.raises(sqlite3.OperationalError):
            stepped.run_once(owner)
    stepped.settle()
    assert [code for code, _ in produced(for_both)] == [0] * 4
    assert produced(for_one)[0][0] == 0
    assert sorted(stepped.values("topic", partition)) == [b"both", b"one"]
    assert b"topic" in asked.answer.payload
    assert all(stepped.released(0, target) for target in (0, 1))


def test_a_partition_that_cannot_be_opened_keeps_no_other_from_it(
    stepped: SteppedBroker, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Not even after an internal fault: a handler gets each announcement once."""
    open_log = LogManager.open

    def open_but_one(manager: LogManager, name: PartitionName, *args: object) -> PartitionLog:
        if name.partition == 1:
            raise ZeroDivisionError("ours")
        return open_log(manager, name, *args)  # type: ignore[arg-type]

    monkeypatch.setattr(LogManager, "open", open_but_one)
    stepped.create("fresh", 4)
    sent = stepped.client().produce([("fresh", p, record_batch([b"a"])) for p in range(4)])
    stepped.settle()
    assert [code == 0 for code, _ in produced(sent)] == [True, False, True, True]
    assert "cannot open fresh-1" in caplog.text


def test_a_fault_while_metadata_is_applied_leaves_no_cache_of_deleted_topics(
    stepped: SteppedBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A Produce of a cached shape is not appended to the log of a deleted topic."""
    client = stepped.client()
    for _ in range(2):
        client.produce([batch_for(0, b"a")])
        stepped.settle()
    owner = stepped.partition("topic", 0).owner
    stepped.delete("topic")
    with monkeypatch.context() as patch:
        patch.setattr(LogManager, "expire_producers_after", failing(ZeroDivisionError("ours")))
        with pytest.raises(ZeroDivisionError):
            stepped.run_once(owner)
    late = client.produce([batch_for(0, b"late")])
    stepped.settle()
    assert produced(late) == [(3, -1)]


@pytest.mark.stepped({}, ring_bytes=4096)
def test_a_response_larger_than_a_ring_travels_by_a_file(broker: SteppedBroker) -> None:
    for number in range(20):
        broker.create(f"{'t' * 200}{number}", 2)
    client = broker.client()
    large = client.send(METADATA, 4, struct.pack(">i?", -1, False))
    small = client.send(API_VERSIONS, 0, b"")
    broker.settle()
    assert large.answer.ranges == 1
    assert len(large.answer.payload) > 4096
    assert struct.unpack_from(">i", large.answer.payload) == (len(large.answer.payload) - 4,)
    assert small.answer.ranges == 0
    assert not list(broker.context.run_dir.iterdir())


def test_a_run_that_completes_everything_is_not_followed_by_an_empty_one(stepped: SteppedBroker) -> None:
    """The loop sleeps immediately: requests after the start of a turn ring the bell; all earlier ones are handled."""
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    chance = random.Random(seed)
    clients = [stepped.client() for _ in range(4)]
    slept = 0
    for _ in range(200):
        # On average fewer than are served, or the backlog grows and the handler never idles.
        for _ in range(chance.choice((0, 1, 3, 2 * BATCH))):
            client = chance.choice(clients)
            if chance.random() < 0.8:
                client.produce([("topic", chance.randrange(4), record_batch([b"a"]))])
            else:
                client.send(METADATA, 4, metadata_body(["topic"]))
        handler = stepped.handler(chance.randrange(2))
        handler.run_once()
        if not handler.has_more and handler.wait_ms() > 1:
            slept += 1
            assert not handler.run_once()
    assert slept
    stepped.settle()


@pytest.mark.stepped({"topic": 1}, handlers=1, processors=2, ring_bytes=4096)
def test_a_full_response_ring_stops_that_processor_only(broker: SteppedBroker) -> None:
    """Requests of a processor with a full response ring remain in its ring; none is lost and no other waits."""
    deaf, other = broker.client(0), broker.client(1)
    sent = []
    for number in range(200):
        sent.append(deaf.produce([batch_for(0, b"deaf %d" % number)]))
        broker.run_once(0)
        broker.drain(1)
    assert broker.handler(0).wait_ms() == 1
    assert not broker.released(0, 0)
    fine = other.produce([batch_for(0, b"other")])
    broker.run_once(0)
    broker.drain(1)
    assert produced(fine)[0][0] == 0
    before = broker.end("topic", 0)
    broker.replace(0)
    broker.settle(2000)
    assert broker.end("topic", 0) > before
    assert [produced(each)[0][0] for each in sent] == [0] * 200
    found = broker.values("topic", 0)
    assert [value for value in found if value != b"other"] == [b"deaf %d" % number for number in range(200)]
    assert broker.released(0, 0)


@pytest.mark.stepped({"topic": 1}, handlers=1, processors=2)
def test_h01_a_handler_reads_a_few_from_each_ring_however_full_another_is(broker: SteppedBroker) -> None:
    """Control-plane requests get a response in the next turn, after at most one batch of client requests."""
    clients, administrator = broker.client(0), broker.client(1)
    flood = [clients.send(METADATA, 4, metadata_body(["topic"])) for _ in range(10 * BATCH)]
    for answered in range(BATCH, 6 * BATCH, BATCH):
        asked = administrator.send(METADATA, 4, metadata_body(["topic"]))
        broker.run_once(0)
        for processor in (0, 1):
            broker.drain(processor)
        assert asked.answers
        assert sum(bool(sent.answers) for sent in flood) == answered
    broker.settle()
    assert all(sent.answers for sent in flood)


def test_row_14_a_request_sees_every_change_announced_before_it(
    stepped: SteppedBroker,
) -> None:
    """Row 14: a topic is deleted, recreated and requested, before each line of a handler's turn in turn."""
    client, handler = stepped.client(), stepped.handler(0)
    asked: list[tuple[int, Sent]] = []

    def make_again_and_ask() -> None:
        before = stepped.parts(CONTROLLER).metadata.topic("again")
        if before is not None:
            stepped.controller.delete_topics([before])
        partitions = len(asked) % 5 + 1
        stepped.controller.create_topics([NewTopic("again", partitions)])
        stepped.announce_metadata()
        asked.append((partitions, client.send(METADATA, 4, metadata_body(["again"]), 0)))

    while interrupted_at_line(len(asked) + 1, handler.run_once, make_again_and_ask):
        stepped.settle()
    assert len(asked) > 50
    for partitions, sent in asked:
        assert string("again") + struct.pack(">?i", False, partitions) in sent.answer.payload


def test_a_metadata_request_creates_its_topic(stepped: SteppedBroker) -> None:
    """The response waits for the controller, which is another target, and is sent as soon as it has finished."""
    sent = stepped.client().send(METADATA, 4, metadata_body(["made"], auto_create=True), 0)
    stepped.run_once(0)
    stepped.drain()
    if not sent.answers:
        stepped.settle()
    assert b"made" in sent.answer.payload
    assert stepped.partition("made", 0).index == 0


def test_acks_0_ends_without_a_response_and_an_error_closes(stepped: SteppedBroker) -> None:
    """`C13`, on the general path and then on the fast one."""
    client = stepped.client()
    batch = record_batch([b"a"])
    good = [client.produce([("topic", 0, batch)], acks=0) for _ in range(2)]
    stepped.settle()
    broken = client.produce([("topic", 0, batch[:-1] + b"\xff")], acks=0)
    unknown = client.produce([("topic", 77, batch)], acks=0)
    stepped.settle()
    assert [sent.answer.kind for sent in good] == [NO_OP, NO_OP]
    assert [sent.answer.kind for sent in (broken, unknown)] == [CLOSE_CONNECTION] * 2


def test_records_for_unknown_partitions_are_rejected(stepped: SteppedBroker) -> None:
    places = [("topic", 77), ("topic", -1), ("nowhere", 0)]
    sent = [stepped.client().produce([(*place, record_batch([b"a"]))]) for place in places]
    stepped.settle()
    assert [produced(each) for each in sent] == [[(3, -1)]] * 3


def test_min_insync_replicas_apply_to_acks_all_only(stepped: SteppedBroker) -> None:
    stepped.create("replicated", 1, {"min.insync.replicas": "2"})
    for acks, error in ((-1, 19), (1, 0)):
        sent = stepped.client().produce([("replicated", 0, record_batch([b"a"]))], acks)
        stepped.settle()
        assert produced(sent)[0][0] == error


@pytest.mark.parametrize(
    ("records", "version", "acks", "error"),
    [
        pytest.param(record_batch([b"a"]), 7, 2, 21, id="acks 2"),
        pytest.param(record_batch([b"a"]) * 2, 7, 1, 87, id="two batches"),
        pytest.param(b"", 7, 1, 87, id="no batch"),
        pytest.param(record_batch([b"a"])[:16] + b"\x01" + record_batch([b"a"])[17:], 7, 1, 87, id="magic 1"),
        pytest.param(record_batch([b"a"], codec=4), 6, 1, 76, id="zstd before 7"),
        pytest.param(record_batch([b"a"], codec=4), 7, 1, 0, id="zstd"),
        pytest.param(record_batch([b"a"])[:-1] + b"\xff", 7, 1, 2, id="checksum"),
    ],
)
@pytest.mark.parametrize("known", [False, True])
def test_c14_errors_are_per_partition(
    stepped: SteppedBroker, known: bool, records: bytes, version: int, acks: int, error: int
) -> None:
    """`C14`, on a connection with a cached request and on a new one, alone and together with a valid part."""
    good = record_batch([b"good"])
    client = stepped.client()
    if known:
        client.produce([("topic", 0, good)], acks, version)
        stepped.settle()
    alone = client.produce([("topic", 0, records)], acks, version)
    stepped.settle()
    beside = client.produce([("topic", 1, good), ("topic", 0, records)], acks, version)
    stepped.settle()
    assert produced(alone)[0][0] == error
    assert [code for code, _ in produced(beside)] == [error if acks == 2 else 0, error]
    if error and not known:
        assert stepped.end("topic", 0) == 0


def test_a_long_run_leaves_the_rest_to_the_next(stepped: SteppedBroker) -> None:
    """The remaining requests retain their memory and their order, also with a later request."""
    client = stepped.client()
    slow = [client.send(METADATA, 4, metadata_body([name]), 0) for name in ("topic", "one", "two")]
    later = client.send(API_VERSIONS, 0, b"", 0)
    handler = stepped.handler(0)
    stepped.clock.advance_ms(1)

    taken = []
    with pytest.MonkeyPatch.context() as patch:
        settle = handler._calls._settle
        patch.setattr(handler._calls, "_settle", lambda *a: (stepped.clock.advance_ms(30), settle(*a)))
        for _ in range(4):
            handler.turns.begin(stepped.clock.monotonic_ns())
            assert handler.run_once()
            handler.turns.end(stepped.clock.monotonic_ns())
            stepped.drain()
            taken.append(sum(bool(sent.answers) for sent in [*slow, later]))
    assert taken == [1, 2, 3, 4]
    stepped.settle()
    assert stepped.released(0, 0)
    assert [len(sent.answers) for sent in [*slow, later]] == [1, 1, 1, 1]
