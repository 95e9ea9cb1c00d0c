"""Produce as the producer writes and reads it, against the broker's codec and kio's: two that know nothing of it."""

import random

import pytest

from broker.client.producer.produce_requests import (
    NEWEST_VERSION,
    OLDEST_VERSION,
    Endpoint,
    Leader,
    Part,
    PartitionResponse,
    decode_produce,
    encode_produce,
    newest_version,
)
from broker.errors import InvalidReceive
from broker.protocol import codec
from broker.protocol.api_keys import ApiKey
from broker.protocol.headers import parse_header
from broker.protocol.messages.produce import PartResponse, encode_produce_response, parse_produce

VERSIONS = range(OLDEST_VERSION, NEWEST_VERSION + 1)
IDS = {"orders": bytes(range(16)), "payments": bytes(range(16, 32)), "x" * 200: bytes(range(32, 48))}


def random_parts(chance: random.Random) -> list[Part]:
    places = [(topic, partition) for topic in IDS for partition in range(4)]
    chosen = chance.sample(places, chance.randint(1, len(places)))
    return [
        Part(topic, IDS[topic], index, chance.randbytes(chance.choice((61, 300, 20_000)))) for topic, index in chosen
    ]


@pytest.mark.parametrize("version", VERSIONS)
def test_a_request_says_what_it_was_given_and_copies_no_batch(version: int) -> None:
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
    request = parse_produce(wire, version, header.body_offset, len(wire))
    assert (request.transactional_id, request.acks, request.timeout_ms) == (transactional_id, -1, 1500)
    read = {
        (each.topic_name or each.topic_id, each.partition): wire[each.records_offset :][: each.records_size]
        for each in request.parts
    }
    assert read == {(p.topic if version < 13 else p.topic_id, p.partition): p.records for p in parts}


@pytest.mark.parametrize("version", VERSIONS)
def test_a_response_is_read_as_the_broker_wrote_it(version: int) -> None:
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    chance = random.Random(seed)
    by_id = version >= 13
    written = []
    for topic, topic_id in IDS.items():
        for partition in range(chance.randint(1, 3)):
            named = (None, topic_id) if by_id else (topic, None)
            failed = chance.random() < 0.5 and version >= 8
            errors = tuple((index, chance.choice((None, "bad"))) for index in range(3)) if failed else ()
            start = chance.randint(0, 99) if version >= 5 else -1
            code, text = (87, "because") if failed else (0, None)
            written.append(PartResponse(*named, partition, code, 5 + partition, 1_700_000_000_000, start, text, errors))
    wire = encode_produce_response(version, 7, 250, written)
    offset = 9 if version >= 9 else 8
    response = decode_produce(version, wire, offset, len(wire))
    assert response.throttle_time_ms == 250
    assert [
        (
            each.topic or None,
            each.topic_id if by_id else None,
            *each[2:7],
            each.error_message,
            tuple(each.record_errors),
        )
        for each in response.partitions
    ] == [tuple(each) for each in written]
    for end in range(offset, len(wire)):
        with pytest.raises(InvalidReceive):
            decode_produce(version, wire[:end], offset, end)


def test_a_response_names_the_new_leader_and_where_it_listens() -> None:
    """From version 10 (KIP-951), by kio's encoder."""
    fields = {
        "throttle_time_ms": 0,
        "responses": [
            {
                "name": "orders",
                "partition_responses": [
                    {
                        "index": 1,
                        "error_code": 6,
                        "base_offset": -1,
                        "current_leader": {"leader_id": 2, "leader_epoch": 9},
                    }
                ],
            }
        ],
        "node_endpoints": [{"node_id": 2, "host": "other", "port": 9093, "rack": "b"}],
    }
    wire = codec.encode_response(ApiKey.PRODUCE, 10, 7, fields)
    response = decode_produce(10, wire, 9, len(wire))
    assert response.partitions == [
        PartitionResponse("orders", bytes(16), 1, 6, record_errors=[], current_leader=Leader(2, 9))
    ]
    assert response.endpoints == [Endpoint(2, "other", 9093, "b")]


def test_the_version_says_by_what_topics_go_and_which_protocol_the_transaction_has() -> None:
    """Names where an id is not known (12), and 11 in a transaction of protocol 1 (KIP-890)."""
    known, unknown = Part("a", IDS["orders"], 0, b""), Part("b", bytes(16), 0, b"")
    assert newest_version([known], transactional_v1=False) == 13
    assert newest_version([known, unknown], transactional_v1=False) == 12
    assert newest_version([known], transactional_v1=True) == 11
