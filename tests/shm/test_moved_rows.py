"""Lists of moved rows by owner: each reader gets each row once, or learns that it missed some."""

import random
import secrets

from rotunda.shm.tables.moved_rows import CAPACITY, MovedRows

HANDLERS = 3


def lists() -> MovedRows:
    return MovedRows(memoryview(bytearray(MovedRows.bytes_needed(HANDLERS))), 0, HANDLERS)


def test_a_row_is_read_once_by_the_handler_that_it_was_noted_for() -> None:
    moved = lists()
    readers = [moved.reader(handler) for handler in range(HANDLERS)]
    moved.note(0, 1, 7)
    moved.note(2, 1, 8)
    moved.note(0, 2, 9)
    assert [reader.read() for reader in readers] == [[], [7, 8], [9]]
    assert [reader.read() for reader in readers] == [[], [], []]


def test_a_reader_begins_where_the_list_ends() -> None:
    moved = lists()
    moved.note(0, 1, 7)
    reader = moved.reader(1)
    assert reader.read() == []
    moved.note(0, 1, 8)
    assert reader.read() == [8]


def test_a_reader_that_missed_rows_learns_it_and_continues() -> None:
    moved = lists()
    reader = moved.reader(1)
    for row in range(CAPACITY - 1):
        moved.note(0, 1, row)
    assert reader.read() == list(range(CAPACITY - 1))
    for row in range(CAPACITY):
        moved.note(0, 1, row)
    moved.note(2, 1, 5)
    assert reader.read() is None
    moved.note(0, 1, 3)
    assert reader.read() == [3]


def test_a_replacement_of_the_owner_leaves_everybody_behind() -> None:
    moved = lists()
    readers = [moved.reader(handler) for handler in range(HANDLERS)]
    moved.note_all(0)
    assert [reader.read() for reader in readers] == [[], None, None]
    moved.note(0, 1, 4)
    assert [reader.read() for reader in readers] == [[], [4], []]


def test_who_is_no_handler_has_nothing_to_read() -> None:
    moved = lists()
    reader = moved.reader(HANDLERS)
    moved.note_all(0)
    assert reader.read() == []


def test_nothing_is_missed_at_random() -> None:
    seed = secrets.randbits(32)
    print(f"seed {seed}")
    chance = random.Random(seed)
    moved = lists()
    reader = moved.reader(1)
    noted: list[int] = []
    for _ in range(500):
        for _ in range(chance.choice([0, 1, 5, CAPACITY - 1, CAPACITY, 2 * CAPACITY])):
            noted.append(chance.randrange(1000))
            moved.note(chance.choice([0, 2]), 1, noted[-1])
        rows = reader.read()
        assert rows is None or sorted(rows) == sorted(noted)
        assert rows is not None or len(noted) >= CAPACITY
        noted.clear()
