"""Routing: the target read from the raw frame agrees with the owner of its decoded contents, in every version."""

import itertools
import os
import subprocess
import sys
import uuid
from collections import Counter
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from kio.index import load_request_schema

from rotunda.broker.errors import InvalidReceive
from rotunda.broker.ipc import connection_id
from rotunda.broker.protocol.api_keys import ApiKey
from rotunda.broker.protocol.codec import encode_request
from rotunda.broker.protocol.routing import owner_of, route, route_produce, topic_hash, topic_id_for, topic_id_hash
from tests.protocol.kio_entities import kio_bytes, module_of
from tests.support.feeds import mutations, random_seed

HANDLERS = 5
CONNECTION = (1 << 48) + (3 << 32) + 17


def _produce(version: int, name: str, partition: int, client_id: str, transactional_id: str | None) -> bytes:
    return _produce_parts(version, {name: (partition, 0)}, client_id, transactional_id)


def _produce_parts(
    version: int, parts: dict[str, tuple[int, ...]], client_id: str = "c", transactional_id: str | None = None
) -> bytes:
    module = module_of(load_request_schema(0, version))
    topics = []
    for name, partitions in parts.items():
        data = tuple(module.PartitionProduceData(index=index, records=b"r") for index in partitions)
        topic_id = topic_id_for(name.encode(), bytes(12))
        topic: dict[str, Any] = {"topic_id": uuid.UUID(bytes=topic_id)} if version >= 13 else {"name": name}
        topics.append(module.TopicProduceData(**topic, partition_data=data))
    request = module.ProduceRequest(
        transactional_id=transactional_id, acks=1, timeout=timedelta(0), topic_data=tuple(topics)
    )
    header = b"\x00\x00" + version.to_bytes(2, "big") + b"\x00\x00\x00\x01"
    header += len(client_id).to_bytes(2, "big") + client_id.encode() + (b"\x00" if version >= 9 else b"")
    return header + kio_bytes(request)


@pytest.mark.parametrize("transactional_id", [None, "", "some-id", "x" * 200])
@pytest.mark.parametrize("version", range(3, 14))
def test_produce_goes_to_the_owner_of_its_first_partition(version: int, transactional_id: str | None) -> None:
    for name, partition, client_id in (("a", 0, ""), ("orders", 3, "c"), ("n" * 249, 2**31 - 1, "c" * 300)):
        frame = _produce(version, name, partition, client_id, transactional_id)
        expected = owner_of(topic_hash(name.encode()), partition, HANDLERS)
        assert route(frame, 0, version, CONNECTION, HANDLERS) == expected
        assert route(memoryview(frame), 0, version, CONNECTION, HANDLERS) == expected
        assert route(frame, 0, version, CONNECTION, 1) == 0


@pytest.mark.parametrize("version", range(3, 14))
def test_a_produce_of_one_partition_is_distinguished_from_one_of_several(version: int) -> None:
    for parts, is_single in (
        ({"a": (1,)}, True),
        ({"a": (1, 2)}, False),
        ({"a": (1,), "b": (1,)}, False),
        ({"a": (1,), "b": ()}, False),
        ({"a": ()}, True),
        ({}, True),
    ):
        assert route_produce(_produce_parts(version, parts), version, CONNECTION, HANDLERS)[1] is is_single, parts


@pytest.mark.parametrize("version", [7, 9, 13])
def test_damaged_produce_is_routed_somewhere_or_invalid(version: int) -> None:
    frame = _produce(version, "orders", 1, "client", None)
    seed = random_seed()
    for damaged in mutations(frame, seed, 500):
        try:
            assert 0 <= route(damaged, 0, version, CONNECTION, HANDLERS) < HANDLERS
        except InvalidReceive:
            continue
        except Exception as error:
            raise AssertionError(f"seed {seed}: {damaged.hex()}") from error


@pytest.mark.parametrize("version", [7, 9, 13])
def test_produce_cut_before_its_routing_key_is_invalid(version: int) -> None:
    frame = _produce(version, "orders", 1, "client", None)
    with pytest.raises(InvalidReceive):
        route(frame[:30], 0, version, CONNECTION, HANDLERS)


def test_produce_without_partitions_goes_by_connection() -> None:
    frame = b"\x00\x00\x00\x07\x00\x00\x00\x01\xff\xff" + b"\xff\xff\x00\x01\x00\x00\x00\x00" + bytes(4)
    assert route(frame, 0, 7, CONNECTION, HANDLERS) == route(b"", 3, 9, CONNECTION, HANDLERS)


@pytest.mark.parametrize("api_key", [19, 20, 33, 37, 44])
def test_changes_of_metadata_go_to_the_controller(api_key: int) -> None:
    assert route(b"", api_key, 0, CONNECTION, HANDLERS) == HANDLERS


@pytest.mark.parametrize("version", range(6))
def test_a_producer_without_a_transactional_id_gets_its_id_from_the_controller(version: int) -> None:
    frame = encode_request(ApiKey.INIT_PRODUCER_ID, version, 1, "cli", {"transactional_id": None})[4:]
    assert route(frame, 22, version, CONNECTION, HANDLERS) == HANDLERS


def test_other_requests_of_a_connection_stay_together_and_connections_spread() -> None:
    targets = {route(b"", ApiKey.FETCH, 12, CONNECTION + i, HANDLERS) for i in range(HANDLERS)}
    assert targets == set(range(HANDLERS))
    assert len({route(b"", key, 4, CONNECTION, HANDLERS) for key in (1, 2, 3, 10, 18, 32)}) == 1


def test_topic_ids_carry_the_hash_of_the_name_and_look_random() -> None:
    for first in range(256):
        topic_id = topic_id_for(b"orders", bytes([first]) + bytes(range(11)) + b"surplus")
        assert topic_id_hash(topic_id) == topic_hash(b"orders")
        assert uuid.UUID(bytes=topic_id).version == 4
        assert topic_id[0] >> 2 != 62


_ELSEWHERE = """
from rotunda.broker.protocol.routing import owner_of, route, route_produce, topic_hash
names = [b"orders", b"", b"n" * 249, "\u00fc".encode()]
print([owner_of(topic_hash(name), 3, 7) for name in names])
print([route(b"", 3, 9, (p << 48) + (1 << 32) + n, 7) for p in range(3) for n in range(20)])
"""


def test_d02_e04_e23_owners_are_the_same_in_every_process_and_every_run() -> None:
    """Python's own hash of bytes is salted in each process; the owner of data on disk must be the same in all."""
    printed = set()
    for salt in ("0", "1", "4711"):
        environment = {**os.environ, "PYTHONHASHSEED": salt}
        run = subprocess.run(
            [sys.executable, "-c", _ELSEWHERE],
            cwd=Path(__file__).parents[2],
            env=environment,
            capture_output=True,
            text=True,
            check=True,
        )
        printed.add(run.stdout)
    assert len(printed) == 1
    assert [topic_hash(name) for name in (b"orders", b"")] == [0xE52FFDEE, 0]


def test_d02_a_connection_has_one_handler_whatever_it_asks_for_and_handlers_share_evenly() -> None:
    """Two processors number their connections alike; their first ones must not all be assigned to the same handler."""
    for handlers in (1, 2, 3, 8):
        counts = Counter[int]()
        for processor, counter in itertools.product(range(2), range(4 * handlers)):
            identity = connection_id.make(processor, 1, counter)
            homes = {route(b"", key, 4, identity, handlers) for key in (1, 2, 3, 10, 18, 32, 60)}
            assert len(homes) == 1
            counts[homes.pop()] += 1
        assert set(counts.values()) == {8}
        assert len({route(b"", 3, 4, connection_id.make(p, 1, 0), handlers) for p in range(2)}) == min(handlers, 2)
