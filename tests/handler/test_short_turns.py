"""No turn is long, for any request: requests of very many elements are executed and encoded in slices.

Time is the number of calls: a clock that counts calls, of Python and of C, replaces the real one.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from rotunda.broker.apis.table import API_TABLE
from rotunda.broker.handler import api_calls
from rotunda.broker.protocol import codec
from rotunda.broker.protocol.api_keys import ApiKey
from rotunda.broker.protocol.headers import parse_header
from rotunda.broker.scheduling import slices
from tests.support.call_clock import MOST_CALLS, CallClock, longest_turn, run_once
from tests.support.large_requests import Path as ArrayPath
from tests.support.large_requests import arrays_of, request_with
from tests.support.stepped_broker import SteppedBroker

ELEMENTS = 10_000

#: Produce and Fetch have separate paths and tests.
HOT = {ApiKey.PRODUCE, ApiKey.FETCH}
ARRAYS = [
    pytest.param(api.key, api.max_version, path, id=f"{api.key.name}-{'.'.join(path)}")
    for api in API_TABLE
    if api.key not in HOT
    for path in arrays_of(api.key, api.max_version)
]


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SteppedBroker]:
    directory: Path = tmp_path_factory.mktemp("turns")
    made = SteppedBroker(directory, clock=CallClock)
    made.create("n1", 4)
    yield made
    made.close()


@pytest.mark.parametrize(("key", "version", "path"), ARRAYS)
def test_a_request_of_very_many_elements_is_served_in_slices(
    broker: SteppedBroker, key: ApiKey, version: int, path: ArrayPath
) -> None:
    # The first request includes one-time initialization for its API.
    longest_turn(broker, key, version, request_with(key, version, path, 1))
    frame = request_with(key, version, path, ELEMENTS)
    assert longest_turn(broker, key, version, frame) <= MOST_CALLS + decoding(broker, key, version, frame)


def decoding(broker: SteppedBroker, key: ApiKey, version: int, frame: bytes) -> int:
    """Return the calls of decoding a request: compiled codecs decode it in a single step."""
    clock = broker.clock
    assert isinstance(clock, CallClock)
    body = parse_header(frame, 0, len(frame)).body_offset
    return clock.counting(lambda: codec.decode(key, version, memoryview(frame), body, len(frame)))


@pytest.mark.parametrize("dies", [False, True])
def test_long_requests_are_copied_in_slices(broker: SteppedBroker, monkeypatch: pytest.MonkeyPatch, dies: bool) -> None:
    """Its memory is held meanwhile, and no longer; another connection is served; after a death it starts over."""
    key, version = ApiKey.DESCRIBE_CONFIGS, 4
    frame = request_with(key, version, ("resources",), 3000)
    sent = broker.client().send_frame(key, version, frame)
    broker.settle(1000)
    with monkeypatch.context() as patch:
        patch.setattr(api_calls, "COPIED_AT_ONCE", 2048)
        # One slice per turn.
        patch.setattr(slices, "BUDGET_NS", 1)
        copied = broker.client().send_frame(key, version, frame, target=0)
        turns = 0
        while not broker.released(0, 0) or not turns:
            run_once(broker, 0)
            broker.drain()
            turns += 1
            if turns == 5:
                beside = broker.client().send(ApiKey.API_VERSIONS, 0, b"", target=0)
                run_once(broker, 0)
                broker.drain()
                assert beside.answers
                assert not copied.answers
                if dies:
                    broker.replace(0)
        assert turns >= len(frame) // 2048
    broker.settle(1000)
    assert copied.answer.payload[8:] == sent.answer.payload[8:]
    broker.forget_clients()
