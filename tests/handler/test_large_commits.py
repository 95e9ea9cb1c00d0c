"""Commits of very many partitions: processed in slices, in order of arrival, with a single response."""

from __future__ import annotations

from typing import Any

import pytest

from rotunda.broker.apis.groups import offset_commit
from rotunda.broker.apis.groups.offset_commit import AT_ONCE
from tests.support.groups.requests import OFFSET_COMMIT, committed, groups_of
from tests.support.stepped_broker import SteppedBroker
from tests.support.transactional import answer_of, send

ROUNDS = AT_ONCE


def commit(group_id: str, offsets: list[int], topics: tuple[str, ...] = ("topic",), indexes: int = 4) -> dict[str, Any]:
    """Return a commit that names each partition of each topic once for each of the offsets."""
    partitions = [
        {"partition_index": index, "committed_offset": offset, "committed_metadata": ""}
        for offset in offsets
        for index in range(indexes)
    ]
    named = [{"name": name, "partitions": partitions} for name in topics]
    return {"group_id": group_id, "generation_id_or_member_epoch": -1, "member_id": "", "topics": named}


def test_a_commit_of_very_many_partitions_is_validated_in_portions(
    broker: SteppedBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes: list[int] = []
    commit_offsets = offset_commit.commit_offsets

    def counted(groups: Any, committer: Any, topics: Any, *options: Any) -> Any:
        sizes.append(sum(len(topic.partitions) for topic in topics))
        return commit_offsets(groups, committer, topics, *options)

    monkeypatch.setattr(offset_commit, "commit_offsets", counted)
    [group] = groups_of(broker, 0, 1)
    sent = send(broker.client(), OFFSET_COMMIT, 8, commit(group, list(range(ROUNDS)), ("topic", "nowhere", "topic"), 5))
    broker.settle()
    topics = answer_of(sent).topics
    assert [topic.name for topic in topics] == ["topic", "nowhere", "topic"]
    for topic in topics:
        wanted = [3] * 5 if topic.name == "nowhere" else [0, 0, 0, 0, 3]
        assert [part.error_code for part in topic.partitions] == wanted * ROUNDS
        assert [part.partition_index for part in topic.partitions] == [0, 1, 2, 3, 4] * ROUNDS
    assert max(sizes) == AT_ONCE
    assert sum(sizes) == 3 * 5 * ROUNDS
    assert committed(broker, group, [("topic", 0), ("topic", 3)]) == [(ROUNDS - 1, 0)] * 2


def test_a_small_commit_after_a_large_one_counts(broker: SteppedBroker) -> None:
    """With and without a cache entry for its shape."""
    [group] = groups_of(broker, 0, 1)
    client = broker.client()
    first = send(client, OFFSET_COMMIT, 8, commit(group, [1]))
    broker.settle()
    large = send(client, OFFSET_COMMIT, 8, commit(group, list(range(ROUNDS))))
    small = send(client, OFFSET_COMMIT, 8, commit(group, [7777]))
    broker.settle()
    assert {
        int(part.error_code) for each in (first, large, small) for part in answer_of(each).topics[0].partitions
    } == {0}
    assert committed(broker, group, [("topic", index) for index in range(4)]) == [(7777, 0)] * 4


def test_a_commit_that_is_too_large_is_rejected_whole(broker: SteppedBroker) -> None:
    [group] = groups_of(broker, 0, 1, "g" * 20_000)
    sent = send(broker.client(), OFFSET_COMMIT, 8, commit(group, list(range(ROUNDS))))
    broker.settle()
    assert {int(part.error_code) for part in answer_of(sent).topics[0].partitions} == {28}
    assert committed(broker, group, [("topic", 0)]) == [(-1, 0)]
