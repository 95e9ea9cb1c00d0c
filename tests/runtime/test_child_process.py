"""The common part of all child processes: how many faults their loops survive."""

import logging

import pytest

from rotunda.broker.runtime.child_process import MOST_FAULTS, FaultLimit


class Passing(Exception):  # noqa: N818  named for what is the case
    """No fault."""


def limit() -> FaultLimit:
    return FaultLimit(logging.getLogger(__name__), "the loop", passing=(Passing,))


def fail(faults: FaultLimit, times: int) -> None:
    for _ in range(times):
        with faults:
            raise ZeroDivisionError("once more")


def test_faults_are_logged_and_the_loop_goes_on(caplog: pytest.LogCaptureFixture) -> None:
    fail(limit(), MOST_FAULTS - 1)
    assert [record.getMessage() for record in caplog.records] == ["fault in the loop"] * (MOST_FAULTS - 1)
    assert "ZeroDivisionError: once more" in caplog.text


def test_the_last_of_too_many_in_a_row_is_raised() -> None:
    faults = limit()
    fail(faults, MOST_FAULTS - 1)
    with pytest.raises(ZeroDivisionError):
        fail(faults, 1)


def test_one_good_turn_and_they_are_forgotten(caplog: pytest.LogCaptureFixture) -> None:
    faults = limit()
    for _ in range(3):
        fail(faults, MOST_FAULTS - 1)
        with faults:
            pass
    assert len(caplog.records) == 3 * (MOST_FAULTS - 1)


@pytest.mark.parametrize("kind", [Passing, SystemExit, KeyboardInterrupt])
def test_what_is_no_fault_goes_through_at_once_and_counts_for_nothing(kind: type[BaseException]) -> None:
    faults = limit()
    fail(faults, MOST_FAULTS - 1)
    with pytest.raises(kind), faults:
        raise kind
    with pytest.raises(ZeroDivisionError):
        fail(faults, 1)
