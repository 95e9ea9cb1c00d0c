"""Producers unpacked on access: they behave exactly like those that were never packed."""

import struct
from itertools import chain

import pytest
from crc32c import crc32c
from hypothesis import given
from hypothesis import strategies as st

from rotunda.broker.log.producers import producer_state
from rotunda.broker.log.producers.producer_snapshot import SnapshotCorruptError, decode, encode
from rotunda.broker.log.producers.producer_state import ProducerState
from rotunda.broker.records.record_batch import BatchHeader
from rotunda.broker.records.record_writer import EndTransactionMarker
from tests.log.log_writer import by_id

TRANSACTIONAL = 0x10

Step = tuple[str, int, int, int]


def data(producer_id: int, epoch: int, sequence: int, attributes: int = 0) -> BatchHeader:
    return BatchHeader(0, 0, 0, 2, 0, attributes, 0, 5, 5, producer_id, epoch, sequence, 1)


def read_again(state: ProducerState) -> ProducerState:
    return ProducerState(decode(b"".join(encode(state))))


def receive(state: ProducerState, offset: int, step: Step) -> object:
    """Run a step and return its result. Times rise with offsets, and a marker has the time of the previous batch."""
    kind, producer_id, epoch, number = step
    if kind == "marker":
        entry = state.get(producer_id)
        time_ms = offset if entry is None or not entry.last else entry.last_timestamp_ms
        verdict = state.validate_marker(producer_id, epoch, number, 0)
        marker = EndTransactionMarker(number % 2 == 0, number)
        return verdict or state.end_transaction(producer_id, epoch, marker, offset, time_ms)
    if kind == "expire":
        state.expire(offset, 3 * number + 1)
        return len(state)
    attributes = TRANSACTIONAL if kind == "transactional" else 0
    entry = state.get(producer_id)
    following = 0 if entry is None or epoch != entry.epoch else entry.next_sequence
    sequence = max(0, following - number)
    verdict = state.validate(producer_id, epoch, sequence, 0, attributes)
    if verdict == 46:
        return state.find_duplicate(producer_id, sequence, 0)
    if verdict == 0:
        state.append(data(producer_id, epoch, sequence, attributes), offset, 0, offset)
    return verdict


steps = st.tuples(
    st.sampled_from(["data", "data", "data", "transactional", "marker", "expire"]),
    st.integers(0, 6),
    st.integers(0, 2),
    st.integers(0, 6),
)


@given(st.lists(st.tuples(steps, st.booleans()), max_size=60), st.sampled_from([3, 50]))
def test_a_state_that_is_read_again_and_again_is_like_one_that_never_was(
    received: list[tuple[Step, bool]], most: int
) -> None:
    """In verdicts, duplicates, transactions, expirations, and in the bytes on disk."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(producer_state, "MOST_PRODUCERS", most)
        whole, again = ProducerState(), ProducerState()
        for offset, (step, is_read) in enumerate(received):
            if is_read:
                again = read_again(again)
            assert receive(again, offset, step) == receive(whole, offset, step)
            assert encode(again) == encode(whole)
            assert list(again.open_transactions.items()) == list(whole.open_transactions.items())
        assert list(again) == list(whole)
        assert [again.get(producer_id) for producer_id in range(7)] == [whole.get(number) for number in range(7)]
        assert [producer_id in again for producer_id in range(7)] == [number in whole for number in range(7)]


def test_readers_get_the_present_state_of_each_producer() -> None:
    state = ProducerState()
    for producer_id in range(4):
        state.append(data(producer_id, 0, 0), producer_id, 0, producer_id)
    state = read_again(state)
    reading = iter(state)
    assert next(reading).producer_id == 0
    state.append(data(1, 0, 1), 4, 0, 4)
    state.expire(now_ms=4, expiration_ms=2)
    state.append(data(9, 0, 0), 5, 0, 5)
    assert [(entry.producer_id, entry.last_offset) for entry in reading] == [(1, 4), (3, 3)]
    assert sorted(by_id(state)) == [1, 3, 9]


def test_a_tail_in_which_each_batch_has_its_producers_id_is_read() -> None:
    """Earlier snapshots repeat the producer id for each batch instead of a batch count."""
    state = ProducerState()
    for offset, producer_id in enumerate((7, 8, 9, 7, 9, 9, 7, 10, 7, 7, 7)):
        sequence = 0 if (entry := state.get(producer_id)) is None else entry.next_sequence
        state.append(data(producer_id, 1, sequence), offset, 0, 40 + offset)
    rows = b"".join(encode(state))[6 : 10 + 4 * 46]
    older = [
        struct.pack(">qiqiq", entry.producer_id, *batch[:2], *batch[2:])
        for entry in state
        for batch in entry.batches[:-1]
    ]
    assert len(older) == 6
    for tail, expected in ((b"".join(older), [4, 0, 2, 0]), (b"", [0] * 4), (b"".join(older)[:-1], [0] * 4)):
        body = rows + b"RTB1" + tail
        packed = decode(b"\0\1" + struct.pack(">I", crc32c(body)) + body)
        assert [len(entry.batches) - 1 for entry in packed] == expected
        if tail == b"".join(older):
            assert list(packed) == list(state)


def test_an_inconsistent_tail_is_ignored() -> None:
    state = ProducerState()
    for offset in range(3):
        state.append(data(7, 1, offset), offset, 0, 40)
    content = b"".join(encode(state))[6:]
    tails = (b"RTB3\2" + bytes(48), b"RTB2\3" + bytes(48), b"RTB2\2" + bytes(47), b"RTB2", b"RT", b"")
    for tail in chain(tails, [b"RTB2\1" + bytes(48)]):
        body = content[:50] + tail
        (entry,) = decode(b"\0\1" + struct.pack(">I", crc32c(body)) + body)
        assert [batch.last_sequence for batch in entry.batches] == [2]


def test_a_snapshot_that_has_a_producer_twice_is_none() -> None:
    state = ProducerState()
    state.append(data(7, 1, 0), 0, 0, 40)
    row = b"".join(encode(state))[10:56]
    body = struct.pack(">i", 2) + row + row
    with pytest.raises(SnapshotCorruptError, match="2 entries of 1 producers"):
        decode(b"\0\1" + struct.pack(">I", crc32c(body)) + body)
    negative = struct.pack(">i", -1)
    with pytest.raises(SnapshotCorruptError):
        decode(b"\0\1" + struct.pack(">I", crc32c(negative)) + negative)
