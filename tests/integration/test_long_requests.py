"""Expensive requests are served without delays for others: a bystander's round trips during hostile requests."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from rotunda.broker.protocol.api_keys import ApiKey
from tests.support import described_requests
from tests.support.broker_process import BrokerProcess
from tests.support.deadline import deadline_s, wait_until
from tests.support.record_batches import record_batch
from tests.support.wire_client import WireClient
from tests.support.wire_messages import create_topic, produce

#: During any of these a bystander waited once until all was done. The rest is noise of the machine, which grows with
#: its load: the round trips need two more processes, and a disk that others use too.
MOST_PAUSE_S = 2.0
MOST_SHARE = 0.3

TOPICS = 2_000
BROKER, TOPIC = 4, 2

#: The newest version of each API that is used here.
VERSIONS = {
    ApiKey.METADATA: 12,
    ApiKey.CREATE_TOPICS: 7,
    ApiKey.DELETE_TOPICS: 6,
    ApiKey.DESCRIBE_CONFIGS: 4,
    ApiKey.DESCRIBE_GROUPS: 5,
    ApiKey.DESCRIBE_PRODUCERS: 0,
    ApiKey.LIST_GROUPS: 4,
    ApiKey.INCREMENTAL_ALTER_CONFIGS: 1,
    ApiKey.OFFSET_FETCH: 8,
    ApiKey.OFFSET_COMMIT: 8,
    ApiKey.DELETE_GROUPS: 2,
    ApiKey.DELETE_RECORDS: 2,
}


class Bystander(threading.Thread):
    """A client that sends every few milliseconds, to every handler, and notes the longest round trip."""

    def __init__(self, port: int, topics: list[str]) -> None:
        super().__init__(daemon=True)
        self._clients = [(topic, WireClient(port)) for topic in topics]
        self._began_s = time.monotonic()
        self._over = threading.Event()
        self.rounds = 0
        self.longest_s = 0.0
        self.failure: BaseException | None = None

    def run(self) -> None:
        try:
            while not self._over.wait(0.002):
                for topic, client in self._clients:
                    began = time.monotonic()
                    client.call(ApiKey.API_VERSIONS, 0)
                    produced = produce(client, topic, 0, record_batch([b"x"]))
                    self.longest_s = max(self.longest_s, time.monotonic() - began)
                    assert produced.error_code == 0, produced
                self.rounds += 1
        except BaseException as failure:
            self.failure = failure

    @property
    def most_s(self) -> float:
        """The limit of a round trip: a busy machine is slower at everything."""
        return max(deadline_s(MOST_PAUSE_S), MOST_SHARE * (time.monotonic() - self._began_s))

    def __enter__(self) -> Bystander:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self.join(deadline_s(45))
        for _, client in self._clients:
            client.close()
        if self.failure is not None:
            raise self.failure


def ask(client: WireClient, key: ApiKey, values: Mapping[str, Any]) -> Any:
    """Send a request by its fields; return the decoded response."""
    return described_requests.ask(client, key, VERSIONS[key], values)


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    settings = {"max.partitions": 14_000, "offsets.topic.num.partitions": 4, "group.initial.rebalance.delay.ms": 0}
    instance = BrokerProcess(tmp_path_factory.mktemp("long"), settings).start()
    with WireClient(instance.port) as client:
        for topic in BYSTANDERS:
            create_topic(client, topic)
    yield instance
    instance.stop()


#: Some of them belong to each handler.
BYSTANDERS = [f"bystander-{number}" for number in range(6)]


@pytest.fixture
def hostile(broker: BrokerProcess) -> Iterator[WireClient]:
    with WireClient(broker.port) as client:
        yield client


@pytest.fixture
def bystander(broker: BrokerProcess) -> Iterator[Bystander]:
    with Bystander(broker.port, BYSTANDERS) as one:
        yield one


def assert_not_paused(bystander: Bystander, broker: BrokerProcess) -> None:
    slow = [line for line in broker.log_text().splitlines() if "a turn took" in line]
    wait_until(lambda: bystander.rounds > 2 or not bystander.is_alive(), "rounds of the bystander")
    assert bystander.longest_s < bystander.most_s, slow


def test_a_thousand_topics_are_made_and_described_and_deleted(
    broker: BrokerProcess, hostile: WireClient, bystander: Bystander
) -> None:
    names = [f"many.{number}" for number in range(TOPICS)]
    new = [{"name": name, "num_partitions": 1, "replication_factor": 1} for name in names]
    made = ask(hostile, ApiKey.CREATE_TOPICS, {"topics": new, "timeout_ms": 60_000})
    assert {topic.error_code for topic in made.topics} == {0}
    produced = produce(hostile, names[-1], 0, record_batch([b"at once"]))
    assert produced.error_code == 0

    unknown = [{"name": f"unknown.{number}", "topic_id": bytes(16)} for number in range(10_000)]
    found = ask(hostile, ApiKey.METADATA, {"topics": unknown, "allow_auto_topic_creation": False})
    assert {topic.error_code for topic in found.topics} == {3}
    colliding = [{"name": name.replace(".", "_"), "topic_id": bytes(16)} for name in names]
    found = ask(hostile, ApiKey.METADATA, {"topics": colliding, "allow_auto_topic_creation": True})
    assert {topic.error_code for topic in found.topics} == {3}

    resources = [{"resource_type": TOPIC, "resource_name": name, "configuration_keys": None} for name in names]
    described = ask(hostile, ApiKey.DESCRIBE_CONFIGS, {"resources": resources, "include_documentation": True})
    assert len(described.results) == TOPICS

    change = [{"name": "retention.ms", "config_operation": 0, "value": "1000000"}]
    resources = [{"resource_type": TOPIC, "resource_name": name, "configs": change} for name in names]
    altered = ask(hostile, ApiKey.INCREMENTAL_ALTER_CONFIGS, {"resources": resources})
    assert {each.error_code for each in altered.responses} == {0}

    gone = [{"name": name, "topic_id": bytes(16)} for name in names]
    deleted = ask(hostile, ApiKey.DELETE_TOPICS, {"topics": gone, "timeout_ms": 60_000})
    assert {topic.error_code for topic in deleted.responses} == {0}
    assert_not_paused(bystander, broker)


def test_a_topic_of_nine_thousand_partitions(broker: BrokerProcess, hostile: WireClient, bystander: Bystander) -> None:
    new = {"name": "wide", "num_partitions": 9_000, "replication_factor": 1}
    made = ask(hostile, ApiKey.CREATE_TOPICS, {"topics": [new], "timeout_ms": 60_000})
    assert [topic.error_code for topic in made.topics] == [0]
    for partition in (0, 4_500, 8_999):
        assert produce(hostile, "wide", partition, record_batch([b"at once"])).error_code == 0
    found = ask(hostile, ApiKey.METADATA, {"topics": [{"name": "wide", "topic_id": bytes(16)}]})
    assert len(found.topics[0].partitions) == 9_000
    deleted = ask(
        hostile, ApiKey.DELETE_TOPICS, {"topics": [{"name": "wide", "topic_id": bytes(16)}], "timeout_ms": 60_000}
    )
    assert [topic.error_code for topic in deleted.responses] == [0]
    assert_not_paused(bystander, broker)
