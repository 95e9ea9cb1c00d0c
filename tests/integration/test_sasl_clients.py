"""Clients of several kinds over SASL_SSL and SASL_PLAINTEXT with each mechanism; tokens signed by a key of ours."""

import asyncio
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from aiokafka import AIOKafkaProducer
from aiokafka.abc import AbstractTokenProvider as AioTokenProvider
from aiokafka.helpers import create_ssl_context
from confluent_kafka import Producer
from cryptography.hazmat.primitives.asymmetric import ec
from kafka import KafkaProducer
from kafka.net.sasl.oauth import AbstractTokenProvider

from rotunda.broker.protocol.api_keys import ApiKey
from tests.support.certificates import Authority
from tests.support.deadline import deadline_s, wait_until
from tests.support.key_server import KeyServer, key_set
from tests.support.sasl_broker import KEY, MECHANISMS, PASSWORD, PROTOCOLS, SaslBroker, token
from tests.support.sasl_wire import SaslWire

PROCESSORS = 2

cases = pytest.mark.parametrize(
    ("protocol", "mechanism"), [(protocol, mechanism) for protocol in PROTOCOLS for mechanism in MECHANISMS]
)


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KeyServer]:
    """Serve the token signing keys over HTTPS, with a self-signed certificate."""
    directory, authority = tmp_path_factory.mktemp("keys"), Authority()
    (directory / "ca.pem").write_text(authority.pem)
    with KeyServer(key_set(k=KEY), authority.issue().write(directory, "server")) as server:
        server.trusted = directory / "ca.pem"
        yield server


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory, keys: KeyServer) -> Iterator[SaslBroker]:
    extra = {
        "sasl.oauthbearer.jwks.endpoint.url": keys.url,
        "sasl.oauthbearer.jwks.endpoint.refresh.ms": 300,
        "num.network.threads": PROCESSORS,
    }
    broker = SaslBroker(tmp_path_factory.mktemp("sasl"), extra, {"SSL_CERT_FILE": str(keys.trusted)})
    wait_until(lambda: lets_in(broker, token()), "the first keys")
    yield broker
    broker.process.stop()


def lets_in(broker: SaslBroker, shown: str) -> bool:
    """Return whether every processor accepts a token; connections are distributed in turn."""
    port = int(broker.addresses["SASL_PLAINTEXT"].rsplit(":", 1)[1])
    for _ in range(4 * PROCESSORS):
        with SaslWire(port) as wire:
            wire.request(ApiKey.SASL_HANDSHAKE, 1, mechanism="OAUTHBEARER")
            first = f"n,,\x01auth=Bearer {shown}\x01\x01".encode()
            # The error of a rejected client is JSON.
            if wire.request(ApiKey.SASL_AUTHENTICATE, 2, auth_bytes=first).auth_bytes:
                return False
    return True


def librdkafka(broker: SaslBroker, protocol: str, mechanism: str) -> dict[str, str]:
    return {
        "bootstrap.servers": broker.addresses[protocol],
        "security.protocol": protocol,
        "sasl.mechanism": mechanism,
        "ssl.ca.location": str(broker.trusted),
        **({} if mechanism == "OAUTHBEARER" else {"sasl.username": "alice", "sasl.password": PASSWORD}),
    }


@cases
def test_h08_confluent(secured: SaslBroker, protocol: str, mechanism: str) -> None:
    failures: list[object] = []
    client: dict[str, Any] = {**librdkafka(secured, protocol, mechanism)}
    if mechanism == "OAUTHBEARER":
        client["oauth_cb"] = lambda _: (token(), time.time() + 300)
    producer = Producer(client)
    topic = f"confluent-{protocol}-{mechanism}"
    for _ in range(10):
        producer.produce(topic, b"x", on_delivery=lambda error, _: failures.append(error))
    assert producer.flush(deadline_s()) == 0
    assert failures == [None] * 10


class Tokens(AbstractTokenProvider):
    """Tokens for kafka-python."""

    def __init__(self, make: Callable[[], str] = token, **_config: object) -> None:
        self._make = make

    def token(self) -> str:
        return self._make()


class AioTokens(AioTokenProvider):
    """Tokens for aiokafka."""

    async def token(self) -> str:
        return token()


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_h08_kafka_python(secured: SaslBroker, mechanism: str) -> None:
    producer = KafkaProducer(
        bootstrap_servers=secured.addresses["SASL_SSL"],
        security_protocol="SASL_SSL",
        sasl_mechanism=mechanism,
        sasl_plain_username="alice",
        sasl_plain_password=PASSWORD,
        sasl_oauth_token_provider=Tokens(),
        ssl_cafile=str(secured.trusted),
    )
    sent = [producer.send(f"python-{mechanism}", b"x") for _ in range(10)]
    assert [each.get(deadline_s()).offset for each in sent] == list(range(10))
    producer.close()


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_h08_aiokafka(secured: SaslBroker, mechanism: str) -> None:
    async def produce() -> list[int]:
        producer = AIOKafkaProducer(
            bootstrap_servers=secured.addresses["SASL_SSL"],
            security_protocol="SASL_SSL",
            sasl_mechanism=mechanism,
            sasl_plain_username="alice",
            sasl_plain_password=PASSWORD,
            sasl_oauth_token_provider=AioTokens(),
            ssl_context=create_ssl_context(cafile=str(secured.trusted)),
        )
        async with producer:
            topic = f"aio-{mechanism}"
            return [(await producer.send_and_wait(topic, b"x")).offset for _ in range(10)]

    assert asyncio.run(produce()) == list(range(10))


def test_h10_a_client_with_an_expired_token_authenticates_again_with_a_new_one(secured: SaslBroker) -> None:
    """Tokens of three seconds: no record is lost."""
    failures: list[object] = []
    begun: list[int] = []

    def fresh(_: object) -> tuple[str, float]:
        begun.append(1)
        return token(3), time.time() + 3

    producer = Producer({**librdkafka(secured, "SASL_SSL", "OAUTHBEARER"), "oauth_cb": fresh})
    sent = 0

    def is_begun_again() -> bool:
        nonlocal sent
        sent += 1
        producer.produce("tokens", b"x", on_delivery=lambda error, _: failures.append(error))
        producer.flush(10)
        return len(begun) >= 3

    wait_until(is_begun_again, "two more tokens")
    assert producer.flush(deadline_s()) == 0
    assert failures == [None] * sent


def test_h08_keys_change_at_their_server_and_stay_while_it_fails(secured: SaslBroker, keys: KeyServer) -> None:
    new = ec.generate_private_key(ec.SECP256R1())
    shown = token(key=new, key_id="new")
    assert not lets_in(secured, shown)
    try:
        keys.status, asked = 500, keys.asked
        wait_until(lambda: keys.asked > asked + PROCESSORS, "failures")
        assert lets_in(secured, token())
        keys.body, keys.status = key_set(new=new, k=KEY), 200
        wait_until(lambda: lets_in(secured, shown), "the new key")
        assert lets_in(secured, token())
        keys.body = key_set(new=new)
        wait_until(lambda: not lets_in(secured, token()), "the end of the old key")
        assert lets_in(secured, shown)
    finally:
        keys.body, keys.status = key_set(k=KEY), 200
        wait_until(lambda: lets_in(secured, token()), "the old key")
