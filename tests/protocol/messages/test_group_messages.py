"""OffsetCommit against kio's codecs, in every version."""

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kio.index import load_request_schema, load_response_schema

from broker.protocol.messages import offset_commit
from tests.protocol.kio_entities import entities, few, framed_with, id_bytes, in_ms, kio_bytes
from tests.protocol.messages.hostile import check_hostile, placed


@pytest.mark.parametrize("version", range(2, 11))
@few
@given(data=st.data())
def test_offset_commit_both_ways(version: int, data: st.DataObject) -> None:
    """Users row 7: the metadata of a commit arrives, null or not."""
    entity = data.draw(entities(load_request_schema(8, version)))
    buffer, offset, end = placed(kio_bytes(entity))
    retention = getattr(entity, "retention_time", None)
    assert offset_commit.parse_offset_commit(buffer, version, offset, end) == offset_commit.OffsetCommitRequest(
        entity.group_id,
        entity.generation_id_or_member_epoch,
        entity.member_id,
        getattr(entity, "group_instance_id", None),
        -1 if retention is None else in_ms(retention),
        [
            offset_commit.OffsetCommitTopic(
                getattr(topic, "name", ""),
                id_bytes(getattr(topic, "topic_id", None)),
                [
                    offset_commit.OffsetCommitPart(
                        part.partition_index,
                        part.committed_offset,
                        getattr(part, "committed_leader_epoch", -1),
                        part.committed_metadata,
                    )
                    for part in topic.partitions
                ],
            )
            for topic in entity.topics
        ],
    )
    answer = data.draw(entities(load_response_schema(8, version)))
    response = offset_commit.OffsetCommitResponse(
        [
            offset_commit.OffsetCommitTopicResponse(
                getattr(topic, "name", ""),
                id_bytes(getattr(topic, "topic_id", None)),
                [
                    offset_commit.OffsetCommitPartResponse(part.partition_index, int(part.error_code))
                    for part in topic.partitions
                ],
            )
            for topic in answer.topics
        ]
    )
    wire = offset_commit.encode_offset_commit_response(version, 5, response)
    expected = bytearray(framed_with(b"\x00" if version >= 8 else b"", 5, kio_bytes(answer)))
    if version >= 3:
        # Commits are never throttled here.
        struct.pack_into(">i", expected, 9 if version >= 8 else 8, 0)
    assert wire == bytes(expected)


@pytest.mark.parametrize("version", range(2, 11))
def test_hostile_offset_commits_are_invalid_and_nothing_worse(version: int) -> None:
    parse = offset_commit.parse_offset_commit
    check_hostile(lambda buffer, start, end: parse(buffer, version, start, end), _commit_body(version))


def _commit_body(version: int) -> bytes:
    flexible = version >= 8
    text = (lambda t: bytes((len(t) + 1,)) + t) if flexible else (lambda t: struct.pack(">h", len(t)) + t)
    count = b"\x02" if flexible else struct.pack(">i", 1)
    tags = b"\x00" if flexible else b""
    body = text(b"group") + bytes(4) + text(b"member")
    body += text(b"instance") if version >= 7 else bytes(8) if version < 5 else b""
    body += count + (bytes(16) if version >= 10 else text(b"topic")) + count + bytes(4) + bytes(8)
    body += (bytes(4) if version >= 6 else b"") + text(b"metadata") + tags
    return body + tags + tags
