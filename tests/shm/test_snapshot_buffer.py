"""Snapshots: read completely, with a count of the entries that do not fit; initially no reader wants any."""

import random
from typing import Any

import pytest

from rotunda.shm.tables.snapshot_buffer import HANDLER_BYTES, LEFT_OUT, SnapshotReader, SnapshotSegment, SnapshotWriter


@pytest.fixture
def snapshots() -> SnapshotSegment:
    return SnapshotSegment(memoryview(bytearray(SnapshotSegment.bytes_needed(2, 3))), 2, 3)


def test_snapshots_do_not_overlap(snapshots: SnapshotSegment) -> None:
    everyone = [
        snapshots.of_processor(0),
        snapshots.of_processor(1),
        *(snapshots.of_handler(index) for index in range(3)),
    ]
    for number, snapshot in enumerate(everyone, 1):
        snapshot[:] = bytes([number]) * snapshot.nbytes
    assert [set(snapshot) for snapshot in everyone] == [{number} for number in range(1, 6)]
    assert snapshots.wants.until_ns() == 0


def test_a_snapshot_tells_nothing_before_it_was_published(snapshots: SnapshotSegment) -> None:
    reader = SnapshotReader(snapshots.of_handler(1))
    assert reader.read() is None
    assert reader.checked_ns == 0


def test_what_was_published_last_is_read_also_from_a_successor(snapshots: SnapshotSegment) -> None:
    view = snapshots.of_handler(2)
    reader = SnapshotReader(view.toreadonly())
    for generation in range(3):
        writer = SnapshotWriter(view)
        for number in range(3):
            document: dict[str, Any] = {"groups": [{"id": f"ü{generation}", "n": number}]}
            assert writer.publish(document, ("groups",), 100 * generation + number)
            assert reader.read() == document
            assert reader.checked_ns == 100 * generation + number


def test_the_same_again_is_only_confirmed(snapshots: SnapshotSegment) -> None:
    view = snapshots.of_handler(0)
    writer, reader = SnapshotWriter(view), SnapshotReader(view)
    assert writer.publish({"groups": []}, ("groups",), 1)
    first = reader.read()
    assert not writer.publish({"groups": []}, ("groups",), 2)
    assert reader.read() is first
    assert reader.checked_ns == 2


def test_what_does_not_fit_is_left_out_and_counted(snapshots: SnapshotSegment) -> None:
    chance = random.Random(7)
    groups = [{"id": chance.randbytes(100).hex()} for _ in range(4000)]
    view = snapshots.of_handler(0)
    SnapshotWriter(view).publish({"groups": list(groups), "transactions": []}, ("groups", "transactions"), 1)
    read = SnapshotReader(view).read()
    assert read is not None
    reported = len(read["groups"])
    assert read["groups"] == groups[:reported]
    assert 0 < reported < len(groups)
    assert read[LEFT_OUT] == {"groups": len(groups) - reported}
    assert reported * 100 > HANDLER_BYTES // 2


def test_what_can_never_fit_is_an_error(snapshots: SnapshotSegment) -> None:
    document = {"text": random.Random(7).randbytes(HANDLER_BYTES).hex(), "groups": [1]}
    with pytest.raises(ValueError, match="does not fit"):
        SnapshotWriter(snapshots.of_handler(0)).publish(document, ("groups",), 1)


def test_whoever_looks_longest_counts(snapshots: SnapshotSegment) -> None:
    snapshots.wants.web_looks(500)
    snapshots.wants.command_looks(300)
    assert snapshots.wants.until_ns() == 500
    snapshots.wants.command_looks(700)
    assert snapshots.wants.until_ns() == 700
