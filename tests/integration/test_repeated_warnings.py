"""Log lines about a client that violates the protocol again and again: one line of each kind, and a count."""

import struct
import time
from collections.abc import Callable, Iterator

import pytest

from rotunda.broker.apis.table import API_TABLE
from rotunda.broker.protocol.api_keys import ApiKey
from rotunda.broker.server_log.log_setup import MOST_CHARACTERS
from rotunda.broker.server_log.rate_limit import BURST_BYTES, BYTES_PER_SECOND
from tests.support.broker_process import BrokerProcess
from tests.support.deadline import wait_until
from tests.support.described_requests import ask
from tests.support.groups.requests import Member, await_coordinators
from tests.support.wire_client import WireClient, request_frame

OWN_SETTINGS = {"num.network.threads": 1, "num.io.threads": 1}

#: One line of a kind is logged in this time.
INTERVAL_S = 10


@pytest.fixture(scope="module")
def flooded_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """Run one broker for all that clients may repeat."""
    broker = BrokerProcess(tmp_path_factory.mktemp("flooded"), {"num.network.threads": 1, "num.io.threads": 1}).start()
    yield broker
    broker.stop()


def closing_lines(broker: BrokerProcess, position: int) -> list[str]:
    return [line for line in broker.log_since(position) if "closing connection" in line]


def send_length(broker: BrokerProcess, size: int) -> None:
    with WireClient(broker.port) as client:
        client.send(struct.pack(">i", size))
        client.expect_closed()


@pytest.mark.parametrize("size", [2**31 - 1, -1, 0])
def test_an_invalid_length_closes_with_one_log_line(own_broker: BrokerProcess, size: int) -> None:
    position = own_broker.log_bytes()
    send_length(own_broker, size)
    [line] = wait_until(lambda: closing_lines(own_broker, position), "a log line")
    assert f"size {size}:" in line


def test_a_client_that_breaks_the_protocol_again_and_again_cannot_fill_the_log(own_broker: BrokerProcess) -> None:
    position, begin = own_broker.log_bytes(), time.monotonic()
    for size in range(-300, -100):
        send_length(own_broker, size)
    send_length(own_broker, 3)
    wait_until(lambda: "size 3:" in own_broker.log_text(), "the line of another kind")
    intervals = (time.monotonic() - begin) // INTERVAL_S
    assert len([line for line in closing_lines(own_broker, position) if "size -" in line]) <= 1 + intervals


def _close_with(broker: BrokerProcess, frame: bytes) -> None:
    with WireClient(broker.port) as client:
        client.send(frame)
        client.expect_closed()


def _versions_below_zero(broker: BrokerProcess) -> None:
    beat = struct.pack(">h1sih1s", 1, b"g", 1, 1, b"m")
    for version in range(-400, 0):
        _close_with(broker, request_frame(ApiKey.HEARTBEAT, version, 1, beat))


def _unknown_keys_and_versions(broker: BrokerProcess) -> None:
    for key in set(range(400)) - {ApiKey.API_VERSIONS}:
        _close_with(broker, request_frame(key, 99, 1))


def _bodies_that_end_too_early(broker: BrokerProcess) -> None:
    for api in API_TABLE:
        if api.key is ApiKey.API_VERSIONS:
            continue
        for version in range(api.min_version, api.max_version + 1):
            with WireClient(broker.port) as client:
                client.send(request_frame(api.key, version, 1, b"\x00\x00"))


def _cursors_before_the_first_partition(broker: BrokerProcess) -> None:
    cursor = {"topic_name": "", "partition_index": -5}
    with WireClient(broker.port) as client:
        for _ in range(400):
            asked = {"topics": [{"name": "t"}], "response_partition_limit": 10, "cursor": cursor}
            [topic] = ask(client, ApiKey.DESCRIBE_TOPIC_PARTITIONS, 0, asked).topics
            assert topic.error_code == 42


def _settings_of_many_groups(broker: BrokerProcess) -> None:
    configs = [{"name": "consumer.heartbeat.interval.ms", "config_operation": 0, "value": "5000"}]
    with WireClient(broker.port) as client:
        for series in range(3):
            names = [f"group-{series}-{number}-{'x' * 200}" for number in range(100)]
            resources = [{"resource_type": 32, "resource_name": name, "configs": configs} for name in names]
            altered = ask(client, ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, {"resources": resources, "validate_only": False})
            assert {each.error_code for each in altered.responses} == {0}


def _topics_created_and_deleted(broker: BrokerProcess) -> None:
    with WireClient(broker.port) as client:
        for series in range(3):
            names = [f"topic-{series}-{number}-{'x' * 200}" for number in range(200)]
            wanted = [{"name": name, "num_partitions": 1, "replication_factor": 1} for name in names]
            made = ask(client, ApiKey.CREATE_TOPICS, 7, {"topics": wanted, "timeout_ms": 60_000}).topics
            assert {topic.error_code for topic in made} == {0}
            deleted = {"topics": [{"name": name} for name in names], "timeout_ms": 60_000}
            assert {each.error_code for each in ask(client, ApiKey.DELETE_TOPICS, 6, deleted).responses} == {0}


def _members_that_join_and_leave(broker: BrokerProcess) -> None:
    with WireClient(broker.port) as client:
        await_coordinators(client)
        for number in range(400):
            member = Member(client, f"group-{number}-{'x' * 1000}", asks_for_id=False)
            assert member.enter() == member.leave() == 0


def _addresses(broker: BrokerProcess) -> None:
    for number in range(300):
        with WireClient(broker.port, source_host=f"127.0.{1 + number // 200}.{1 + number % 200}") as client:
            client.send(struct.pack(">i", -1))
            client.expect_closed()


@pytest.mark.parametrize(
    "flood",
    [
        _versions_below_zero,
        _unknown_keys_and_versions,
        _bodies_that_end_too_early,
        _cursors_before_the_first_partition,
        _settings_of_many_groups,
        _topics_created_and_deleted,
        _members_that_join_and_leave,
        _addresses,
    ],
)
def test_no_client_fills_the_log_whatever_it_repeats(
    flooded_broker: BrokerProcess, flood: Callable[[BrokerProcess], None]
) -> None:
    """Each line of code writes a burst, and then a little: no flood here reaches more than six of them."""
    position, begin = flooded_broker.log_bytes(), time.monotonic()
    flood(flooded_broker)
    with WireClient(flooded_broker.port) as client:
        client.call(18, 0)
    most_bytes = BURST_BYTES + MOST_CHARACTERS + BYTES_PER_SECOND * (time.monotonic() - begin)
    assert flooded_broker.log_bytes() - position < 6 * most_bytes
    assert all("Traceback" not in line for line in flooded_broker.log_since(position))
