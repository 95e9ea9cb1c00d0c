"""The responses of each API with rights, without, and without the right to describe, compared with Apache Kafka 4.4.

Both brokers have the same topics and ACLs; the client has an address of its own, so that both can distinguish it from
the administrator. The responses are compared field by field.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from ops.benchmarks import kafka
from tests.compat import acl_matrix as matrix
from tests.compat.acl_matrix import ADMIN, CLIENT, Client
from tests.support.broker_process import BrokerProcess
from tests.support.deadline import wait_until

pytestmark = [pytest.mark.slow, pytest.mark.needs("kafka"), pytest.mark.timeout(300)]

#: By request, the fields in which this broker differs for all rights.
DIFFERENT = {
    # It is in the partitions too: a client reads it only there (`offset_fetch`).
    "OffsetFetch of shut-group 7": {"topics"},
    # A topic that is only checked has no id yet.
    "CreateTopics 7": {"topic_id"},
}

AUTHORIZER = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
SETTINGS = {
    "authorizer.class.name": AUTHORIZER,
    # Kafka's own broker and controller have no user until the administrator has his rights.
    "allow.everyone.if.no.acl.found": "true",
    "offsets.topic.num.partitions": "2",
    "transaction.state.log.num.partitions": "2",
}


def prepared(port: int) -> dict[str, bytes]:
    """Make topics, internal ones too, and ACLs; return the ids of the topics."""
    admin = Client(port, ADMIN)
    topics = [
        {"name": name, "num_partitions": 1, "replication_factor": 1, "assignments": [], "configs": []}
        for name in matrix.TOPICS
    ]
    answer = admin.call(matrix.ApiKey.CREATE_TOPICS, 7, {"topics": topics, "timeout_ms": 30_000})
    assert all(not topic.error_code for topic in answer.topics), answer
    for kind in (0, 1):
        keys = {"key_type": kind, "coordinator_keys": ["open"]}
        _until(lambda keys=keys: admin.call(matrix.ApiKey.FIND_COORDINATOR, 4, keys).coordinators[0].error_code)  # type: ignore[misc]
    nobody = {"transactional_id": None, "producer_id": -1, "producer_epoch": -1, "transaction_timeout_ms": 30_000}
    _until(lambda: admin.call(matrix.ApiKey.INIT_PRODUCER_ID, 4, nobody).error_code)
    _commit_and_join(admin)
    _begin_transactions(admin)
    matrix.create_acls(admin, matrix.ADMINISTRATOR)
    matrix.create_acls(admin, matrix.CLIENTS)
    ids = matrix.topic_ids(admin)
    admin.close()
    return ids


def _commit_and_join(admin: Client) -> None:
    """Commit offsets for groups, and add members with subscriptions to others."""
    commit = {"partition_index": 0, "committed_offset": 7, "committed_leader_epoch": -1, "committed_metadata": ""}
    topics = [{"name": name, "partitions": [commit]} for name in matrix.TOPICS]
    for group in ("open-group", "seen-group", "shut-group"):
        whose = {"group_id": group, "generation_id_or_member_epoch": -1, "member_id": "", "group_instance_id": None}
        _until(
            lambda whose=whose: (  # type: ignore[misc]
                admin.call(matrix.ApiKey.OFFSET_COMMIT, 9, {**whose, "topics": topics})
                .topics[0]
                .partitions[0]
                .error_code
            )
        )
    for name in ("shut", "open"):
        member = {
            "group_id": f"open-consumers-of-{name}", "member_id": "member", "instance_id": None, "rack_id": None,
            "rebalance_timeout_ms": 600_000, "subscribed_topic_regex": None, "server_assignor": "uniform",
        }  # fmt: skip
        first = {**member, "member_epoch": 0, "subscribed_topic_names": [name], "topic_partitions": []}
        answers = [admin.call(matrix.ApiKey.CONSUMER_GROUP_HEARTBEAT, 1, first)]
        owned = [{"topic_id": matrix.topic_ids(admin)[name], "partitions": [0]}]

        def settled(member=member, name=name, owned=owned, answers=answers) -> bool:  # type: ignore[no-untyped-def]
            more = {**member, "member_epoch": answers[-1].member_epoch, "topic_partitions": owned}
            answers.append(
                admin.call(matrix.ApiKey.CONSUMER_GROUP_HEARTBEAT, 1, {**more, "subscribed_topic_names": [name]})
            )
            asked = {"group_ids": [member["group_id"]], "include_authorized_operations": False}
            [group] = admin.call(matrix.ApiKey.CONSUMER_GROUP_DESCRIBE, 1, asked).groups
            return group.group_state == "Stable"

        wait_until(settled, "a stable group")


def _begin_transactions(admin: Client) -> None:
    """Open a transaction of each id in topics of each kind."""
    for name in ("open-tx", "seen-tx", "shut-tx"):
        asked = {"transactional_id": name, "producer_id": -1, "producer_epoch": -1, "transaction_timeout_ms": 600_000}
        answers = []

        def is_there(asked=asked, answers=answers) -> bool:  # type: ignore[no-untyped-def]
            answers.append(admin.call(matrix.ApiKey.INIT_PRODUCER_ID, 4, asked))
            return not answers[-1].error_code

        wait_until(is_there, "a producer id")
        added = {
            "v3_and_below_transactional_id": name,
            "v3_and_below_producer_id": answers[-1].producer_id,
            "v3_and_below_producer_epoch": answers[-1].producer_epoch,
            "v3_and_below_topics": [{"name": topic, "partitions": [0]} for topic in matrix.TOPICS],
        }
        answer = admin.call(matrix.ApiKey.ADD_PARTITIONS_TO_TXN, 3, added)
        codes = [part.partition_error_code for topic in answer.results_by_topic_v3_and_below
                 for part in topic.results_by_partition]  # fmt: skip
        assert not any(codes), answer


def _until(error: Callable[[], int]) -> None:
    """Repeat until there is no error: the first request creates the resource."""
    wait_until(lambda: not error(), "what is made when it is first asked for")


def answers(port: int, ids: dict[str, bytes]) -> Iterator[tuple[str, Any]]:
    """Yield a broker's responses at each stage."""
    for stage, more in matrix.STAGES.items():
        admin = Client(port, ADMIN)
        if more:
            matrix.create_acls(admin, more)
        for asked in matrix.requests(stage, ids):
            client = Client(port, CLIENT)
            try:
                answer = client.call(asked.api, asked.version, asked.fields)
                yield f"{stage}: {asked.name}", matrix.comparable(answer, ids, DIFFERENT.get(asked.name, ()))
            except AssertionError as failure:
                yield f"{stage}: {asked.name}", f"no answer: {failure}"
            finally:
                client.close()
        admin.close()


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the responses of Kafka and this broker."""
    directory: Path = tmp_path_factory.mktemp("matrix")
    broker = BrokerProcess(directory, {**SETTINGS, "num.io.threads": 2, "num.network.threads": 2}).start()
    try:
        ours = dict(answers(broker.port, prepared(broker.port)))
    finally:
        broker.stop()
    with kafka.kafka(directory / "kafka", SETTINGS) as theirs:
        return dict(answers(theirs.port, prepared(theirs.port))), ours


def test_responses_are_those_of_kafka(both: tuple[dict[str, Any], dict[str, Any]]) -> None:
    theirs, ours = both
    assert theirs.keys() == ours.keys()
    different = {name: "; ".join(matrix.differences(theirs[name], ours[name])) for name in theirs}
    faults = [f"{name}: {difference}" for name, difference in different.items() if difference]
    assert not faults, f"{len(faults)} of {len(theirs)} differ:\n" + "\n".join(faults)
