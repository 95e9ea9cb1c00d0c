"""Tables of a metrics page: dynamic keys in a fixed number of slots, plus one slot for all other keys."""

import random

import pytest

from rotunda.shm.metrics.metric_tables import (
    NO_TEXT,
    OTHER,
    OTHER_TEXT,
    SLOT_WORDS,
    TEXT_SLOTS,
    TEXT_WORDS,
    TableWriter,
    TextWriter,
    pack_key,
    read_table,
    read_texts,
    unpack_key,
)


def words(count: int) -> memoryview:
    return memoryview(bytearray(count * 8)).cast("q")


@pytest.mark.parametrize("parts", [(0,), (-1,), (0, 0, 0), (-1, -1, -1), (32767, -32768, 1), (75, 18)])
def test_keys_come_back(parts: tuple[int, ...]) -> None:
    assert pack_key(parts) > 0
    assert unpack_key(pack_key(parts), len(parts)) == parts


def test_the_rarest_are_counted_as_other() -> None:
    """A client with invented keys cannot occupy the slots for ever, and its counts remain in the sum."""
    page = words(2 + 4 * SLOT_WORDS)
    TableWriter(page, 2, 4, 1).add((100,), 1000)
    for key in range(50):
        TableWriter(page, 2, 4, 1).add((key,), 10)
    TableWriter(page, 2, 4, 1).add((200,), 2000)
    found = read_table(page, 2, 4, 1)
    assert sum(found.values()) == 3500
    assert (found[100,], found[200,]) == (1000, 2000)
    assert found[OTHER] >= 480
    assert page[:2].tolist() == [0, 0]


def test_gauges_that_are_not_named_are_zero_and_make_room() -> None:
    page = words(4 * SLOT_WORDS)
    TableWriter(page, 0, 4, 1).replace({(7,): 1, (8,): 2})
    TableWriter(page, 0, 4, 1).replace({(8,): 3})
    assert read_table(page, 0, 4, 1) == {(7,): 0, (8,): 3}
    TableWriter(page, 0, 4, 1).replace({(8,): 3, (9,): 4, (10,): 5, (11,): 6, (12,): 7})
    assert read_table(page, 0, 4, 1) == {(8,): 3, (9,): 4, (10,): 5, OTHER: 13}
    TableWriter(page, 0, 4, 1).replace({(11,): 1})
    assert read_table(page, 0, 4, 1)[OTHER] == 0


def test_a_writer_that_died_before_the_key_leaves_a_free_slot() -> None:
    page = words(4 * SLOT_WORDS)
    TableWriter(page, 0, 4, 1).add((1,), 5)
    page[3] = 77
    TableWriter(page, 0, 4, 1).add((2,), 6)
    assert read_table(page, 0, 4, 1) == {(1,): 5, (2,): 6}


def test_texts_that_nobody_needs_make_room() -> None:
    page = words(TEXT_SLOTS * TEXT_WORDS)
    texts = TextWriter(page, 0)
    numbers = [texts.index(f"client\n{number}") for number in range(62)]
    assert not texts.has_room
    texts.keep({numbers[5]})
    assert texts.has_room
    assert texts.find("client\n5") == numbers[5]
    assert texts.find("client\n6") == NO_TEXT
    fresh = TextWriter(page, 0).index("newcomer")
    assert 0 < fresh < OTHER_TEXT
    assert dict(read_texts(page, 0)) == {numbers[5]: "client\n5", fresh: "newcomer"}


def test_texts_have_numbers_and_too_many_share_one() -> None:
    page = words(TEXT_SLOTS * TEXT_WORDS)
    texts = TextWriter(page, 0)
    assert texts.index("") == NO_TEXT
    numbers = [texts.index(f"client\n{number}") for number in range(TEXT_SLOTS)]
    assert numbers[:62] == list(range(1, 63))
    assert set(numbers[62:]) == {OTHER_TEXT}
    successor = TextWriter(page, 0)
    assert [successor.index(f"client\n{number}") for number in range(62)] == numbers[:62]
    assert dict(read_texts(page, 0))[62] == "client\n61"


@pytest.mark.parametrize("text", ["x" * 1000, "ü" * 1000, "a" + "€" * 1000, "\ud800", "\0"])
def test_a_text_that_cannot_be_kept_whole_still_has_one_number(text: str) -> None:
    page = words(TEXT_SLOTS * TEXT_WORDS)
    number = TextWriter(page, 0).index(text)
    assert TextWriter(page, 0).index(text) == number == 1
    assert len(dict(read_texts(page, 0))[1].encode()) <= TEXT_WORDS * 8


def test_a_writer_that_died_in_the_midst_of_a_text_leaves_none() -> None:
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    page = words(TEXT_SLOTS * TEXT_WORDS)
    TextWriter(page, 0).index("first")
    place = 2 * TEXT_WORDS + 1
    page[place] = random.Random(seed).randrange(2**62)
    assert dict(read_texts(page, 0)) == {1: "first"}
    assert TextWriter(page, 0).index("second") == 2
    assert dict(read_texts(page, 0)) == {1: "first", 2: "second"}
