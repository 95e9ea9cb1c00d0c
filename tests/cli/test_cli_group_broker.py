"""`rotunda group` against a whole broker whose groups and transactions a real client made."""

import json
import sys
import time
from typing import Any, cast

import pytest
from confluent_kafka import Consumer, Producer, ShareConsumer, TopicPartition

from tests.cli.record_commands import Done, ended
from tests.support.broker_process import BrokerProcess
from tests.support.deadline import wait_until
from tests.support.groups.libraries import subscriber

BROKER_SETTINGS = {"group.initial.rebalance.delay.ms": 0, "transaction.state.log.num.partitions": 2}


def group(broker: BrokerProcess, *arguments: str) -> Any:
    """Return the JSON output of a command."""
    done = broker.command("group", *arguments, "--json")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def lags(broker: BrokerProcess, name: str, *options: str) -> dict[int, tuple[int | None, float | None]]:
    """Return the lag of each partition, in records and seconds."""
    found = group(broker, "describe", name, *options)["partitions"]
    return {each["partition"]: (each["lag_records"], each["lag_seconds"]) for each in found}


def joined(broker: BrokerProcess, name: str, topic: str, protocol: str) -> Consumer:
    """Return a consumer that has been assigned the topic's partitions."""
    settings = {"group_protocol": protocol, "client_id": "reader", "auto_offset_reset": "latest"}
    consumer = subscriber(broker.bootstrap, name, [topic], **settings)
    wait_until(lambda: consumer.poll(0.05) is None and bool(consumer.assignment()), "partitions are assigned")
    return consumer


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_the_life_of_a_group(broker: BrokerProcess, topic: str, protocol: str) -> None:
    """users.md rows 10 and 17: both types; late, idle and unread partitions; reset and delete."""
    assert broker.command("topic", "create", topic, "--partitions", "3").returncode == 0
    name = f"{topic}-group"
    consumer = joined(broker, name, topic, protocol)
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    now_ms = int(time.time() * 1000)
    for partition, count in ((0, 4), (1, 2)):
        for i in range(count):
            producer.produce(topic, b"v", partition=partition, timestamp=now_ms - 60_000 + i * 10_000)
    producer.flush()
    commits = [TopicPartition(topic, 0, 1, "noted"), TopicPartition(topic, 1, 2)]
    consumer.commit(offsets=commits, asynchronous=False)

    # A member has its share a moment before the coordinator receives its confirmation.
    wait_until(lambda: group(broker, "describe", name)["state"] == "Stable", "the group is stable")
    # The owner of the group publishes its sessions now and then.
    wait_until(lambda: group(broker, "describe", name)["members"][0]["silent_seconds"] is not None, "its session")
    described = group(broker, "describe", name)
    (member,) = described["members"]
    assert (described["type"], described["state"]) == (protocol, "Stable")
    # Together the session timeout: 45 s for both protocols.
    assert member["silent_seconds"] < 40
    assert member["silent_seconds"] + member["session_left_seconds"] == pytest.approx(45, abs=0.01)
    assert member["client_id"] == "reader"
    assert [each["partition"] for each in member["assignment"]] == [0, 1, 2]
    late, idle, unread = described["partitions"]
    # confluent-kafka also sends the zero byte at the end of a C string.
    assert late["committed_metadata"].rstrip("\0") == "noted"
    assert (late["lag_records"], late["log_end_offset"]) == (3, 4)
    assert 50 <= late["lag_seconds"] <= 50 + time.time() - now_ms / 1000 + 0.01
    assert (idle["lag_records"], idle["lag_seconds"]) == (0, 0.0)
    assert (unread["committed_offset"], unread["lag_records"], unread["lag_seconds"]) == (None, None, None)
    listed = {"group": name, "type": protocol, "state": "Stable", "protocol_type": "consumer"}
    assert listed in group(broker, "list", "--type", protocol, "--state", "stable")

    refused = broker.command("group", "delete", name)
    assert refused.returncode == 1
    assert f"NON_EMPTY_GROUP: group {name} has members: {member['member_id']}" in refused.stderr
    reset = ("reset-offsets", name, "--topic", f"{topic}:0,1", "--shift-by", "-1")
    assert member["member_id"] in broker.command("group", *reset).stderr

    consumer.close()
    wait_until(lambda: group(broker, "describe", name)["state"] == "Empty", "the group is empty")
    planned = group(broker, *reset)
    assert [(each["before"], each["after"]) for each in planned["partitions"]] == [(1, 0), (2, 1)]
    assert lags(broker, name)[0][0] == 3
    assert group(broker, *reset, "--execute")["executed"]
    assert {partition: records for partition, (records, _) in lags(broker, name).items()} == {0: 4, 1: 1}
    assert group(broker, "delete", name) == [{"group": name, "deleted": True, "error": None, "message": None}]
    assert broker.command("group", "describe", name).stderr.startswith("rotunda: GROUP_ID_NOT_FOUND: ")


def test_read_committed_lag(broker: BrokerProcess, topic: str) -> None:
    """users.md row 17: up to the last stable offset, and late by the first record that was not aborted."""
    assert broker.command("topic", "create", topic, "--partitions", "1").returncode == 0
    name = f"{topic}-group"
    settings = {"bootstrap.servers": broker.bootstrap, "transactional.id": topic, "transaction.timeout.ms": 600_000}
    producer = Producer(settings)
    producer.init_transactions()
    now_ms = int(time.time() * 1000)
    for age_s, end in ((90, producer.abort_transaction), (30, producer.commit_transaction)):
        producer.begin_transaction()
        producer.produce(topic, b"v", timestamp=now_ms - age_s * 1000)
        producer.flush()
        end()
    producer.begin_transaction()
    producer.produce(topic, b"undecided")
    producer.flush()
    reset = ("reset-offsets", name, "--topic", topic, "--execute")
    group(broker, *reset, "--to-earliest")
    records, seconds = lags(broker, name)[0]
    assert records == 5
    assert seconds is not None
    assert seconds >= 90
    records, seconds = lags(broker, name, "--read-committed")[0]
    assert records == 4
    assert seconds is not None
    assert 30 <= seconds <= 30 + time.time() - now_ms / 1000 + 0.01
    group(broker, *reset, "--to-offset", "4")
    assert lags(broker, name, "--read-committed") == {0: (0, 0.0)}
    assert lags(broker, name)[0][0] == 1
    producer.abort_transaction()


@pytest.mark.parametrize("utf_8", ["0", "1"])
def test_a_name_that_the_terminal_cannot_show(
    broker: BrokerProcess, topic: str, monkeypatch: pytest.MonkeyPatch, utf_8: str
) -> None:
    """A locale without an encoding: names on the command line are UTF-8, printed names are escaped."""
    assert broker.command("topic", "create", topic).returncode == 0
    name = f"grüße-{topic}"
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": name})
    consumer.commit(offsets=[TopicPartition(topic, 0, 1)], asynchronous=False)
    consumer.close()
    monkeypatch.setenv("LC_ALL", "C")
    monkeypatch.setenv("PYTHONUTF8", utf_8)
    monkeypatch.setenv("PYTHONIOENCODING", "ascii")
    shown = f"gr\\xfc\\xdfe-{topic}".encode()

    def run(*arguments: str | bytes) -> Done:
        line = [sys.executable, "-m", "rotunda", "group", *arguments, "--bootstrap", broker.bootstrap]
        return ended(cast("list[str]", line), b"")

    assert shown in run("list").out
    assert name in {each["group"] for each in json.loads(run("list", "--json").out)}
    assert shown in run("describe", name.encode()).out
    refused = run("describe", b"gr\xfc\xdfe")
    assert (refused.code, refused.out) == (2, b"")
    assert refused.err == "rotunda: invalid argument 'gr\\udcfc\\udcdfe': not UTF-8\n"
    assert shown in run("delete", name.encode()).out


def test_s124_a_share_group(broker: BrokerProcess, topic: str) -> None:
    """S11, S12, S110-S113, S121: also records in flight with delivery count and lock, as its handler publishes."""
    assert broker.command("topic", "create", topic, "--partitions", "1").returncode == 0
    name = f"{topic}-group"
    assert broker.command("config", "set", "--group", name, "share.auto.offset.reset=earliest").returncode == 0
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    producer.produce(topic, b"v")
    producer.flush()
    settings = {"bootstrap.servers": broker.bootstrap, "group.id": name, "share.acknowledgement.mode": "explicit"}
    consumer = ShareConsumer({**settings, "client.id": "worker"})
    consumer.subscribe([topic])
    wait_until(lambda: list(consumer.poll(0.5)), "the record")
    wait_until(lambda: group(broker, "describe", name)["partitions"][0]["in_flight_records"], "its state")
    described = group(broker, "describe", name)
    assert {"group": name, "type": "share", "state": "Stable", "protocol_type": "share"} in group(
        broker, "list", "--type", "share"
    )
    assert (described["type"], described["assignor"]) == ("share", "simple")
    assert [member["client_id"] for member in described["members"]] == ["worker"]
    [partition] = described["partitions"]
    assert 0 <= partition.pop("oldest_lock_left_seconds") <= 30
    assert partition == {
        "topic": topic, "partition": 0, "start_offset": 0, "lag_records": 1, "members": 1,
        "in_flight_records": 1, "waiting_records": 0, "highest_delivery_count": 1, "dead_letters": 0,
    }  # fmt: skip
    text = broker.command("group", "describe", name).stdout.split("\n\n")[-1]
    assert "START  LAG  MEMBERS" in text
    assert text.splitlines()[0].split("  ")[-1].strip() == "DEAD LETTERS"
    refused = broker.command("group", "delete", name)
    assert (refused.returncode, "NON_EMPTY_GROUP" in refused.stderr) == (1, True)
    consumer.close()
    wait_until(lambda: group(broker, "describe", name)["state"] == "Empty", "the group is empty")
    reset = group(broker, "reset-offsets", name, "--all-topics", "--to-latest", "--execute")
    assert [(each["before"], each["after"], each["error"]) for each in reset["partitions"]] == [(0, 1, None)]
    assert group(broker, "describe", name)["partitions"][0]["start_offset"] == 1
    assert group(broker, "delete", name)[0]["deleted"]
