"""The controller is killed at lines all over its turn: each request is executed once, with a response without error.

Whether the change was committed or not, the replacement gets the same request.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import pytest

from rotunda.broker.metadata.configs.config_changes import CLIENT_METRICS, TOPIC, Operation
from rotunda.broker.metadata.configs.quota_entities import QuotaEntity
from rotunda.broker.metadata.features import TRANSACTION_VERSION
from rotunda.broker.metadata.store.metadata_file import metadata_path
from rotunda.broker.metadata.store.metadata_reader import MetadataReader
from tests.support.sampling import Sampling
from tests.support.stepped_broker import SteppedBroker
from tests.support.transactional import answer_of, send

HANDLERS = 1
CONTROLLER = HANDLERS

CREATE_TOPICS, DELETE_TOPICS, ALTER_CONFIGS, CREATE_PARTITIONS = 19, 20, 33, 37
INCREMENTAL_ALTER_CONFIGS, ALTER_CLIENT_QUOTAS, UPDATE_FEATURES = 44, 49, 57
TOPIC_ALREADY_EXISTS, UNKNOWN_TOPIC, INVALID_PARTITIONS = 36, 3, 37


class Admin:
    """The request of one trial, and the resulting state. ``name``: a topic name unique to the trial."""

    def __init__(self, broker: SteppedBroker, trial: int) -> None:
        self.broker = broker
        self.trial = trial
        self.name = f"topic-{trial}"

    @property
    def metadata(self) -> Any:
        return self.broker.parts(CONTROLLER).metadata

    def partitions(self, name: str) -> int:
        topic = self.metadata.topic(name)
        return 0 if topic is None else len(topic.partitions)

    def configs(self) -> dict[str, str]:
        return dict(self.metadata.topic(self.name).configs)

    def create(self, partitions: int = 1, **configs: str) -> None:
        self.broker.create(self.name, partitions, {key.replace("_", "."): value for key, value in configs.items()})


def new_topic(name: str) -> dict[str, Any]:
    configs = [{"name": "retention.ms", "value": "7"}]
    return {"name": name, "num_partitions": 2, "replication_factor": 1, "assignments": [], "configs": configs}


def create_topics(admin: Admin) -> dict[str, Any]:
    """Return a request for two topics, one of which exists."""
    admin.broker.create("there", 1)
    topics = [new_topic(admin.name), new_topic("there")]
    return {"topics": topics, "timeout_ms": 1000, "validate_only": False}


def check_created(admin: Admin, answer: Any) -> None:
    made, there = answer.topics
    assert (made.error_code, there.error_code) == (0, TOPIC_ALREADY_EXISTS)
    topic = admin.metadata.topic(admin.name)
    assert (made.name, made.topic_id, made.num_partitions) == (admin.name, topic.topic_id, 2)
    assert len(topic.partitions) == 2
    assert {each.name: each.value for each in made.configs}["retention.ms"] == "7"
    admin.broker.delete("there")


def delete_topics(admin: Admin) -> dict[str, Any]:
    admin.create(2)
    topic_id = admin.metadata.topic(admin.name).topic_id
    topics = [{"name": None, "topic_id": topic_id}, {"name": "missing", "topic_id": bytes(16)}]
    return {"topics": topics, "timeout_ms": 1000}


def check_deleted(admin: Admin, answer: Any) -> None:
    outcomes = [(each.name, each.error_code) for each in answer.responses]
    assert outcomes == [(admin.name, 0), ("missing", UNKNOWN_TOPIC)]
    assert admin.metadata.topic(admin.name) is None


def create_partitions(admin: Admin) -> dict[str, Any]:
    """Return a request for two topics with fewer partitions and one that has as many."""
    admin.create(1)
    admin.broker.create("other", 1)
    admin.broker.create("full", 3)
    topics = [{"name": name, "count": 3, "assignments": None} for name in (admin.name, "other", "full")]
    return {"topics": topics, "timeout_ms": 1000, "validate_only": False}


def check_partitions(admin: Admin, answer: Any) -> None:
    outcomes = [(each.name, each.error_code) for each in answer.results]
    assert outcomes == [(admin.name, 0), ("other", 0), ("full", INVALID_PARTITIONS)]
    assert [admin.partitions(name) for name in (admin.name, "other", "full")] == [3, 3, 3]
    for name in ("other", "full"):
        admin.broker.delete(name)


def resource(kind: int, name: str, configs: list[dict[str, Any]]) -> dict[str, Any]:
    return {"resource_type": kind, "resource_name": name, "configs": configs}


def alter_configs(admin: Admin) -> dict[str, Any]:
    admin.create(retention_ms="5")
    configs = [{"name": "cleanup.policy", "value": "compact"}]
    return {"resources": [resource(TOPIC, admin.name, configs)], "validate_only": False}


def check_replaced(admin: Admin, answer: Any) -> None:
    assert [each.error_code for each in answer.responses] == [0]
    assert admin.configs() == {"cleanup.policy": "compact"}


def append_and_subtract(admin: Admin) -> dict[str, Any]:
    """Return a request for two resources, hence two changes; of the topic one list grows and another shrinks."""
    throttled = "leader.replication.throttled.replicas"
    admin.broker.create(admin.name, 1, {"cleanup.policy": "delete", throttled: "0:1,1:1", "retention.ms": "5"})
    operations = [
        {"name": "cleanup.policy", "config_operation": Operation.APPEND, "value": "compact"},
        {"name": throttled, "config_operation": Operation.SUBTRACT, "value": "0:1"},
        {"name": "retention.ms", "config_operation": Operation.DELETE, "value": None},
    ]
    interval = {"name": "interval.ms", "config_operation": Operation.SET, "value": str(1000 + admin.trial)}
    resources = [resource(TOPIC, admin.name, operations), resource(CLIENT_METRICS, "subscription", [interval])]
    return {"resources": resources, "validate_only": False}


def check_lists(admin: Admin, answer: Any) -> None:
    assert [each.error_code for each in answer.responses] == [0, 0]
    assert admin.configs() == {"cleanup.policy": "delete,compact", "leader.replication.throttled.replicas": "1:1"}
    assert admin.metadata.client_metrics_configs["subscription"] == {"interval.ms": str(1000 + admin.trial)}


def alter_quotas(admin: Admin) -> dict[str, Any]:
    entity = [{"entity_type": "user", "entity_name": "somebody"}]
    operations = [{"key": "producer_byte_rate", "value": float(1 + admin.trial), "remove": False}]
    return {"entries": [{"entity": entity, "ops": operations}], "validate_only": False}


def check_quotas(admin: Admin, answer: Any) -> None:
    entity: QuotaEntity = (("user", "somebody"),)
    assert [each.error_code for each in answer.entries] == [0]
    assert admin.metadata.client_quotas[entity] == {"producer_byte_rate": float(1 + admin.trial)}


def update_features(admin: Admin) -> dict[str, Any]:
    """Return an update that alternates between down and up."""
    level = admin.metadata.finalized_features[TRANSACTION_VERSION]
    update = {"feature": TRANSACTION_VERSION, "max_version_level": 3 - level, "upgrade_type": 1 if level == 1 else 2}
    return {"timeout_ms": 1000, "feature_updates": [update], "validate_only": False}


def check_features(admin: Admin, answer: Any) -> None:
    del admin
    assert answer.error_code == 0


class Case(NamedTuple):
    """A request prepared by ``ask``, the check of its result, and the interval of tried lines."""

    api_key: int
    version: int
    ask: Callable[[Admin], dict[str, Any]]
    check: Callable[[Admin, Any], None]
    every: int
    changes: int = 1


CASES = {
    "CreateTopics": Case(CREATE_TOPICS, 7, create_topics, check_created, every=37),
    "DeleteTopics": Case(DELETE_TOPICS, 6, delete_topics, check_deleted, every=5),
    "CreatePartitions": Case(CREATE_PARTITIONS, 2, create_partitions, check_partitions, every=29),
    "AlterConfigs": Case(ALTER_CONFIGS, 2, alter_configs, check_replaced, every=11),
    "IncrementalAlterConfigs": Case(
        INCREMENTAL_ALTER_CONFIGS, 1, append_and_subtract, check_lists, every=11, changes=1
    ),
    "AlterClientQuotas": Case(ALTER_CLIENT_QUOTAS, 1, alter_quotas, check_quotas, every=5),
    "UpdateFeatures": Case(UPDATE_FEATURES, 1, update_features, check_features, every=5),
}


pytestmark = [pytest.mark.slow, pytest.mark.stepped({}, handlers=HANDLERS, settings={"max.partitions": "1000"})]


@pytest.mark.parametrize("name", CASES)
def test_a_change_is_made_once_with_the_same_response_as_without_a_death(
    broker: SteppedBroker, sampling: Sampling, name: str
) -> None:
    case = CASES[name]
    deaths = {True: 0, False: 0}
    for line in sampling.walk(case.every):
        admin = Admin(broker, line)
        values = case.ask(admin)
        before = admin.metadata.version
        sent = send(broker.client(), case.api_key, case.version, values)
        died = broker.turn_until_line(CONTROLLER, line)
        if died:
            deaths[stored_version(broker) > before] += 1
            broker.replace(CONTROLLER)
        broker.settle()
        assert admin.metadata.version == before + case.changes
        case.check(admin, answer_of(sent))
        if admin.partitions(admin.name):
            broker.delete(admin.name)
        broker.forget_clients()
        if not died:
            break
    assert min(deaths.values()) > 1, "a death on either side of the commit"


def test_requests_of_one_batch_are_executed_once_and_in_order(broker: SteppedBroker, sampling: Sampling) -> None:
    """One connection creates a topic and another deletes it: the creation is not repeated after that."""
    deaths = 0
    for line in sampling.walk(47):
        admin = Admin(broker, line)
        before = admin.metadata.version
        topics = {"topics": [new_topic(admin.name)], "timeout_ms": 1000, "validate_only": False}
        created = send(broker.client(), CREATE_TOPICS, 7, topics)
        deleted = send(broker.client(), DELETE_TOPICS, 3, {"topic_names": [admin.name], "timeout_ms": 1000})
        died = broker.turn_until_line(CONTROLLER, line)
        if died:
            deaths += 1
            broker.replace(CONTROLLER)
        broker.settle()
        assert answer_of(created).topics[0].error_code == answer_of(deleted).responses[0].error_code == 0
        assert admin.metadata.version == before + 2
        assert admin.metadata.topic(admin.name) is None
        broker.forget_clients()
        if not died:
            break
    assert deaths > 6


def stored_version(broker: SteppedBroker) -> int:
    """Return the number of the last committed change, as readable by any process."""
    reader = MetadataReader(metadata_path(broker.config.data_dir))
    delta = reader.read(0)
    reader.close()
    return 0 if delta is None else delta.version
