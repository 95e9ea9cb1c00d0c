"""Secrets stay private: planted through every input, they are nowhere else (users.md row 23).

Searched are the log, the run directory, the data directory, shared memory, the request log, the memory of the process
that writes it, every response of the status page, settings in the output of the commands and in an admin client, and
the process information of the system.
"""

import os
import subprocess
import sys
from base64 import b64encode
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import psutil
import pyarrow.parquet as pq
import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, ConfigResource, ResourceType

from rotunda.broker.client.access import access_of
from rotunda.broker.client.network.blocking_client import BlockingClient
from rotunda.broker.config.broker_config import load
from rotunda.broker.errors import ApiError, ConfigError
from tests.support.broker_process import PAGE, REPOSITORY, SHARED_MEMORY, BrokerProcess
from tests.support.command_line import command
from tests.support.deadline import deadline_s, wait_until
from tests.support.status_page import ask

#: The name of each says where it is planted.
BY_FILE, BY_KAFKA_VARIABLE, BY_OWN_VARIABLE = "planted-by-file-0a1b", "planted-by-kafka-2c3d", "planted-by-own-4e5f"
BY_FLAG, BY_FLAGS_FILE = "planted-by-flag-6071", "planted-by-flags-file-8293"
IN_A_JAAS_LINE, BY_A_USER, BY_A_LIAR = "planted-in-a-line-a4b5", "planted-by-a-user-c6d7", "planted-by-a-liar-e8f9"
ON_THE_PAGE = "planted-on-the-page-0918"
ALL = (
    *(BY_FILE, BY_KAFKA_VARIABLE, BY_OWN_VARIABLE, BY_FLAG, BY_FLAGS_FILE),
    *(IN_A_JAAS_LINE, BY_A_USER, BY_A_LIAR, ON_THE_PAGE),
)
LINE = f'org.apache.kafka.common.security.plain.PlainLoginModule required user_bob="{IN_A_JAAS_LINE}";'

SCREENS = ("/", "/clients", "/topics", "/groups", "/requests", "/reports", "/processes", "/configuration")
FACTS = ("/status.json", "/metrics", "/openapi.json", "/reports.json")


class Planted(NamedTuple):
    """A broker with secrets, and its configuration file."""

    broker: BrokerProcess
    file: Path


@pytest.fixture(scope="module")
def planted(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Planted]:
    """Yield a broker that was given a secret through every input."""
    directory = tmp_path_factory.mktemp("secrets")
    file, flags_file = directory / "server.properties", directory / "token"
    file.write_text(f"ssl.keystore.password={BY_FILE}\n")
    flags_file.write_text(f"{BY_FLAGS_FILE}\n")
    for each in (file, flags_file):
        each.chmod(0o600)
    settings = {
        "num.network.threads": 1,
        "num.io.threads": 1,
        **PAGE,
        "request.log.roll.ms": 500,
        "metrics.token": BY_FLAG,
        "listeners": "PLAINTEXT://127.0.0.1:0,SASL_PLAINTEXT://127.0.0.1:0",
        "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-512",
        "listener.name.sasl_plaintext.plain.sasl.jaas.config": LINE,
        "status.token": f"@{flags_file}",
    }
    variables = {
        "ROTUNDA_CONFIG": str(file),
        "KAFKA_SSL_KEY_PASSWORD": BY_KAFKA_VARIABLE,
        "ROTUNDA_SSL_TRUSTSTORE_PASSWORD": BY_OWN_VARIABLE,
    }
    running = BrokerProcess(directory, settings, ephemeral=False, environment=variables).start()
    yield Planted(running, file)
    running.stop()


@pytest.fixture(scope="module", autouse=True)
def used(planted: Planted) -> None:
    """Use the broker: then there is a request log, and responses with settings have passed through the rings."""
    producer = Producer({"bootstrap.servers": planted.broker.bootstrap})
    producer.produce("orders", b"value")
    assert producer.flush(deadline_s()) == 0
    assert planted.broker.command("config", "list", "--all").returncode == 0
    done = command("user", "add", "alice", "--run-dir", str(planted.broker.run_dir), typed=f"{BY_A_USER}\n")
    assert done.returncode == 0, done.stderr
    for mechanism, user, password in (
        ("PLAIN", "bob", IN_A_JAAS_LINE),
        ("SCRAM-SHA-512", "alice", BY_A_USER),
        ("PLAIN", "bob", BY_A_LIAR),
        ("SCRAM-SHA-512", "alice", BY_A_LIAR),
    ):
        authenticate(planted.broker, mechanism, user, password, succeeds=password != BY_A_LIAR)
    wait_until(lambda: list(planted.broker.data_dir.rglob("*.parquet")), "a file of the request log")


def authenticate(broker: BrokerProcess, mechanism: str, user: str, password: str, *, succeeds: bool) -> None:
    """Write as a user, with a wrong password that is rejected."""
    access = access_of(
        {
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": mechanism,
            "sasl.username": user,
            "sasl.password": password,
        }
    )
    where = broker.status()["bootstrap"].split(",")[1]
    if succeeds:

        def is_let_in() -> bool:
            # A new user reaches the processors soon.
            with suppress(ApiError), BlockingClient(where, access=access) as client:
                return bool(client.ranges)
            return False

        wait_until(is_let_in, f"{user} to be let in")
        return
    with pytest.raises(ApiError), BlockingClient(where, access=access):
        pass


def leaks(content: bytes | str, where: object, secrets: tuple[str, ...] = ALL) -> list[str]:
    raw = content.encode() if isinstance(content, str) else content
    return [f"{secret} in {where}" for secret in secrets if secret.encode() in raw]


def contents(*directories: Path) -> dict[Path, bytes]:
    """Return all files below directories; skip those renamed or deleted before they were read."""
    try:
        paths = [each for directory in directories for each in directory.rglob("*") if each.is_file()]
        return {each: each.read_bytes() for each in paths}
    except FileNotFoundError:
        return {}


def assert_none(found: list[str]) -> None:
    assert not found, "\n".join(found)


def test_no_file_has_them(planted: Planted) -> None:
    broker = planted.broker
    files = wait_until(lambda: contents(broker.run_dir, broker.data_dir), "files that stay while they are read")
    instance = broker.status()["instance"]
    files |= {each: each.read_bytes() for each in Path(SHARED_MEMORY).iterdir() if instance in each.name}
    assert len(files) > 20, files.keys()
    assert_none([leak for each, content in files.items() for leak in leaks(content, each)])
    assert_none(leaks(broker.log_text(), "the log"))


def test_the_request_log_has_not(planted: Planted) -> None:
    for each in planted.broker.data_dir.rglob("*.parquet"):
        assert_none(leaks(str(pq.read_table(each).to_pylist()), each))


def test_the_memory_of_the_recorder_has_none_that_clients_have_shown(planted: Planted) -> None:
    """Nor those with which clients were rejected.

    Secrets of the configuration are in all processes (docs/security.md).
    """
    # A recorder that was idle for half a minute is replaced by a new one.
    authenticate(planted.broker, "PLAIN", "bob", BY_A_LIAR, succeeds=False)
    [recorder] = planted.broker.processes("recorder")
    found, is_known = [], False
    with Path(f"/proc/{recorder['pid']}/mem").open("rb", 0) as memory:
        for line in Path(f"/proc/{recorder['pid']}/maps").read_text().splitlines():
            where, mode = line.split()[:2]
            start, end = (int(each, 16) for each in where.split("-"))
            if mode.startswith("rw-p"):
                memory.seek(start)
                content = memory.read(end - start)
                is_known = is_known or str(planted.broker.data_dir).encode() in content
                found += leaks(content, line, (BY_A_USER, BY_A_LIAR, ON_THE_PAGE))
    assert is_known, "what is in its memory is found"
    assert_none(found)


def test_the_system_shows_none(planted: Planted) -> None:
    """Arguments and variables of every process; the supervisor was started with them."""
    supervisor = psutil.Process(planted.broker.pid())
    for process in (supervisor, *supervisor.children(recursive=True)):
        for name in ("cmdline", "environ"):
            content = Path(f"/proc/{process.pid}/{name}").read_bytes()
            assert_none(leaks(content, f"{name} of {process.pid}"))
            assert b"rotunda" in content.lower() or b"broker" in content.lower(), "the rest is as it was"


def test_the_status_page_shows_none(planted: Planted) -> None:
    for path in (*SCREENS, *FACTS, *(f"/view/{each.strip('/') or 'overview'}" for each in SCREENS)):
        code, headers, body = ask(planted.broker, path, Authorization=f"Bearer {BY_FLAGS_FILE}")
        assert code == 200, path
        assert_none(leaks(body + str(headers).encode(), path))


def test_passwords_tried_at_the_page_are_repeated_nowhere(planted: Planted) -> None:
    for credentials in (f"Bearer {ON_THE_PAGE}", "Basic " + b64encode(f"me:{ON_THE_PAGE}".encode()).decode()):
        code, _, body = ask(planted.broker, "/status.json", Authorization=credentials)
        assert code == 401
        assert_none(leaks(body, "the rejection"))
    wait_until(lambda: "status page: rejected" in planted.broker.log_text(), "a line")
    assert_none(leaks(planted.broker.log_text(), "the log"))


def test_no_command_prints_them(planted: Planted) -> None:
    broker = planted.broker
    for line in (("print-config",), ("config", "list"), ("config", "list", "--all"), ("status", "--json")):
        done = broker.command(*line)
        assert done.returncode == 0, done.stderr
        assert_none(leaks(done.stdout + done.stderr, line))
    described = broker.command("config", "describe", "status.token", "ssl.keystore.password").stdout
    assert described.count("(hidden)") >= 2
    assert_none(leaks(described, "config describe"))
    # The configuration itself, without the broker.
    line = ("print-config", "--config", str(planted.file), "--json", "--set", f"status.token={BY_FLAG}")
    done = command(*line, KAFKA_METRICS_TOKEN=BY_KAFKA_VARIABLE)
    assert done.returncode == 0, done.stderr
    assert_none(leaks(done.stdout + done.stderr, "print-config"))
    assert "ssl.keystore.password" in done.stdout


def test_a_line_that_is_set_while_it_runs_is_shown_nowhere(planted: Planted, tmp_path: Path) -> None:
    """It is in the metadata, which is private, and has passed through the rings, which are too."""
    secret, name = "planted-while-running-5577", "listener.name.sasl_plaintext.plain.sasl.jaas.config"
    file = tmp_path / "line"
    file.write_text(LINE.replace(IN_A_JAAS_LINE, secret).replace("user_bob", "user_carol"))
    file.chmod(0o600)
    broker = planted.broker
    done = broker.command("config", "set", f"{name}=@{file}")
    assert done.returncode == 0, done.stderr
    assert_none(leaks(done.stdout + done.stderr, "config set", (secret,)))

    def is_in_force() -> bool:
        try:
            authenticate(broker, "PLAIN", "carol", secret, succeeds=True)
        except ApiError:
            return False
        return True

    wait_until(is_in_force, "the new line is in force")
    for line in (("config", "describe", name), ("config", "list", "--all"), ("print-config",)):
        assert_none(leaks(broker.command(*line).stdout, line, (secret,)))
    assert_none(leaks(broker.log_text(), "the log", (secret,)))
    for each in (
        each for each in broker.data_dir.rglob("*") if each.is_file() and secret.encode() in each.read_bytes()
    ):
        assert each.name.startswith("rotunda-metadata.sqlite3"), each
        assert each.stat().st_mode & 0o077 == 0
    assert broker.command("config", "delete", name).returncode == 0


def test_an_admin_client_gets_none(planted: Planted) -> None:
    admin = AdminClient({"bootstrap.servers": planted.broker.bootstrap})
    resource = ConfigResource(ResourceType.BROKER, "1")
    entries = admin.describe_configs([resource], request_timeout=60)[resource].result(deadline_s())
    synonyms = {name: {each: found.value for each, found in entry.synonyms.items()} for name, entry in entries.items()}
    assert_none(leaks(str(synonyms), "synonyms"))
    for name in ("status.token", "metrics.token", "ssl.keystore.password", "ssl.key.password"):
        assert entries[name].is_sensitive
        assert entries[name].value is None
    assert_none(leaks(str({name: entry.value for name, entry in entries.items()}), "DescribeConfigs"))


def test_no_complaint_repeats_a_secret() -> None:
    for name, value in (("status.token", "short-secret"), ("metrics.token", "a secret with spaces in it")):
        with pytest.raises(ConfigError) as failure:
            load(None, {name: value}, {})
        assert value not in str(failure.value)
        assert name in str(failure.value)


def test_files_that_others_may_read_are_named(tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("a-token-for-everybody")
    token.chmod(0o644)
    done = command("check-config", "--set", f"status.token=@{token}")
    assert done.returncode == 2
    assert f"chmod 600 {token}" in done.stderr
    file = tmp_path / "server.properties"
    file.write_text("status.token=a-token-for-everybody\n")
    file.chmod(0o640)
    done = command("check-config", "--config", str(file))
    assert done.returncode == 0
    assert f"which holds status.token: chmod 600 {file}" in done.stdout


def test_private_files_are_private_whatever_the_umask_is(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        running = BrokerProcess(tmp_path, {"num.io.threads": 1}, ephemeral=False)
        running.data_dir = tmp_path / "new" / "data"
        (tmp_path / "new").mkdir()
        # Not made by the test: the broker makes it.
        line = [sys.executable, "-m", "rotunda", "start", "--daemon", "--wait", "--run-dir", str(running.run_dir)]
        line += ["--data-dir", str(running.data_dir), "--listen", "127.0.0.1:0", "--set", "status.port=0"]
        subprocess.run(line, cwd=REPOSITORY, check=True, capture_output=True)
    finally:
        os.umask(before)
    try:
        assert running.data_dir.stat().st_mode & 0o777 == 0o700
        assert running.run_dir.stat().st_mode & 0o777 == 0o700
        metadata = list(running.data_dir.glob("rotunda-metadata.sqlite3*"))
        assert len(metadata) == 3
        assert {each.stat().st_mode & 0o777 for each in metadata} == {0o600}
    finally:
        assert running.command("stop").returncode == 0
