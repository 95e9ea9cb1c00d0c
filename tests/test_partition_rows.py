"""Rows are handed out once, and again only when their owner has let go."""

from __future__ import annotations

import random

import pytest

from broker.errors import ApiError
from broker.partition_rows import UNSEEN_CLOSE_NS, PartitionRows
from broker.protocol.error_codes import ErrorCode
from shm.partitions import STATE_CLOSED, STATE_OPEN, STATE_UNOPENED, PartitionTable
from tests.support.fakes import FakeClock

INVALID_PARTITIONS = ErrorCode.INVALID_PARTITIONS


def table_of(rows: int) -> PartitionTable:
    return PartitionTable(memoryview(bytearray(PartitionTable.bytes_needed(rows, 1))), 0, rows, 1)


def free_what_is_let_go(rows: PartitionRows) -> list[int]:
    let_go = rows.let_go()
    rows.free(let_go)
    return let_go


def test_a_row_is_free_again_only_when_its_owner_closed_it() -> None:
    table = table_of(2)
    rows = PartitionRows(table, [], FakeClock())
    assert rows.take(2) == [0, 1]
    table.set_state(0, STATE_OPEN)
    rows.retire([0, 1])
    assert free_what_is_let_go(rows) == []
    with pytest.raises(ApiError) as refused:
        rows.take(1)
    assert refused.value.code == INVALID_PARTITIONS
    assert "max.partitions is 2" in str(refused.value.message)
    table.set_state(0, STATE_CLOSED)
    assert free_what_is_let_go(rows) == [0]
    assert rows.take(1) == [0]


def test_rows_never_used_come_before_rows_used_before() -> None:
    table = table_of(4)
    rows = PartitionRows(table, [], FakeClock())
    rows.take(2)
    for row in (0, 1):
        table.set_state(row, STATE_CLOSED)
    rows.retire([1, 0])
    free_what_is_let_go(rows)
    assert [rows.take(1)[0] for _ in range(4)] == [2, 3, 1, 0]


def test_the_mark_of_a_former_owner_is_not_taken_for_the_new_ones() -> None:
    """The row is closed already when it is handed out; the new owner may be about to open it."""
    table, clock = table_of(1), FakeClock()
    rows = PartitionRows(table, [], clock)
    rows.take(1)
    table.set_state(0, STATE_CLOSED)
    rows.retire([0])
    free_what_is_let_go(rows)
    rows.take(1)
    rows.retire([0])
    assert rows.let_go() == []
    clock.advance_ns(UNSEEN_CLOSE_NS + 1)
    assert free_what_is_let_go(rows) == [0]
    rows.take(1)
    table.set_state(0, STATE_OPEN)
    rows.retire([0])
    table.set_state(0, STATE_CLOSED)
    assert rows.let_go() == [0]


def test_a_new_controller_takes_up_the_rows_where_the_old_one_left_them() -> None:
    table = table_of(6)
    table.set_state(4, STATE_CLOSED)
    table.set_state(1, STATE_CLOSED)
    rows = PartitionRows(table, [(1, False), (3, True), (4, True)], FakeClock())
    assert rows.available == 6 - 3
    assert rows.let_go() == [4]
    rows.retire([1])
    assert rows.let_go() == [4]
    assert rows.take(3) == [5, 0, 2]


def test_no_row_is_ever_held_twice() -> None:
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    chance = random.Random(seed)
    table = table_of(12)
    rows = PartitionRows(table, [], FakeClock())
    held: set[int] = set()
    closing: set[int] = set()
    for _ in range(2000):
        step = chance.randrange(4)
        if step == 0 and rows.available:
            taken = rows.take(chance.randint(1, rows.available))
            assert not held.intersection(taken)
            assert not closing.intersection(taken)
            held.update(taken)
            for row in taken:
                table.set_state(row, STATE_OPEN)
        elif step == 1 and held:
            gone = chance.sample(sorted(held), chance.randint(1, len(held)))
            held.difference_update(gone)
            closing.update(gone)
            rows.retire(gone)
        elif step == 2 and closing:
            row = chance.choice(sorted(closing))
            table.set_state(row, STATE_CLOSED)
        else:
            let_go = free_what_is_let_go(rows)
            assert all(table.state(row) == STATE_CLOSED for row in let_go)
            closing.difference_update(let_go)
        assert rows.available == 12 - len(held) - len(closing)
    assert table.state(0) != STATE_UNOPENED
