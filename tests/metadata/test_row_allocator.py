"""Rows are assigned once, and again only after their owner has released them."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest

from rotunda.broker.errors import ApiError
from rotunda.broker.metadata.store.row_allocator import PartitionRows
from rotunda.broker.protocol.error_codes import ErrorCode
from rotunda.shm.tables.partitions import STATE_CLOSED, STATE_OPEN, STATE_UNOPENED, PartitionTable

INVALID_PARTITIONS = ErrorCode.INVALID_PARTITIONS


def table_of(rows: int) -> PartitionTable:
    return PartitionTable(memoryview(bytearray(PartitionTable.bytes_needed(rows, 1))), 0, rows, 1)


class Handlers:
    """The changes that all handlers together have applied."""

    def __init__(self) -> None:
        self.version = 1

    def applied_version(self) -> int:
        return self.version


def rows_of(table: PartitionTable, allocated: Sequence[tuple[int, bool]] = ()) -> PartitionRows:
    """Return rows whose handlers apply every change at once."""
    return PartitionRows(table, allocated, 1, Handlers().applied_version)


def free_what_is_let_go(rows: PartitionRows) -> list[int]:
    released = rows.release()
    rows.free(released, 1)
    return released


def test_a_row_is_free_again_only_when_its_owner_closed_it() -> None:
    table = table_of(2)
    rows = rows_of(table)
    assert rows.allocate(2) == [0, 1]
    table.set_state(0, STATE_OPEN)
    rows.retire([0, 1], 1)
    assert free_what_is_let_go(rows) == []
    with pytest.raises(ApiError) as rejected:
        rows.allocate(1)
    assert rejected.value.code == INVALID_PARTITIONS
    assert "max.partitions is 2" in str(rejected.value.message)
    table.set_state(0, STATE_CLOSED)
    assert free_what_is_let_go(rows) == [0]
    assert rows.allocate(1) == [0]


def test_rows_never_used_come_before_rows_used_before() -> None:
    table = table_of(4)
    rows = rows_of(table)
    rows.allocate(2)
    for row in (0, 1):
        table.set_state(row, STATE_CLOSED)
    rows.retire([1, 0], 1)
    free_what_is_let_go(rows)
    assert [rows.allocate(1)[0] for _ in range(4)] == [2, 3, 1, 0]


def test_a_row_is_given_out_again_only_when_every_handler_has_taken_over_that_it_is_free() -> None:
    """For any delay: a paused handler may wake and write. And a mark may be a former owner's."""
    table, handlers = table_of(1), Handlers()
    rows = PartitionRows(table, [], 1, handlers.applied_version)
    assert rows.allocate(1) == [0]
    table.set_state(0, STATE_CLOSED)
    rows.retire([0], 5)
    handlers.version = 4
    assert rows.release() == []
    handlers.version = 5
    assert rows.release() == [0]
    # Off the record with change 6; messages about the row may still be on their way.
    rows.free([0], 6)
    assert rows.available == 0
    with pytest.raises(ApiError):
        rows.allocate(1)
    handlers.version = 6
    assert rows.available == 1
    assert rows.allocate(1) == [0]


def test_a_new_controller_waits_for_the_handlers_as_the_old_one_did() -> None:
    table, handlers = table_of(4), Handlers()
    table.set_state(1, STATE_CLOSED)
    rows = PartitionRows(table, [(1, True), (3, False)], 9, handlers.applied_version)
    assert (rows.release(), rows.available) == ([], 0)
    handlers.version = 9
    assert (rows.release(), rows.available) == ([1], 2)
    assert rows.allocate(2) == [0, 2]


def test_a_new_controller_takes_up_the_rows_where_the_old_one_left_them() -> None:
    table = table_of(6)
    table.set_state(4, STATE_CLOSED)
    table.set_state(1, STATE_CLOSED)
    rows = rows_of(table, [(1, False), (3, True), (4, True)])
    assert rows.available == 6 - 3
    assert rows.release() == [4]
    rows.retire([1], 1)
    assert rows.release() == [4, 1]
    assert rows.allocate(3) == [5, 0, 2]


def test_no_row_is_ever_held_twice() -> None:
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    chance = random.Random(seed)
    table = table_of(12)
    rows = rows_of(table)
    held: set[int] = set()
    closing: set[int] = set()
    for _ in range(2000):
        step = chance.randrange(4)
        if step == 0 and rows.available:
            allocated = rows.allocate(chance.randint(1, rows.available))
            assert not held.intersection(allocated)
            assert not closing.intersection(allocated)
            held.update(allocated)
            for row in allocated:
                table.set_state(row, STATE_OPEN)
        elif step == 1 and held:
            ended = chance.sample(sorted(held), chance.randint(1, len(held)))
            held.difference_update(ended)
            closing.update(ended)
            rows.retire(ended, 1)
        elif step == 2 and closing:
            row = chance.choice(sorted(closing))
            table.set_state(row, STATE_CLOSED)
        else:
            released = free_what_is_let_go(rows)
            assert all(table.state(row) == STATE_CLOSED for row in released)
            closing.difference_update(released)
        assert rows.available == 12 - len(held) - len(closing)
    assert table.state(0) != STATE_UNOPENED
