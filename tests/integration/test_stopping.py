"""SIGTERM: the broker ends in order and soon, whichever response its clients wait for."""

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from rotunda.broker.protocol import codec
from rotunda.broker.protocol.api_keys import ApiKey
from rotunda.broker.protocol.error_codes import ErrorCode
from tests.support.broker_process import BrokerProcess
from tests.support.deadline import wait_until
from tests.support.groups.requests import Member, await_coordinators
from tests.support.wire_client import WireClient, request_frame
from tests.support.wire_messages import FETCH, FETCH_VERSION, create_topic, fetch_body

#: Any wait here, and the time limit of the broker: far more than a stop may take, also on a busy machine.
LONG_MS = 1_800_000


@pytest.fixture
def own(broker_directory: Path) -> Iterator[BrokerProcess]:
    """Run a broker that the test stops."""
    broker = BrokerProcess(broker_directory, {"shutdown.timeout.ms": LONG_MS}).start()
    yield broker
    broker.kill_everything()


def members(broker: BrokerProcess, clients: ExitStack) -> tuple[Member, Member, Any]:
    """Return the member of a group, and another that waits for the first to rejoin, with its request."""
    first, second = (
        Member(clients.enter_context(WireClient(broker.port)), "group", session_ms=LONG_MS, asks_for_id=False)
        for _ in range(2)
    )
    await_coordinators(first.link.wire)
    first.join()
    waiting = second.join_request()
    wait_until(lambda: first.heartbeat() == ErrorCode.REBALANCE_IN_PROGRESS, "the group is rebalancing")
    return first, second, waiting


def a_sync(broker: BrokerProcess, clients: ExitStack) -> None:
    """Make a member wait for the leader's assignment, which is never sent."""
    leader, follower, waiting = members(broker, clients)
    assert leader.enter() == follower.take(waiting) == 0
    follower.sync_request({})


def a_fetch(broker: BrokerProcess, clients: ExitStack) -> None:
    """Make a consumer wait for a record that is never written."""
    client = clients.enter_context(WireClient(broker.port))
    create_topic(client, "topic", 1)
    body = fetch_body("topic", 0, 0, max_wait_ms=LONG_MS)
    client.send(request_frame(FETCH, FETCH_VERSION, 1, body))


def long_requests(broker: BrokerProcess, clients: ExitStack) -> None:
    """Send a request that needs a good part of a second, many times."""
    topics = [{"name": "nowhere", "partitions": [{"partition_index": n, "offset": 0} for n in range(60_000)]}]
    request = codec.encode_request(ApiKey.DELETE_RECORDS, 2, 1, "test", {"topics": topics, "timeout_ms": LONG_MS})
    for _ in range(40):
        clients.enter_context(WireClient(broker.port)).send(request)


@pytest.mark.parametrize("waits", [a_sync, a_fetch, long_requests])
def test_a_stop_does_not_wait_for_waiting_requests(
    own: BrokerProcess, waits: Callable[[BrokerProcess, ExitStack], None]
) -> None:
    with ExitStack() as clients:
        waits(own, clients)
        os.kill(own.pid(), signal.SIGTERM)
        own.assert_nothing_left()
    assert "killed" not in own.log_text()
