"""Kafka's own tool for ACLs against this broker: added, listed, removed, with its conveniences."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from ops.compatibility import preparation
from tests.support.broker_process import BrokerProcess
from tests.support.deadline import deadline_s

pytestmark = [pytest.mark.compat, pytest.mark.needs("kafka")]

SETTINGS = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS",
    "num.io.threads": 1,
    "num.network.threads": 1,
}


@pytest.fixture
def guarded(tmp_path: Path) -> Iterator[BrokerProcess]:
    broker = BrokerProcess(tmp_path, SETTINGS).start()
    yield broker
    broker.stop()


def kafka_acls(broker: BrokerProcess, *arguments: str) -> str:
    """Return the output of the tool."""
    classes = f"{preparation.JARS}/*{os.pathsep}{preparation.KAFKA_JARS}/*"
    command = [
        "java",
        "-cp",
        classes,
        "org.apache.kafka.tools.AclCommand",
        "--bootstrap-server",
        broker.bootstrap,
        *arguments,
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=deadline_s(60))
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_kafka_acls_adds_lists_and_removes(guarded: BrokerProcess) -> None:
    producer = ("--allow-principal", "User:alice", "--producer", "--topic", "orders")
    kafka_acls(guarded, "--add", *producer)
    consumer = ("--allow-principal", "User:bob", "--consumer", "--topic", "ord", "--group", "g")
    kafka_acls(guarded, "--add", *consumer, "--resource-pattern-type", "prefixed")
    kafka_acls(
        guarded, "--add", "--deny-principal", "User:*", "--deny-host", "10.0.0.9", "--operation", "All", "--cluster"
    )
    # V11
    ranges = ("--allow-host", "127.0.0.0/8", "--allow-host", "::1/128")
    kafka_acls(guarded, "--add", "--allow-principal", "User:carol", *ranges, "--operation", "Read", "--group", "near")
    listed = kafka_acls(guarded, "--list")
    for words in (
        "principal=User:carol, host=127.0.0.0/8, operation=READ, permissionType=ALLOW",
        "principal=User:carol, host=::1/128, operation=READ, permissionType=ALLOW",
        "resourceType=TOPIC, name=orders, patternType=LITERAL",
        "resourceType=TOPIC, name=ord, patternType=PREFIXED",
        "resourceType=GROUP, name=g, patternType=PREFIXED",
        "(principal=User:*, host=10.0.0.9, operation=ALL, permissionType=DENY)",
        "(principal=User:alice, host=*, operation=WRITE, permissionType=ALLOW)",
    ):
        assert words in listed
    # The two tools print the same.
    by_rotunda = guarded.command("acl", "list", "--topic", "orders", "--resource-pattern-type", "literal").stdout
    assert [operation in by_rotunda for operation in ("WRITE", "DESCRIBE", "CREATE", "READ")] == [
        True,
        True,
        True,
        False,
    ]
    kafka_acls(guarded, "--remove", "--force", *producer)
    kafka_acls(guarded, "--remove", "--force", "--topic", "ord", "--resource-pattern-type", "prefixed")
    left = kafka_acls(guarded, "--list")
    assert "TOPIC" not in left
    assert "GROUP" in left
