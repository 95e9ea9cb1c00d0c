"""Clients of several kinds over SASL_SSL and SASL_PLAINTEXT with each mechanism; tokens signed by a key of ours."""

import asyncio
import json
import subprocess
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jwt
import pytest
from aiokafka import AIOKafkaProducer
from aiokafka.abc import AbstractTokenProvider as AioTokenProvider
from aiokafka.helpers import create_ssl_context
from confluent_kafka import Consumer, KafkaException, Producer
from cryptography.hazmat.primitives.asymmetric import ec

from tests.support.broker_process import BrokerProcess
from tests.support.certificates import Authority
from tests.support.deadline import wait_until

with warnings.catch_warnings():
    # As in test_kafka_python.
    warnings.simplefilter("ignore", DeprecationWarning)
    from kafka import KafkaProducer
    from kafka.net.sasl.oauth import AbstractTokenProvider

pytestmark = pytest.mark.filterwarnings("ignore:read_text is deprecated:DeprecationWarning")

KEY = ec.generate_private_key(ec.SECP256R1())
PASSWORD = "alice's, secret=x"  # noqa: S105 - a planted one
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")
PROTOCOLS = ("SASL_SSL", "SASL_PLAINTEXT")
PLAIN_LINE = f'org.apache.kafka.common.security.plain.PlainLoginModule required user_alice="{PASSWORD}";'
DEADLINE_SECONDS = 60

cases = pytest.mark.parametrize(
    ("protocol", "mechanism"), [(protocol, mechanism) for protocol in PROTOCOLS for mechanism in MECHANISMS]
)


class Secured:
    """A broker with listeners of both kinds, one user, and a key that signs tokens."""

    def __init__(self, directory: Path) -> None:
        authority = Authority()
        self.trusted = directory / "ca.pem"
        self.trusted.write_text(authority.pem)
        public = json.loads(jwt.algorithms.ECAlgorithm.to_jwk(KEY.public_key()))
        keys = directory / "jwks.json"
        keys.write_text(json.dumps({"keys": [{**public, "kid": "k"}]}))
        settings = {
            "listeners": "SASL_SSL://127.0.0.1:0,SASL_PLAINTEXT://127.0.0.1:0,PLAINTEXT://127.0.0.1:0",
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": authority.issue().write(directory, "broker"),
            "sasl.enabled.mechanisms": ",".join(MECHANISMS),
            "listener.name.sasl_ssl.plain.sasl.jaas.config": PLAIN_LINE,
            "listener.name.sasl_plaintext.plain.sasl.jaas.config": PLAIN_LINE,
            "sasl.oauthbearer.jwks.endpoint.url": keys.as_uri(),
            "sasl.oauthbearer.expected.audience": "rotunda",
        }
        self.process = BrokerProcess(directory, settings).start()
        addresses = self.process.status()["bootstrap"].split(",")
        self.addresses = dict(zip((*PROTOCOLS, "PLAINTEXT"), addresses, strict=True))

    def records(self, topic: str) -> int:
        """Return how many records a topic has."""
        command = ["kcat", "-b", self.addresses["PLAINTEXT"], "-C", "-t", topic, "-o", "beginning", "-e", "-q"]
        return len(subprocess.run(command, capture_output=True, text=True, timeout=60, check=False).stdout.splitlines())


def token(lifetime_s: int = 300, audience: str = "rotunda") -> str:
    now = int(time.time())
    said = {"sub": "alice", "aud": audience, "iat": now, "exp": now + lifetime_s}
    return jwt.encode(said, KEY, "ES256", {"kid": "k"})


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    broker = Secured(tmp_path_factory.mktemp("sasl"))
    make_users(broker)
    yield broker
    broker.process.stop()


def make_users(broker: Secured) -> None:
    from confluent_kafka.admin import (  # noqa: PLC0415
        AdminClient,
        ScramCredentialInfo,
        ScramMechanism,
        UserScramCredentialUpsertion,
    )

    admin = AdminClient({"bootstrap.servers": broker.addresses["PLAINTEXT"]})
    for mechanism in (ScramMechanism.SCRAM_SHA_256, ScramMechanism.SCRAM_SHA_512):
        upsertion = UserScramCredentialUpsertion("alice", ScramCredentialInfo(mechanism, 4096), PASSWORD.encode())
        for done in admin.alter_user_scram_credentials([upsertion]).values():
            done.result(DEADLINE_SECONDS)


def librdkafka(broker: Secured, protocol: str, mechanism: str) -> dict[str, str]:
    return {
        "bootstrap.servers": broker.addresses[protocol],
        "security.protocol": protocol,
        "sasl.mechanism": mechanism,
        "ssl.ca.location": str(broker.trusted),
        **({} if mechanism == "OAUTHBEARER" else {"sasl.username": "alice", "sasl.password": PASSWORD}),
    }


@cases
def test_h08_confluent(secured: Secured, protocol: str, mechanism: str) -> None:
    failures: list[object] = []
    client: dict[str, Any] = {**librdkafka(secured, protocol, mechanism)}
    if mechanism == "OAUTHBEARER":
        client["oauth_cb"] = lambda _: (token(), time.time() + 300)
    producer = Producer(client)
    topic = f"confluent-{protocol}-{mechanism}"
    for _ in range(10):
        producer.produce(topic, b"x", on_delivery=lambda error, _: failures.append(error))
    assert producer.flush(DEADLINE_SECONDS) == 0
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


@cases
def test_h08_kafka_python(secured: Secured, protocol: str, mechanism: str) -> None:
    producer = KafkaProducer(
        bootstrap_servers=secured.addresses[protocol],
        security_protocol=protocol,
        sasl_mechanism=mechanism,
        sasl_plain_username="alice",
        sasl_plain_password=PASSWORD,
        sasl_oauth_token_provider=Tokens(),
        ssl_cafile=str(secured.trusted),
    )
    sent = [producer.send(f"python-{protocol}-{mechanism}", b"x") for _ in range(10)]
    assert [each.get(DEADLINE_SECONDS).offset for each in sent] == list(range(10))
    producer.close()


@cases
def test_h08_aiokafka(secured: Secured, protocol: str, mechanism: str) -> None:
    async def produce() -> list[int]:
        producer = AIOKafkaProducer(
            bootstrap_servers=secured.addresses[protocol],
            security_protocol=protocol,
            sasl_mechanism=mechanism,
            sasl_plain_username="alice",
            sasl_plain_password=PASSWORD,
            sasl_oauth_token_provider=AioTokens(),
            ssl_context=create_ssl_context(cafile=str(secured.trusted)),
        )
        async with producer:
            topic = f"aio-{protocol}-{mechanism}"
            return [(await producer.send_and_wait(topic, b"x")).offset for _ in range(10)]

    assert asyncio.run(produce()) == list(range(10))


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("mechanism", MECHANISMS[:3])
def test_h08_kcat(secured: Secured, protocol: str, mechanism: str, tmp_path: Path) -> None:
    file = tmp_path / "client.properties"
    file.write_text("".join(f"{name}={value}\n" for name, value in librdkafka(secured, protocol, mechanism).items()))
    topic = f"kcat-{protocol}-{mechanism}"
    command = ["kcat", "-F", str(file), "-P", "-t", topic]
    done = subprocess.run(command, input="a\nb\nc\n", capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    wait_until(lambda: secured.records(topic) == 3, "the records of kcat")


def test_h09_a_token_for_somebody_else_lets_nobody_in(secured: Secured) -> None:
    client = {
        **librdkafka(secured, "SASL_SSL", "OAUTHBEARER"),
        "oauth_cb": lambda _: (token(audience="other"), time.time() + 300),
    }
    consumer = Consumer({**client, "group.id": "x"})
    with pytest.raises(KafkaException):
        consumer.list_topics(timeout=3)
    consumer.close()
    wait_until(lambda: "its token is refused: Audience doesn't match" in secured.process.log_text(), "the log's line")


def test_h10_a_client_whose_token_ends_authenticates_again_with_a_new_one(secured: Secured) -> None:
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
        return len(begun) >= 4

    wait_until(is_begun_again, "three more tokens")
    assert producer.flush(DEADLINE_SECONDS) == 0
    assert failures == [None] * sent


@pytest.mark.parametrize("role", ["processor", "handler", "controller"])
def test_killed_processes_cost_their_clients_no_acknowledged_record(secured: Secured, role: str) -> None:
    """Who was connected connects and authenticates again; five kills while clients come and go."""
    failures: list[object] = []
    sent = 0
    topic = f"killed-{role}"
    for _ in range(5):
        producer = Producer(librdkafka(secured, "SASL_SSL", "SCRAM-SHA-512"))
        producer.produce(topic, b"x", on_delivery=lambda error, _: failures.append(error))
        secured.process.kill(role, wait=False)
        producer.produce(topic, b"x", on_delivery=lambda error, _: failures.append(error))
        sent += 2
        assert producer.flush(DEADLINE_SECONDS) == 0
    wait_until(lambda: all(row["state"] == "running" for row in secured.process.processes(role)), "all run again")
    assert failures == [None] * sent
    wait_until(lambda: secured.records(topic) >= sent, "all acknowledged records")
