"""The rights of share groups (S120): each request without one of its rights, and with all of them."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AclBinding, AclOperation, AclPermissionType, AdminClient, NewTopic
from confluent_kafka.admin import ResourcePatternType as PatternType
from confluent_kafka.admin import ResourceType as Kind

from rotunda.broker.protocol.api_keys import ApiKey
from rotunda.broker.protocol.error_codes import ErrorCode
from tests.support.broker_process import BrokerProcess
from tests.support.broker_settings import set_configs
from tests.support.deadline import deadline_s, wait_until
from tests.support.described_requests import ask
from tests.support.share_consumer import ShareConsumer, topic_id_of
from tests.support.wire_client import WireClient

SETTINGS = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "allow.everyone.if.no.acl.found": "true",
    "num.network.threads": 1,
    "num.io.threads": 2,
}
DENIED_HOST = "127.0.0.2"
MEMBER = str(uuid.UUID(int=1))
TOPIC = "orders"
#: The denied operation of the topic or group with this name.
TOPICS = {TOPIC: None, "no-read": AclOperation.READ, "no-describe": AclOperation.DESCRIBE}
GROUPS = {
    "group": None, "no-read": AclOperation.READ, "no-describe": AclOperation.DESCRIBE, "no-delete": AclOperation.DELETE
}  # fmt: skip
OF_GROUP, OF_TOPIC = int(ErrorCode.GROUP_AUTHORIZATION_FAILED), int(ErrorCode.TOPIC_AUTHORIZATION_FAILED)


@pytest.fixture(scope="module")
def port(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    """Yield the port of a broker with a share group of each name, which reads all topics, and with its denials."""
    directory: Path = tmp_path_factory.mktemp("share-acls")
    broker = BrokerProcess(directory, SETTINGS).start()
    try:
        admin = AdminClient({"bootstrap.servers": broker.bootstrap})
        for made in admin.create_topics([NewTopic(name, 1) for name in TOPICS]).values():
            made.result(deadline_s())
        for group in (*GROUPS, "reads-hidden", "changed"):
            topics = list(TOPICS) if group == "reads-hidden" else [TOPIC]
            wait_until(lambda group=group, topics=topics: joined(broker.port, group, topics), f"a member of {group}")
        denied = [(Kind.TOPIC, *each) for each in TOPICS.items()] + [(Kind.GROUP, *each) for each in GROUPS.items()]
        rules = [binding(kind, name, operation) for kind, name, operation in denied if operation is not None]
        rules += [
            AclBinding(kind, "*", PatternType.LITERAL, "User:*", "*", AclOperation.ALL, AclPermissionType.ALLOW)
            for kind in (Kind.TOPIC, Kind.GROUP)
        ]
        for added in admin.create_acls(rules).values():
            added.result(deadline_s())
        yield broker.port
    finally:
        broker.stop()


def binding(kind: Kind, name: str, operation: AclOperation) -> AclBinding:
    """Return the ACL that denies an operation from `DENIED_HOST`."""
    return AclBinding(kind, name, PatternType.LITERAL, "User:*", DENIED_HOST, operation, AclPermissionType.DENY)


def joined(port: int, group: str, topics: list[str]) -> bool:
    said = {"group_id": group, "member_id": MEMBER, "member_epoch": 0, "subscribed_topic_names": topics}
    with WireClient(port) as client:
        response = ask(client, ApiKey.SHARE_GROUP_HEARTBEAT, 1, said)
        return (
            response.error_code == 0 and response.assignment is not None and bool(response.assignment.topic_partitions)
        )


def asked(port: int, key: ApiKey, version: int, **fields: Any) -> Any:
    """Return the response to a request from the host with denials."""
    with WireClient(port, source_host=DENIED_HOST) as client:
        return ask(client, key, version, fields)


@pytest.mark.parametrize(("group", "topic", "error"), [
    ("no-read", TOPIC, OF_GROUP), ("group", "no-describe", OF_TOPIC), ("group", "no-read", 0), ("group", TOPIC, 0)
])  # fmt: skip
def test_heartbeats_need_read_of_the_group_and_describe_of_all_topics(
    port: int, group: str, topic: str, error: int
) -> None:
    said = {"member_id": MEMBER, "member_epoch": 0, "subscribed_topic_names": [TOPIC, topic]}
    assert asked(port, ApiKey.SHARE_GROUP_HEARTBEAT, 1, group_id=group, **said).error_code == error


def test_descriptions_need_describe_of_the_group_and_of_its_topics(port: int) -> None:
    names = ["group", "no-describe", "no-read", "reads-hidden"]
    described = asked(port, ApiKey.SHARE_GROUP_DESCRIBE, 1, group_ids=names).groups
    assert {each.group_id: each.error_code for each in described} == {
        "group": 0, "no-describe": OF_GROUP, "no-read": 0, "reads-hidden": OF_TOPIC
    }  # fmt: skip


@pytest.mark.parametrize("key", [ApiKey.SHARE_FETCH, ApiKey.SHARE_ACKNOWLEDGE])
def test_fetches_and_acknowledgements_need_read_of_group_and_topics(port: int, key: ApiKey) -> None:
    ids = {name: topic_id_of(port, name) for name in TOPICS}
    is_fetch = key is ApiKey.SHARE_FETCH
    batch = [] if is_fetch else [{"first_offset": 0, "last_offset": 0, "acknowledge_types": [1]}]
    partition = {"partition_index": 0, "acknowledgement_batches": batch}
    said: dict[str, Any] = {"member_id": MEMBER, "share_session_epoch": 0 if is_fetch else 1, "topics": []}
    if is_fetch:
        said |= {"max_wait_ms": 0, "min_bytes": 0, "max_bytes": 1000, "max_records": 10, "batch_size": 10}
    said["topics"] = [{"topic_id": each, "partitions": [partition]} for each in ids.values()]
    assert asked(port, key, 2, group_id="no-read", **said).error_code == OF_GROUP
    with WireClient(port, source_host=DENIED_HOST) as client:
        if not is_fetch:
            opening = {**said, "share_session_epoch": 0, "topics": [], "max_records": 10, "batch_size": 10}
            opening |= {"max_wait_ms": 0, "min_bytes": 0, "max_bytes": 1000}
            assert ask(client, ApiKey.SHARE_FETCH, 2, {"group_id": "group", **opening}).error_code == 0
        response = ask(client, key, 2, {"group_id": "group", **said})
    errors = {each.topic_id: each.partitions[0].error_code for each in response.responses}
    assert (response.error_code, errors[ids["no-read"]]) == (0, OF_TOPIC)
    assert errors[ids[TOPIC]] != OF_TOPIC


@pytest.mark.parametrize("topics", [None, list(TOPICS)], ids=["all", "named"])
def test_offsets_are_described_with_describe_of_group_and_topics(port: int, topics: list[str] | None) -> None:
    named = None if topics is None else [{"topic_name": name, "partitions": [0]} for name in topics]
    groups = [{"group_id": name, "topics": named} for name in ("reads-hidden", "no-describe")]
    seen, hidden = asked(port, ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS, 1, groups=groups).groups
    assert (seen.error_code, hidden.error_code) == (0, OF_GROUP)
    errors = {each.topic_name: each.partitions[0].error_code for each in seen.topics}
    expected = {TOPIC: 0, "no-read": 0}
    assert errors == (expected if topics is None else {**expected, "no-describe": OF_TOPIC})


@pytest.mark.parametrize(("key", "denied"), [
    (ApiKey.ALTER_SHARE_GROUP_OFFSETS, "no-read"), (ApiKey.DELETE_SHARE_GROUP_OFFSETS, "no-delete")
])  # fmt: skip
def test_offsets_are_changed_with_rights_of_the_group_and_read_of_topics(port: int, key: ApiKey, denied: str) -> None:
    is_alter = key is ApiKey.ALTER_SHARE_GROUP_OFFSETS
    partitions = {"partitions": [{"partition_index": 0, "start_offset": 0}]} if is_alter else {}
    topics = [{"topic_name": name, **partitions} for name in (TOPIC, "no-read")]
    assert asked(port, key, 0, group_id=denied, topics=topics).error_code == OF_GROUP
    with WireClient(port) as client:
        leave = {"group_id": "changed", "member_id": MEMBER, "member_epoch": -1}
        ask(client, ApiKey.SHARE_GROUP_HEARTBEAT, 1, leave)
    response = asked(port, key, 0, group_id="changed", topics=topics)
    errors = {
        each.topic_name: each.partitions[0].error_code if is_alter else each.error_code for each in response.responses
    }
    assert (response.error_code, errors) == (0, {TOPIC: 0, "no-read": OF_TOPIC})


def test_dead_letters_need_no_rights_of_the_consumer(port: int) -> None:
    """S107: the broker writes them."""
    letters, group = "dlq.denied", "writes-letters"
    admin = AdminClient({"bootstrap.servers": f"127.0.0.1:{port}"})
    settings = {"errors.deadletterqueue.group.enable": "true"}
    admin.create_topics([NewTopic(letters, 1, config=settings)])[letters].result(deadline_s())
    [added] = admin.create_acls([binding(Kind.TOPIC, letters, AclOperation.ALL)]).values()
    added.result(deadline_s())
    configs = {"errors.deadletterqueue.topic.name": letters, "share.auto.offset.reset": "earliest"}
    set_configs(admin, Kind.GROUP, group, configs)
    producer = Producer({"bootstrap.servers": f"127.0.0.1:{port}"})
    producer.produce(TOPIC, b"x")
    assert producer.flush(deadline_s()) == 0
    member = ShareConsumer(port, group, topic_id_of(port, TOPIC), (0,), source_host=DENIED_HOST).join(TOPIC)
    got = wait_until(lambda: member.fetch().get(0), "a record")
    assert member.acknowledge([(0, got.acquired[0][0], got.acquired[0][1], [3])]) == {0: 0}
    place = TopicPartition(letters, 0)
    reader = Consumer({"bootstrap.servers": f"127.0.0.1:{port}", "group.id": group})
    wait_until(lambda: reader.get_watermark_offsets(place)[1] == 1, "a dead letter")
    reader.close()
    member.close()
