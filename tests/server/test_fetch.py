"""Fetch: from any handler, parked on rows, answered inline, by file ranges, or by a file of its own (``E06``)."""

from __future__ import annotations

import struct
from collections.abc import Sequence

import pytest

from broker.request_channel import CLOSE_CONNECTION
from broker.server import fetch as fetch_module
from tests.support.record_batches import record_batch
from tests.support.stepped_broker import Client, Sent, SteppedBroker, produced
from tests.support.wire_messages import FETCH, Fetched, fetch_body, read_batches, read_fetch, string

VERSION = 11
OUT_OF_RANGE, UNKNOWN_TOPIC, NOT_LEADER, UNKNOWN_EPOCH = 1, 3, 6, 75


def fetch(client: Client, partition: int, offset: int = 0, target: int | None = None, **options: int) -> Sent:
    return client.send(FETCH, VERSION, fetch_body("topic", partition, offset, **options), target)


def fetch_many(client: Client, places: Sequence[tuple[int, int]], max_bytes: int, size: int = 1 << 20) -> Sent:
    """Fetch from (partition, offset) of the topic, at once."""
    body = struct.pack(">iiiibiii", -1, 0, 1, max_bytes, 0, 0, -1, 1) + string("topic")
    body += struct.pack(">i", len(places))
    body += b"".join(struct.pack(">iiqqi", partition, -1, offset, -1, size) for partition, offset in places)
    return client.send(FETCH, VERSION, body + struct.pack(">i", 0) + string(""))


def found(sent: Sent) -> Fetched:
    return read_fetch(sent.answer.payload[8:])[0]


def values(sent: Sent) -> list[bytes]:
    answer = found(sent)
    assert answer.error_code == 0
    return [record.value for record in read_batches(answer.records)]


def fill(broker: SteppedBroker, partition: int, *batches: Sequence[bytes]) -> None:
    for batch in batches:
        sent = broker.client().produce([("topic", partition, record_batch(batch))])
        broker.settle()
        assert produced(sent)[0][0] == 0


@pytest.mark.parametrize("handler", [0, 1])
def test_any_handler_serves_any_partition(stepped: SteppedBroker, handler: int) -> None:
    partition = stepped.owned_by("topic", 0)[0]
    fill(stepped, partition, [b"a", b"b"], [b"c"])
    sent = fetch(stepped.client(), partition, 0, handler)
    stepped.turn(handler)
    stepped.drain()
    assert values(sent) == [b"a", b"b", b"c"]
    assert found(sent).high_watermark == 3


def test_long_records_stay_in_their_file(stepped: SteppedBroker) -> None:
    fill(stepped, 0, [b"x" * 40_000], [b"y" * 100])
    sent = fetch(stepped.client(), 0)
    stepped.settle()
    assert sent.answer.ranges == 1
    assert values(sent) == [b"x" * 40_000, b"y" * 100]


def test_several_partitions_in_several_ranges(stepped: SteppedBroker) -> None:
    for partition in range(4):
        fill(stepped, partition, [b"%d" % partition * 30_000])
    sent = fetch_many(stepped.client(), [(partition, 0) for partition in range(4)], 1 << 20)
    stepped.settle()
    assert sent.answer.ranges == 4
    for partition, part in enumerate(read_fetch(sent.answer.payload[8:])):
        assert [record.value for record in read_batches(part.records)] == [b"%d" % partition * 30_000]


def test_the_first_batch_comes_whole_and_no_further_one_beyond_the_limit(stepped: SteppedBroker) -> None:
    """KIP-74: a batch larger than every limit does not stop its consumer."""
    for partition in range(2):
        fill(stepped, partition, [b"z" * 5_000])
    sent = fetch_many(stepped.client(), [(0, 0), (1, 0)], 100, 100)
    stepped.settle()
    first, second = read_fetch(sent.answer.payload[8:])
    assert len(first.records) > 5_000
    assert second.records == b""


def test_an_answer_with_too_many_fields_for_a_ring_travels_as_a_file(
    stepped: SteppedBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fetch_module, "INLINE_ENVELOPE_BYTES", 100)
    for partition in range(4):
        fill(stepped, partition, [b"%d" % partition * 50_000])
    sent = fetch_many(stepped.client(), [(partition, 0) for partition in range(4)], 1 << 20)
    stepped.settle()
    assert sent.answer.ranges == 1
    parts = read_fetch(sent.answer.payload[8:])
    assert [len(part.records) > 50_000 for part in parts] == [True] * 4
    assert not list(stepped.heritage.run_dir.iterdir())


@pytest.mark.parametrize(("offset", "error"), [(-1, OUT_OF_RANGE), (2, OUT_OF_RANGE), (1, 0)])
def test_an_offset_outside_the_log(stepped: SteppedBroker, offset: int, error: int) -> None:
    fill(stepped, 0, [b"a"])
    sent = fetch(stepped.client(), 0, offset)
    stepped.settle()
    assert found(sent).error_code == error


def test_a_partition_that_does_not_exist(stepped: SteppedBroker) -> None:
    sent = fetch(stepped.client(), 9, max_wait_ms=1000)
    stepped.settle()
    assert found(sent).error_code == UNKNOWN_TOPIC


@pytest.mark.parametrize(("epoch", "error"), [(-1, 0), (0, 0), (1, UNKNOWN_EPOCH)])
def test_the_leader_epoch_of_the_consumer(stepped: SteppedBroker, epoch: int, error: int) -> None:
    """KIP-320."""
    body = bytearray(fetch_body("topic", 0, 0))
    at = body.index(b"topic") + 5 + 8
    body[at : at + 4] = struct.pack(">i", epoch)
    sent = stepped.client().send(FETCH, VERSION, bytes(body))
    stepped.settle()
    assert found(sent).error_code == error


def test_a_session_is_never_gone_on_with(stepped: SteppedBroker) -> None:
    body = struct.pack(">iiiibiii", -1, 0, 1, 1 << 20, 0, 77, 3, 0) + struct.pack(">i", 0) + string("")
    sent = stepped.client().send(FETCH, VERSION, body)
    stepped.settle()
    assert struct.unpack_from(">h", sent.answer.payload, 12) == (70,)


# ---- parked ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("own", [True, False])
def test_an_append_wakes_the_fetch_that_waits_for_it(stepped: SteppedBroker, own: bool) -> None:
    """By its own handler in the same turn; by another one through the flag, with the bell of that handler alone."""
    partition = stepped.owned_by("topic", 0)[0]
    handler = 0 if own else 1
    sent = fetch(stepped.client(), partition, 0, handler, max_wait_ms=10_000)
    stepped.turn(handler)
    row = stepped.partition("topic", partition).row
    assert stepped.heritage.partitions.waiters(row) == [handler]
    stepped.client().produce([("topic", partition, record_batch([b"new"]))])
    drain_bells(stepped)
    stepped.turn(0)
    if not own:
        assert stepped.heritage.target_bells[1].wait(0)
        assert not stepped.heritage.target_bells[0].wait(0)
        stepped.turn(1)
    stepped.drain()
    assert values(sent) == [b"new"]
    assert stepped.heritage.partitions.waiters(row) == []


def drain_bells(broker: SteppedBroker) -> None:
    for bell in broker.heritage.target_bells:
        while bell.wait(0):
            pass


def test_an_append_between_the_look_and_the_flag_is_not_missed(
    stepped: SteppedBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    partition = stepped.owned_by("topic", 0)[0]
    table = stepped.heritage.partitions
    real = type(table).set_waiting

    def append_first(self: object, row: int, handler: int, flag: bool) -> None:
        monkeypatch.undo()
        stepped.client().produce([("topic", partition, record_batch([b"raced"]))])
        stepped.turn(0)
        real(self, row, handler, flag)  # type: ignore[arg-type]

    monkeypatch.setattr(type(table), "set_waiting", append_first)
    sent = fetch(stepped.client(), partition, 0, 1, max_wait_ms=10_000)
    stepped.turn(1)
    stepped.drain()
    assert values(sent) == [b"raced"]


def test_an_owner_that_dies_between_commit_and_bell_leaves_nobody_waiting(stepped: SteppedBroker) -> None:
    partition = stepped.owned_by("topic", 0)[0]
    sent = fetch(stepped.client(), partition, 0, 1, max_wait_ms=10_000)
    stepped.turn(1)
    stepped.client().produce([("topic", partition, record_batch([b"new"]))])
    line = 1
    while stepped.end("topic", partition) == 0:
        # Die one line later each time, until the end has been published.
        assert stepped.turn_until_line(0, line)
        stepped.replace(0)
        line += 1
    assert stepped.handler(1).wait_ms() <= 300
    stepped.turn(1)
    stepped.drain()
    assert values(sent) == [b"new"]


def test_min_bytes_and_the_deadline(stepped: SteppedBroker) -> None:
    sent = fetch(stepped.client(), 0, 0, max_wait_ms=500, min_bytes=10_000)
    fill(stepped, 0, [b"little"])
    assert not sent.answers
    assert 0 < stepped.handler(sent.target).wait_ms() <= 300
    stepped.clock.advance_ms(501)
    stepped.turn(sent.target)
    stepped.drain()
    assert values(sent) == [b"little"]


def test_a_replacement_does_not_let_a_parked_fetch_wait_anew(stepped: SteppedBroker) -> None:
    sent = fetch(stepped.client(), 0, 0, max_wait_ms=500)
    stepped.clock.advance_ms(400)
    stepped.replace(sent.target)
    client, sequence = next((c, s) for c in stepped._clients.values() for s, each in c.sent.items() if each is sent)
    stepped.put(client, sequence)
    stepped.turn(sent.target)
    stepped.drain()
    assert not sent.answers
    stepped.clock.advance_ms(101)
    stepped.turn(sent.target)
    stepped.drain()
    assert values(sent) == []


def test_min_bytes_beyond_what_may_be_answered_is_not_waited_for(stepped: SteppedBroker) -> None:
    fill(stepped, 0, [b"x" * 200], [b"y" * 200])
    sent = fetch(stepped.client(), 0, 0, max_wait_ms=500, min_bytes=1 << 20, size=300)
    stepped.turn(sent.target)
    stepped.drain()
    # What fits counts 300 bytes at most; a single batch of less is not enough and waits as in Kafka.
    stepped.clock.advance_ms(501)
    stepped.turn(sent.target)
    stepped.drain()
    assert values(sent) == [b"x" * 200]
    at_once = fetch(stepped.client(), 0, 0, max_wait_ms=500, min_bytes=1 << 20, size=200)
    stepped.turn(at_once.target)
    stepped.drain()
    assert values(at_once) == [b"x" * 200]


@pytest.mark.parametrize("handler", [0, 1])
@pytest.mark.parametrize("again", [False, True])
def test_a_topic_that_goes_takes_no_fetch_with_it(stepped: SteppedBroker, handler: int, again: bool) -> None:
    """Deleted, or deleted and created again under the same name before anybody has noticed."""
    partition = stepped.owned_by("topic", 0)[0]
    sent = fetch(stepped.client(), partition, 0, handler, max_wait_ms=1000)
    stepped.turn(handler)
    stepped.delete("topic")
    if again:
        controller = stepped.state(2).controller
        assert controller is not None
        controller.auto_create(["topic"])
        stepped.state(2).announce_metadata()
    for _ in range(3):
        stepped.turn(1 - handler)
        stepped.turn(handler)
    stepped.clock.advance_ms(1001)
    stepped.settle()
    assert len(sent.answers) == 1
    assert found(sent).error_code in ((NOT_LEADER, 0) if again and partition == 0 else (UNKNOWN_TOPIC,))
    assert stepped.handler(handler).wait_ms() == 300


def test_a_topic_of_the_same_name_starts_anew(stepped: SteppedBroker) -> None:
    fill(stepped, 0, [b"old"], [b"old"])
    stepped.delete("topic")
    stepped.settle()
    stepped.create("topic", 4)
    fill(stepped, 0, [b"new"])
    for handler in (0, 1):
        sent = fetch(stepped.client(), 0, 0, handler)
        stepped.settle()
        assert values(sent) == [b"new"]


def test_a_replacement_serves_the_fetch_that_was_parked(stepped: SteppedBroker) -> None:
    partition = stepped.owned_by("topic", 0)[0]
    sent = fetch(stepped.client(), partition, 0, 1, max_wait_ms=10_000)
    stepped.turn(1)
    row = stepped.partition("topic", partition).row
    stepped.kill(1)
    stepped.boot(1)
    assert stepped.heritage.partitions.waiters(row) == []
    stepped.replace(1)
    stepped.turn(1)
    assert stepped.heritage.partitions.waiters(row) == [1]
    fill(stepped, partition, [b"new"])
    assert values(sent) == [b"new"]


def test_a_parked_fetch_whose_file_has_gone_closes_its_connection(
    stepped: SteppedBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent = fetch(stepped.client(), 0, 0, max_wait_ms=1000)
    stepped.turn(sent.target)

    def gone(*_: object) -> bytes:
        raise FileNotFoundError("gone")

    monkeypatch.setattr(fetch_module.FetchPath, "_read", gone)
    stepped.client().produce([("topic", 0, record_batch([b"new"]))])
    stepped.settle()
    assert [answer.kind for answer in sent.answers] == [CLOSE_CONNECTION]
