"""Poison: single requests that once cost a broker much more than they cost their sender, as found.

Each is a function that sends the request that it is named for. The broker may reject it, send a response or close its
connection; it must not delay any other client.
"""

from __future__ import annotations

import contextlib
import functools
import random
import struct
import time
from collections.abc import Callable
from typing import Any

from ops.reliability import batches
from ops.reliability.attacks import Battlefield
from ops.reliability.wire import CLIENT_ID, Wire
from rotunda.broker.protocol import codec
from rotunda.broker.protocol.api_keys import ApiKey

TOPIC, COMPACTED = "poison", "poison-compacted"
PATIENCE_SECONDS = 5.0
BOMB_PIECE_BYTES, BOMB_PIECES = 16 << 20, 64
MANY = 2000
BROKER_RESOURCE, TOPIC_RESOURCE, GROUP_RESOURCE = 4, 2, 32
LARGEST_COUNT = 2**31 - 1
SUBSCRIPTION_BYTES = 900_000
LONG_TOPIC, LONG_TOPICS, LONGEST_TOPIC, LONGEST_ID = "poison-long", 300, 249, 32_767
#: How often a pattern repeats a part of itself: accepted by a broker, and too often.
REPEATS = (100, 800, 990)
TRANSACTION = {"transaction_timeout_ms": 1000, "producer_id": -1, "producer_epoch": -1}


def topics(wire: Wire, _chance: random.Random) -> None:
    wanted = [
        {"name": TOPIC, "num_partitions": 2, "replication_factor": 1},
        {
            "name": COMPACTED,
            "num_partitions": 2,
            "replication_factor": 1,
            "configs": [{"name": "cleanup.policy", "value": "compact"}],
        },
    ]
    wire.ask(ApiKey.CREATE_TOPICS, 7, {"topics": wanted, "timeout_ms": 10_000})


def zip_bomb(wire: Wire, chance: random.Random) -> None:
    """Send a batch of some kilobytes that unpacks to a gigabyte, two hours ahead of time or not."""
    ahead_ms = chance.choice((0, batches.NOW_SHIFT_MS))
    codec = chance.choice((batches.GZIP, batches.ZSTD))
    produce(wire, TOPIC, batches.batch(bomb(codec), 1, now_ms() + ahead_ms, attributes=codec))


def lying_count(wire: Wire, chance: random.Random) -> None:
    """Send a batch of one record that claims to have two thousand million."""
    payload = batches.records([b"one"])
    lie = chance.choice((LARGEST_COUNT, 2**24))
    produce(wire, chance.choice((TOPIC, COMPACTED)), batches.batch(payload, lie, now_ms(), last_offset_delta=lie - 1))


def lying_time(wire: Wire, _chance: random.Random) -> None:
    """Send batches whose header's max timestamp is not the one of any record, and look up the offset for that time."""
    late_ms = now_ms() + 3_000_000
    payload = batches.records([b"." * 1000] * 100)
    for _ in range(10):
        produce(wire, TOPIC, batches.batch(payload, 100, now_ms(), max_timestamp_ms=late_ms))
    partition = {"partition_index": 0, "timestamp": late_ms - 1}
    ask(wire, ApiKey.LIST_OFFSETS, 7, {"replica_id": -1, "topics": [{"name": TOPIC, "partitions": [partition]}]})


def described_configs(wire: Wire, _chance: random.Random) -> None:
    """Describe the configuration of the one broker two thousand times, in one request."""
    resources = [{"resource_type": BROKER_RESOURCE, "resource_name": "0"}] * MANY
    ask(wire, ApiKey.DESCRIBE_CONFIGS, 4, {"resources": resources, "include_synonyms": True})


def unknown_names(wire: Wire, chance: random.Random) -> None:
    """Request the metadata of ten thousand topics that do not exist."""
    names = [{"name": f"unknown-{chance.randrange(10**9)}"} for _ in range(10_000)]
    ask(wire, ApiKey.METADATA, 9, {"topics": names, "allow_auto_topic_creation": False})


def many_partitions(wire: Wire, chance: random.Random) -> None:
    """Create a topic of two thousand partitions and delete it again."""
    name = f"poison-wide-{chance.randrange(10**6)}"
    ask(wire, ApiKey.CREATE_TOPICS, 7, {"topics": [{"name": name, "num_partitions": MANY, "replication_factor": 1}]})
    ask(wire, ApiKey.DELETE_TOPICS, 6, {"topics": [{"name": name}], "timeout_ms": 10_000})


def large_subscription(wire: Wire, chance: random.Random) -> None:
    """Join groups with 900 KB of subscription."""
    protocols = [{"name": "range", "metadata": bytes(SUBSCRIPTION_BYTES)}]
    for _ in range(5):
        fields = {
            "group_id": f"poison-{chance.randrange(100)}",
            "session_timeout_ms": 6000,
            "rebalance_timeout_ms": 1000,
            "protocol_type": "consumer",
            "protocols": protocols,
        }
        ask(wire, ApiKey.JOIN_GROUP, 3, fields)


def parked_fetches(wire: Wire, chance: random.Random) -> None:
    """Wait for records of a hundred partitions in each of fifty requests, and disconnect."""
    partitions = [{"partition": n % 2, "fetch_offset": LARGEST_COUNT, "partition_max_bytes": 1000} for n in range(100)]
    fields = {
        "replica_id": -1,
        "max_wait_ms": 20_000,
        "min_bytes": 1,
        "max_bytes": 10_000,
        "topics": [{"topic": TOPIC, "partitions": partitions}],
    }
    wire.send(codec.encode_request(ApiKey.FETCH, 11, 1, CLIENT_ID, fields) * 50)
    time.sleep(chance.random())


def lying_size(wire: Wire, chance: random.Random) -> None:
    """Claim a frame of a hundred megabytes or more, send some of it, and disconnect."""
    size = chance.choice((LARGEST_COUNT, 100 << 20, (100 << 20) + 1, -1))
    wire.send(struct.pack(">ihhi", size, chance.choice((0, 1, 18)), 3, 1) + bytes(chance.randrange(100_000)))
    time.sleep(chance.random())


def altered_groups(wire: Wire, chance: random.Random) -> None:
    """Change a setting of two thousand groups in one request."""
    configs = [{"name": "consumer.session.timeout.ms", "config_operation": 0, "value": "46000"}]
    first = chance.randrange(5)
    resources = [
        {"resource_type": GROUP_RESOURCE, "resource_name": f"poison-{first}-{number}", "configs": configs}
        for number in range(MANY)
    ]
    ask(wire, ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, {"resources": resources, "validate_only": False})


def new_producers(wire: Wire, chance: random.Random) -> None:
    """Request a thousand producer ids, most of them for transactions."""
    for number in range(1000):
        fields = {"transactional_id": f"poison-{chance.randrange(200)}" if number % 4 else None}
        fields["transaction_timeout_ms"] = 1000
        wire.send(codec.encode_request(ApiKey.INIT_PRODUCER_ID, 4, number, CLIENT_ID, fields))
    receive(wire)


def large_commit(wire: Wire, chance: random.Random) -> None:
    """Commit offsets of two thousand partitions, each with a long word to it."""
    partitions = [
        {"partition_index": number, "committed_offset": 1, "committed_metadata": "x" * 500} for number in range(MANY)
    ]
    fields = {"group_id": f"poison-{chance.randrange(20)}", "topics": [{"name": TOPIC, "partitions": partitions}]}
    ask(wire, ApiKey.OFFSET_COMMIT, 8, fields)


def costly_subscription(wire: Wire, chance: random.Random) -> None:
    """Subscribe ten members to patterns that are slow to match, and create one more topic with a long name."""
    names = [f"{LONG_TOPIC}-{number:03}-".ljust(LONGEST_TOPIC, "ab"[number % 2]) for number in range(LONG_TOPICS)]
    make_topics(wire, names)
    group_id, members = f"poison-pattern-{chance.randrange(5)}", [f"member-{number}" for number in range(10)]
    for number, member_id in enumerate(members):
        fields = {
            "group_id": group_id,
            "member_id": member_id,
            "member_epoch": 0,
            "rebalance_timeout_ms": 1000,
            "subscribed_topic_regex": f".*([ab]?){{{chance.choice(REPEATS) + number}}}",
            "topic_partitions": [],
        }
        ask(wire, ApiKey.CONSUMER_GROUP_HEARTBEAT, 1, fields)
    make_topics(wire, [f"{LONG_TOPIC}-{chance.randrange(10**6)}".ljust(LONGEST_TOPIC, "a")])
    for epoch in (2, -1):
        for member_id in members:
            fields = {"group_id": group_id, "member_id": member_id, "member_epoch": epoch}
            ask(wire, ApiKey.CONSUMER_GROUP_HEARTBEAT, 1, fields)


def costly_list(wire: Wire, chance: random.Random) -> None:
    """List transactions by patterns that are slow to match, where ids have their maximum length."""
    for number in range(40):
        fields = {"transactional_id": f"poison-{number}".ljust(LONGEST_ID, "ab"[number % 2]), **TRANSACTION}
        ask(wire, ApiKey.INIT_PRODUCER_ID, 4, fields)
    for pattern in (f"([ab]?){{{chance.choice(REPEATS)}}}.*", "[ab]*a[ab]{30}", "poison-.*"):
        fields = {"state_filters": [], "producer_id_filters": [], "transactional_id_pattern": pattern}
        ask(wire, ApiKey.LIST_TRANSACTIONS, 2, fields)


KINDS: tuple[Callable[[Wire, random.Random], None], ...] = (
    zip_bomb,
    lying_count,
    lying_time,
    described_configs,
    unknown_names,
    many_partitions,
    large_subscription,
    parked_fetches,
    lying_size,
    altered_groups,
    new_producers,
    large_commit,
    costly_subscription,
    costly_list,
)


def poison(field: Battlefield, chance: random.Random) -> None:
    """Send one kind."""
    kind = chance.choice(KINDS)
    with Wire(field.broker.port, PATIENCE_SECONDS) as wire:
        topics(wire, chance)
        with field.journal.window(f"poison: {kind.__name__.replace('_', ' ')}"):
            kind(wire, chance)


def make_topics(wire: Wire, names: list[str]) -> None:
    topics = [{"name": name, "num_partitions": 1, "replication_factor": 1} for name in names]
    ask(wire, ApiKey.CREATE_TOPICS, 7, {"topics": topics, "timeout_ms": 10_000})


def produce(wire: Wire, topic: str, batch: bytes) -> None:
    """Send a batch to the first partition of a topic, and read the response."""
    topic_data = [{"name": topic, "partition_data": [{"index": 0, "records": batch}]}]
    ask(wire, ApiKey.PRODUCE, 9, {"acks": 1, "timeout_ms": 5000, "topic_data": topic_data})


def ask(wire: Wire, api_key: ApiKey, version: int, fields: dict[str, Any]) -> None:
    """Send a request; read its response and ignore it."""
    wire.send(codec.encode_request(api_key, version, 1, CLIENT_ID, fields))
    receive(wire)


def receive(wire: Wire) -> None:
    """Read a response, or the end of the connection, or nothing within the timeout."""
    with contextlib.suppress(OSError):
        wire.receive()


@functools.cache
def bomb(codec: int) -> bytes:
    """Return a gigabyte of zeros compressed by the codec: both formats can be concatenated."""
    return batches.compressed(bytes(BOMB_PIECE_BYTES), codec) * BOMB_PIECES


def now_ms() -> int:
    return int(time.time() * 1000)
