"""The control segment: its parts are adjacent and do not overlap."""

from rotunda.shm.control import ControlSegment
from rotunda.shm.tables.process_slots import WEB


def test_parts_do_not_overlap() -> None:
    memory = bytearray(ControlSegment.bytes_needed(2, 2, 10))
    control = ControlSegment(memoryview(memory), 2, 2, 10)
    control.slots.initialise()
    control.broker_words.set_metadata_version(41)
    control.broker_words.set_draining(True)
    control.slots.set_last_error(WEB, 0, "x" * 256)
    control.partitions.row_writer(0).publish(1, 2, 3, 4, 5, 6)
    control.partitions.row_writer(9).publish(7, 8, 9, 1, 2, 3)
    control.partitions.set_waiting(9, 1, True)
    other = ControlSegment(memoryview(bytes(memory)), 2, 2, 10)
    assert (other.broker_words.metadata_version, other.broker_words.draining) == (41, True)
    assert [status.role for status in other.statuses()][-1] == "web"
    assert other.slots.last_error(WEB, 0) == "x" * 256
    assert other.partitions.read_position(0) == (1, 2, 3)
    assert other.partitions.read_position(9) == (7, 8, 9)
    assert [other.partitions.waiters(row) for row in range(10)] == [[]] * 9 + [[1]]


def test_draining_can_be_taken_back() -> None:
    control = ControlSegment(memoryview(bytearray(ControlSegment.bytes_needed(1, 1, 1))), 1, 1, 1)
    control.broker_words.set_draining(True)
    control.broker_words.set_draining(False)
    assert control.broker_words.draining is False
