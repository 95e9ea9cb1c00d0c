"""SIGTERM: the broker ends in order and soon, whatever its clients wait for."""

import os
import signal
import struct
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from broker.protocol import kio_adapter
from broker.protocol.api_keys import ApiKey
from tests.support.broker_process import BrokerProcess
from tests.support.deadline import wait_until
from tests.support.described_requests import ask
from tests.support.wire_client import WireClient, request_frame
from tests.support.wire_messages import FETCH, FETCH_VERSION, create_topic, fetch_body

#: Far less than anybody here waits for, and than the broker would be given: shutdown.timeout.ms is half a minute.
SOON_S = 5.0
LONG_MS = 60_000


@pytest.fixture
def own(broker_directory: Path) -> Iterator[BrokerProcess]:
    """Run a broker that the test stops."""
    broker = BrokerProcess(broker_directory, {"shutdown.timeout.ms": LONG_MS}).start()
    yield broker
    broker.kill_everything()


def join_fields(member_id: str) -> dict[str, Any]:
    return {
        "group_id": "group",
        "session_timeout_ms": LONG_MS,
        "rebalance_timeout_ms": LONG_MS,
        "member_id": member_id,
        "protocol_type": "consumer",
        "protocols": [{"name": "range", "metadata": b""}],
    }


def joined(client: WireClient) -> Any:
    ask(client, ApiKey.FIND_COORDINATOR, 1, {"key": "group", "key_type": 0})
    return wait_until(lambda: _unless_15(ask(client, ApiKey.JOIN_GROUP, 2, join_fields(""))), "the group is there")


def _unless_15(answer: Any) -> Any:
    return None if answer.error_code == 15 else answer


def send(client: WireClient, key: ApiKey, version: int, fields: dict[str, Any]) -> None:
    client.send(kio_adapter.encode_request(key, version, 1, "test", fields))


def nobody(broker: BrokerProcess, clients: ExitStack) -> None:
    """Hold a connection without a request."""
    clients.enter_context(WireClient(broker.port)).call(18, 0)


def a_join(broker: BrokerProcess, clients: ExitStack) -> None:
    """Let the second member wait for the first to join anew, which it does not."""
    first, second = (clients.enter_context(WireClient(broker.port)) for _ in range(2))
    member = joined(first)
    sync = {"group_id": "group", "generation_id": member.generation_id, "member_id": member.member_id}
    ask(first, ApiKey.SYNC_GROUP, 2, sync | {"assignments": []})
    send(second, ApiKey.JOIN_GROUP, 2, join_fields(""))
    beat = {"group_id": "group", "generation_id": member.generation_id, "member_id": member.member_id}
    wait_until(lambda: ask(first, ApiKey.HEARTBEAT, 1, beat).error_code == 27, "the group is rebalancing")


def a_sync(broker: BrokerProcess, clients: ExitStack) -> None:
    """Let a member wait for what the leader assigns, which says nothing."""
    first, second = (clients.enter_context(WireClient(broker.port)) for _ in range(2))
    leader = joined(first)
    send(second, ApiKey.JOIN_GROUP, 2, join_fields(""))
    beat = {"group_id": "group", "generation_id": leader.generation_id, "member_id": leader.member_id}
    wait_until(lambda: ask(first, ApiKey.HEARTBEAT, 1, beat).error_code == 27, "the group is rebalancing")
    leader = ask(first, ApiKey.JOIN_GROUP, 2, join_fields(leader.member_id))
    answer = second.receive_frame()
    frame = struct.pack(">i", len(answer)) + answer
    member = kio_adapter.decode_response(ApiKey.JOIN_GROUP, 2, frame, 4, len(frame))
    sync = {"group_id": "group", "generation_id": leader.generation_id, "member_id": member.member_id}
    send(second, ApiKey.SYNC_GROUP, 2, sync | {"assignments": []})


def a_fetch(broker: BrokerProcess, clients: ExitStack) -> None:
    """Let a consumer wait for a record that does not come."""
    client = clients.enter_context(WireClient(broker.port))
    create_topic(client, "topic", 1)
    body = fetch_body("topic", 0, 0, max_wait_ms=LONG_MS)
    client.send(request_frame(FETCH, FETCH_VERSION, 1, body))


def long_requests(broker: BrokerProcess, clients: ExitStack) -> None:
    """Ask for what takes a good part of a second, many times."""
    topics = [{"name": "nowhere", "partitions": [{"partition_index": n, "offset": 0} for n in range(60_000)]}]
    request = kio_adapter.encode_request(ApiKey.DELETE_RECORDS, 2, 1, "test", {"topics": topics, "timeout_ms": LONG_MS})
    for _ in range(40):
        clients.enter_context(WireClient(broker.port)).send(request)


@pytest.mark.parametrize("waits", [nobody, a_join, a_sync, a_fetch, long_requests])
def test_a_stop_waits_for_nobody_who_waits(
    own: BrokerProcess, waits: Callable[[BrokerProcess, ExitStack], None]
) -> None:
    with ExitStack() as clients:
        waits(own, clients)
        os.kill(own.pid(), signal.SIGTERM)
        begin = time.monotonic()
        own.assert_nothing_left()
        assert time.monotonic() - begin < SOON_S
    assert "killed" not in own.log_text()
