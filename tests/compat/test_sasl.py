"""The Java client and tools, franz-go's own tests and KafkaJS over SASL, with each mechanism (users.md row 42)."""

import os
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from ops.compatibility import preparation
from tests.support.deadline import deadline_s
from tests.support.sasl_broker import MECHANISMS, PASSWORD, PROTOCOLS, SaslBroker, token

pytestmark = pytest.mark.slow

KAFKA = "org.apache.kafka"
MODULES = f"{KAFKA}.common.security"

KAFKAJS = """
import kafkajs from 'kafkajs'
import fs from 'node:fs'
const { Kafka, logLevel } = kafkajs
const [broker, tls, ca, mechanism, password, token, topic] = process.argv.slice(1)
const sasl = mechanism === 'oauthbearer'
  ? { mechanism, oauthBearerProvider: async () => ({ value: token }) }
  : { mechanism, username: 'alice', password }
const ssl = tls === 'yes' ? { ca: [fs.readFileSync(ca)] } : undefined
const kafka = new Kafka({ clientId: 'kafkajs', brokers: [broker], ssl, sasl, logLevel: logLevel.ERROR })
const producer = kafka.producer()
await producer.connect()
const [sent] = await producer.send({ topic, messages: [{ value: 'a' }, { value: 'b' }] })
console.log(sent.errorCode, sent.baseOffset)
await producer.disconnect()
"""


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SaslBroker]:
    broker = SaslBroker(tmp_path_factory.mktemp("sasl"))
    yield broker
    broker.process.stop()


def run(command: Sequence[str], text: str = "", **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        list(command),
        input=text,
        env={**os.environ, **environment},
        cwd=preparation.NODE if command[0] == "node" else None,
        capture_output=True,
        text=True,
        timeout=deadline_s(60),
        check=False,
    )


def java(program: str, *arguments: str, text: str = "", files: Path | None = None) -> subprocess.CompletedProcess[str]:
    allowed = {} if files is None else {"files": str(files), "urls": files.as_uri()}
    options = [f"-D{KAFKA}.sasl.oauthbearer.allowed.{name}={value}" for name, value in allowed.items()]
    options += ["-XX:TieredStopAtLevel=1", "-Xmx256m"]
    return run(["java", *options, "-cp", f"{preparation.JARS}/*", program, *arguments], text)


def client_properties(broker: SaslBroker, directory: Path, protocol: str, mechanism: str, user: str = "alice") -> Path:
    lines = {
        "security.protocol": protocol,
        "sasl.mechanism": mechanism,
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(broker.trusted),
    }
    if mechanism == "OAUTHBEARER":
        (directory / "token").write_text(token())
        lines |= {
            "sasl.jaas.config": f"{MODULES}.oauthbearer.OAuthBearerLoginModule required;",
            "sasl.login.callback.handler.class": f"{MODULES}.oauthbearer.OAuthBearerLoginCallbackHandler",
            "sasl.oauthbearer.jwt.retriever.class": f"{MODULES}.oauthbearer.FileJwtRetriever",
            "sasl.oauthbearer.token.endpoint.url": (directory / "token").as_uri(),
        }
    else:
        module = "plain.PlainLoginModule" if mechanism == "PLAIN" else "scram.ScramLoginModule"
        lines["sasl.jaas.config"] = f'{MODULES}.{module} required username="{user}" password="{PASSWORD}";'
    file = directory / "client.properties"
    file.write_text("".join(f"{name}={value}\n" for name, value in lines.items()))
    return file


@pytest.mark.needs("java")
@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_h08_java(secured: SaslBroker, mechanism: str, tmp_path: Path) -> None:
    file = client_properties(secured, tmp_path, "SASL_SSL", mechanism)
    topic = f"java-{mechanism}"
    arguments = ["--bootstrap-server", secured.addresses["SASL_SSL"], "--topic", topic, "--command-config", str(file)]
    done = java(f"{KAFKA}.tools.ConsoleProducer", *arguments, text="a\nb\n", files=tmp_path / "token")
    assert done.returncode == 0, done.stderr
    assert secured.records(topic) == 2, done.stderr


@pytest.mark.compat
@pytest.mark.needs("java")
def test_kafka_configs_makes_shows_and_deletes_users(secured: SaslBroker, tmp_path: Path) -> None:
    """KIP-554: and a user created by it can log in."""
    address = secured.addresses["PLAINTEXT"]

    def configs(*arguments: str) -> str:
        user = ("--entity-type", "users", "--entity-name", "carol")
        done = java("org.apache.kafka.tools.ConfigCommand", "--bootstrap-server", address, *user, *arguments)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    configs("--alter", "--add-config", "SCRAM-SHA-256=[iterations=8192,password=short]")
    assert "SCRAM-SHA-256=iterations=8192" in configs("--describe")
    file = client_properties(secured, tmp_path, "SASL_PLAINTEXT", "SCRAM-SHA-256", "carol")
    file.write_text(file.read_text().replace(PASSWORD, "short"))
    arguments = ["--bootstrap-server", secured.addresses["SASL_PLAINTEXT"], "--topic", "of-carol"]
    done = java(f"{KAFKA}.tools.ConsoleProducer", *arguments, "--command-config", str(file), text="a\n")
    assert done.returncode == 0, done.stderr
    assert secured.records("of-carol") == 1, done.stderr
    configs("--alter", "--delete-config", "SCRAM-SHA-256")
    assert "SCRAM" not in configs("--describe")


@pytest.mark.compat
@pytest.mark.needs("go")
@pytest.mark.parametrize("number", [256, 512])
def test_franz_gos_own_tests_of_scram(secured: SaslBroker, number: int) -> None:
    done = run(
        [str(preparation.GO_TEST), "-test.v", "-test.run=^TestSCRAM"],
        KGO_SEEDS=secured.addresses["PLAINTEXT"],
        KGO_TEST_SCRAM=f"alice:{PASSWORD}:{number}",
        KGO_TEST_SCRAM_SEEDS=secured.addresses["SASL_PLAINTEXT"],
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "--- PASS: TestSCRAMAuth " in done.stdout
    assert "--- PASS: TestSCRAMAuthBadCredentials " in done.stdout


@pytest.mark.compat
@pytest.mark.needs("node")
@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_h08_kafkajs(secured: SaslBroker, protocol: str, mechanism: str) -> None:
    tls = "yes" if protocol == "SASL_SSL" else "no"
    topic = f"kafkajs-{protocol}-{mechanism}"
    given = [secured.addresses[protocol], tls, str(secured.trusted), mechanism.lower(), PASSWORD, token(), topic]
    done = run(["node", "--input-type=module", "-e", KAFKAJS, *given], KAFKAJS_NO_PARTITIONER_WARNING="1")
    assert done.returncode == 0, done.stderr
    assert secured.records(topic) == 2
