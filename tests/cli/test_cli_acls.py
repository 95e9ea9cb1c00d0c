"""`rotunda acl` against a whole broker: ACLs are added, listed, enforced, and deleted."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.broker_process import BrokerProcess

SETTINGS = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS",
    "num.io.threads": 1,
    "num.network.threads": 1,
}


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    directory: Path = tmp_path_factory.mktemp("guarded")
    broker = BrokerProcess(directory, SETTINGS).start()
    yield broker
    broker.stop()


def acl(broker: BrokerProcess, *arguments: str) -> list[Any]:
    """Return the JSON output of a command, in short."""
    done = broker.command("acl", *arguments, "--json")
    assert done.returncode == 0, done.stderr
    return [" ".join(each.values()) for each in json.loads(done.stdout)]


def test_acls_are_added_listed_and_deleted(guarded: BrokerProcess) -> None:
    alice = ("--allow-principal", "User:alice")
    added = acl(guarded, "add", *alice, "--producer", "--topic", "orders", "--transactional-id", "t")
    assert added == [
        "TOPIC orders LITERAL User:alice * WRITE ALLOW",
        "TOPIC orders LITERAL User:alice * DESCRIBE ALLOW",
        "TOPIC orders LITERAL User:alice * CREATE ALLOW",
        "TRANSACTIONAL_ID t LITERAL User:alice * WRITE ALLOW",
        "TRANSACTIONAL_ID t LITERAL User:alice * DESCRIBE ALLOW",
    ]
    read = ("--allow-principal", "User:bob", "--consumer", "--topic", "ord", "--group", "g")
    added = acl(guarded, "add", *read, "--resource-pattern-type", "prefixed")
    assert added == [
        "TOPIC ord PREFIXED User:bob * READ ALLOW",
        "TOPIC ord PREFIXED User:bob * DESCRIBE ALLOW",
        "GROUP g PREFIXED User:bob * READ ALLOW",
    ]
    denied = ("--deny-principal", "User:*", "--deny-host", "10.0.0.9", "--cluster", "--operation", "alter-configs")
    assert acl(guarded, "add", *denied) == ["CLUSTER kafka-cluster LITERAL User:* 10.0.0.9 ALTER_CONFIGS DENY"]
    assert len(acl(guarded, "list")) == 9
    assert len(acl(guarded, "list", "--topic", "orders")) == 5
    assert len(acl(guarded, "list", "--topic", "orders", "--resource-pattern-type", "literal")) == 3
    assert acl(guarded, "list", "--principal", "User:*") == acl(guarded, "delete", *denied)
    assert len(acl(guarded, "delete", *read, "--resource-pattern-type", "prefixed")) == 3
    assert len(acl(guarded, "delete", "--topic", "orders")) == 3
    assert "TRANSACTIONAL_ID  t" in guarded.command("acl", "list").stdout


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (("add", "--topic", "t"), "missing --allow-principal"),
        (("add", "--allow-principal", "User:a"), "missing --topic"),
        (("delete",), "missing --topic"),
        (("add", "--topic", "t", "--allow-host", "10.0.0.1"), "--allow-host needs --allow-principal"),
        (("add", "--allow-principal", "User:a", "--topic", "t", "--consumer"), "--consumer needs --topic and --group"),
        (
            ("add", "--allow-principal", "User:a", "--topic", "t", "--producer", "--operation", "read"),
            "exclude --operation",
        ),
    ],
)
def test_what_makes_no_sense_is_bad_usage(guarded: BrokerProcess, arguments: tuple[str, ...], complaint: str) -> None:
    done = guarded.command("acl", *arguments)
    assert (done.returncode, done.stdout) == (2, "")
    assert complaint in done.stderr


def test_what_kafka_rejects_is_said_by_its_name(guarded: BrokerProcess) -> None:
    done = guarded.command("acl", "add", "--allow-principal", "alice", "--topic", "t")
    assert done.returncode == 1
    assert "INVALID_REQUEST" in done.stderr


def test_a_broker_without_an_authorizer_says_so(broker: BrokerProcess) -> None:
    done = broker.command("acl", "list")
    assert done.returncode == 1
    assert "SECURITY_DISABLED: No Authorizer is configured" in done.stderr
