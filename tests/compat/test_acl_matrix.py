"""What each API answers who may, who may not, and who may not even know: as Apache Kafka 4.3 with the same ACLs.

Both brokers have the same topics and ACLs; the client comes from an address of its own, so that both know it apart from
the administrator. The answers are compared field by field.
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

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

#: By request, the field in which this broker differs whatever the rights are.
DIFFERENT = {
    # It stands at the partitions too: a client looks there alone (`offset_fetch`).
    "OffsetFetch of shut-group 7": "topics",
    # A topic that is only checked has no id yet.
    "CreateTopics 7": "topic_id",
}

AUTHORIZER = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
SETTINGS = {
    "authorizer.class.name": AUTHORIZER,
    # Kafka's own broker and controller are nobody in particular until the administrator has his rights.
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
    matrix.create_acls(admin, matrix.ADMINISTRATOR)
    matrix.create_acls(admin, matrix.CLIENTS)
    ids = matrix.topic_ids(admin)
    admin.close()
    return ids


def _until(error: Callable[[], int]) -> None:
    """Ask until there is no error: what is asked for is made by that."""
    wait_until(lambda: not error(), "what is made when it is first asked for")


def answers(port: int, ids: dict[str, bytes]) -> Iterator[tuple[str, Any]]:
    """Yield what a broker answers at each stage."""
    for stage, more in matrix.STAGES.items():
        admin = Client(port, ADMIN)
        if more:
            matrix.create_acls(admin, more)
        for asked in matrix.requests(stage, ids):
            client = Client(port, CLIENT)
            try:
                answer = client.call(asked.api, asked.version, asked.fields)
                yield f"{stage}: {asked.name}", matrix.comparable(answer, ids, DIFFERENT.get(asked.name, ""))
            except AssertionError as failure:
                yield f"{stage}: {asked.name}", f"no answer: {failure}"
            finally:
                client.close()
        admin.close()


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return what Kafka and this broker answer."""
    directory: Path = tmp_path_factory.mktemp("matrix")
    broker = BrokerProcess(directory, {**SETTINGS, "num.io.threads": 2, "num.network.threads": 2}).start()
    try:
        ours = dict(answers(broker.port, prepared(broker.port)))
    finally:
        broker.stop()
    kafka.prepare()
    with kafka.kafka(directory / "kafka", SETTINGS) as theirs:
        return dict(answers(theirs.port, prepared(theirs.port))), ours


def test_answers_are_those_of_kafka(both: tuple[dict[str, Any], dict[str, Any]]) -> None:
    theirs, ours = both
    assert theirs.keys() == ours.keys()
    different = {name: "; ".join(matrix.differences(theirs[name], ours[name])) for name in theirs}
    faults = [f"{name}: {difference}" for name, difference in different.items() if difference]
    assert not faults, f"{len(faults)} of {len(theirs)} differ:\n" + "\n".join(faults)
