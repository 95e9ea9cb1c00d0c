"""A pause is attributed only to events of the process that served the bystander."""

from pathlib import Path

import pytest

from ops.reliability import pauses
from ops.reliability.bystander import Pause
from ops.reliability.journal import Journal, Window

OWN, OTHER = 11, 12


@pytest.fixture
def journal(tmp_path: Path) -> Journal:
    return Journal(tmp_path / "journal.jsonl")


def pause(begin: float = 10.0, end: float = 11.5, *, pid: int = OWN, closed: bool = False) -> Pause:
    return Pause(begin, end, pid, "PRODUCE", was_closed=closed)


@pytest.mark.parametrize(
    ("window", "expected"),
    [
        (Window("SIGKILL", 10.2, 10.2, OWN, "processor"), pauses.DIED),
        (Window("SIGSTOP", 8, 10.3, OWN, "processor", "replaced"), pauses.DIED),
        (Window("SIGKILL", 10.2, 10.2, OTHER, "processor"), pauses.BESIDE),
        (Window("SIGKILL", 20.0, 20.0, OWN, "processor"), pauses.BESIDE),
        (Window("SIGSTOP", 10.2, 10.9, OWN, "processor", "woken"), pauses.BESIDE),
        (Window("crash of all", 9, 10.5), pauses.RESTARTED),
        (Window("fewer processors", 9, 10.5), pauses.LEFT),
        (Window("more processors, or other handlers", 9, 10.5), pauses.BESIDE),
        (Window("poison: zip bomb", 10, 11), pauses.BESIDE),
    ],
)
def test_a_closed_connection_is_explained_by_the_death_of_its_processor_alone(journal, window, expected) -> None:
    journal.windows.append(window)
    assert pauses.cause_of(pause(closed=True), journal) == expected


@pytest.mark.parametrize(
    ("window", "expected"),
    [
        (Window("SIGSTOP", 10.2, 10.9, OWN, "processor", "woken"), pauses.STOPPED),
        (Window("SIGSTOP", 10.2, 10.9, OTHER, "handler", "woken"), pauses.HANDLER_STOPPED),
        (Window("SIGSTOP", 10.2, 10.9, OTHER, "processor", "woken"), pauses.BESIDE),
        (Window("SIGSTOP", 10.2, 10.9, OTHER, "cleaner", "woken"), pauses.BESIDE),
        (Window("restart", 9, 12), pauses.RESTARTED),
    ],
)
def test_a_pause_is_explained_by_a_stop_of_who_serves(journal, window, expected) -> None:
    journal.windows.append(window)
    assert pauses.cause_of(pause(), journal) == expected


def test_a_processor_that_died_before_it_was_known_which_it_was(journal) -> None:
    journal.windows.append(Window("SIGKILL", 10.2, 10.2, OTHER, "processor"))
    assert pauses.cause_of(pause(pid=0, closed=True), journal) == pauses.DIED


def test_pauses_at_one_time_are_told_of_once_with_what_was_going_on(journal) -> None:
    journal.windows.append(Window("poison: zip bomb", 9.8, 10.1))
    seen = [pause(), pause(10.1, 11.4), pause(30.0, 30.2), pause(50.0, 50.1, closed=True)]
    first, second = pauses.unexplained(seen, journal, longer_than=1.0)
    assert first.startswith("1.50 s at 10.00, 2 bystanders")
    assert first.endswith("beside poison: zip bomb")
    assert second.endswith("beside nothing")


def test_every_cause_has_a_row(journal) -> None:
    [*_, beside] = rows = pauses.by_cause([pause(), pause(20, 20.5)], journal)
    assert [row.cause for row in rows] == list(pauses.CAUSES)
    assert (beside.pauses, beside.worst_seconds, beside.closed) == (2, 1.5, 0)
