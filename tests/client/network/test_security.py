"""The network client against Rotunda over TLS and SASL; `compat/test_network_client_against_kafka.py` has the rest."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from rotunda.broker.client.errors import AuthenticationFailed, UnsupportedSaslMechanism
from rotunda.broker.client.network.addresses import Address
from rotunda.broker.client.network.network_config import NetworkConfig
from rotunda.broker.client.network.requests import ClientResponse
from rotunda.broker.protocol.error_codes import ErrorCode
from tests.client.network.live_client import LiveClient
from tests.support.deadline import load
from tests.support.sasl_broker import PASSWORD, SaslBroker
from tests.support.secured_broker import SecuredBroker

pytestmark = pytest.mark.slow

_ADDRESS = Address(socket.AF_INET, "127.0.0.1")


@pytest.fixture(scope="module")
def sasl(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SaslBroker]:
    """Return a broker with SASL, whose sessions are short."""
    # A client renews its session in the last 15 %: long enough for a busy machine.
    session_ms = 1000 * min(1.5 * load(), 6.0)
    broker = SaslBroker(tmp_path_factory.mktemp("sasl"), {"connections.max.reauth.ms": int(session_ms)})
    yield broker
    broker.process.stop()


@pytest.fixture(scope="module")
def tls(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredBroker]:
    """Return a broker that speaks TLS."""
    broker = SecuredBroker(tmp_path_factory.mktemp("tls"), {"ssl.client.auth": "requested"})
    broker.process.start()
    yield broker
    broker.process.stop()


def properties(sasl: SaslBroker) -> dict[str, str]:
    """Return the properties of alice's client."""
    return {
        "bootstrap.servers": sasl.addresses["SASL_SSL"],
        "security.protocol": "SASL_SSL",
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(sasl.trusted),
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.username": "alice",
        "sasl.password": PASSWORD,
    }


def test_g28_a_mechanism_that_the_broker_has_not(sasl: SaslBroker) -> None:
    with LiveClient(properties(sasl)) as client:
        # No client of this program can be configured to use another one.
        object.__setattr__(client.selector._access, "mechanism", "GSSAPI")
        with pytest.raises(UnsupportedSaslMechanism, match="'GSSAPI' not enabled"):
            client.poll_until(client.metadata.raise_fatal_error, "the refusal")


def test_a_session_is_renewed_before_it_ends_while_requests_are_in_flight(sasl: SaslBroker) -> None:
    with LiveClient(properties(sasl)) as client:
        node = client.know("topic")
        client.connect(node)
        renewed, last, responded = 0, None, 0
        sent: list[list[ClientResponse]] = []

        def has_been_renewed() -> bool:
            nonlocal renewed, last, responded
            channel = client.selector._channels.get(node.id)
            assert channel is not None, "the connection stays"
            if channel._authenticator is not last:
                renewed, last = renewed + 1, channel._authenticator
            while client.network.ready(node, client.now_ms):
                sent.append(client.send(node))
            responded = sum(map(len, sent))
            return renewed > 3 and responded > 10

        client.poll_until(has_been_renewed, "a session that is renewed twice")
        client.poll_until(lambda: all(sent), "all responses")
        assert all(int(each[0].body.error_code) == 0 for each in sent)
        counts = client.selector.counts
        assert counts.renewals >= 2
        assert counts.failed_authentications == 0


def test_tls_with_a_broker_that_is_trusted(tls: SecuredBroker) -> None:
    with LiveClient(tls_properties(tls)) as client:
        node = client.know("topic")
        client.connect(node)
        assert int(client.ask(node).body.error_code) == 0
        large = client.send(node, 3, topics=[{"name": f"missing-{number:05d}"} for number in range(3000)],
                            allow_auto_topic_creation=False)  # fmt: skip
        client.poll_until(lambda: large, "a large response")
        assert {int(each.error_code) for each in large[0].body.topics} == {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}


def tls_properties(tls: SecuredBroker) -> dict[str, str]:
    return {
        "bootstrap.servers": tls.bootstrap,
        "security.protocol": "SSL",
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(tls.trusted),
    }


def test_tls_with_a_broker_that_is_not_trusted_or_has_another_name(tls: SecuredBroker, tmp_path: Path) -> None:
    other = tmp_path / "other.pem"
    other.write_text(type(tls.authority)("Another CA").pem)
    port = tls.process.port
    for changed in ({"ssl.truststore.location": str(other)}, {"bootstrap.servers": f"127.0.0.2:{port}"}):
        with LiveClient({**tls_properties(tls), **changed}) as client:
            if "bootstrap.servers" in changed:
                # The broker listens on one address: only the name is wrong.
                endpoint = client.metadata.fetch().nodes[-1]
                assert endpoint.host == "127.0.0.2"
                client.network._states._look_up = lambda _: [_ADDRESS]
            with pytest.raises(AuthenticationFailed, match="certificate verify failed"):
                client.poll_until(client.metadata.raise_fatal_error, "the refusal")


def test_g30_a_client_and_a_broker_of_different_protocols_do_not_wait_for_ever(
    tls: SecuredBroker, caplog: pytest.LogCaptureFixture
) -> None:
    config = NetworkConfig(client_id="live", request_timeout_ms=500, socket_connection_setup_timeout_ms=500)
    with LiveClient({"bootstrap.servers": tls.bootstrap}, config) as client:
        bootstrap = client.metadata.fetch().nodes[-1]
        client.poll_until(lambda: client.network.connection_failed(bootstrap), "plain text where TLS is spoken")
    with LiveClient({**tls_properties(tls), "bootstrap.servers": tls.plain_bootstrap}, config) as client:
        client.poll_until(lambda: client.network.connection_failed(bootstrap), "TLS where plain text is spoken")
    assert caplog.records
