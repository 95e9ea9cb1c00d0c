"""Requests that are new in Kafka 4.4, compared with Apache Kafka 4.4: ApiVersions 5, and commits by epoch and topic id.

Both brokers get the same requests; every error code is compared.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from rotunda.broker.protocol.api_keys import ApiKey
from tests.support.broker_process import BrokerProcess
from tests.support.deadline import wait_until
from tests.support.described_requests import ask
from tests.support.shared_kafka import SharedKafka
from tests.support.wire_client import WireClient

pytestmark = [pytest.mark.slow, pytest.mark.needs("kafka")]

TOPIC, GROUP = "committed-by-epoch", "commits-by-epoch"
PARTITIONS = 4
UNKNOWN = 9
SOFTWARE = {"client_software_name": "me", "client_software_version": "1"}

Codes = list[tuple[int, int]]


class Broker:
    """One broker, with a topic, a group, and a transaction that commits for it."""

    def __init__(self, port: int, wire: WireClient) -> None:
        self.port = port
        self.wire = wire
        topic = {"name": TOPIC, "num_partitions": PARTITIONS, "replication_factor": 1, "assignments": [], "configs": []}
        self.ask(ApiKey.CREATE_TOPICS, 7, topics=[topic], timeout_ms=10_000)
        metadata = self.ask(ApiKey.METADATA, 12, topics=[{"name": TOPIC, "topic_id": bytes(16)}])
        self.cluster_id, self.node_id = metadata.cluster_id, metadata.brokers[0].node_id
        self.topic_id = metadata.topics[0].topic_id
        for kind in (0, 1):
            self.until(
                lambda kind=kind: self.ask(
                    ApiKey.FIND_COORDINATOR, 4, key_type=kind, coordinator_keys=[GROUP]
                ).coordinators[0]
            )
        fields = {"transactional_id": GROUP, "producer_id": -1, "producer_epoch": -1, "transaction_timeout_ms": 60_000}
        producer = self.until(lambda: self.ask(ApiKey.INIT_PRODUCER_ID, 4, **fields))
        self.transaction = {
            "transactional_id": GROUP,
            "producer_id": producer.producer_id,
            "producer_epoch": producer.producer_epoch,
        }
        for group in (GROUP, "nobody"):
            self.ask(ApiKey.ADD_OFFSETS_TO_TXN, 3, **self.transaction, group_id=group)

    def ask(self, key: ApiKey, version: int, **fields: Any) -> Any:
        return ask(self.wire, key, version, fields)

    def until(self, request: Callable[[], Any]) -> Any:
        """Repeat a request until its response has no error; return that."""
        answers: list[Any] = []

        def succeeds() -> bool:
            answers.append(request())
            return not answers[-1].error_code

        wait_until(succeeds, "a response without an error")
        return answers[-1]

    def identified(self, cluster_id: str | None, node_id: int) -> int:
        """Return the error of an ApiVersions on a connection of its own."""
        with WireClient(self.port) as wire:
            fields = {**SOFTWARE, "cluster_id": cluster_id, "node_id": node_id}
            return int(ask(wire, ApiKey.API_VERSIONS, 5, fields).error_code)

    def heartbeat(self, member: str, epoch: int, owned: Sequence[Any] | None = None) -> Any:
        joins = epoch == 0
        return self.ask(
            ApiKey.CONSUMER_GROUP_HEARTBEAT,
            1,
            group_id=GROUP,
            member_id=member,
            member_epoch=epoch,
            instance_id=None,
            rack_id=None,
            rebalance_timeout_ms=60_000 if joins else -1,
            subscribed_topic_names=[TOPIC] if joins else None,
            subscribed_topic_regex=None,
            server_assignor=None,
            topic_partitions=[] if joins else owned,
        )

    def assigned(self, member: str, is_expected: Callable[[int], bool], epoch: int = 0) -> Any:
        """Send heartbeats until the member is assigned an expected number of partitions; return that response."""
        responses: list[Any] = []

        def is_assigned() -> bool:
            last = responses[-1].member_epoch if responses else epoch
            responses.append(self.until(lambda: self.heartbeat(member, last)))
            assignment = responses[-1].assignment
            return assignment is not None and is_expected(
                sum(len(each.partitions) for each in assignment.topic_partitions)
            )

        wait_until(is_assigned, "the expected number of partitions")
        return responses[-1]

    def commit(self, epoch: int, partitions: Sequence[int], version: int = 9) -> Codes:
        return _codes(self.ask(ApiKey.OFFSET_COMMIT, version, **self._offsets(epoch, partitions)))

    def commit_in_transaction(self, epoch: int, partitions: Sequence[int], version: int, **others: Any) -> Codes:
        fields = {**self._offsets(epoch, partitions), **self.transaction, **others}
        return _codes(self.ask(ApiKey.TXN_OFFSET_COMMIT, version, **fields))

    def _offsets(self, epoch: int, partitions: Sequence[int]) -> dict[str, Any]:
        parts = [{"partition_index": index, "committed_offset": 5, "committed_metadata": ""} for index in partitions]
        return {
            "group_id": GROUP,
            "member_id": "m1",
            "generation_id_or_member_epoch": epoch,
            "topics": [{"name": TOPIC, "topic_id": self.topic_id, "partitions": parts}],
        }


def _codes(answer: Any) -> Codes:
    return sorted((part.partition_index, int(part.error_code)) for each in answer.topics for part in each.partitions)


def outcomes(port: int) -> list[object]:
    """Return the error codes of all requests to a broker."""
    with WireClient(port) as wire:
        return outcomes_of(Broker(port, wire))


def outcomes_of(broker: Broker) -> list[object]:
    cluster_id, node_id = broker.cluster_id, broker.node_id
    clusters = ((None, -1), (cluster_id, node_id), (cluster_id, -1), (None, node_id), ("x", node_id), (cluster_id, 99))
    found: list[object] = [broker.identified(*each) for each in clusters]
    first = broker.assigned("m1", lambda count: count == PARTITIONS).member_epoch
    wait_until(lambda: broker.commit(first, [0], 10) != [(0, 100)], "Kafka's cache has the topic's id")
    for epoch in (first, first - 1, first + 1):
        found += [broker.commit(epoch, [0], version) for version in (9, 10)]
        found += [broker.commit_in_transaction(epoch, [0, UNKNOWN], version) for version in (3, 5, 6)]
    for version in (5, 6):
        found.append(broker.commit_in_transaction(first, [0], version, group_id="nobody"))
        found.append(broker.commit_in_transaction(first, [0], version, member_id="nobody"))
    broker.until(lambda: broker.heartbeat("m2", 0))
    [kept] = broker.assigned("m1", lambda count: count < PARTITIONS, first).assignment.topic_partitions
    revoked = sorted(set(range(PARTITIONS)) - set(kept.partitions))
    found += [broker.commit(first, kept.partitions), broker.commit(first, revoked), broker.commit(first - 1, [0])]
    owned = [{"topic_id": kept.topic_id, "partitions": kept.partitions}]
    wait_until(lambda: broker.heartbeat("m1", first, owned).member_epoch > first, "the next epoch")
    for partitions in (kept.partitions, revoked, range(PARTITIONS)):
        found += [broker.commit(epoch, partitions) for epoch in (first - 1, first, first + 1, first + 2)]
        found += [broker.commit_in_transaction(first, partitions, version) for version in (5, 6)]
    deleted = broker.ask(ApiKey.DELETE_GROUPS, 3, groups_names=[GROUP, "nobody", "nobody"]).results
    return [*found, sorted((each.group_id, int(each.error_code), each.error_message) for each in deleted)]


def test_v01_v05_v06_v08_error_codes_are_kafkas(apache_kafka: SharedKafka, tmp_path: Path) -> None:
    broker = BrokerProcess(tmp_path).start()
    try:
        ours = outcomes(broker.port)
    finally:
        broker.stop()
    assert ours == outcomes(apache_kafka.ports["PLAINTEXT"])
