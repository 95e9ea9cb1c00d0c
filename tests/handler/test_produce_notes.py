"""The notes that make a replay exact: after failed commits, rejections, duplicates, and rollbacks at takeover."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable

import pytest

from rotunda.broker.log.partition_log import PartitionLog
from rotunda.broker.log.segments import log_segment
from rotunda.broker.metadata.configs.config_changes import TOPIC
from tests.support.fakes import failing
from tests.support.record_batches import record_batch
from tests.support.stepped_broker import Killed, Sent, SteppedBroker, batch_for, produced
from tests.support.wire_messages import read_produce

STORAGE_ERROR, OUT_OF_ORDER, UNKNOWN_TOPIC = 56, 45, 3


@pytest.fixture
def with_full_disk(stepped: SteppedBroker, monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[], object]], None]:
    """Return a function that calls another while all segment writes fail; a second later there is space again."""

    def call(do: Callable[[], object]) -> None:
        with monkeypatch.context() as patch:
            patch.setattr(log_segment.os, "pwritev", failing(OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))))
            do()
        stepped.clock.advance_ms(1_100)
        for handler in (0, 1):
            stepped.parts(handler).partitions.storage.tick()

    return call


@pytest.mark.parametrize("known", [False, True])
def test_a_batch_that_was_not_written_is_rejected_again_by_a_replacement(
    stepped: SteppedBroker, with_full_disk: Callable[[Callable[[], object]], None], known: bool
) -> None:
    """Although later records have passed its offset meanwhile, and although there is space for it now."""
    own, foreign = (stepped.owned_by("topic", owner)[0] for owner in (0, 1))
    client = stepped.client()
    if known:
        client.produce([batch_for(own, b"known")])
        stepped.settle()
    # An earlier request that waits for its other owner holds all later ones in the ring.
    client.produce([batch_for(own, b"first"), batch_for(foreign, b"held")])
    stepped.run_once(0)
    if known:
        stepped.client().produce([batch_for(own, b"again")])
        stepped.run_once(0)
    failed = client.produce([batch_for(own, b"failed")])
    with_full_disk(lambda: stepped.run_once(0))
    for number in range(3):
        stepped.client().produce([batch_for(own, b"later %d" % number)])
    stepped.run_once(0)
    stepped.replace(0)
    stepped.settle()
    assert [produced_of(answer.payload) for answer in failed.answers] == [[STORAGE_ERROR]] * 2
    assert b"failed" not in stepped.values("topic", own)
    assert b"later 2" in stepped.values("topic", own)


def test_a_full_disk_rejects_all_requests_of_known_connections(
    stepped: SteppedBroker, with_full_disk: Callable[[Callable[[], object]], None]
) -> None:
    own = stepped.owned_by("topic", 0)[0]
    clients = [stepped.client() for _ in range(3)]

    def send(value: bytes) -> list[Sent]:
        return [client.produce([batch_for(own, value)]) for client in clients]

    send(b"known")
    stepped.settle()
    failed = send(b"failed")
    with_full_disk(lambda: stepped.run_once(0))
    later = send(b"later")
    stepped.settle()
    assert [produced(each) for each in failed] == [[(STORAGE_ERROR, -1)]] * 3
    assert [produced(each) for each in later] == [[(0, offset)] for offset in (3, 4, 5)]
    assert stepped.values("topic", own) == [b"known"] * 3 + [b"later"] * 3


def produced_of(payload: bytes) -> list[int]:
    return [part.error_code for part in read_produce(payload[8:])]


def test_a_forwarded_part_that_could_not_be_written_is_not_acknowledged_later(
    stepped: SteppedBroker, with_full_disk: Callable[[Callable[[], object]], None]
) -> None:
    own, foreign = (stepped.owned_by("topic", owner)[0] for owner in (0, 1))
    parts = [batch_for(own, b"own"), batch_for(foreign, b"failed")]
    sent = stepped.client().produce(parts)
    stepped.run_once(0)
    with_full_disk(lambda: stepped.run_once(1))
    stepped.client().produce([batch_for(foreign, b"later")])
    stepped.run_once(1)
    stepped.replace(0)
    stepped.settle()
    assert [error for error, _ in produced(sent)] == [0, STORAGE_ERROR]
    assert stepped.values("topic", foreign) == [b"later"]
    assert stepped.values("topic", own) == [b"own"]


def test_a_duplicate_of_an_appended_batch_succeeds_though_its_commit_fails(
    stepped: SteppedBroker, with_full_disk: Callable[[Callable[[], object]], None]
) -> None:
    """`G26`."""
    batch = record_batch([b"a"], producer_id=7, producer_epoch=0, base_sequence=0)
    client = stepped.client()
    first = client.produce([("topic", 0, batch)])
    stepped.settle()
    again = client.produce([("topic", 0, batch)])
    other = stepped.client().produce([("topic", 0, batch)])
    failing = stepped.client().produce([batch_for(0, b"b")])
    with_full_disk(lambda: stepped.run_once(first.target))
    stepped.drain()
    assert [produced(sent) for sent in (first, again, other)] == [[(0, 0)]] * 3
    assert produced(failing) == [(STORAGE_ERROR, -1)]


@pytest.mark.parametrize("known", [False, True])
def test_a_rejection_is_repeated_after_the_end_of_its_cause(stepped: SteppedBroker, known: bool) -> None:
    """The client may have resent the records: to append them now would duplicate them."""
    own, foreign = (stepped.owned_by("topic", owner)[0] for owner in (0, 1))
    fields = {"producer_id": 9, "producer_epoch": 0}
    client = stepped.client()
    client.produce([("topic", own, record_batch([b"0"], base_sequence=0, **fields))])
    stepped.settle()
    if not known:
        client = stepped.client()
    stepped.client().produce([batch_for(own, b"x"), batch_for(foreign, b"held")])
    early = client.produce([("topic", own, record_batch([b"2"], base_sequence=2, **fields))])
    unknown = stepped.client().produce([("new", 0, record_batch([b"n"]))], acks=1)
    stepped.client().produce([("topic", own, record_batch([b"1"], base_sequence=1, **fields))])
    stepped.run_once(0)
    stepped.run_once(unknown.target)
    stepped.create("new", 1)
    stepped.replace(0)
    stepped.settle()
    assert [produced_of(answer.payload)[0] for answer in early.answers] == [OUT_OF_ORDER] * len(early.answers)
    assert [produced_of(answer.payload)[0] for answer in unknown.answers] == [UNKNOWN_TOPIC] * len(unknown.answers)
    assert stepped.values("topic", own) == [b"0", b"x", b"1"]
    assert stepped.values("new", 0) == []


def test_a_client_that_sends_base_offsets_of_its_own_is_not_believed(stepped: SteppedBroker) -> None:
    """They are not valid notes of an offset or a rejection. Only the broker assigns the first offset of a batch."""
    client = stepped.client()
    sent = []
    for offset in (5, 0, 1 << 40, -1, -1003, -(1 << 60)):
        sent.append(client.produce([("topic", 0, record_batch([b"%d" % offset], base_offset=offset))]))
        stepped.settle()
    outcomes = [produced(each)[0] for each in sent]
    stored = stepped.values("topic", 0)
    assert [error for error, _ in outcomes] == [0] * 6
    assert [offset for _, offset in outcomes] == list(range(6))
    assert len(stored) == 6


def test_a_torn_write_is_cut_off_and_written_again(stepped: SteppedBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    own = stepped.owned_by("topic", 0)[0]
    sent = [stepped.client().produce([batch_for(own, b"%d" % number)]) for number in range(3)]

    def torn(fd: int, chunks: list[memoryview], position: int) -> int:
        os.pwrite(fd, b"".join(bytes(chunk) for chunk in chunks)[:100], position)
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(log_segment.os, "pwritev", torn)
        with pytest.raises(Killed):
            stepped.run_once(0)
    stepped.replace(0)
    stepped.settle()
    assert [produced(each) for each in sent] == [[(0, number)] for number in range(3)]
    assert stepped.values("topic", own) == [b"0", b"1", b"2"]


def held_behind_another(stepped: SteppedBroker, own: int, foreign: int) -> tuple[Sent, Sent]:
    """Return a held request and a later one; both are appended, and a replacement reads both again."""
    client = stepped.client()
    held = client.produce([batch_for(own, b"first"), batch_for(foreign, b"held")])
    behind = stepped.client().produce([batch_for(own, b"second")], acks=-1)
    stepped.run_once(0)
    assert behind.target == 0
    return held, behind


def test_appended_batches_are_not_rejected_by_later_settings(stepped: SteppedBroker) -> None:
    own, foreign = (stepped.owned_by("topic", owner)[0] for owner in (0, 1))
    _, behind = held_behind_another(stepped, own, foreign)
    stepped.set_config(TOPIC, "topic", "min.insync.replicas", "2")
    stepped.announce()
    stepped.replace(0)
    stepped.settle()
    assert [read_produce(answer.payload[8:])[0][2:] for answer in behind.answers] == [(0, 1)] * 2
    assert stepped.values("topic", own) == [b"first", b"second"]


@pytest.mark.parametrize("owner", [0, 1])
def test_appended_batches_are_not_rejected_because_their_log_cannot_be_opened(
    stepped: SteppedBroker, owner: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A client that resends records after an error would duplicate them."""
    own, foreign = (stepped.owned_by("topic", each)[0] for each in (0, 1))
    held, behind = held_behind_another(stepped, own, foreign)
    stepped.run_once(1)
    with monkeypatch.context() as patch:
        patch.setattr(PartitionLog, "open", failing(OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))))
        stepped.kill(0)
        stepped.replace(owner)
        if owner == 1:
            # The owner's response is lost with the origin handler, whose replacement repeats the request.
            patch.undo()
            stepped.boot(0)
        stepped.settle()
        assert [produced_of(answer.payload) for answer in behind.answers] == [[0]] * 2
        assert [produced_of(answer.payload) for answer in held.answers] == [[0, 0]]
    stepped.clock.advance_ms(1_100)
    for handler in (0, 1):
        stepped.run_once(handler)
    assert stepped.values("topic", own) == [b"first", b"second"]
    assert stepped.values("topic", foreign) == [b"held"]


def test_batches_truncated_from_a_log_that_cannot_be_opened_stay_rejected(
    stepped: SteppedBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its note must not be valid for other records stored at the same offset later."""
    own, foreign = (stepped.owned_by("topic", each)[0] for each in (0, 1))
    client = stepped.client()
    client.produce([batch_for(own, b"first"), batch_for(foreign, b"held")])
    stepped.run_once(0)
    lost = stepped.client().produce([batch_for(own, b"lost")])
    with monkeypatch.context() as patch:
        patch.setattr(log_segment.os, "pwritev", failing(Killed()))
        with pytest.raises(Killed):
            stepped.run_once(0)
        patch.setattr(PartitionLog, "open", failing(OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))))
        stepped.replace(0)
        stepped.run_once(0)
    stepped.clock.advance_ms(1_100)
    stepped.run_once(0)
    stepped.client().produce([batch_for(own, b"other")])
    stepped.run_once(0)
    stepped.replace(0)
    stepped.settle()
    assert {tuple(produced_of(answer.payload)) for answer in lost.answers} == {(STORAGE_ERROR,)}
    assert stepped.values("topic", own) == [b"first", b"other"]
