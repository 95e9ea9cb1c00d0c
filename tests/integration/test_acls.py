"""ACLs with real clients: created, described, deleted, in force soon after the response and after any death."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaException
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    NewTopic,
    ResourcePatternType,
    ResourceType,
)
from kafka import admin as kafka_python

from rotunda.broker.protocol.api_keys import ApiKey
from tests.support.broker_process import BrokerProcess
from tests.support.deadline import deadline_s, wait_until
from tests.support.described_requests import ask
from tests.support.record_batches import record_batch
from tests.support.wire_client import WireClient
from tests.support.wire_messages import fetch, produce

AUTHORIZER = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
SETTINGS = {
    "authorizer.class.name": AUTHORIZER,
    "allow.everyone.if.no.acl.found": "true",
    "num.network.threads": 1,
    "num.io.threads": 2,
    "group.initial.rebalance.delay.ms": 0,
    "request.log.roll.ms": 500,
}
OTHER = "127.0.0.2"
TOPIC_AUTHORIZATION_FAILED = 29
EVERYTHING = AclBindingFilter(
    ResourceType.ANY, None, ResourcePatternType.ANY, None, None, AclOperation.ANY, AclPermissionType.ANY
)


@contextmanager
def guarded_broker(directory: Path) -> Iterator[BrokerProcess]:
    """Run a broker with an authorizer and two topics; its data outlives it."""
    broker = BrokerProcess(directory, SETTINGS, ephemeral=False).start()
    try:
        # The records of `record_batch` are years old.
        topics = [NewTopic(name, count, config={"retention.ms": "-1"}) for name, count in (("orders", 2), ("other", 1))]
        admin = admin_of(broker)
        for made in admin.create_topics(topics).values():
            made.result(deadline_s())
        yield broker
    finally:
        if broker.is_running():
            broker.stop()


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with guarded_broker(tmp_path_factory.mktemp("acls")) as broker:
        yield broker


@pytest.fixture
def guarded(shared: BrokerProcess) -> Iterator[BrokerProcess]:
    """Yield the module's broker, which has no ACLs before and after each test."""
    yield shared
    remove_all(shared)


@pytest.fixture
def fresh(tmp_path: Path) -> Iterator[BrokerProcess]:
    """Yield a broker without the denials and requests of other tests."""
    with guarded_broker(tmp_path) as broker:
        yield broker


def admin_of(broker: BrokerProcess) -> AdminClient:
    return AdminClient({"bootstrap.servers": broker.bootstrap})


def binding(
    name: str,
    operation: AclOperation,
    permission: AclPermissionType = AclPermissionType.DENY,
    *,
    host: str = OTHER,
    kind: ResourceType = ResourceType.TOPIC,
    pattern: ResourcePatternType = ResourcePatternType.LITERAL,
) -> AclBinding:
    return AclBinding(kind, name, pattern, "User:ANONYMOUS", host, operation, permission)


def add(broker: BrokerProcess, *bindings: AclBinding) -> None:
    admin = admin_of(broker)
    for made in admin.create_acls(list(bindings)).values():
        made.result(deadline_s())


def remove_all(broker: BrokerProcess) -> list[AclBinding]:
    admin = admin_of(broker)
    [deleted] = admin.delete_acls([EVERYTHING]).values()
    found: list[AclBinding] = deleted.result(deadline_s())
    return found


def described(broker: BrokerProcess) -> list[AclBinding]:
    admin = admin_of(broker)
    found: list[AclBinding] = admin.describe_acls(EVERYTHING).result(deadline_s())
    return found


def everybody(broker: BrokerProcess) -> None:
    """Allow everything for every user except where it is denied."""
    kinds = (ResourceType.TOPIC, ResourceType.GROUP)
    add(broker, *[binding("*", AclOperation.ALL, AclPermissionType.ALLOW, host="*", kind=kind) for kind in kinds])


def test_confluent_makes_describes_and_deletes_acls(guarded: BrokerProcess) -> None:
    made = [
        binding("orders", AclOperation.WRITE, host="*"),
        binding("ord", AclOperation.READ, AclPermissionType.ALLOW, pattern=ResourcePatternType.PREFIXED),
        binding("kafka-cluster", AclOperation.ALL, AclPermissionType.ALLOW, kind=ResourceType.BROKER, host="127.0.0.1"),
    ]
    add(guarded, *made)
    add(guarded, made[0])
    assert sorted(described(guarded), key=str) == sorted(made, key=str)
    matching = AclBindingFilter(
        ResourceType.TOPIC, "orders", ResourcePatternType.MATCH, None, None, AclOperation.ANY, AclPermissionType.ANY
    )
    admin = admin_of(guarded)
    [deleted] = admin.delete_acls([matching]).values()
    assert sorted(deleted.result(deadline_s()), key=str) == sorted(made[:2], key=str)
    assert described(guarded) == made[2:]
    [refused] = admin.create_acls([binding("x", AclOperation.ALL, kind=ResourceType.BROKER)]).values()
    with pytest.raises(KafkaException, match="only valid name for the CLUSTER"):
        refused.result(deadline_s())


def test_kafka_python_makes_describes_and_deletes_acls(guarded: BrokerProcess) -> None:
    admin = kafka_python.KafkaAdminClient(bootstrap_servers=guarded.bootstrap)
    try:
        acl = kafka_python.ACL(
            principal="User:alice",
            host="*",
            operation=kafka_python.ACLOperation.READ,
            permission_type=kafka_python.ACLPermissionType.ALLOW,
            resource_pattern=kafka_python.ResourcePattern(
                kafka_python.ResourceType.TOPIC, "orders", kafka_python.ACLResourcePatternType.LITERAL
            ),
        )
        made = admin.create_acls([acl])
        assert made["succeeded"] == [acl]
        wanted = kafka_python.ACLFilter(
            principal="User:alice",
            host=None,
            operation=kafka_python.ACLOperation.ANY,
            permission_type=kafka_python.ACLPermissionType.ANY,
            resource_pattern=kafka_python.ResourcePatternFilter(
                kafka_python.ResourceType.TOPIC, "orders", kafka_python.ACLResourcePatternType.MATCH
            ),
        )
        found, error = admin.describe_acls(wanted)
        assert (found, error.errno) == ([acl], 0)
        [(_, deleted, failure)] = admin.delete_acls([wanted])
        assert deleted == [acl]
        assert failure.errno == 0
        assert admin.describe_acls(wanted)[0] == []
    finally:
        admin.close()


def kill(broker: BrokerProcess, role: str) -> None:
    if role == "everything":
        broker.kill_everything()
        broker.start()
    else:
        broker.kill(role)


@pytest.mark.parametrize("role", ["handler", "everything"])
def test_acls_outlive_the_death_of_a_process(guarded: BrokerProcess, role: str) -> None:
    everybody(guarded)
    add(guarded, binding("other", AclOperation.WRITE))
    kill(guarded, role)
    with WireClient(guarded.port, source_host=OTHER) as there, WireClient(guarded.port) as here:
        assert produce(there, "other", 0, record_batch([b"x"])).error_code == TOPIC_AUTHORIZATION_FAILED
        assert produce(here, "other", 0, record_batch([b"x"])).error_code == 0
    assert len(described(guarded)) == 3
    remove_all(guarded)
    kill(guarded, role)
    with WireClient(guarded.port, source_host=OTHER) as there:
        assert produce(there, "other", 0, record_batch([b"x"])).error_code == 0


def test_a_pattern_matches_the_topics_that_its_consumer_may_describe(guarded: BrokerProcess) -> None:
    """Topics that are allowed later are added then."""
    everybody(guarded)
    hidden = binding("other", AclOperation.ALL, host="127.0.0.1")
    add(guarded, hidden)
    settings = {"bootstrap.servers": guarded.bootstrap, "group.id": "by-pattern", "group.protocol": "consumer"}
    consumer = Consumer({**settings, "topic.metadata.refresh.interval.ms": 500})
    consumer.subscribe(["^o.*"])

    def assigned() -> set[str]:
        message = consumer.poll(0.1)
        assert message is None or message.error() is None, message.error()
        return {place.topic for place in consumer.assignment()}

    wait_until(lambda: assigned() == {"orders"}, "an assignment")
    admin = admin_of(guarded)
    wanted = AclBindingFilter(
        ResourceType.TOPIC, "other", ResourcePatternType.LITERAL, None, None, AclOperation.ANY, AclPermissionType.ANY
    )
    [deleted] = admin.delete_acls([wanted]).values()
    assert deleted.result(deadline_s()) == [hidden]
    wait_until(lambda: assigned() == {"orders", "other"}, "what it may see now")
    consumer.close()


def test_denials_are_rows_of_the_request_log(fresh: BrokerProcess) -> None:
    """User, operation and resource; resources filtered from a response are not logged, nor are allowed operations."""
    # Of several groups some are coordinated by another handler than the one that receives the request.
    groups = [f"theirs-{number}" for number in range(8)]
    add(
        fresh,
        binding("other", AclOperation.WRITE),
        binding("other", AclOperation.READ),
        binding("hidden", AclOperation.DESCRIBE),
        binding("theirs", AclOperation.ALL, kind=ResourceType.TRANSACTIONAL_ID),
        *[binding(name, AclOperation.DESCRIBE, kind=ResourceType.GROUP) for name in groups],
        binding("kafka-cluster", AclOperation.DESCRIBE_CONFIGS, kind=ResourceType.BROKER),
    )
    with WireClient(fresh.port, source_host=OTHER) as there:
        for _ in range(2):
            produce(there, "other", 0, record_batch([b"x"]))
            fetch(there, "other", 0, 0)
        produce(there, "orders", 0, record_batch([b"x"]))
        for name in groups:
            ask(there, ApiKey.DESCRIBE_GROUPS, 5, {"groups": [name]})
        ask(there, ApiKey.FIND_COORDINATOR, 4, {"key_type": 1, "coordinator_keys": ["theirs"]})
        for _ in range(2):
            ask(there, ApiKey.METADATA, 9, {"topics": [{"name": "hidden"}]})
        ask(there, ApiKey.METADATA, 9, {"topics": None})
        ask(there, ApiKey.LIST_GROUPS, 4, {})
        ask(there, ApiKey.DESCRIBE_CLIENT_QUOTAS, 1, {"components": [], "strict": False})
    topic, group, transaction = "Topic", "Group", "TransactionalId"
    expected = {
        ("PRODUCE", "TOPIC_AUTHORIZATION_FAILED", "WRITE", topic, "other"): 2,
        ("FETCH", "TOPIC_AUTHORIZATION_FAILED", "READ", topic, "other"): 2,
        ("PRODUCE", "NONE", None, None, None): 1,
        **{("DESCRIBE_GROUPS", "GROUP_AUTHORIZATION_FAILED", "DESCRIBE", group, name): 1 for name in groups},
        ("FIND_COORDINATOR", "TRANSACTIONAL_ID_AUTHORIZATION_FAILED", "DESCRIBE", transaction, "theirs"): 1,
        ("METADATA", "TOPIC_AUTHORIZATION_FAILED", "DESCRIBE", topic, "hidden"): 2,
        ("METADATA", "NONE", None, None, None): 1,
        ("LIST_GROUPS", "NONE", None, None, None): 1,
        ("DESCRIBE_CLIENT_QUOTAS", "CLUSTER_AUTHORIZATION_FAILED", "DESCRIBE_CONFIGS", "Cluster", "kafka-cluster"): 1,
    }
    names = ("requestApiKeyName", "errorName", "deniedOperation", "deniedResourceType", "deniedResource")

    def rows() -> dict[tuple[str | None, ...], int]:
        found = json.loads(fresh.command("requests", "--json").stdout or "[]")
        theirs = [row for row in found if row["address"] == OTHER]
        assert {row["principal"] for row in theirs} <= {"User:ANONYMOUS"}
        return Counter(tuple(row.get(name) for name in names) for row in theirs)

    wait_until(lambda: sum(rows().values()) >= sum(expected.values()), "a row of each request")
    assert rows() == expected


def test_a_transaction_of_others_is_not_begun_by_naming_no_partitions(guarded: BrokerProcess) -> None:
    """Its timeout would raise the epoch, and fence the producer that owns it."""
    everybody(guarded)
    kind = ResourceType.TRANSACTIONAL_ID
    add(guarded, binding("*", AclOperation.ALL, AclPermissionType.ALLOW, host="127.0.0.1", kind=kind))
    initialise = {
        "transactional_id": "theirs",
        "transaction_timeout_ms": 60_000,
        "producer_id": -1,
        "producer_epoch": -1,
    }
    with WireClient(guarded.port) as owner, WireClient(guarded.port, source_host=OTHER) as other:
        made = wait_until(lambda: initialised(owner, initialise), "the producer's id")
        nothing = {
            "v3_and_below_transactional_id": "theirs",
            "v3_and_below_producer_id": made.producer_id,
            "v3_and_below_producer_epoch": made.producer_epoch,
            "v3_and_below_topics": [],
        }
        assert ask(other, ApiKey.ADD_PARTITIONS_TO_TXN, 3, nothing).results_by_topic_v3_and_below == ()
        assert ask(owner, ApiKey.ADD_PARTITIONS_TO_TXN, 3, nothing).results_by_topic_v3_and_below == ()
        [state] = ask(owner, ApiKey.DESCRIBE_TRANSACTIONS, 0, {"transactional_ids": ["theirs"]}).transaction_states
        assert (state.error_code, state.transaction_state) == (0, "Empty")


def initialised(client: WireClient, fields: dict[str, Any]) -> Any:
    """Return the response to InitProducerId, None while the coordinator is not ready."""
    response = ask(client, ApiKey.INIT_PRODUCER_ID, 4, fields)
    return response if response.error_code == 0 else None
