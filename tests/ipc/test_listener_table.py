"""Tests of the table of listeners, including a publication during a read."""

import pytest

from rotunda.broker.ipc.listener_table import ListenerEntry, ListenerTable
from rotunda.shm.tables.snapshot_buffer import SnapshotReader, SnapshotSegment, SnapshotWriter

ONE = ListenerEntry("EXT", "PLAINTEXT", "h", 1)
CLOSED = ONE._replace(is_open=False)
OTHER = ONE._replace(protocol="SASL_SSL")


def publish(writer: SnapshotWriter, entry: ListenerEntry) -> None:
    writer.publish({"listeners": [list(entry)]}, (), 0)


def test_what_is_published_while_it_is_read_is_read_the_next_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """A30: otherwise one processor would serve a listener without SASL after it was reopened with SASL."""
    view = memoryview(bytearray(SnapshotSegment.bytes_needed(1, 1)))
    place = SnapshotSegment(view, 1, 1).of_listeners()
    writer, table = SnapshotWriter(place), ListenerTable(place)
    publish(writer, ONE)
    assert list(table) == [ONE]
    publish(writer, CLOSED)
    read = SnapshotReader.read

    def overtaken(reader: SnapshotReader) -> object:
        found = read(reader)
        publish(writer, OTHER)
        return found

    with monkeypatch.context() as patch:
        patch.setattr(SnapshotReader, "read", overtaken)
        assert table[0] in (CLOSED, OTHER)
    assert list(table) == [OTHER]
