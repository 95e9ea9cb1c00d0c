"""The partition table in one process: publishing, slots, writer deaths at any store, waiter flags."""

import random
import secrets

import pytest

from rotunda.shm.layout import PARTITION_ROW
from rotunda.shm.tables.partitions import (
    STATE_CLOSED,
    STATE_OPEN,
    STATE_UNOPENED,
    PartitionTable,
    RowCorrupt,
    RowWriter,
)

ROWS, HANDLERS, BASE = 5, 3, 64


def new_table() -> PartitionTable:
    view = memoryview(bytearray(BASE + PartitionTable.bytes_needed(ROWS, HANDLERS)))
    return PartitionTable(view, BASE, ROWS, HANDLERS)


def test_zeroed_memory_is_a_table_of_unopened_partitions() -> None:
    table = new_table()
    for row in range(ROWS):
        assert table.state(row) == STATE_UNOPENED
        assert table.read_position(row) == (0, 0, 0)
        assert table.waiters(row) == []


def test_what_is_published_can_be_read() -> None:
    table = new_table()
    writer = table.row_writer(3)
    for end in (10, 20, 30):
        writer.publish(end, end - 10, end * 100, 5, end - 1, end * 1000)
        assert table.read_end(3) == end
        assert table.read_position(3) == (end, end - 10, end * 100)
        assert table.read_start(3) == 5
        assert table.read_stable(3) == end - 1
        assert table.log_bytes(3) == end * 1000
    assert table.read_position(2) == table.read_position(4) == (0, 0, 0)


def test_the_same_end_may_be_published_with_another_position() -> None:
    table = new_table()
    writer = table.row_writer(0)
    writer.publish(100, 0, 5000, 0, 100, 5000)
    for base, position in ((100, 0), (100, 8), (0, 5000)):
        writer.publish(100, base, position, 0, 100, 5000)
        assert table.read_position(0) == (100, base, position)
        assert table.row_writer(0)
    table.row_writer(0).publish(100, 7, 7, 0, 100, 5000)
    assert table.read_position(0) == (100, 7, 7)


def test_the_end_may_go_back_to_a_former_one() -> None:
    table = new_table()
    for number, end in enumerate((50, 100, 50, 100, 100, 50)):
        table.row_writer(1).publish(end, number, number * 10, 0, end, 0)
        assert table.read_position(1) == (end, number, number * 10)


def test_a_reset_row_reads_as_new() -> None:
    table = new_table()
    table.row_writer(2).publish(9, 1, 2, 3, 4, 5)
    table.set_leader_epoch(2, 7)
    table.set_state(2, STATE_CLOSED)
    table.reset(2)
    assert table.read_position(2) == (0, 0, 0)
    assert (table.state(2), table.leader_epoch(2), table.read_start(2)) == (STATE_UNOPENED, 0, 0)


def test_state_and_epoch_are_per_row() -> None:
    table = new_table()
    table.set_state(1, STATE_OPEN)
    table.set_leader_epoch(1, 4)
    assert [table.state(row) for row in range(ROWS)] == [0, 1, 0, 0, 0]
    assert [table.leader_epoch(row) for row in range(ROWS)] == [0, 4, 0, 0, 0]


class DyingWords:
    """Words that raise after a number of stores, like the death of their owner."""

    def __init__(self, words: memoryview, stores_left: int) -> None:
        self.words = words
        self.stores_left = stores_left
        self.stored: list[int] = []

    def __getitem__(self, index: int) -> int:
        return self.words[index]

    def __setitem__(self, index: int, value: int) -> None:
        if not self.stores_left:
            raise InterruptedError
        self.stores_left -= 1
        self.stored.append(index)
        self.words[index] = value


def test_the_end_is_stored_after_the_slot_and_the_slot_is_odd_meanwhile() -> None:
    table = new_table()
    words = DyingWords(table._words, 100)
    RowWriter(words, 0).publish(1, 2, 3, 0, 1, 4)
    slot = PARTITION_ROW.word("b_end_offset")
    sequence = PARTITION_ROW.word("b_sequence")
    assert words.stored[:6] == [sequence, slot, slot + 1, slot + 2, sequence, 0]


@pytest.mark.parametrize("same_end", [False, True])
def test_a_writer_may_die_at_any_store(same_end: bool) -> None:
    """Readers see the old state before the end is stored and the new one afterwards; a successor continues from it."""
    for stores in range(10):
        for published_before in range(4):
            table = new_table()
            writer = table.row_writer(0)
            for end in range(published_before):
                writer.publish(end + 10, end, end * 7, 0, end, 0)
            old = table.read_position(0)
            new = (old[0] if same_end else old[0] + 100, 77, 777)
            writer._words = DyingWords(table._words, stores)
            if stores < 9:
                with pytest.raises(InterruptedError):
                    writer.publish(*new, 1, 2, 3)
            else:
                writer.publish(*new, 1, 2, 3)
            # With the same end, only the slot separates new from old: it counts from its even sequence on.
            assert table.read_position(0) == (new if stores >= (5 if same_end else 6) else old)
            successor = table.row_writer(0)
            for end in (500, 600, 600, 500):
                successor.publish(end, end + 1, end + 2, 0, 0, 0)
                assert table.read_position(0) == (end, end + 1, end + 2)


def test_deaths_at_random_stores_in_a_row_leave_a_whole_state() -> None:
    seed = secrets.randbits(32)
    print(f"seed {seed}")
    chance = random.Random(seed)
    table = new_table()
    states = [(0, 0, 0)]
    for number in range(2000):
        new = (chance.choice([number, states[-1][0]]), number, number * 3)
        writer = table.row_writer(0)
        writer._words = DyingWords(table._words, chance.randrange(12))
        try:
            writer.publish(*new, 0, 0, 0)
            states.append(new)
        except InterruptedError:
            found = table.read_position(0)
            assert found in (states[-1], new), seed
            states.append(found)
        assert table.read_position(0) == states[-1], seed


def test_a_row_that_no_writer_can_leave_behind_is_reported() -> None:
    table = new_table()
    table._words[2 * PARTITION_ROW.size // 8] = 5
    with pytest.raises(RowCorrupt, match="row 2: no slot for end 5"):
        table.read_position(2)
    with pytest.raises(RowCorrupt, match="row 2"):
        table.row_writer(2)


def test_waiters_are_the_handlers_whose_flag_is_up() -> None:
    table = new_table()
    table.set_waiting(2, 0, True)
    table.set_waiting(2, 2, True)
    table.set_waiting(3, 1, True)
    assert table.waiters(2) == [0, 2]
    assert table.waiters(3) == [1]
    table.set_waiting(2, 0, False)
    assert table.waiters(2) == [2]
    assert table.waiters(4) == []


def test_what_a_fetch_looks_at_is_read_at_once() -> None:
    table = new_table()
    table.row_writer(1).publish(20, 0, 200, 3, 10, 200)
    table.set_state(1, STATE_OPEN)
    table.set_leader_epoch(1, 7)
    assert table.read_fetched(1) == (STATE_OPEN, 7, 10, 20, 3)


def test_flags_of_many_rows_are_raised_together() -> None:
    table = new_table()
    table.raise_flags([0, 3], 2)
    assert [table.waiters(row) for row in range(ROWS)] == [[2], [], [], [2], []]


def test_traffic_is_counted_by_row_and_begins_again_with_another_partition() -> None:
    """BrokerTopicMetrics of section F: the owner counts incoming traffic, every handler its outgoing traffic."""
    table = new_table()
    for row in range(ROWS):
        for _ in range(2):
            table.row_writer(row).count_appended(row, row * 10)
        for handler in range(HANDLERS):
            table.count_fetched(row, handler, 100**handler * row)
    traffic = [(table.records_in(row), table.bytes_in(row), table.bytes_out(row)) for row in range(ROWS)]
    assert traffic == [(2 * row, 20 * row, 10101 * row) for row in range(ROWS)]
    assert all(table.waiters(row) == [] for row in range(ROWS))
    table.reset(3)
    table.forget_fetched(3, 2)
    assert (table.records_in(3), table.bytes_in(3), table.bytes_out(3)) == (0, 0, 303)
    assert (table.records_in(4), table.bytes_out(4)) == (8, 40404)
