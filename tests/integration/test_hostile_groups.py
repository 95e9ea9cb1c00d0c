"""Damaged and enormous requests about groups and transactions at a running broker: no member of a group notices."""

from __future__ import annotations

import os
import random
import signal
import struct
from contextlib import ExitStack
from typing import Any

from broker.protocol import kio_adapter
from tests.support.broker_process import BrokerProcess
from tests.support.coordinator_requests import JOIN, REQUESTS
from tests.support.deadline import wait_until
from tests.support.feeds import mutations, random_seed
from tests.support.wire_client import WireClient, sized

#: All members join within it, whoever stands still for a moment: one generation has them all.
BROKER_SETTINGS = {"group.initial.rebalance.delay.ms": 3000}

MEMBERS = 300
JOIN_GROUP, HEARTBEAT, SYNC_GROUP, FIND_COORDINATOR = 11, 12, 14, 10

#: What a fault of ours says in the log.
FAULTS = ("Traceback", "request failed", "fault in", "cannot answer", "failed; closing")


def send(client: WireClient, api_key: int, version: int, values: dict[str, Any]) -> None:
    client.send(kio_adapter.encode_request(api_key, version, 1, "test", values))


def receive(client: WireClient, api_key: int, version: int) -> Any:
    frame = sized(client.receive_frame())
    return kio_adapter.decode_response(api_key, version, frame, 4, len(frame))


def call(client: WireClient, api_key: int, version: int, values: dict[str, Any]) -> Any:
    send(client, api_key, version, values)
    return receive(client, api_key, version)


def open_topics(client: WireClient) -> None:
    for key_type in (0, 1):
        values = {"key_type": key_type, "coordinator_keys": ["any"]}
        wait_until(
            lambda values=values: call(client, FIND_COORDINATOR, 4, values).coordinators[0].error_code == 0,
            "an internal topic",
        )


def nothing_of_ours_failed(broker: BrokerProcess, position: int, seed: int = 0) -> None:
    found = [line for line in broker.log_since(position) if any(text in line for text in FAULTS)]
    assert not found, f"seed {seed}: {found[:20]}"


def test_damaged_requests_end_their_connection_at_most(broker: BrokerProcess, wire: WireClient) -> None:
    open_topics(wire)
    position, before = broker.log_bytes(), broker.child_pids()
    seed = random_seed()
    print(f"seed {seed}")
    generator = random.Random(seed)
    for api_key, version, values in REQUESTS:
        frame = kio_adapter.encode_request(api_key, version, 0, "test", values)[4:]
        for damaged in mutations(frame[8:], generator.randrange(2**32), 8):
            with WireClient(broker.port) as stranger:
                stranger.send(sized(frame[:8] + damaged))
    # Whatever was sent is through when a connection to each processor has been answered.
    for _ in range(4):
        with WireClient(broker.port) as client:
            open_topics(client)
    assert broker.child_pids() == before
    nothing_of_ours_failed(broker, position, seed)


def test_a_group_of_hundreds_with_much_to_say_shares_and_survives_its_handler(broker: BrokerProcess) -> None:
    """Answers and records of megabytes: larger than a ring, and than any message that a client may produce."""
    position = broker.log_bytes()
    metadata = bytes(8 * 1024)
    values = JOIN | {
        "group_id": "crowd",
        "session_timeout_ms": 60_000,
        "protocols": [{"name": "range", "metadata": metadata}],
    }
    with ExitStack() as stack:
        clients = [stack.enter_context(WireClient(broker.port, 60)) for _ in range(MEMBERS)]
        open_topics(clients[0])
        for client in clients:
            send(client, JOIN_GROUP, 2, values)
        joined = [receive(client, JOIN_GROUP, 2) for client in clients]
        assert {int(each.error_code) for each in joined} == {0}
        assert len({each.generation_id for each in joined}) == 1
        (leader,) = {each.leader for each in joined}
        assert max(len(each.members) for each in joined) == MEMBERS
        share = struct.Struct(">i8192x")
        shares = [{"member_id": each.member_id, "assignment": share.pack(number)} for number, each in enumerate(joined)]
        for client, each in zip(clients, joined, strict=True):
            who = {"group_id": "crowd", "generation_id": each.generation_id, "member_id": each.member_id}
            send(client, SYNC_GROUP, 1, who | {"assignments": shares if each.member_id == leader else []})
        synced = [receive(client, SYNC_GROUP, 1).assignment for client in clients]
        assert [share.unpack(each)[0] for each in synced] == list(range(MEMBERS))
        for row in broker.processes("handler"):
            os.kill(row["pid"], signal.SIGKILL)
        for client, each in zip(clients, joined, strict=True):
            who = {"group_id": "crowd", "generation_id": each.generation_id, "member_id": each.member_id}
            assert int(call(client, HEARTBEAT, 1, who).error_code) == 0
    nothing_of_ours_failed(broker, position)
