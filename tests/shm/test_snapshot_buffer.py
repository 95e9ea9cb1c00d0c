"""Boards: what was published is read whole, what does not fit is counted, and nobody wants anything to begin with."""

import random
from typing import Any

import pytest

from shm.snapshot_buffer import HANDLER_BYTES, LEFT_OUT, BoardReader, BoardSegment, BoardWriter


@pytest.fixture
def boards() -> BoardSegment:
    return BoardSegment(memoryview(bytearray(BoardSegment.bytes_needed(2, 3))), 2, 3)


def test_boards_do_not_overlap(boards: BoardSegment) -> None:
    everyone = [boards.of_processor(0), boards.of_processor(1), *(boards.of_handler(index) for index in range(3))]
    for number, board in enumerate(everyone, 1):
        board[:] = bytes([number]) * board.nbytes
    assert [set(board) for board in everyone] == [{number} for number in range(1, 6)]
    assert boards.wants.until_ns() == 0


def test_a_board_tells_nothing_before_it_was_published(boards: BoardSegment) -> None:
    reader = BoardReader(boards.of_handler(1))
    assert reader.read() is None
    assert reader.checked_ns == 0


def test_what_was_published_last_is_read_also_from_a_successor(boards: BoardSegment) -> None:
    view = boards.of_handler(2)
    reader = BoardReader(view.toreadonly())
    for generation in range(3):
        writer = BoardWriter(view)
        for number in range(3):
            document: dict[str, Any] = {"groups": [{"id": f"ü{generation}", "n": number}]}
            assert writer.publish(document, ("groups",), 100 * generation + number)
            assert reader.read() == document
            assert reader.checked_ns == 100 * generation + number


def test_the_same_again_is_only_confirmed(boards: BoardSegment) -> None:
    view = boards.of_handler(0)
    writer, reader = BoardWriter(view), BoardReader(view)
    assert writer.publish({"groups": []}, ("groups",), 1)
    first = reader.read()
    assert not writer.publish({"groups": []}, ("groups",), 2)
    assert reader.read() is first
    assert reader.checked_ns == 2


def test_what_does_not_fit_is_left_out_and_counted(boards: BoardSegment) -> None:
    chance = random.Random(7)
    groups = [{"id": chance.randbytes(100).hex()} for _ in range(4000)]
    view = boards.of_handler(0)
    BoardWriter(view).publish({"groups": list(groups), "transactions": []}, ("groups", "transactions"), 1)
    read = BoardReader(view).read()
    assert read is not None
    told = len(read["groups"])
    assert read["groups"] == groups[:told]
    assert 0 < told < len(groups)
    assert read[LEFT_OUT] == {"groups": len(groups) - told}
    assert told * 100 > HANDLER_BYTES // 2


def test_what_can_never_fit_is_an_error(boards: BoardSegment) -> None:
    document = {"text": random.Random(7).randbytes(HANDLER_BYTES).hex(), "groups": [1]}
    with pytest.raises(ValueError, match="does not fit"):
        BoardWriter(boards.of_handler(0)).publish(document, ("groups",), 1)


def test_whoever_looks_longest_counts(boards: BoardSegment) -> None:
    boards.wants.web_looks(500)
    boards.wants.command_looks(300)
    assert boards.wants.until_ns() == 500
    boards.wants.command_looks(700)
    assert boards.wants.until_ns() == 700
