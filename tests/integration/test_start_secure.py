"""`rotunda start --secure` from the first start on, with the settings that it prints for each client."""

import asyncio
import json
import os
import shutil
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509

from ops.compatibility import preparation
from rotunda.broker.runtime import run_dir
from tests.support.command_line import REPOSITORY, command
from tests.support.deadline import deadline_s

#: The part of franz-go that the Go snippet uses.
GO = ("kgo", "sasl/scram")


class Secured:
    """A broker that is started again and again in one directory."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.where = ("--run-dir", str(directory / "run"))
        self.ready: dict[str, Any] = {}

    def start(self, *arguments: str) -> dict[str, Any]:
        line = ("start", "--secure", "--daemon", "--json", *self.where, "--data-dir", str(self.directory / "data"))
        done = command(*line, "--listen", "127.0.0.1:0", "--set", "status.port=0", *arguments)
        assert done.returncode == 0, done.stderr
        self.ready = json.loads(done.stdout)
        return self.ready

    def stop(self) -> None:
        record = run_dir.read(self.directory / "run")
        if record is not None and record.is_alive:
            assert command("stop", *self.where).returncode == 0

    def clients(self) -> dict[str, str]:
        line = ("tls", "clients", "--json", "--dir", str(self.directory / "data" / "tls"), "--user", "admin")
        done = command(*line, "--bootstrap", str(self.ready["bootstrap"]))
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    def properties(self, password: str) -> str:
        """Write a client's properties with a password, and return the file."""
        file = self.directory / "client.properties"
        file.write_text(self.clients()["java"].replace('password="PASSWORD"', f'password="{password}"'))
        return str(file)


@pytest.fixture
def secured(tmp_path: Path) -> Iterator[Secured]:
    """Yield a broker's directory; stop the broker that runs there afterwards."""
    made = Secured(tmp_path)
    yield made
    made.stop()


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Secured, str]]:
    """Yield a broker that was started once, and its user's password."""
    made = Secured(tmp_path_factory.mktemp("secure"))
    password = made.start()["password"]
    yield made, password
    made.stop()


def test_the_second_start_has_the_same_user_and_certificates(secured: Secured) -> None:
    first = secured.start()
    assert first["user"] == "admin"
    password = first["password"]
    tls = secured.directory / "data" / "tls"
    before = {each.name: each.read_bytes() for each in tls.iterdir() if each.name != "client.properties"}
    assert {stat.S_IMODE((tls / each).stat().st_mode) for each in ("ca.key", "server.pem")} == {0o600}
    assert stat.S_IMODE(tls.stat().st_mode) == 0o700
    secured.stop()
    second = secured.start()
    assert "password" not in second, "it is printed once"
    assert {each.name: each.read_bytes() for each in tls.iterdir() if each.name != "client.properties"} == before
    properties = secured.properties(password)
    assert command("doctor", "--command-config", properties).returncode == 0
    log = (secured.directory / "run" / "broker.log").read_text()
    assert password not in log
    secured.stop()
    # A lost password is replaced by a new one.
    third = secured.start("--new-password")
    assert third["password"] not in ("", password)
    done = command("doctor", "--command-config", secured.properties(password))
    assert done.returncode == 1
    assert "admin is refused" in done.stdout
    assert command("doctor", "--command-config", secured.properties(third["password"])).returncode == 0


def test_the_printed_instructions_of_a_listener_by_a_setting(secured: Secured) -> None:
    line = ("start", "--secure", "--daemon", *secured.where, "--data-dir", str(secured.directory / "data"))
    done = command(*line, "--set", "listeners=SASL_SSL://localhost:0", "--set", "status.port=0")
    ready, user, clients = done.stdout.splitlines()
    assert ready.startswith("rotunda ready bootstrap=localhost:")
    assert "status_url=https://127.0.0.1:" in ready
    assert user.startswith("user admin has the password ")
    assert clients.startswith("settings for clients: rotunda tls clients --dir ")
    assert command("topic", "list", *secured.where).returncode == 0


def test_conflicting_settings_are_rejected(tmp_path: Path) -> None:
    for arguments, complaint in (
        (("--ephemeral",), "excludes --ephemeral"),
        (("--data-dir", str(tmp_path / "data"), "--set", "listeners=PLAINTEXT://127.0.0.1:0"), "PLAINTEXT, not SASL"),
        (("--data-dir", str(tmp_path / "data"), "--listen", "PLAINTEXT://127.0.0.1:0"), "it is HOST:PORT"),
    ):
        done = command("start", "--secure", "--run-dir", str(tmp_path / "run"), *arguments)
        assert done.returncode == 2
        assert complaint in done.stderr
    assert "--secure" in command("start", "--new-password", "--ephemeral").stderr
    assert not (tmp_path / "data").exists()


def test_other_machines_reach_it_by_the_advertised_name(secured: Secured) -> None:
    """No flag makes it insecure: clients have to authenticate, and receive a name of the certificate."""
    line = ("start", "--secure", "--daemon", "--json", *secured.where, "--data-dir", str(secured.directory / "data"))
    addresses = ("--listen", "0.0.0.0:0", "--set", "advertised.listeners=SASL_SSL://broker.invalid:0")
    done = command(*line, *addresses, "--set", "status.port=0", "--set", "status.host=0.0.0.0")
    assert done.returncode == 0, done.stderr
    secured.ready = json.loads(done.stdout)
    host, _, port = str(secured.ready["bootstrap"]).partition(":")
    assert host == "broker.invalid"
    secured.ready["bootstrap"] = f"localhost:{port}"
    done = command("doctor", "--command-config", secured.properties(secured.ready["password"]))
    assert "is trusted, and for localhost" in done.stdout
    assert "admin is known" in done.stdout
    assert "unknown host name broker.invalid" in done.stdout
    certificate = x509.load_pem_x509_certificate((secured.directory / "data" / "tls" / "server.pem").read_bytes())
    names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert "broker.invalid" in [each.value for each in names]


def test_commands_get_in_by_the_clients_properties(running: tuple[Secured, str]) -> None:
    secured, password = running
    properties = secured.properties(password)
    done = command("topic", "create", "orders", "--command-config", properties)
    assert (done.returncode, done.stdout) == (0, "created topic orders\n"), done.stderr
    assert command("topic", "list", *secured.where, "--command-config", properties).stdout.count("orders ") == 1
    refused = command("topic", "list", "--bootstrap", str(secured.ready["bootstrap"]))
    assert refused.returncode == 1
    assert "--command-config" in refused.stderr
    assert "rotunda doctor" in refused.stderr


def test_commands_on_this_machine_are_the_first_user(running: tuple[Secured, str]) -> None:
    """Others have the rights of their ACLs only."""
    secured, _ = running
    assert command("topic", "create", "own", *secured.where).stdout == "created topic own\n"
    file = Path(secured.ready["client_properties"])
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert f"bootstrap.servers={secured.ready['bootstrap']}\n" in file.read_text()
    done = command("user", "add", "alice", "--generate", "--json", *secured.where)
    alice = json.loads(done.stdout)
    users = json.loads(command("user", "list", "--json", *secured.where).stdout)
    assert {count for user in users for count in user["mechanisms"].values()} == {8192}
    hers = secured.directory / "alice.properties"
    hers.write_text(secured.clients()["java"].replace("admin", "alice").replace("PASSWORD", alice["password"]))
    refused = command("topic", "create", "hers", "--command-config", str(hers))
    assert "AUTHORIZATION_FAILED" in refused.stderr
    line = ("acl", "add", "--allow-principal", "User:alice", "--operation", "create", "--topic", "hers", *secured.where)
    assert command(*line).returncode == 0, command(*line).stderr
    assert command("topic", "create", "hers", "--command-config", str(hers)).returncode == 0


def test_the_settings_of_confluent_kafka(running: tuple[Secured, str], monkeypatch: pytest.MonkeyPatch) -> None:
    secured, password = running
    monkeypatch.setenv("KAFKA_PASSWORD", password)
    found: dict[str, Any] = {}
    exec(secured.clients()["confluent-kafka"], found)  # noqa: S102 - what a user would paste
    found["producer"].produce("by-confluent", b"value")
    assert found["producer"].flush(deadline_s()) == 0


def test_the_settings_of_kafka_python(running: tuple[Secured, str]) -> None:
    secured, password = running
    script = secured.clients()["kafka-python"] + "print(producer.send('by-kafka-python', b'value').get(60).offset)"
    environment = {**os.environ, "KAFKA_PASSWORD": password}
    line = [sys.executable, "-c", script]
    done = subprocess.run(line, env=environment, capture_output=True, text=True, timeout=deadline_s(60), check=False)
    assert done.stdout == "0\n", done.stderr


def test_the_settings_of_aiokafka(running: tuple[Secured, str], monkeypatch: pytest.MonkeyPatch) -> None:
    secured, password = running
    monkeypatch.setenv("KAFKA_PASSWORD", password)

    async def send() -> int:
        found: dict[str, Any] = {}
        exec(secured.clients()["aiokafka"], found)  # noqa: S102 - what a user would paste
        await found["producer"].start()
        try:
            sent = await found["producer"].send_and_wait("by-aiokafka", b"value")
            return int(sent.offset)
        finally:
            await found["producer"].stop()

    assert asyncio.run(send()) == 0


def test_the_settings_of_kcat(running: tuple[Secured, str]) -> None:
    secured, password = running
    environment = {**os.environ, "KAFKA_PASSWORD": password}
    line = ["sh", "-c", secured.clients()["kcat"]]
    done = subprocess.run(line, env=environment, capture_output=True, text=True, timeout=deadline_s(60), check=False)
    assert done.returncode == 0, done.stderr
    assert "1 brokers" in done.stdout


@pytest.mark.needs("java")
def test_the_settings_of_java(running: tuple[Secured, str]) -> None:
    secured, password = running
    line = ["java", "-cp", f"{preparation.JARS}/*", "org.apache.kafka.tools.TopicCommand", "--list"]
    line += ["--bootstrap-server", secured.ready["bootstrap"], "--command-config", secured.properties(password)]
    done = subprocess.run(line, capture_output=True, text=True, timeout=deadline_s(120), check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.compat
@pytest.mark.needs("node")
def test_the_settings_of_kafkajs(running: tuple[Secured, str], tmp_path: Path) -> None:
    secured, password = running
    script = tmp_path / "client.js"
    rest = "const admin = kafka.admin(); admin.connect().then(() => admin.listTopics()).then(() => admin.disconnect());"
    script.write_text(secured.clients()["kafkajs"] + rest)
    modules = preparation.JARS.parent / "node" / "node_modules"
    environment = {**os.environ, "KAFKA_PASSWORD": password, "NODE_PATH": str(modules)}
    line = ["node", "--unhandled-rejections=strict", str(script)]
    done = subprocess.run(line, env=environment, capture_output=True, text=True, timeout=deadline_s(60), check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.compat
@pytest.mark.needs("go")
def test_the_settings_of_franz_go(running: tuple[Secured, str], tmp_path: Path) -> None:
    secured, password = running
    for name in ("go.mod", "go.sum"):
        shutil.copy(REPOSITORY / "ops" / "compatibility" / "go" / name, tmp_path / name)
    packages = ("context", "crypto/tls", "crypto/x509", "os", *(f"github.com/twmb/franz-go/pkg/{each}" for each in GO))
    imports = "".join(f'import "{each}"\n' for each in packages)
    ending = "if err == nil { err = client.Ping(context.Background()) }\nif err != nil { panic(err) }\n"
    program = f"package main\n{imports}func main() {{\n{secured.clients()['franz-go']}{ending}}}\n"
    (tmp_path / "main.go").write_text(program)
    environment = {**os.environ, "KAFKA_PASSWORD": password}
    line = ["go", "run", "-mod=mod", "."]
    done = subprocess.run(
        line, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=deadline_s(200), check=False
    )
    assert done.returncode == 0, done.stderr
