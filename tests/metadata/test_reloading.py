"""SIGHUP and `rotunda reload`: the parts of the configuration file that are put in force while the broker runs."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from rotunda.broker.config.broker_config import BrokerConfig, load
from rotunda.broker.config.sources import Source
from rotunda.broker.metadata.reloading import reload
from rotunda.broker.metadata.thread_counts import Room
from rotunda.broker.protocol.api_keys import ApiKey
from tests.support.broker_process import REPOSITORY
from tests.support.command_line import command
from tests.support.deadline import deadline_s, wait_until
from tests.support.described_requests import ask
from tests.support.wire_client import WireClient

pytestmark = pytest.mark.slow

BROKER = 4
FIXED = "listeners=PLAINTEXT://127.0.0.1:0\nstatus.page.enable=false\n"


class Reloaded:
    """A broker with a configuration file, in the foreground."""

    def __init__(self, directory: Path) -> None:
        self.file = directory / "server.properties"
        self.run_dir = directory / "run"
        self.log = directory / "log"
        self.write("log.retention.ms=1000\nmessage.max.bytes=5000\n")
        arguments = ["start", "--ephemeral", "--json", "--run-dir", str(self.run_dir), "--config", self.file.name]
        arguments += ["--set", "message.max.bytes=6000"]
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "rotunda", *arguments],
                cwd=directory,
                stdout=subprocess.PIPE,
                stderr=log,
                env={**os.environ, "PYTHONPATH": str(REPOSITORY)},
            )
        assert self.process.stdout is not None
        assert self.process.stdout.readline(), self.log.read_text()
        self.port = int(command("status", "--run-dir", str(self.run_dir)).stdout.split("bootstrap=")[1].split()[0][10:])

    def write(self, settings: str) -> None:
        self.file.write_text(FIXED + settings)

    def reload(self, *, complaint: bool = False) -> list[str]:
        """Send SIGHUP and return the lines that it brought."""
        position = self.log.stat().st_size
        done = command("reload", "--run-dir", str(self.run_dir))
        assert done.returncode == 0, done.stderr

        def lines() -> list[str]:
            text = self.log.read_text()[position:]
            return [line for line in text.splitlines() if "SIGHUP" in line] if text.endswith("\n") else []

        last = "SIGHUP: ignored" if complaint else "changed: "
        return wait_until(lambda: last in " ".join(lines()) and lines()[1:], "the lines in the log")

    def value(self, name: str) -> tuple[str | None, int]:
        """Return the value of a setting and its source."""
        resource = {"resource_type": BROKER, "resource_name": "1", "configuration_keys": [name]}
        fields = {"resources": [resource], "include_synonyms": False, "include_documentation": False}
        with WireClient(self.port) as client:
            [result] = ask(client, ApiKey.DESCRIBE_CONFIGS, 4, fields).results
        return result.configs[0].value, int(result.configs[0].config_source)

    def set(self, name: str, value: str) -> None:
        """Set a setting as an admin does."""
        configs = [{"name": name, "config_operation": 0, "value": value}]
        resource = {"resource_type": BROKER, "resource_name": "1", "configs": configs}
        fields = {"resources": [resource], "validate_only": False}
        with WireClient(self.port) as client:
            [outcome] = ask(client, ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, fields).responses
        assert outcome.error_code == 0, outcome.error_message


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Reloaded]:
    broker = Reloaded(tmp_path)
    yield broker
    broker.process.terminate()
    assert broker.process.wait(deadline_s()) == 0, broker.log.read_text()
    assert broker.process.stdout is not None
    broker.process.stdout.close()


def test_what_may_change_is_put_in_force_and_the_rest_is_named(broker: Reloaded) -> None:
    assert broker.value("log.retention.ms") == ("1000", 4)
    broker.write("log.retention.ms=2000\nmessage.max.bytes=7000\nlog.segment.bytes=2097152\nnum.partitions=3\n")
    restart, in_force = broker.reload()
    assert in_force.endswith("changed: log.retention.ms=2000, log.segment.bytes=2097152")
    assert restart.endswith("need a restart: num.partitions")
    wait_until(lambda: broker.value("log.retention.ms") == ("2000", 4), "it is in force")
    assert broker.value("log.segment.bytes") == ("2097152", 4)
    assert broker.value("message.max.bytes") == ("6000", 4)
    assert broker.value("num.partitions") == ("1", 5)
    broker.write("")
    [in_force] = broker.reload()
    assert "log.retention.ms=None" in in_force
    wait_until(lambda: broker.value("log.segment.bytes") == ("1073741824", 5), "the default is in force")


def test_a_wrong_file_changes_nothing(broker: Reloaded) -> None:
    broker.write("log.retention.ms=2000\nlog.segment.bytes=x\nnonsense=1\n")
    [line] = broker.reload(complaint=True)
    assert "SIGHUP: ignored" in line
    assert "log.segment.bytes" in line
    assert "unknown setting nonsense" in line
    assert broker.value("log.retention.ms") == ("1000", 4)


def test_what_an_admin_has_set_wins_and_a_replacement_knows_both(broker: Reloaded) -> None:
    broker.set("log.retention.ms", "3000")
    broker.write("log.retention.ms=2000\nlog.segment.bytes=2097152\n")
    lines = broker.reload()
    assert any("override the file: log.retention.ms" in line for line in lines)
    status = command("status", "--json", "--run-dir", str(broker.run_dir)).stdout
    pids = [row["pid"] for row in json.loads(status)["processes"] if row["role"] in {"handler", "controller"}]
    for pid in pids:
        os.kill(pid, signal.SIGKILL)
    wait_until(lambda: broker.log.read_text().count("is back") == len(pids), "all are replaced")
    assert broker.value("log.retention.ms") == ("3000", 2)
    assert broker.value("log.segment.bytes") == ("2097152", 4)


def test_a28_the_number_of_processors_follows_the_file(broker: Reloaded) -> None:
    before = int(broker.value("num.network.threads")[0] or 0)
    broker.write(f"num.network.threads={2 * before + 1}\n")
    [line] = broker.reload(complaint=True)
    assert f"value should not be greater than double the current value {before}" in line
    broker.write(f"num.network.threads={2 * before}\n")
    broker.reload()

    def processors() -> int:
        status = command("status", "--json", "--run-dir", str(broker.run_dir)).stdout
        return sum(row["role"] == "processor" and row["state"] == "running" for row in json.loads(status)["processes"])

    wait_until(lambda: processors() == 2 * before, "there are twice as many")


def test_without_a_file_there_is_nothing_to_read() -> None:
    config = load(None, {"log.segment.bytes": "2097152"}, {})
    assert config.sources.file is None
    assert config.file_texts == {}


def test_a_file_that_says_what_is_in_force_is_not_stored_again(tmp_path: Path) -> None:
    """For any number of signals: it would be a change of the metadata for every process."""
    config = loaded(tmp_path, "log.retention.ms=1\n")
    metadata: Any = SimpleNamespace(loaded_config=config, broker_config=config, broker_overrides={})
    stored: list[Mapping[str, str]] = []

    def store(_kind: str, texts: Mapping[str, str]) -> None:
        stored.append(texts)
        metadata.loaded_config = config.with_file(texts)

    controller: Any = SimpleNamespace(replace_until_restart=store, room=Room(8, 8))
    (tmp_path / "server.properties").write_text("log.retention.ms=2\n")
    for _ in range(3):
        reload(controller, metadata, config)
    assert stored == [{"log.retention.ms": "2"}]


def loaded(tmp_path: Path, text: str, **sets: str) -> BrokerConfig:
    file = tmp_path / "server.properties"
    file.write_text(text)
    return load(file, {name.replace("_", "."): value for name, value in sets.items()}, {})


def test_a_configuration_with_what_its_file_says_now(tmp_path: Path) -> None:
    config = loaded(tmp_path, "log.segment.bytes=2097152\nlog.retention.ms=1\nnum.partitions=3\n", log_roll_ms="9")
    assert config.file_texts == {"log.segment.bytes": "2097152", "log.retention.ms": "1", "num.partitions": "3"}
    changed = config.with_file({"log.segment.bytes": "4194304", "log.roll.ms": "8", "compression.type": "lz4"})
    assert (changed.log_segment_bytes, changed.log_retention_ms, changed.num_partitions) == (4194304, None, 3)
    assert (changed.log_roll_ms, changed.compression_type) == (9, "lz4")
    assert changed.origin("log.roll.ms").source is Source.FLAG
    assert changed.origin("compression.type").source is Source.FILE
    assert changed.with_file(config.file_texts | {}).log_retention_ms == 1
