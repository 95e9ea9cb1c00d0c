"""ACLs of authenticated users: each has its own permissions, on any connection (H06)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaException, Producer
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    NewTopic,
    ResourcePatternType,
    ResourceType,
)

from tests.support.broker_process import BrokerProcess
from tests.support.deadline import deadline_s, wait_until

PLAIN_LINE = "org.apache.kafka.common.security.plain.PlainLoginModule required"
USERS = " ".join(f'user_{name}="{name}-secret"' for name in ("admin", "writer", "reader"))
SETTINGS = {
    "listeners": "SASL_PLAINTEXT://127.0.0.1:0",
    "sasl.enabled.mechanisms": "PLAIN",
    "listener.name.sasl_plaintext.plain.sasl.jaas.config": f"{PLAIN_LINE} {USERS};",
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:admin",
    "group.initial.rebalance.delay.ms": 0,
}


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """Yield a broker with a topic that one user may write to, and another read."""
    directory: Path = tmp_path_factory.mktemp("users")
    broker = BrokerProcess(directory, SETTINGS).start()
    try:
        admin = AdminClient(settings(broker, "admin"))
        for made in admin.create_topics([NewTopic("orders", 1), NewTopic("other", 1)]).values():
            made.result(deadline_s())
        acls = [
            allowed("writer", ResourceType.TOPIC, "ord", AclOperation.WRITE, ResourcePatternType.PREFIXED),
            allowed("reader", ResourceType.TOPIC, "orders", AclOperation.READ),
            allowed("reader", ResourceType.GROUP, "readers", AclOperation.READ),
        ]
        for created in admin.create_acls(acls).values():
            created.result(deadline_s())
        yield broker
    finally:
        broker.stop()


def allowed(
    user: str,
    kind: ResourceType,
    name: str,
    operation: AclOperation,
    pattern: ResourcePatternType = ResourcePatternType.LITERAL,
) -> AclBinding:
    return AclBinding(kind, name, pattern, f"User:{user}", "*", operation, AclPermissionType.ALLOW)


def settings(broker: BrokerProcess, user: str) -> dict[str, Any]:
    return {
        "bootstrap.servers": broker.bootstrap,
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "PLAIN",
        "sasl.username": user,
        "sasl.password": f"{user}-secret",
    }


def outcome(broker: BrokerProcess, user: str, topic: str, **more: Any) -> str | None:
    """Return the error with which a user's record is rejected."""
    names: list[str | None] = []
    producer = Producer({**settings(broker, user), **more})
    try:
        producer.produce(topic, b"x", on_delivery=lambda error, _: names.append(error and error.name()))
        assert producer.flush(deadline_s()) == 0
    except KafkaException as refused:
        return str(refused.args[0].name())
    return names[0]


def test_each_user_writes_to_its_allowed_topics(guarded: BrokerProcess) -> None:
    """Idempotent producers too, which need no permission of their own for that (KIP-679)."""
    for more in ({}, {"enable.idempotence": True}):
        assert outcome(guarded, "writer", "orders", **more) is None
        assert outcome(guarded, "admin", "other", **more) is None
    assert outcome(guarded, "writer", "other") == "TOPIC_AUTHORIZATION_FAILED"
    assert outcome(guarded, "reader", "orders") == "TOPIC_AUTHORIZATION_FAILED"
    transactional = Producer({**settings(guarded, "writer"), "transactional.id": "t"})
    with pytest.raises(KafkaException) as refused:
        transactional.init_transactions(deadline_s())
    assert refused.value.args[0].name() == "TRANSACTIONAL_ID_AUTHORIZATION_FAILED"


def test_each_user_reads_its_allowed_topics_in_its_groups(guarded: BrokerProcess) -> None:
    assert outcome(guarded, "writer", "orders") is None
    consumer = Consumer({**settings(guarded, "reader"), "group.id": "readers", "auto.offset.reset": "earliest"})
    consumer.subscribe(["orders"])
    message = wait_until(lambda: consumer.poll(1), "a record")
    assert (message.error(), message.value()) == (None, b"x")
    consumer.commit(asynchronous=False)
    consumer.close()
    for user, group, error in (
        ("reader", "others", "GROUP_AUTHORIZATION_FAILED"),
        ("writer", "readers", "GROUP_AUTHORIZATION_FAILED"),
    ):
        stranger = Consumer({**settings(guarded, user), "group.id": group})
        stranger.subscribe(["orders"])
        assert wait_until(lambda: stranger.poll(1), "an error").error().name() == error  # noqa: B023
        stranger.close()


def test_each_user_sees_its_allowed_topics_and_groups(guarded: BrokerProcess) -> None:
    seen = {}
    for user in ("admin", "writer", "reader"):
        client = AdminClient(settings(guarded, user))
        seen[user] = {name for name in client.list_topics(timeout=deadline_s()).topics if not name.startswith("__")}
    assert seen == {"admin": {"orders", "other"}, "writer": {"orders"}, "reader": {"orders"}}
    stranger = AdminClient(settings(guarded, "writer"))
    [made] = stranger.create_topics([NewTopic("mine", 1)]).values()
    with pytest.raises(KafkaException) as refused:
        made.result(deadline_s())
    assert refused.value.args[0].name() == "TOPIC_AUTHORIZATION_FAILED"
    [acl] = stranger.create_acls([allowed("writer", ResourceType.TOPIC, "*", AclOperation.ALL)]).values()
    with pytest.raises(KafkaException) as refused:
        acl.result(deadline_s())
    assert refused.value.args[0].name() == "CLUSTER_AUTHORIZATION_FAILED"
