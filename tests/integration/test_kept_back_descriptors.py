"""Reserved descriptors: when all others are used an administrator is accepted, and records are written and read."""

from __future__ import annotations

import resource
from contextlib import ExitStack

import psutil
from confluent_kafka.admin import AdminClient

from rotunda.broker.network.acceptor.descriptors import descriptors_of
from tests.support.broker_process import BrokerProcess
from tests.support.deadline import deadline_s, wait_until
from tests.support.described_requests import ask, receive_answer, send_request
from tests.support.record_batches import record_batch
from tests.support.sockets import is_readable
from tests.support.wire_client import WireClient
from tests.support.wire_messages import produce, read_partition

LISTENERS = "CLIENTS://127.0.0.1:0,PLAINTEXT://127.0.0.1:0"
BROKER_SETTINGS = {
    "num.network.threads": 1,
    "listeners": LISTENERS,
    "listener.security.protocol.map": "CLIENTS:PLAINTEXT",
}
API_VERSIONS = 18
OPEN_FILES = 256


def test_a16_a24_an_administrator_connects_when_connections_use_all_descriptors(
    broker: BrokerProcess, topic: str, held: ExitStack
) -> None:
    """The processor, and the acceptor that counts for it, have few; a client beyond them waits, and none is lost."""
    psutil.Process(broker.pid()).rlimit(resource.RLIMIT_NOFILE, (OPEN_FILES, OPEN_FILES))
    broker.kill("processor")
    broker.kill("acceptor")
    most = descriptors_of(OPEN_FILES).ordinary
    clients: list[WireClient] = []

    while len(clients) < most:
        clients.append(held.enter_context(WireClient(broker.port)))
        send_request(clients[-1], API_VERSIONS, 0, {})
        assert receive_answer(clients[-1], API_VERSIONS, 0).error_code == 0
    waiting = held.enter_context(WireClient(broker.port))
    send_request(waiting, API_VERSIONS, 0, {})
    assert not is_readable(waiting.socket, 1.0)
    admin = AdminClient({"bootstrap.servers": f"127.0.0.1:{broker.ports()[1]}"})
    assert admin.list_topics(timeout=deadline_s()).brokers
    wait_until(lambda: topic in admin.list_topics(topic, timeout=deadline_s()).topics, "the topic")
    wire = clients[0]
    assert wait_until(lambda: produce(wire, topic, 0, record_batch([b"x"]), 1).error_code == 0, "the record")
    assert len(read_partition(wire, topic, 0)) == 1
    # As many as administrators have, and one.
    for client in clients[-8:]:
        client.close()
    assert receive_answer(waiting, API_VERSIONS, 0).error_code == 0
    assert ask(wire, API_VERSIONS, 0, {}).error_code == 0
