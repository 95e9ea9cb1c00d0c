"""A clock that counts calls, of Python and of C, so that time does not depend on the machine."""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable
from typing import Any

from rotunda.broker.protocol.api_keys import ApiKey
from rotunda.broker.scheduling.slices import BUDGET_NS
from tests.support.fakes import FakeClock
from tests.support.stepped_broker import SteppedBroker

NS_A_CALL = 500

#: The time budget of slices in a turn, the same again for the step that exceeds it, and the rest of the loop.
MOST_CALLS = 2 * BUDGET_NS // NS_A_CALL + 5_000


class CallClock(FakeClock):
    """A clock that advances with every call while `counting`."""

    calls = 0

    def monotonic_ns(self) -> int:
        return super().monotonic_ns() + self.calls * NS_A_CALL

    def counting(self, act: Callable[[], Any]) -> int:
        """Return how many calls are made by ``act``."""
        before = self.calls

        def called(_frame: Any, event: str, _argument: Any) -> None:
            if event in {"call", "c_call"}:
                self.calls += 1

        # Garbage of earlier tests makes calls when it is collected.
        gc.disable()
        sys.setprofile(called)
        try:
            act()
        finally:
            sys.setprofile(None)
            gc.enable()
        return self.calls - before


def run_once(broker: SteppedBroker, target: int) -> int:
    """Turn one target while time passes; return the number of calls."""
    assert isinstance(broker.clock, CallClock)
    return broker.clock.counting(broker.handler(target).run_once)


def longest_turn(broker: SteppedBroker, key: ApiKey, version: int, frame: bytes) -> int:
    """Return the calls of the longest turn of any target until a request has its response."""
    clock = broker.clock
    assert isinstance(clock, CallClock)
    client = broker.client()
    sent = client.send_frame(key, version, frame)
    longest = 0
    for _ in range(10_000):
        for handler in broker.handlers:
            if handler is not None:
                longest = max(longest, clock.counting(handler.run_once))
        broker.drain()
        clock.advance_ms(1)
        if sent.answers:
            broker.forget_clients()
            return longest
    raise AssertionError("no answer")
