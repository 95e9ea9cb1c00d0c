"""The network client against Apache Kafka 4.4: TLS, each mechanism of SASL, sessions renewed; and leaders that move."""

from __future__ import annotations

import base64
import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from rotunda.broker.client.errors import SaslAuthenticationFailed
from rotunda.broker.client.network.requests import ClientResponse
from tests.client.network.live_client import LiveClient
from tests.support.deadline import wait_until
from tests.support.kafka_cluster import KafkaCluster
from tests.support.shared_kafka import PASSWORD, SESSION_MS, SharedKafka

pytestmark = [pytest.mark.slow, pytest.mark.needs("kafka")]

MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")


def properties(
    kafka: SharedKafka, protocol: str, mechanism: str, directory: Path, password: str = PASSWORD
) -> dict[str, str]:
    """Return the properties of alice's client."""
    shown = directory / "token"
    now = int(time.time())
    claims = {"sub": "alice" if password == PASSWORD else "", "iat": now, "exp": now + 300}
    parts = [json.dumps(each).encode() for each in ({"alg": "none"}, claims)]
    shown.write_text(".".join(base64.urlsafe_b64encode(each).decode().rstrip("=") for each in parts) + ".")
    return {
        "bootstrap.servers": kafka.address(protocol),
        "security.protocol": protocol,
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(kafka.trusted),
        "sasl.mechanism": mechanism,
        "sasl.username": "alice",
        "sasl.password": password,
        "sasl.oauthbearer.token.endpoint.url": shown.as_uri(),
    }


KINDS = [("PLAINTEXT", "PLAIN"), ("SSL", "PLAIN")]
KINDS += [(protocol, mechanism) for protocol in ("SASL_SSL", "SASL_PLAINTEXT") for mechanism in MECHANISMS]


@pytest.mark.parametrize(("protocol", "mechanism"), KINDS)
def test_g28_kafka_lets_the_client_in(apache_kafka: SharedKafka, protocol: str, mechanism: str, tmp_path: Path) -> None:
    with LiveClient(properties(apache_kafka, protocol, mechanism, tmp_path)) as client:
        node = client.know("topic")
        client.connect(node)
        assert client.ask(node).was_received
        versions = client.network.api_versions.get(node.id)
        assert versions is not None
        assert client.metadata.fetch().topic_ids["topic"].int
        assert client.network.api_versions.finalized_features[1]["transaction.version"] == 2


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_g28_kafka_rejects_and_the_client_says_why(apache_kafka: SharedKafka, mechanism: str, tmp_path: Path) -> None:
    with (
        LiveClient(properties(apache_kafka, "SASL_SSL", mechanism, tmp_path, "wrong")) as client,
        pytest.raises(SaslAuthenticationFailed),
    ):
        client.poll_until(client.metadata.raise_fatal_error, "the refusal")


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "OAUTHBEARER"])
def test_kafka_renews_a_session_while_requests_are_in_flight(
    apache_kafka: SharedKafka, mechanism: str, tmp_path: Path
) -> None:
    with LiveClient(properties(apache_kafka, "SASL_SSL", mechanism, tmp_path)) as client:
        node = client.know("topic")
        client.connect(node)
        sent: list[list[ClientResponse]] = []
        until_ms = client.now_ms + 2.5 * SESSION_MS

        def has_passed() -> bool:
            assert not client.network.connection_failed(node), "Kafka ends connections whose session has ended"
            while client.network.ready(node, client.now_ms):
                sent.append(client.send(node))
            return client.now_ms > until_ms

        client.poll_until(has_passed, "several sessions")
        client.poll_until(lambda: all(sent), "all responses")
        assert client.selector.counts.connections_created <= 2
        assert all(each[0].was_received for each in sent)


@contextmanager
def cluster_in(directory: Path) -> Iterator[KafkaCluster]:
    cluster = KafkaCluster(directory, nodes=3)
    try:
        yield cluster
    finally:
        cluster.stop()


@pytest.mark.compat
def test_g08_g09_g31_leaders_move_and_the_client_follows(tmp_path: Path) -> None:
    with cluster_in(tmp_path) as cluster, LiveClient({"bootstrap.servers": cluster.bootstrap}) as client:
        wait_until(lambda: all_known(client), "all nodes", 120)
        client.know("moving")
        for _ in range(2):
            move_leader(cluster, client)


def move_leader(cluster: KafkaCluster, client: LiveClient) -> None:
    """Kill the leader, follow the next one, and wait until the killed one is back."""
    leader = client.know("moving")
    client.connect(leader)
    epoch = client.metadata.fetch().leader_epoch("moving", 0)
    cluster.kill(leader.id)
    client.poll_until(lambda: client.network.connection_failed(leader), "the end of the connection")
    following = client.poll_until(lambda: another_leader(client, leader.id), "another leader")
    client.connect(following)
    assert client.ask(following).was_received
    newer = client.metadata.fetch().leader_epoch("moving", 0)
    assert epoch is not None
    assert newer is not None
    assert newer > epoch
    cluster.start(leader.id)
    client.poll_until(lambda: is_back(client, leader.id), "the node is back")


def all_known(client: LiveClient) -> bool:
    client.metadata.request_update()
    client.poll(100)
    return len([each for each in client.metadata.fetch().nodes if each > 0]) == 3


def another_leader(client: LiveClient, old: int) -> object:
    client.metadata.request_update()
    leader = client.metadata.fetch().leader_for("moving", 0)
    return leader if leader is not None and leader.id != old else None


def is_back(client: LiveClient, node_id: int) -> bool:
    client.metadata.request_update()
    partition = client.metadata.fetch().partition("moving", 0)
    return partition is not None and node_id in partition.isr
