"""Produce as the producer encodes it, against the broker's reader, which is independent of it."""

import random
from unittest.mock import Mock

import pytest

from rotunda.broker.client.network.requests import ClientResponse
from rotunda.broker.client.network.snapshot import Node
from rotunda.broker.client.producer.sending.produce import (
    NEWEST_VERSION,
    OLDEST_VERSION,
    Part,
    ProduceResponses,
    encode_produce,
    newest_version,
)
from rotunda.broker.client.topic_partition import TopicPartition
from rotunda.broker.protocol import codec
from rotunda.broker.protocol.api_keys import ApiKey
from rotunda.broker.protocol.headers import parse_header

VERSIONS = range(OLDEST_VERSION, NEWEST_VERSION + 1)
IDS = {"orders": bytes(range(16)), "payments": bytes(range(16, 32)), "x" * 200: bytes(range(32, 48))}


def random_parts(chance: random.Random) -> list[Part]:
    places = [(topic, partition) for topic in IDS for partition in range(4)]
    chosen = chance.sample(places, chance.randint(1, len(places)))
    return [
        Part(topic, IDS[topic], index, chance.randbytes(chance.choice((61, 300, 20_000)))) for topic, index in chosen
    ]


@pytest.mark.parametrize("version", VERSIONS)
def test_a_request_has_its_fields_and_copies_no_batch(version: int) -> None:
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    chance = random.Random(seed)
    parts = random_parts(chance)
    transactional_id = chance.choice((None, "transfers"))
    buffers = encode_produce(version, 7, "writer", transactional_id, -1, 1500, parts)
    assert [each for each in buffers if any(each is part.records for part in parts)] == [
        part.records for topic in dict.fromkeys(part.topic for part in parts) for part in parts if part.topic == topic
    ]
    wire = b"".join(buffers)
    assert int.from_bytes(wire[:4], "big") == len(wire) - 4
    header = parse_header(wire, 4, len(wire))
    assert header[:4] == (ApiKey.PRODUCE, version, 7, "writer")
    request = codec.decode(ApiKey.PRODUCE, version, wire, header.body_offset, len(wire))
    assert (request.transactional_id, request.acks, request.timeout_ms) == (transactional_id, -1, 1500)
    read = {
        (topic.name or topic.topic_id, each.index): bytes(each.records)
        for topic in request.topic_data
        for each in topic.partition_data
    }
    assert read == {(p.topic if version < 13 else p.topic_id, p.partition): p.records for p in parts}


def test_the_version_determines_topic_ids_and_the_protocol_of_the_transaction() -> None:
    """Names where an id is unknown (12), and 11 in a transaction of protocol 1 (KIP-890)."""
    known, unknown = Part("a", IDS["orders"], 0, b""), Part("b", bytes(16), 0, b"")
    assert newest_version([known], transactional_v1=False) == 13
    assert newest_version([known, unknown], transactional_v1=False) == 12
    assert newest_version([known], transactional_v1=True) == 11


def test_a_response_moves_a_partition_to_the_leader_that_it_names() -> None:
    """From version 10 (KIP-951)."""
    place = TopicPartition("orders", 1)
    batch = Mock(topic_partition=place, is_done=False, attempts=0)
    batch.has_reached_delivery_timeout.return_value = False
    accumulator, metadata = Mock(), Mock()
    responses = ProduceResponses(accumulator, metadata, None, Mock(), retries=9, guarantees_message_order=False)
    moved = {"index": 1, "error_code": 6, "current_leader": {"leader_id": 2, "leader_epoch": 9}}
    fields = {
        "responses": [{"name": "orders", "partition_responses": [moved]}],
        "node_endpoints": [{"node_id": 2, "host": "other", "port": 9093, "rack": "b"}],
    }
    wire = codec.encode_response(ApiKey.PRODUCE, 10, 7, fields)
    body = codec.decode_response(ApiKey.PRODUCE, 10, wire, 4, len(wire))
    responses.handle(ClientResponse(Mock(created_ms=1.0), 5.0, 10, body), {place: batch}, {}, 5.0)
    accumulator.reenqueue.assert_called_once_with(batch, 5.0)
    leaders, nodes = metadata.update_partition_leadership.call_args.args
    assert leaders == {place: (2, 9)}
    assert nodes == [Node(2, "other", 9093, "b")]
