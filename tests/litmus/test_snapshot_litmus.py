"""A snapshot between processes: its states for a reader while its writer publishes, or is killed and replaced."""

from __future__ import annotations

import os

from rotunda.shm.tables.snapshot_buffer import SnapshotReader, SnapshotSegment, SnapshotWriter
from tests.litmus.two_processes import repeat_until_hit, run_together, run_with_deaths, seeded, segment_of

LAST = 3000
TEXT = "entry-of-some-length-"


def document_of(number: int) -> dict[str, object]:
    """Return a document of varying length all of whose parts have its number."""
    return {"number": number, "groups": [f"{TEXT}{number}"] * (number % 50), "end": number}


def publish_up_to(snapshots: SnapshotSegment, last: int) -> None:
    """Publish documents up to `last`, starting from a predecessor's, which must be whole."""
    view = snapshots.of_handler(0)
    before = SnapshotReader(view).read()
    number = 0 if before is None else before["number"]
    assert before is None or before == document_of(number)
    writer = SnapshotWriter(view)
    while number < last:
        number += 1
        writer.publish(document_of(number), ("groups",), number)


def read_up_to(snapshots: SnapshotSegment, last: int) -> None:
    """Read until `last` is there. Allowed: whole documents, never an older one again."""
    reader = SnapshotReader(snapshots.of_handler(0))
    seen = 0
    while seen < last:
        document = reader.read()
        if document is not None:
            assert document["number"] >= seen
            seen = document["number"]
            assert document == document_of(seen)
        os.sched_yield()


def test_a_reader_sees_whole_documents_in_order() -> None:
    with segment_of(SnapshotSegment.bytes_needed(1, 1)) as segment:
        snapshots = SnapshotSegment(segment.view, 1, 1)
        run_together(lambda: publish_up_to(snapshots, LAST), lambda: read_up_to(snapshots, LAST))


def test_also_when_the_writer_is_killed_and_replaced() -> None:
    chance = seeded()

    def run() -> int:
        with segment_of(SnapshotSegment.bytes_needed(1, 1)) as segment:
            snapshots = SnapshotSegment(segment.view, 1, 1)
            bodies = [lambda: publish_up_to(snapshots, 4 * LAST), lambda: read_up_to(snapshots, 4 * LAST)]
            return run_with_deaths(bodies, [0], 15, chance)

    repeat_until_hit(run)
