"""The records of `__transaction_state` against bytes that Kafka writes, and back."""

from __future__ import annotations

import random
import struct

import pytest

from broker.coordinator.transaction.records import decode_key, decode_value, encode_key, encode_value
from broker.coordinator.transaction.transaction import TransactionMetadata, TransactionState
from broker.errors import ApiError

METADATA = TransactionMetadata(
    producer_id=5,
    epoch=3,
    timeout_ms=1000,
    updated_ms=77,
    state=TransactionState.ONGOING,
    partitions=frozenset({("a", 1), ("b", 2), ("a", 0)}),
    start_ms=33,
)


def test_a_key_is_a_version_and_the_id() -> None:
    assert encode_key("id") == b"\x00\x00\x00\x02id"
    assert decode_key(b"\x00\x00\x00\x02id") == "id"
    assert decode_key(b"\x00\x01\x00\x02id") is None


def test_version_0_field_by_field() -> None:
    expected = struct.pack(">hqhib", 0, 5, 3, 1000, 1)
    expected += struct.pack(">ih1siiih1sii", 2, 1, b"a", 2, 0, 1, 1, b"b", 1, 2)
    expected += struct.pack(">qq", 77, 33)
    assert encode_value(METADATA, 0) == expected


def test_version_1_field_by_field() -> None:
    """KIP-915: what follows the times is tagged; 0 previous and 1 next producer id, 2 the client's version."""
    metadata = METADATA._replace(previous_producer_id=4, next_producer_id=6, client_version=2)
    expected = struct.pack(">hqhib", 1, 5, 3, 1000, 1)
    expected += b"\x03\x02a\x03" + struct.pack(">ii", 0, 1) + b"\x00\x02b\x02" + struct.pack(">i", 2) + b"\x00"
    expected += struct.pack(">qq", 77, 33)
    expected += b"\x03\x00\x08" + struct.pack(">q", 4) + b"\x01\x08" + struct.pack(">q", 6) + b"\x02\x02\x00\x02"
    assert encode_value(metadata, 1) == expected


@pytest.mark.parametrize("version", [0, 1])
def test_an_empty_one_has_no_partitions(version: int) -> None:
    empty = METADATA._replace(state=TransactionState.EMPTY, partitions=frozenset(), start_ms=-1)
    assert decode_value(encode_value(empty, version)) == empty


def test_what_is_written_is_read() -> None:
    seed = random.SystemRandom().randrange(1 << 32)
    print(f"seed {seed}")
    chance = random.Random(seed)
    for _ in range(200):
        metadata = TransactionMetadata(
            chance.randrange(1 << 40),
            chance.randrange(1 << 15),
            chance.randrange(1 << 31),
            chance.randrange(1 << 45),
            chance.choice([TransactionState.ONGOING, TransactionState.PREPARE_ABORT, TransactionState.COMPLETE_COMMIT]),
            frozenset((chance.choice(["a", "long-ü"]), chance.randrange(300)) for _ in range(chance.randrange(200))),
            chance.randrange(1 << 45),
            chance.randrange(-1, 1 << 15),
            chance.randrange(-1, 1 << 40),
            chance.randrange(-1, 1 << 40),
            chance.randrange(3),
        )
        assert decode_value(encode_value(metadata, 1)) == metadata


def test_unknown_tags_are_skipped_and_unknown_versions_ignored() -> None:
    value = encode_value(METADATA, 1)
    assert decode_value(value[:-1] + b"\x01\x63\x01x") == METADATA
    assert decode_value(b"\x00\x02" + value[2:]) is None


def test_broken_records_are_told() -> None:
    value = encode_value(METADATA, 1)
    for size in range(2, len(value)):
        with pytest.raises(ApiError):
            decode_value(value[:size])
    with pytest.raises(ApiError):
        decode_key(b"\x00\x00\x00\x09id")
