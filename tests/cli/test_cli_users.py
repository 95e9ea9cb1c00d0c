"""`rotunda user` against a whole broker, and in the data of one that does not run."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaError, Producer

from tests.support.broker_process import BrokerProcess
from tests.support.command_line import command
from tests.support.deadline import wait_until


def on(broker: BrokerProcess, *arguments: str, typed: str = "") -> Any:
    """Return the JSON output of a command."""
    done = command("user", *arguments, "--json", "--run-dir", str(broker.run_dir), typed=typed)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def gets_in(address: str, name: str, password: str) -> bool:
    """Return whether a record is written before the client reports an authentication error."""
    outcomes: list[bool] = []
    client = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "SCRAM-SHA-512", "bootstrap.servers": address}
    client |= {"sasl.username": name, "sasl.password": password}

    def failed(error: KafkaError) -> None:
        if error.code() == KafkaError._AUTHENTICATION:
            outcomes.append(False)

    producer = Producer({**client, "error_cb": failed})
    producer.produce("of-users", b"x", on_delivery=lambda error, _: outcomes.append(error is None))
    wait_until(lambda: producer.poll(0.1) >= 0 and outcomes, "an outcome")
    producer.purge()
    return outcomes[0]


def test_users_are_added_listed_described_and_deleted(broker: BrokerProcess) -> None:
    added = on(broker, "add", "alice", typed="secret\n")
    both = {"SCRAM-SHA-256": 8192, "SCRAM-SHA-512": 8192}
    assert added == {"user": "alice", "mechanisms": list(both), "iterations": 8192, "password": None}
    made = on(broker, "add", "bob", "--mechanism", "SCRAM-SHA-512", "--generate", "--iterations", "4096")
    assert re.fullmatch("[0-9a-f]{32}", made["password"])
    assert on(broker, "list") == [
        {"user": "alice", "mechanisms": both},
        {"user": "bob", "mechanisms": {"SCRAM-SHA-512": 4096}},
    ]
    assert on(broker, "describe", "bob") == [{"user": "bob", "mechanisms": {"SCRAM-SHA-512": 4096}}]
    assert on(broker, "delete", "alice", "--mechanism", "SCRAM-SHA-256") == [
        {"user": "alice", "mechanisms": {"SCRAM-SHA-512": 8192}}
    ]
    assert on(broker, "delete", "alice") == []
    done = broker.command("user", "list").stdout
    assert "bob" in done
    assert "alice" not in done
    assert on(broker, "delete", "bob") == []
    assert "unknown user bob" in broker.command("user", "delete", "bob").stderr


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("add", "alice"), "the password is empty"),
        (("add", "alice", "--iterations", "1", "--generate"), "4096 to 16384"),
    ],
)
def test_what_is_wrong_is_said_and_nothing_changed(
    broker: BrokerProcess, arguments: tuple[str, ...], says: str
) -> None:
    done = command("user", *arguments, "--run-dir", str(broker.run_dir))
    assert (done.returncode, done.stdout) == (2, "")
    assert says in done.stderr


def test_the_first_user_of_a_broker_is_made_before_it_starts_and_not_while_it_runs(tmp_path: Path) -> None:
    settings = {"listeners": "SASL_PLAINTEXT://127.0.0.1:0", "sasl.enabled.mechanisms": "SCRAM-SHA-512"}
    broker = BrokerProcess(tmp_path, settings, ephemeral=False)
    data = ("--data-dir", str(broker.data_dir))
    first = command("user", "add", "alice", *data, typed="alice's\n")
    assert first.returncode == 0, first.stderr
    made = json.loads(command("user", "add", "bob", "--generate", "--json", *data).stdout)
    broker.start()
    try:
        assert gets_in(broker.bootstrap, "alice", "alice's")
        assert gets_in(broker.bootstrap, "bob", made["password"])
        assert not gets_in(broker.bootstrap, "bob", "alice's")
        refused = command("user", "add", "carol", "--generate", *data)
        assert refused.returncode == 4
        assert "in use by another broker" in refused.stderr
        assert made["password"] not in broker.log_text()
    finally:
        broker.stop()
