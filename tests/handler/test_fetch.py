"""Fetch: from any handler, parked on rows, with records inline, by file ranges, or by its own file (``E06``)."""

from __future__ import annotations

import struct
from collections.abc import Sequence

import pytest

from rotunda.broker.ipc import response_writer
from rotunda.broker.ipc.request_channel import CLOSE_CONNECTION
from rotunda.broker.log.log_reader import FileSlice
from rotunda.broker.partitions.fetch import fetches
from rotunda.broker.partitions.fetch.fetch import Fetch
from rotunda.broker.partitions.fetch.fetches import MOST_WAIT_MS, Fetches
from rotunda.broker.scheduling import purgatory
from rotunda.broker.scheduling import slices as slices_module
from rotunda.shm.tables.moved_rows import CAPACITY
from rotunda.shm.tables.partitions import PartitionTable
from tests.support.record_batches import record_batch
from tests.support.stepped_broker import Client, Sent, SteppedBroker, batch_for, produced
from tests.support.wire_messages import FETCH, Fetched, fetch_body, fetch_body_of, read_batches, read_fetch

VERSION = 11
OUT_OF_RANGE, UNKNOWN_TOPIC, NOT_LEADER, UNKNOWN_EPOCH = 1, 3, 6, 75


def fetch(client: Client, partition: int, offset: int = 0, target: int | None = None, **options: int) -> Sent:
    return client.send(FETCH, VERSION, fetch_body("topic", partition, offset, **options), target)


def fetch_many(client: Client, places: Sequence[tuple[int, int]], max_bytes: int, size: int = 1 << 20) -> Sent:
    """Fetch from (partition, offset) of the topic, without waiting."""
    body = fetch_body_of([("topic", *place) for place in places], max_bytes=max_bytes, size=size)
    return client.send(FETCH, VERSION, body)


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
    """E22."""
    partition = stepped.owned_by("topic", 0)[0]
    fill(stepped, partition, [b"a", b"b"], [b"c"])
    sent = fetch(stepped.client(), partition, 0, handler)
    stepped.run_once(handler)
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


def test_the_first_batch_is_whole_and_no_further_one_exceeds_the_limit(stepped: SteppedBroker) -> None:
    """KIP-74: a batch larger than every limit does not stop its consumer."""
    for partition in range(2):
        fill(stepped, partition, [b"z" * 5_000])
    sent = fetch_many(stepped.client(), [(0, 0), (1, 0)], 100, 100)
    stepped.settle()
    first, second = read_fetch(sent.answer.payload[8:])
    assert len(first.records) > 5_000
    assert second.records == b""


def test_a_response_with_too_many_fields_for_a_ring_travels_as_a_file(
    stepped: SteppedBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(response_writer, "MOST_ENVELOPE_BYTES", 100)
    for partition in range(4):
        fill(stepped, partition, [b"%d" % partition * 50_000])
    sent = fetch_many(stepped.client(), [(partition, 0) for partition in range(4)], 1 << 20)
    stepped.settle()
    assert sent.answer.ranges == 1
    parts = read_fetch(sent.answer.payload[8:])
    assert [len(part.records) > 50_000 for part in parts] == [True] * 4
    assert not list(stepped.context.run_dir.iterdir())


@pytest.mark.parametrize(("offset", "error"), [(-1, OUT_OF_RANGE), (2, OUT_OF_RANGE), (2**62, OUT_OF_RANGE), (1, 0)])
def test_an_offset_outside_the_log(stepped: SteppedBroker, offset: int, error: int) -> None:
    fill(stepped, 0, [b"a"])
    sent = fetch(stepped.client(), 0, offset, max_wait_ms=60_000 if error else 0)
    stepped.settle()
    assert found(sent).error_code == error
    # As in Kafka an error has no offsets.
    assert found(sent).high_watermark == (-1 if error else 1)


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


# ---- parked ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("own", [True, False])
def test_an_append_wakes_the_fetch_that_waits_for_it(stepped: SteppedBroker, own: bool) -> None:
    """E06: in its own handler in the same turn; in another through the flag, with that handler's bell only."""
    partition = stepped.owned_by("topic", 0)[0]
    handler = 0 if own else 1
    sent = fetch(stepped.client(), partition, 0, handler, max_wait_ms=10_000)
    stepped.run_once(handler)
    row = stepped.partition("topic", partition).row
    assert stepped.context.partitions.waiters(row) == [handler]
    stepped.client().produce([batch_for(partition, b"new")])
    drain_bells(stepped)
    stepped.run_once(0)
    if not own:
        assert stepped.context.target_bells[1].wait(0)
        assert not stepped.context.target_bells[0].wait(0)
        stepped.run_once(1)
    stepped.drain()
    assert values(sent) == [b"new"]
    # The flag is set for the consumer's next fetch; when the row moves and no fetch waits, it is cleared.
    assert stepped.context.partitions.waiters(row) == [handler]
    fill(stepped, partition, [b"newer"])
    assert stepped.context.partitions.waiters(row) == []


def drain_bells(broker: SteppedBroker) -> None:
    for bell in broker.context.target_bells:
        while bell.wait(0):
            pass


def test_an_append_between_the_look_and_the_flag_is_not_missed(
    stepped: SteppedBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    partition = stepped.owned_by("topic", 0)[0]
    table = stepped.context.partitions
    real = type(table).raise_flags

    def append_first(self: object, rows: object, handler: int) -> None:
        monkeypatch.undo()
        stepped.client().produce([batch_for(partition, b"raced")])
        stepped.run_once(0)
        real(self, rows, handler)  # type: ignore[arg-type]

    monkeypatch.setattr(type(table), "raise_flags", append_first)
    sent = fetch(stepped.client(), partition, 0, 1, max_wait_ms=10_000)
    stepped.run_once(1)
    stepped.drain()
    assert values(sent) == [b"raced"]


def test_an_owner_that_dies_between_commit_and_bell_leaves_nobody_waiting(stepped: SteppedBroker) -> None:
    partition = stepped.owned_by("topic", 0)[0]
    sent = fetch(stepped.client(), partition, 0, 1, max_wait_ms=10_000)
    stepped.run_once(1)
    stepped.client().produce([batch_for(partition, b"new")])
    line = 1
    while stepped.end("topic", partition) == 0:
        # Die one line later each time, until the end is published.
        assert stepped.turn_until_line(0, line)
        stepped.replace(0)
        line += 1
    assert stepped.handler(1).wait_ms() <= 300
    stepped.run_once(1)
    stepped.drain()
    assert values(sent) == [b"new"]


def test_min_bytes_and_the_deadline(stepped: SteppedBroker) -> None:
    sent = fetch(stepped.client(), 0, 0, max_wait_ms=500, min_bytes=10_000)
    fill(stepped, 0, [b"little"])
    assert not sent.answers
    assert 0 < stepped.handler(sent.target).wait_ms() <= 300
    stepped.clock.advance_ms(501)
    stepped.run_once(sent.target)
    stepped.drain()
    assert values(sent) == [b"little"]


def test_a_replacement_keeps_the_deadline_of_a_parked_fetch(stepped: SteppedBroker) -> None:
    sent = fetch(stepped.client(), 0, 0, max_wait_ms=500)
    stepped.clock.advance_ms(400)
    stepped.replace(sent.target)
    client, sequence = next((c, s) for c in stepped._clients.values() for s, each in c.sent.items() if each is sent)
    stepped.put(client, sequence)
    stepped.run_once(sent.target)
    stepped.drain()
    assert not sent.answers
    stepped.clock.advance_ms(101)
    stepped.run_once(sent.target)
    stepped.drain()
    assert values(sent) == []


def test_min_bytes_beyond_max_bytes_is_not_waited_for(stepped: SteppedBroker) -> None:
    fill(stepped, 0, [b"x" * 200], [b"y" * 200])
    at_once = fetch(stepped.client(), 0, 0, max_wait_ms=500, min_bytes=1 << 20, size=200)
    stepped.run_once(at_once.target)
    stepped.drain()
    assert values(at_once) == [b"x" * 200]


@pytest.mark.parametrize("handler", [0, 1])
@pytest.mark.parametrize("again", [False, True])
def test_a_fetch_survives_the_deletion_of_its_topic(stepped: SteppedBroker, handler: int, again: bool) -> None:
    """Deleted, or deleted and recreated under the same name before any handler has noticed."""
    partition = stepped.owned_by("topic", 0)[0]
    sent = fetch(stepped.client(), partition, 0, handler, max_wait_ms=1000)
    stepped.run_once(handler)
    stepped.delete("topic")
    if again:
        stepped.controller.auto_create(["topic"])
        stepped.announce_metadata()
    for _ in range(3):
        stepped.run_once(1 - handler)
        stepped.run_once(handler)
    stepped.clock.advance_ms(1001)
    stepped.settle()
    assert len(sent.answers) == 1
    assert found(sent).error_code in ((NOT_LEADER, 0) if again and partition == 0 else (UNKNOWN_TOPIC,))
    assert stepped.handler(handler).wait_ms() == 300


@pytest.mark.parametrize("parked", [False, True])
def test_a_topic_deleted_between_search_and_read_is_an_error_of_its_partitions(
    stepped: SteppedBroker, monkeypatch: pytest.MonkeyPatch, parked: bool
) -> None:
    """The connection remains, and records of other partitions are returned."""
    stepped.create("stays", 1)
    partition = stepped.owned_by("topic", 0)[0]
    real = Fetches._read_records

    def deleted_first(path: Fetches, found: FileSlice) -> bytes:
        monkeypatch.undo()
        stepped.delete("topic")
        stepped.run_once(0)
        return real(path, found)

    def fill_both() -> None:
        for topic, index in (("topic", partition), ("stays", 0)):
            stepped.client().produce([(topic, index, record_batch([b"record"]))])

    body = fetch_body_of([("topic", partition, 0), ("stays", 0, 0)], max_wait_ms=1000)
    if not parked:
        fill_both()
        stepped.settle()
    monkeypatch.setattr(Fetches, "_read_records", deleted_first)
    sent = stepped.client().send(FETCH, VERSION, body, 1)
    if parked:
        stepped.run_once(1)
        assert not sent.answers
        fill_both()
    stepped.settle()
    gone, other = read_fetch(sent.answer.payload[8:])
    assert gone.error_code in (UNKNOWN_TOPIC, NOT_LEADER)
    assert gone.records == b""
    assert [record.value for record in read_batches(other.records)] == [b"record"]


def test_a_segment_that_vanishes_repeatedly_is_an_error_of_its_partition(
    stepped: SteppedBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(stepped, 0, [b"there"])
    reads: list[int] = []

    def gone(*_: object) -> bytes:
        reads.append(1)
        raise FileNotFoundError("gone")

    monkeypatch.setattr(Fetches, "_read_records", gone)
    sent = fetch(stepped.client(), 0, 0, max_wait_ms=1000)
    stepped.settle()
    assert found(sent).error_code == NOT_LEADER
    assert len(reads) == 1 + fetches.ATTEMPTS


# ---- many partitions and many fetches -------------------------------------------------------------------------------


class Work:
    """Counts the reads of partitions, by the short check and by the full one."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.short = self.long = 0
        short, long = PartitionTable.read_fetched, Fetches._read_part

        def read_fetched(table: PartitionTable, row: int) -> tuple[int, int, int, int, int]:
            self.short += 1
            return short(table, row)

        def read_part(reader: Fetches, *args: object) -> None:
            self.long += 1
            long(reader, *args)  # type: ignore[arg-type]

        monkeypatch.setattr(PartitionTable, "read_fetched", read_fetched)
        monkeypatch.setattr(Fetches, "_read_part", read_part)

    def taken(self) -> tuple[int, int]:
        """Return the counts since the last call."""
        counts, self.short, self.long = (self.short, self.long), 0, 0
        return counts


@pytest.mark.parametrize("handler", [0, 1])
def test_a_poll_of_many_idle_partitions_reads_each_once(
    stepped: SteppedBroker, monkeypatch: pytest.MonkeyPatch, handler: int
) -> None:
    """For any owner, except in the first poll; when one partition moves, only that one is read again."""
    stepped.create("wide", 40)
    client, work = stepped.client(), Work(monkeypatch)

    def poll() -> Sent:
        body = fetch_body_of([("wide", index, 0) for index in range(40)], max_wait_ms=1000)
        return client.send(FETCH, VERSION, body, handler)

    first = poll()
    stepped.run_once(handler)
    # Twice, because the flags were cleared at the first read.
    assert work.taken() == (80, 0)
    stepped.clock.advance_ns(1_000_000_000)
    stepped.run_once(handler)
    assert work.taken() == (0, 0)
    second = poll()
    stepped.run_once(handler)
    assert work.taken() == (40, 0)
    for _ in range(5):
        stepped.run_once(handler)
    assert work.taken() == (0, 0)
    stepped.client().produce([("wide", 7, record_batch([b"new"]))])
    stepped.settle()
    assert work.taken() == (1, 1)
    assert [len(part.records) > 0 for part in read_fetch(first.answer.payload[8:])] == [False] * 40
    assert [len(part.records) > 0 for part in read_fetch(second.answer.payload[8:])] == [n == 7 for n in range(40)]


@pytest.mark.parametrize("enough", [False, True])
def test_a_large_fetch_is_read_in_slices_between_which_others_are_served(
    stepped: SteppedBroker, monkeypatch: pytest.MonkeyPatch, enough: bool
) -> None:
    """And a row that moves meanwhile is read again, although its flag was set already."""
    monkeypatch.setattr(fetches, "PARTS_AT_ONCE", 4)
    monkeypatch.setattr(fetches, "PARTS_IN_A_STEP", 4)
    stepped.create("wide", 40)
    first_own = stepped.owned_by("wide", 0)[0]
    places = [first_own, *(index for index in range(40) if index != first_own)]

    def poll(min_bytes: int = 1) -> Sent:
        body = fetch_body_of([("wide", index, 0) for index in places], max_wait_ms=60_000, min_bytes=min_bytes)
        return stepped.client().send(FETCH, VERSION, body, 0)

    watcher = poll(1 << 20)
    stepped.settle(20)
    slices: list[int] = []
    read = Fetches.read

    def slow(serving: Fetches, fetch: Fetch, indices: Sequence[int]) -> None:
        read(serving, fetch, indices)
        if not isinstance(indices, range):
            # The moved partitions.
            return
        slices.append(len(indices))
        stepped.clock.advance_ns(slices_module.BUDGET_NS)

    monkeypatch.setattr(Fetches, "read", slow)
    sent = poll(1 if enough else 10_000)
    for turns in range(1, 4):
        stepped.run_once(0)
        # The first step's partitions, then as many in each turn.
        assert slices == [4] * (turns + 1)
        assert stepped.handler(0).wait_ms() == 0
    other = stepped.client().produce([("wide", first_own, record_batch([b"moved"]))])
    stepped.run_once(0)
    stepped.drain()
    assert produced(other) == [(0, 0)]
    stepped.settle(20)
    assert slices == [4] * 10
    assert bool(sent.answers) == enough
    stepped.clock.advance_ms(60_001)
    stepped.settle()
    for each in (sent, watcher):
        parts = read_fetch(each.answer.payload[8:])
        assert [len(list(read_batches(part.records))) for part in parts] == [1] + [0] * 39


def test_a_fetch_of_more_partitions_than_there_can_be_closes_its_connection(
    stepped: SteppedBroker, caplog: pytest.LogCaptureFixture
) -> None:
    sent = fetch_many(stepped.client(), [(0, 0)] * (2 * stepped.config.max_partitions + 1), 1 << 20)
    stepped.settle()
    assert sent.answer.kind == CLOSE_CONNECTION
    assert "may be named" in caplog.text


def test_a_partition_that_is_named_twice_has_two_responses(stepped: SteppedBroker) -> None:
    sent = stepped.client().send(FETCH, VERSION, fetch_body_of([("topic", 0, 0)] * 2, max_wait_ms=1000))
    stepped.settle(5)
    fill(stepped, 0, [b"new"])
    parts = read_fetch(sent.answer.payload[8:])
    assert [[record.value for record in read_batches(part.records)] for part in parts] == [[b"new"]] * 2


def test_a_handler_that_lags_checks_every_watched_row(stepped: SteppedBroker) -> None:
    """More rows have moved than fit into an owner's list for it."""
    partition = stepped.owned_by("topic", 0)[0]
    row = stepped.partition("topic", partition).row
    sent = fetch(stepped.client(), partition, 0, 1, max_wait_ms=10_000)
    stepped.run_once(1)
    moved = stepped.context.partitions.moved_rows
    stepped.client().produce([batch_for(partition, b"new")])
    stepped.run_once(0)
    for _ in range(CAPACITY):
        moved.note(0, 1, row + 1)
    stepped.run_once(1)
    stepped.drain()
    assert values(sent) == [b"new"]


def test_beyond_the_limit_of_parked_fetches_a_fetch_completes_at_once(
    stepped: SteppedBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its client retries. The waiting ones continue to wait."""
    monkeypatch.setattr(purgatory, "MOST_OPERATIONS", 3)
    waiting = [fetch(stepped.client(), 0, target=0, max_wait_ms=10_000) for _ in range(5)]
    stepped.settle()
    assert [bool(sent.answers) for sent in waiting] == [False, False, False, True, True]
    handlers = [handler.counters()["fetches_not_parked"] for handler in stepped.handlers if handler is not None]
    assert sum(handlers) == 2
    fill(stepped, 0, [b"a"])
    stepped.settle()
    assert all(sent.answers for sent in waiting)


def test_a_client_does_not_choose_to_wait_for_weeks(stepped: SteppedBroker) -> None:
    """It may have disconnected, and its request would never be removed."""
    sent = fetch(stepped.client(), 0, max_wait_ms=2**31 - 1)
    stepped.settle()
    assert not sent.answers
    stepped.clock.advance_ms(MOST_WAIT_MS)
    stepped.settle()
    assert found(sent).error_code == 0
