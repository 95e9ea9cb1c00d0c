"""No turn is long, whatever is asked: requests of very many elements are read, served and answered in slices.

Time is what has been called: a clock that counts calls, of Python and of C, stands in for the machine.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from broker.apis.table import API_TABLE
from broker.handler import api_calls
from broker.protocol.api_keys import ApiKey
from broker.scheduling import slices
from broker.scheduling.slices import BUDGET_NS
from tests.support import stepped_broker
from tests.support.fakes import FakeClock
from tests.support.large_requests import Path as ArrayPath
from tests.support.large_requests import arrays_of, request_with
from tests.support.stepped_broker import SteppedBroker

ELEMENTS = 10_000
NS_A_CALL = 500

#: What slices get of a turn, as much again for the step that uses it up, and the rest of the loop.
MOST_CALLS = 2 * BUDGET_NS // NS_A_CALL + 5_000

#: Produce and Fetch have paths, and tests, of their own.
HOT = {ApiKey.PRODUCE, ApiKey.FETCH}
ARRAYS = [
    pytest.param(api.key, api.max_version, path, id=f"{api.key.name}-{'.'.join(path)}")
    for api in API_TABLE
    if api.key not in HOT
    for path in arrays_of(api.key, api.max_version)
]


class CallClock(FakeClock):
    """A clock that goes on with every call while `counting`."""

    calls = 0

    def monotonic_ns(self) -> int:
        return super().monotonic_ns() + self.calls * NS_A_CALL

    def counting(self, act: Callable[[], Any]) -> int:
        """Return how many calls are made by ``act``."""
        before = self.calls

        def called(_frame: Any, event: str, _argument: Any) -> None:
            if event in {"call", "c_call"}:
                self.calls += 1

        sys.setprofile(called)
        try:
            act()
        finally:
            sys.setprofile(None)
        return self.calls - before


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SteppedBroker]:
    directory: Path = tmp_path_factory.mktemp("turns")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(stepped_broker, "FakeClock", CallClock)
        made = SteppedBroker(directory)
    made.create("n1", 4)
    yield made
    made.close()


def longest_turn(broker: SteppedBroker, key: ApiKey, version: int, frame: bytes) -> int:
    """Return the calls of the longest turn of any target until a request is answered."""
    clock = broker.clock
    assert isinstance(clock, CallClock)
    client = broker.client()
    sent = client.send_frame(key, version, frame)
    longest = 0
    for _ in range(10_000):
        for handler in broker.handlers:
            if handler is not None:
                longest = max(longest, clock.counting(handler.turn))
        broker.drain()
        clock.advance_ms(1)
        if sent.answers:
            broker.forget_clients()
            return longest
    raise AssertionError("no answer")


@pytest.mark.parametrize(("key", "version", "path"), ARRAYS)
def test_a_request_of_very_many_elements_is_served_in_slices(
    broker: SteppedBroker, key: ApiKey, version: int, path: ArrayPath
) -> None:
    # What is made once for an API falls to the first.
    longest_turn(broker, key, version, request_with(key, version, path, 1))
    assert longest_turn(broker, key, version, request_with(key, version, path, ELEMENTS)) <= MOST_CALLS


def turn(broker: SteppedBroker) -> None:
    """Turn a handler; time passes."""
    assert isinstance(broker.clock, CallClock)
    broker.clock.counting(broker.handler(0).turn)
    broker.drain()


@pytest.mark.parametrize("dies", [False, True])
def test_what_takes_long_to_copy_is_copied_in_slices(
    broker: SteppedBroker, monkeypatch: pytest.MonkeyPatch, dies: bool
) -> None:
    """Its memory is kept meanwhile, and no longer; another connection is served; a death begins it anew."""
    key, version = ApiKey.DESCRIBE_CONFIGS, 4
    frame = request_with(key, version, ("resources",), 3000)
    sent = broker.client().send_frame(key, version, frame)
    broker.settle(1000)
    with monkeypatch.context() as patch:
        patch.setattr(api_calls, "COPIED_AT_ONCE", 2048)
        # One piece of each turn.
        patch.setattr(slices, "BUDGET_NS", 1)
        copied = broker.client().send_frame(key, version, frame, target=0)
        turns = 0
        while not broker.released(0, 0) or not turns:
            turn(broker)
            turns += 1
            if turns == 5:
                beside = broker.client().send(ApiKey.API_VERSIONS, 0, b"", target=0)
                turn(broker)
                assert beside.answers
                assert not copied.answers
                if dies:
                    broker.replace(0)
        assert turns >= len(frame) // 2048
    broker.settle(1000)
    assert copied.answer.payload[8:] == sent.answer.payload[8:]
    broker.forget_clients()
