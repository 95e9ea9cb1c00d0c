"""Validation of idempotent producers as in Kafka's ProducerAppendInfo, and the snapshot file."""

import struct
from pathlib import Path

import pytest
from crc32c import crc32c
from hypothesis import given
from hypothesis import strategies as st

from rotunda.broker.log.producers import producer_snapshot, producer_state
from rotunda.broker.log.producers.producer_snapshot import (
    TAIL_MARK,
    SnapshotCorruptError,
    SnapshotFiles,
    decode,
    encode,
)
from rotunda.broker.log.producers.producer_state import ProducerState
from rotunda.broker.records.record_batch import BatchHeader
from rotunda.broker.records.record_writer import EndTransactionMarker
from tests.log.log_writer import by_id
from tests.support.results import present

MAX = 2**31 - 1


def header(sequence: int, count: int = 1, epoch: int = 0, producer_id: int = 7, timestamp: int = 5) -> BatchHeader:
    return BatchHeader(0, 0, 0, 2, 0, 0, count - 1, timestamp, timestamp, producer_id, epoch, sequence, count)


class Producers:
    """Producer state with an end offset: validates, and appends the accepted batches."""

    def __init__(self) -> None:
        self.state = ProducerState()
        self.end = 0

    def send(self, sequence: int, count: int = 1, epoch: int = 0, producer_id: int = 7) -> int:
        """Return the verdict, or for a duplicate minus its first offset, minus 1000."""
        verdict = self.state.validate(producer_id, epoch, sequence, count - 1, 0)
        if verdict == 0:
            self.state.append(header(sequence, count, epoch, producer_id), self.end, count - 1, 5)
            self.end += count
        elif verdict == 46:
            known = present(self.state.find_duplicate(producer_id, sequence, count - 1))
            return -1000 - known.first_offset
        return verdict


def test_g24_exactly_the_last_five_are_duplicates() -> None:
    producers = Producers()
    for i in range(7):
        producers.send(2 * i, 2)
    assert [producers.send(2 * i, 2) for i in range(7)] == [45, 45, *(-1000 - 2 * i for i in range(2, 7))]


@pytest.mark.parametrize("count", [1, 2, 5])
def test_the_sequence_starts_again_after_the_largest(count: int) -> None:
    producers = Producers()
    assert producers.send(MAX - 1, 2) == 0
    assert [producers.send(1), producers.send(0, count), producers.send(count)] == [45, 0, 0]
    assert [producers.send(MAX - 1, 2), producers.send(0, count)] == [-1000, -1002]


def test_a_batch_across_the_wrap() -> None:
    producers = Producers()
    assert [producers.send(MAX - 1, 5), producers.send(3)] == [0, 0]
    assert producers.send(MAX - 1, 5) == -1000


def test_transactional_producers_stay_transactional() -> None:
    state = ProducerState()
    state.append(header(0)._replace(attributes=0x10), 10, 0, 5)
    assert state.open_transactions == {7: 10}
    assert [state.validate(7, 0, 1, 0, 0), state.validate(7, 0, 1, 0, 0x10)] == [48, 0]
    state.replay(header(-1)._replace(attributes=0x30), EndTransactionMarker(commit=True, coordinator_epoch=0))
    assert state.open_transactions == {}
    assert state.validate(7, 0, 1, 0, 0) == 0


def test_an_open_transaction_does_not_expire() -> None:
    state = ProducerState()
    state.append(header(0), 0, 0, 5)
    state.append(header(0, producer_id=8)._replace(attributes=0x10), 1, 0, 5)
    state.expire(now_ms=1000, expiration_ms=995)
    assert list(by_id(state)) == [8]


@given(st.lists(st.tuples(st.integers(1, 2), st.integers(0, 2), st.integers(0, 12), st.integers(1, 3)), max_size=60))
def test_against_a_model(sends: list[tuple[int, int, int, int]]) -> None:
    """The model stores every accepted batch and derives the rules from that list."""
    producers = Producers()
    accepted: list[tuple[int, int, int, int, int]] = []
    for producer_id, epoch, sequence, count in sends:
        mine = [entry for entry in accepted if entry[0] == producer_id]
        newest = max((entry[1] for entry in mine), default=None)
        current = [entry for entry in mine if entry[1] == epoch]
        expected = 0
        if newest is not None and epoch < newest:
            expected = 47
        elif newest is not None and epoch > newest:
            expected = 45 if sequence else 0
        elif current and sequence != current[-1][2] + current[-1][3]:
            same = [entry for entry in current[-5:] if entry[2:4] == (sequence, count)]
            expected = -1000 - same[0][4] if same else 45
        if expected == 0:
            accepted.append((producer_id, epoch, sequence, count, producers.end))
        assert producers.send(sequence, count, epoch, producer_id) == expected


# ---- snapshots ----------------------------------------------------------------------------------------------------


def test_bytes_of_a_snapshot() -> None:
    """Kafka's version 1, field by field; the one batch per producer has no room for our own fields."""
    state = ProducerState()
    state.append(header(10, 3, epoch=2, producer_id=4711, timestamp=99), 500, 2, 99)
    body = bytes.fromhex(
        "00000001"  # one entry
        "0000000000001267"  # producer id
        "0002"  # epoch
        "0000000c"  # last sequence
        "00000000000001f6"  # last offset
        "00000002"  # offset delta
        "0000000000000063"  # timestamp
        "ffffffff"  # coordinator epoch
        "ffffffffffffffff"  # no open transaction
    )
    assert b"".join(encode(state)) == b"\0\1" + struct.pack(">I", crc32c(body)) + body


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(1, 5)), max_size=40))
def test_a_snapshot_gives_back_the_state(batches: list[tuple[int, int]]) -> None:
    producers = Producers()
    for producer_id, count in batches:
        entry = producers.state.get(producer_id)
        producers.send(entry.next_sequence if entry else 0, count, 0, producer_id)
    content = b"".join(encode(producers.state))
    assert by_id(ProducerState(decode(content))) == by_id(producers.state)
    for length in range(len(content)):
        with pytest.raises(SnapshotCorruptError):
            decode(content[:length])


def test_the_newest_readable_snapshot_up_to_the_end_is_loaded(tmp_path: Path) -> None:
    files = SnapshotFiles(tmp_path)
    producers = Producers()
    for i in range(4):
        producers.send(i)
        files.write(producers.end, encode(producers.state))
    (tmp_path / "00000000000000000003.snapshot").write_bytes(b"torn")
    offset, state = SnapshotFiles(tmp_path).load(3)
    assert offset == 2
    assert by_id(state)[7].next_sequence == 2
    assert SnapshotFiles(tmp_path).offsets == [1, 2]
    assert SnapshotFiles(tmp_path).load(0)[0] is None


def test_unneeded_snapshots_are_deleted(tmp_path: Path) -> None:
    files = SnapshotFiles(tmp_path)
    for offset in range(1, 8):
        files.write(offset, encode(ProducerState()))
    files.sweep([2, 4])
    assert SnapshotFiles(tmp_path).offsets == [2, 4, 6, 7]
    files.remove_before(7)
    assert SnapshotFiles(tmp_path).offsets == [7]
    files.remove_before(9)
    assert SnapshotFiles(tmp_path).offsets == [7]


def test_of_too_many_producers_the_silent_ones_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    """As after expiration, they may start with any sequence number. The remaining ones depend on the log alone."""
    monkeypatch.setattr(producer_state, "MOST_PRODUCERS", 20)
    producers = Producers()
    for number in range(100):
        assert producers.send(0, producer_id=number) == 0
        assert producers.send(number, producer_id=1000) == 0
    assert len(producers.state) <= 20
    # A producer that writes all the time is known, with its duplicates; so is the newest. The first is not.
    assert producers.send(99, producer_id=1000) < 0
    assert producers.send(5, producer_id=99) == 45
    assert producers.send(5, producer_id=0) == 0


def test_a_producer_with_an_open_transaction_is_not_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(producer_state, "MOST_PRODUCERS", 10)
    state = ProducerState()
    for number in range(50):
        transactional = BatchHeader(0, 0, 0, 2, 0, 0x10 if number < 5 else 0, 0, 5, 5, number, 0, 0, 1)
        state.append(transactional, number, 0, 5)
    assert set(range(5)) <= set(by_id(state))
    assert len(state) <= 10


def test_a_snapshot_has_each_batch_where_kafka_and_we_look_for_it() -> None:
    """The last one in the producer's entry, older ones in the tail; a producer without batches has an entry too."""
    state = ProducerState()
    for sequence in (5, 7):
        state.append(header(sequence, 2, 3, 9), sequence, 1, 70)
    state.end_transaction(4, 1, EndTransactionMarker(True, 6), 9, 80)
    content = b"".join(encode(state))
    assert content[10:56] == struct.pack(">qhiqiqiq", 9, 3, 8, 8, 1, 70, -1, -1)
    assert content[56:102] == struct.pack(">qhiqiqiq", 4, 1, -1, -1, 0, 80, 6, -1)
    assert content[102:] == TAIL_MARK + bytes([1, 0]) + struct.pack(">iqiq", 6, 6, 1, 70)
    assert by_id(decode(content)) == by_id(state)


def test_a_snapshot_of_many_is_written_in_pieces_and_is_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """More entries than one chunk holds, and more chunks than one system call writes."""
    state = ProducerState()
    rows, older, tail = [], [], []
    for number in range(1500):
        sent = number % 7 + 1
        for sequence in range(sent):
            state.append(header(sequence, 1, 2, number), 10 * number + sequence, 0, 50 + sequence)
        batches = [(sequence, 10 * number + sequence, 0, 50 + sequence) for sequence in range(sent)]
        rows.append(struct.pack(">qhiqiqiq", number, 2, *batches[-1], -1, -1))
        older.append(min(sent - 1, 4))
        tail += [struct.pack(">iqiq", *batch) for batch in batches[-5:-1]]
    body = b"".join([struct.pack(">i", 1500), *rows, TAIL_MARK, bytes(older), *tail])
    for entries_at_once in (1024, 1):
        monkeypatch.setattr(producer_snapshot, "_ENTRIES_AT_ONCE", entries_at_once)
        SnapshotFiles(tmp_path).write(7, encode(state))
        written = (tmp_path / "00000000000000000007.snapshot").read_bytes()
        assert written == b"\0\1" + struct.pack(">I", crc32c(body)) + body
    assert by_id(ProducerState(decode(written))) == by_id(state)
