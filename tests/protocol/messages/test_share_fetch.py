"""ShareFetch's response compared with the compiled codec."""

from __future__ import annotations

import pytest

from rotunda.broker.protocol import codec
from rotunda.broker.protocol.api_keys import ApiKey
from rotunda.broker.protocol.messages.fetch import SharePartResponse, frame_share_fetch_response

A, B = b"a" * 16, b"b" * 16


@pytest.mark.parametrize("version", range(1, 3))
def test_a_response_around_records_is_that_of_the_compiled_codec(version: int) -> None:
    """S01, S48."""
    parts = [
        SharePartResponse(A, 0, 0, 121),
        SharePartResponse(A, 1, records_bytes=300, acquired=[(5, 9, 1), (10, 10, 3)]),
        SharePartResponse(B, 7, 3, 0),
        SharePartResponse(B, 8, records_bytes=1, acquired=[(2**40, 2**40, 2)]),
    ]
    leader = {"leader_id": -1, "leader_epoch": -1}
    responses = [
        {
            "topic_id": topic_id,
            "partitions": [
                {
                    "partition_index": each.partition,
                    "error_code": each.error_code,
                    "acknowledge_error_code": each.acknowledge_error_code,
                    "current_leader": leader,
                    "records": b"x" * each.records_bytes,
                    "acquired_records": [
                        {"first_offset": first, "last_offset": last, "delivery_count": count}
                        for first, last, count in each.acquired
                    ],
                }
                for each in parts
                if each.topic_id == topic_id
            ],
        }
        for topic_id in (A, B)
    ]
    body = {"throttle_time_ms": 7, "acquisition_lock_timeout_ms": 30000, "responses": responses}
    chunks = frame_share_fetch_response(99, 30000, parts, throttle_ms=7)
    assert len(chunks) == 3
    wire = chunks[0] + b"x" * 300 + chunks[1] + b"x" + chunks[2]
    assert wire == codec.encode_response(ApiKey.SHARE_FETCH, version, 99, body)
