"""Quotas of share consumers compared with Apache Kafka: the same responses have a throttle time.

A throttled ShareFetch is empty at both. Rotunda has acquired nothing for it; Kafka has acquired the records (S122).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest

from rotunda.broker.protocol.api_keys import ApiKey
from tests.support.broker_process import BrokerProcess
from tests.support.deadline import wait_until
from tests.support.described_requests import ask
from tests.support.quota_client import set_quota
from tests.support.record_batches import record_batch
from tests.support.share_consumer import ShareConsumer
from tests.support.shared_kafka import SharedKafka
from tests.support.wire_client import WireClient
from tests.support.wire_messages import create_topic, produce

pytestmark = [pytest.mark.slow, pytest.mark.needs("kafka")]

GROUP_CONFIGS, SET = 32, 0
#: Small: until a quota is in force a client may fetch a lot, and its throttle time must be shorter than its locks.
BATCH = record_batch([b"x" * 2_000])
GROUP = {"share.auto.offset.reset": "earliest", "share.record.lock.duration.ms": "60000"}
#: Exhausted by a dozen batches, or by any time at all.
QUOTAS = {"consumer_byte_rate": 10_000.0, "request_percentage": 0.001}


class Throttled:
    """A share consumer of a client with a quota."""

    def __init__(self, wire: WireClient, member: ShareConsumer, topic: str) -> None:
        self._wire, self._member, self._topic = wire, member, topic
        self._acquired: list[int] = []

    def outcomes(self, quota: str) -> dict[str, Any]:
        """Acquire a record, set the quota, and return the outcome of each request once a fetch is throttled."""
        wait_until(lambda: self._fetch() is None and self._acquired, "a record")
        set_quota(self._wire, {"client-id": self._topic}, **{quota: QUOTAS[quota]})
        return {
            "ShareFetch": wait_until(self._fetch, "a throttled fetch"),
            "ShareAcknowledge": self._acknowledge(),
            "ShareGroupHeartbeat": self._heartbeat(),
        }

    def _fetch(self) -> tuple[int, int] | None:
        """Fetch a new record; return error and bytes of records of a throttled response, None of any other."""
        produce(self._wire, self._topic, 0, BATCH)
        response = self._member.fetch_raw(max_wait_ms=100)
        parts = [part for topic in response.responses for part in topic.partitions]
        if response.throttle_time_ms:
            return response.error_code, sum(len(part.records or b"") for part in parts)
        self._acquired += [each.first_offset for part in parts for each in part.acquired_records]
        return None

    def _acknowledge(self) -> tuple[bool, list[int]]:
        offset = self._acquired.pop()
        response = self._member.acknowledge_raw([(0, offset, offset, [1])])
        parts = [part for topic in response.responses for part in topic.partitions]
        return response.throttle_time_ms > 0, [response.error_code, *(part.error_code for part in parts)]

    def _heartbeat(self) -> tuple[bool, int]:
        body = {"group_id": self._topic, "member_id": self._member.member, "member_epoch": 0}
        fields = {**body, "subscribed_topic_names": [self._topic]}
        response = self._member.call(ApiKey.SHARE_GROUP_HEARTBEAT, fields, 1)
        return response.throttle_time_ms > 0, response.error_code


def outcomes(port: int, topic: str, quota: str) -> dict[str, Any]:
    """Return the outcomes at one broker."""
    with WireClient(port) as wire:
        create_topic(wire, topic, 1)
        configs = [{"name": name, "config_operation": SET, "value": value} for name, value in GROUP.items()]
        resource = {"resource_type": GROUP_CONFIGS, "resource_name": topic, "configs": configs}
        [altered] = ask(wire, ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, {"resources": [resource]}).responses
        assert altered.error_code == 0, altered.error_message
        # Kafka creates the topic of the groups at the first request for a coordinator.
        key = {"key_type": 0, "coordinator_keys": [topic]}
        wait_until(lambda: not ask(wire, ApiKey.FIND_COORDINATOR, 4, key).coordinators[0].error_code, "a coordinator")
        [found] = ask(wire, ApiKey.METADATA, 12, {"topics": [{"name": topic}]}).topics
        with closing(ShareConsumer(port, topic, found.topic_id, [0], client_id=topic).join(topic)) as member:
            return Throttled(wire, member, topic).outcomes(quota)


@pytest.fixture(scope="module")
def port(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    broker = BrokerProcess(tmp_path_factory.mktemp("broker"), {"quota.window.num": "3"}).start()
    yield broker.port
    broker.stop()


@pytest.mark.parametrize("quota", QUOTAS)
def test_s122_the_same_responses_of_a_share_consumer_are_throttled_by_kafka(
    port: int, apache_kafka: SharedKafka, topic: str, quota: str
) -> None:
    seen = outcomes(port, topic, quota)
    assert seen == outcomes(apache_kafka.ports["PLAINTEXT"], topic, quota)
    is_by_time = quota == "request_percentage"
    assert seen == {
        "ShareFetch": (0, 0),
        "ShareAcknowledge": (is_by_time, [0, 0]),
        "ShareGroupHeartbeat": (is_by_time, 0),
    }
