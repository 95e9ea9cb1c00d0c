"""Requests to a coordinator that is still loading are retried for a while; any other error is returned at once."""

from __future__ import annotations

import pytest

from rotunda.broker.client.admin.groups import when_loaded
from rotunda.broker.errors import ApiError
from rotunda.broker.protocol.error_codes import ErrorCode
from tests.support.fakes import FakeClock

LOADING = (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.NOT_COORDINATOR)


@pytest.mark.parametrize("error", [*LOADING, ErrorCode.GROUP_ID_NOT_FOUND])
def test_errors_of_a_coordinator_that_is_not_there_yet_are_waited_out(error: ErrorCode) -> None:
    asked = 0

    def ask() -> str:
        nonlocal asked
        asked += 1
        if asked < 3:
            raise ApiError(error)
        return "answer"

    if error in LOADING:
        assert when_loaded(ask, FakeClock()) == "answer"
    else:
        with pytest.raises(ApiError):
            when_loaded(ask, FakeClock())
    assert asked == (3 if error in LOADING else 1)


def test_nobody_waits_for_ever() -> None:
    clock = FakeClock()

    def ask() -> None:
        clock.advance_ms(6_000)
        raise ApiError(ErrorCode.NOT_COORDINATOR)

    with pytest.raises(ApiError):
        when_loaded(ask, clock)
