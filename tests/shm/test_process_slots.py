"""Process slots: one per process; the last values of a dead process remain readable."""

import pytest

from rotunda.shm.tables.process_slots import (
    ACCEPTOR,
    CLEANER,
    CONTROLLER,
    DEAD,
    HANDLER,
    PROCESSOR,
    RECORDER,
    ROLES,
    RUNNING,
    SUPERVISOR,
    WEB,
    ProcessSlots,
)

ONE_EACH = [(role, 0) for role in (HANDLER, CONTROLLER, CLEANER, RECORDER, WEB)]
ALL = [(SUPERVISOR, 0), (ACCEPTOR, 0), (PROCESSOR, 0), (PROCESSOR, 1), *ONE_EACH]


@pytest.fixture
def slots() -> ProcessSlots:
    """Return the slots of two processors and one handler."""
    view = memoryview(bytearray(64 + ProcessSlots.bytes_needed(2, 1)))
    made = ProcessSlots(view, 64, 2, 1)
    made.initialise()
    return made


def test_every_process_has_a_slot_of_its_own(slots: ProcessSlots) -> None:
    for number, (role, index) in enumerate(ALL):
        slots.set_pid(role, index, 100 + number)
    statuses = slots.statuses()
    assert [(status.role, status.index) for status in statuses] == [(ROLES[role], index) for role, index in ALL]
    assert [status.pid for status in statuses] == list(range(100, 100 + len(ALL)))
    assert {status.state for status in statuses} == {"empty"}


def test_a_slot_tells_of_its_process_from_start_to_replacement(slots: ProcessSlots) -> None:
    slots.set_generation(PROCESSOR, 1, 3)
    slots.set_state(PROCESSOR, 1, RUNNING)
    assert not slots.statuses()[3].ready
    slots.mark_ready(PROCESSOR, 1, 3)
    slots.beat(PROCESSOR, 1, 12345)
    status = slots.statuses()[3]
    assert (status.ready, status.generation, status.state, status.heartbeat_ns) == (True, 3, "running", 12345)
    slots.set_last_error(PROCESSOR, 1, "disk full")
    slots.set_state(PROCESSOR, 1, DEAD)
    slots.set_exit_status(PROCESSOR, 1, -9)
    slots.set_restarts(PROCESSOR, 1, 1)
    slots.set_generation(PROCESSOR, 1, 4)
    status = slots.statuses()[3]
    assert (status.ready, status.state, status.exit_status, status.restarts) == (False, "dead", -9, 1)
    assert status.last_error == slots.last_error(PROCESSOR, 1) == "disk full"


def test_words_of_single_fields(slots: ProcessSlots) -> None:
    slots.set_generation(HANDLER, 0, 2)
    slots.mark_ready(HANDLER, 0, 1)
    assert (slots.generation(HANDLER, 0), slots.ready_generation(HANDLER, 0)) == (2, 1)
    assert (slots.state(HANDLER, 0), slots.restarts(HANDLER, 0), slots.heartbeat_ns(HANDLER, 0)) == (0, 0, 0)
    assert slots.pid(HANDLER, 0) == 0


@pytest.mark.parametrize("text", ["", "short", "x" * 1000, "ä" * 200, "a" + "€" * 100])
def test_last_error_are_cut_at_a_whole_character(slots: ProcessSlots, text: str) -> None:
    slots.set_last_error(HANDLER, 0, "something longer that was said before " * 5)
    slots.set_last_error(HANDLER, 0, text)
    stated = slots.last_error(HANDLER, 0)
    assert text.startswith(stated)
    assert len(text.encode()) <= 256 or 253 <= len(stated.encode()) <= 256
    assert slots.last_error(CONTROLLER, 0) == slots.last_error(PROCESSOR, 1) == ""


def test_of_a_single_role_the_index_is_not_looked_at(slots: ProcessSlots) -> None:
    slots.set_pid(CONTROLLER, 1, 77)
    assert slots.pid(CONTROLLER, 0) == 77


@pytest.mark.parametrize(("role", "index"), [(PROCESSOR, 2), (PROCESSOR, -1), (HANDLER, 1)])
def test_a_process_that_is_not_there(slots: ProcessSlots, role: int, index: int) -> None:
    with pytest.raises(IndexError, match=f"{ROLES[role]} {index}"):
        slots.pid(role, index)
