"""Requests of every API that checks ACLs, sent by a client with some rights and without others.

They are sent to two brokers with the same topics, groups and ACLs; the responses are made comparable: without values
that always differ, such as ids and texts, and in order.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from rotunda.broker.protocol import codec
from rotunda.broker.protocol.api_keys import ApiKey
from rotunda.broker.protocol.primitives import ZERO_TOPIC_ID
from rotunda.broker.protocol.schema.definitions import Structure
from tests.support.record_batches import record_batch
from tests.support.wire_client import WireClient

#: The administrator's address, and that of the tested client.
ADMIN, CLIENT = "127.0.0.1", "127.0.0.2"
#: An ACL's host that includes the client but not the administrator (V12).
CLIENT_RANGE = "127.0.0.3/31"
USER = "User:ANONYMOUS"

ANY, MATCH, LITERAL, PREFIXED = 1, 2, 3, 4
TOPIC, GROUP, CLUSTER, TRANSACTIONAL_ID = 2, 3, 4, 5
ALL, READ, WRITE, CREATE, DELETE, ALTER, DESCRIBE = 2, 3, 4, 5, 6, 7, 8
CLUSTER_ACTION, DESCRIBE_CONFIGS, ALTER_CONFIGS, IDEMPOTENT_WRITE = 9, 10, 11, 12
DENY, ALLOW = 2, 3

#: Existing resources: with all rights, with the right to describe alone, with none, and with all but denied ones.
TOPICS = ("open", "seen", "shut", "mixed")
#: Missing resources: with rights and without.
ABSENT = ("open-absent", "shut-absent")
NAMES = (*TOPICS, *ABSENT)

Acl = tuple[int, str, int, str, str, int, int]


def acl(resource_type: int, name: str, pattern: int, host: str, operation: int, permission: int = ALLOW) -> Acl:
    return resource_type, name, pattern, USER, host, operation, permission


#: The administrator may do everything; with an ACL for every resource all others may do nothing by default.
ADMINISTRATOR = [
    acl(CLUSTER, "kafka-cluster", LITERAL, ADMIN, ALL),
    *[acl(resource_type, "*", LITERAL, ADMIN, ALL) for resource_type in (TOPIC, GROUP, TRANSACTIONAL_ID)],
]
CLIENTS = [
    *[acl(each, "open", PREFIXED, CLIENT, ALL) for each in (TOPIC, GROUP, TRANSACTIONAL_ID)],
    acl(TOPIC, "seen", LITERAL, CLIENT, DESCRIBE),
    acl(GROUP, "seen-group", LITERAL, CLIENT, DESCRIBE),
    acl(TRANSACTIONAL_ID, "seen-tx", LITERAL, CLIENT, DESCRIBE),
    acl(TOPIC, "mixed", LITERAL, CLIENT_RANGE, ALL),
    acl(TOPIC, "mixed", LITERAL, CLIENT_RANGE, WRITE, DENY),
    acl(TOPIC, "mix", PREFIXED, CLIENT, DELETE, DENY),
]
#: The client's additional rights, one set after the other.
STAGES: Mapping[str, list[Acl]] = {
    "nothing of the cluster": [],
    "the cluster": [acl(CLUSTER, "kafka-cluster", LITERAL, CLIENT, ALL)],
}


class Asked(NamedTuple):
    """One request."""

    name: str
    api: ApiKey
    version: int
    fields: Mapping[str, Any]


class Client:
    """A client at an address, that speaks by the schemas."""

    def __init__(self, port: int, host: str) -> None:
        self._wire = WireClient(port, source_host=host)
        self._ids = itertools.count(1)

    def call(self, key: ApiKey, version: int, fields: Mapping[str, Any]) -> Any:
        """Return the response; AssertionError when there is none."""
        frame = codec.encode_request(int(key), version, next(self._ids), "matrix", fields)
        self._wire.send(frame)
        answer = self._wire.receive_frame()
        return codec.decode_response(int(key), version, memoryview(answer), 0, len(answer))

    def close(self) -> None:
        self._wire.close()


def create_acls(client: Client, acls: list[Acl]) -> None:
    names = ("resource_type", "resource_name", "resource_pattern_type", "principal", "host", "operation")
    creations = [dict(zip((*names, "permission_type"), each, strict=True)) for each in acls]
    answer = client.call(ApiKey.CREATE_ACLS, 3, {"creations": creations})
    assert all(not result.error_code for result in answer.results), answer


def topic_ids(client: Client) -> dict[str, bytes]:
    """Return the ids of the topics; of those that are absent, ids that no topic has."""
    answer = client.call(
        ApiKey.METADATA,
        12,
        {"topics": None, "allow_auto_topic_creation": False, "include_topic_authorized_operations": False},
    )
    found = {topic.name: topic.topic_id for topic in answer.topics}
    return {name: found.get(name, bytes([number]) * 16) for number, name in enumerate(NAMES, 1)}


def comparable(value: Any, ids: Mapping[str, bytes], but: Collection[str] = ()) -> Any:
    """Return a response without values that differ between brokers and some fields, its arrays sorted."""
    if isinstance(value, bytes) and len(value) == len(ZERO_TOPIC_ID):
        return next((name for name, each in ids.items() if each == value), "other" if any(value) else "zero")
    if isinstance(value, tuple | list):
        return sorted((comparable(each, ids, but) for each in value), key=repr)
    if isinstance(value, Structure):
        return {
            # A list that is null where there is an error has as much in it as an empty one.
            name: comparable(() if name == "aborted_transactions" else getattr(value, name), ids, but)
            for name in value.DEFAULTS
            if name not in _DIFFERENT and name not in but and not name.endswith("_ms")
        }
    return value


def differences(theirs: Any, ours: Any, place: str = "") -> Iterator[str]:
    """Yield the differences of two comparable responses."""
    if isinstance(theirs, dict) and isinstance(ours, dict) and theirs.keys() == ours.keys():
        for name in theirs:
            yield from differences(theirs[name], ours[name], f"{place}.{name}")
    elif isinstance(theirs, list) and isinstance(ours, list) and len(theirs) == len(ours):
        for number, (one, other) in enumerate(zip(theirs, ours, strict=True)):
            yield from differences(one, other, f"{place}[{number}]")
    elif theirs != ours:
        yield f"{place}: Kafka {theirs}, here {ours}"


#: Fields that always differ: addresses, texts, sizes, times; and fields that are not about rights.
_DIFFERENT = frozenset(
    {
        *("throttle_time", "error_message", "cluster_id", "host", "port", "rack", "log_dir", "config_source"),
        *("node_id", "controller_id", "broker_id", "leader_id", "brokers", "nodes", "node_endpoints"),
        *("total_bytes", "usable_bytes", "partition_size", "log_append_time", "member_id"),
        *("producer_id", "producer_epoch", "leader_epoch", "current_leader"),
        *("replica_nodes", "isr_nodes", "offline_replicas", "preferred_read_replica"),
    }
)

#: One request a line: its name, its API and version, its fields; and its stage if it belongs to one alone. "$id NAME"
#: is replaced by the id of a topic, "$plain" and "$transactional" by a batch of records.
_REQUESTS = Path(__file__).with_name("acl_requests.jsonl")

_STAND_INS = {
    "$plain": record_batch([b"value"]),
    "$transactional": record_batch([b"value"], producer_id=1, producer_epoch=0, base_sequence=0, attributes=0x10),
    "$empty": b"",
    "$zero": bytes(16),
}


def requests(stage: str, ids: Mapping[str, bytes]) -> Iterator[Asked]:
    """Yield the requests of a stage, of a broker whose topics have these ids."""
    for line in _REQUESTS.read_text(encoding="utf-8").splitlines():
        asked = json.loads(line)
        if asked.get("stage", stage) == stage:
            fields = _filled(asked["fields"], ids)
            yield Asked(f"{asked['name']} {asked['version']}", ApiKey[asked["api"]], asked["version"], fields)


def _filled(value: Any, ids: Mapping[str, bytes]) -> Any:
    """Return a value with its placeholders replaced."""
    if isinstance(value, dict):
        return {name: _filled(each, ids) for name, each in value.items()}
    if isinstance(value, list):
        return [_filled(each, ids) for each in value]
    if isinstance(value, str) and value.startswith("$id "):
        return ids[value.removeprefix("$id ")]
    return _STAND_INS.get(value, value) if isinstance(value, str) else value
