"""The partition table between processes: a row's possible states for a reader while its writer publishes, or dies."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

from rotunda.shm.segment import Segment
from rotunda.shm.tables.partitions import PartitionTable
from tests.litmus.two_processes import repeat_until_hit, run_together, run_with_deaths, seeded, segment_of, spin_until

DONE = 0
TABLE = 64


@contextmanager
def table_of(rows: int) -> Iterator[tuple[Segment, PartitionTable]]:
    """Yield a segment with a table of one handler's flags after a cache line of words for the test itself."""
    with segment_of(TABLE + PartitionTable.bytes_needed(rows, 1)) as segment:
        yield segment, PartitionTable(segment.view, TABLE, rows, 1)


def place_of(end: int) -> tuple[int, int]:
    """Return the segment base and position that belong to an end."""
    return end - end % 100, end * 37 + 5 if end else 0


def publish_up_to(table: PartitionTable, row: int, target: int) -> None:
    """Publish ends up to `target`, starting from a predecessor's, which must be whole."""
    end, base, position = table.read_position(row)
    assert (base, position) == place_of(end)
    writer = table.row_writer(row)
    while end < target:
        end += 1
        writer.publish(end, *place_of(end), end // 2, end, end * 3)


def read_up_to(table: PartitionTable, row: int, target: int) -> None:
    """Read until the end is `target`. Allowed: ends never decrease, base and position are those of the end."""
    last = last_stable = 0
    while last < target:
        stable, start = table.read_stable(row), table.read_start(row)
        end, base, position = table.read_position(row)
        assert end >= last
        assert stable >= last_stable
        last_stable = stable
        assert (base, position) == place_of(end)
        assert stable <= end
        assert start <= end
        last = end
        os.sched_yield()


def test_a_reader_sees_whole_states_in_order() -> None:
    with table_of(3) as (_, table):
        run_together(lambda: publish_up_to(table, 1, 150_000), lambda: read_up_to(table, 1, 150_000))
        assert table.read_position(0) == table.read_position(2) == (0, 0, 0)


def test_also_when_the_writer_is_killed_and_replaced() -> None:
    chance = seeded()
    target = 600_000

    def run() -> int:
        with table_of(1) as (_, table):
            bodies = [lambda: publish_up_to(table, 0, target), lambda: read_up_to(table, 0, target)]
            killed = run_with_deaths(bodies, [0], 25, chance)
            assert table.read_position(0) == (target, *place_of(target))
        return killed

    repeat_until_hit(run)


def test_ends_that_come_again_never_mix_two_states() -> None:
    """Allowed: any (end, base, position) that was published together. Ends here are 0, 1, 2, 0, 1, 2 and so on."""
    rounds = 100_000
    with table_of(1) as (segment, table):

        def write() -> None:
            writer = table.row_writer(0)
            for number in range(1, rounds):
                writer.publish(number % 3, number, number * 7, 0, 0, 0)
            segment.words[DONE] = 1

        def read() -> None:
            while not segment.words[DONE]:
                for _ in range(100):
                    end, number, position = table.read_position(0)
                    assert (end, position) == (number % 3, number * 7)

        run_together(write, read)


def test_a_waiter_is_seen_or_sees() -> None:
    """Owner: publish, look at the flags. Handler: raise the flag, look at the end. In each row both at once.

    Allowed: the owner sees the flag, the handler sees the end, or both. Not allowed: neither, for then the handler
    would sleep on a record that is there.
    """
    rows = 4000
    owner_at, handler_at, owner_saw = 1, 2, 3
    with table_of(rows) as (segment, table):
        words = segment.words

        def own() -> None:
            for row in range(rows):
                writer = table.row_writer(row)
                words[owner_at] = row + 1
                spin_until(lambda row=row: words[handler_at] > row)
                writer.publish(1, 0, 10, 0, 1, 10)
                words[owner_saw] = (row + 1) * 2 + bool(table.waiters(row))

        def handle() -> None:
            for row in range(rows):
                words[handler_at] = row + 1
                spin_until(lambda row=row: words[owner_at] > row)
                table.set_waiting(row, 0, True)
                saw_end = table.read_end(row) == 1
                spin_until(lambda row=row: words[owner_saw] // 2 > row)
                saw_flag = bool(words[owner_saw] & 1)
                assert saw_end or saw_flag, f"row {row}: neither saw the other"

        run_together(own, handle)


def test_words_never_tear() -> None:
    """Allowed: one of the two values written. Not allowed: a mixture of their bytes."""
    values = (0x0123456789ABCDEF, -0x0123456789ABCDEF)
    with segment_of(64) as segment:
        words = segment.words
        words[1] = values[0]

        def write() -> None:
            for _ in range(200_000):
                words[1] = values[1]
                words[1] = values[0]
            words[DONE] = 1

        def read() -> None:
            while not words[DONE]:
                for _ in range(1000):
                    assert words[1] in values

        run_together(write, read)
