"""The cache contract: every API answers in the same bytes with the caches and fast paths and without."""

from __future__ import annotations

import os
import random
import secrets
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple
from unittest import mock

import pytest

from ops.reliability.frames import NAMES, FrameMaker
from rotunda.broker.apis.table import APIS
from rotunda.broker.handler.request_handler import EVERY_WAY, SpecialWays
from rotunda.broker.protocol import codec
from rotunda.broker.protocol.api_keys import ApiKey
from rotunda.broker.protocol.error_codes import ErrorCode
from tests.support.groups.requests import Member, broker_with_groups, groups_of
from tests.support.record_batches import record_batch
from tests.support.stepped_broker import SteppedBroker

TOPICS = dict.fromkeys(NAMES[:3], 2)
#: Random requests of each version.
FRAMES = 2
NO_CACHES: Final = SpecialWays(cache_bytes=0)
NO_WAYS: Final = SpecialWays(cache_bytes=0, have_fast_paths=False)


class Asked(NamedTuple):
    """A request, from its api key on."""

    api_key: int
    version: int
    frame: bytes


def versions() -> Iterator[tuple[int, int]]:
    """Yield every version of every API."""
    for key, api in APIS.items():
        yield from ((key, version) for version in range(api.min_version, api.max_version + 1))


def random_corpus(chance: random.Random, topic_ids: tuple[bytes, ...]) -> list[Asked]:
    """Return requests with random content in random order."""
    maker = FrameMaker(chance, topic_ids)
    corpus = [
        Asked(key, version, maker.template(key, version).frame[4:])
        for key, version in versions()
        for _ in range(FRAMES)
    ]
    chance.shuffle(corpus)
    return corpus


def frequent(broker: SteppedBroker, member: Member) -> Iterator[Asked]:
    """Yield the requests that have special ways, in every version, with and without errors."""
    name = NAMES[0]
    topic = broker.parts(0).metadata.topic(name)
    assert topic is not None
    by_id = {"name": name, "topic_id": topic.topic_id}
    who = {"group_id": member.group_id, "member_id": member.member_id}
    produced = {**by_id, "partition_data": [{"index": 0, "records": bytes(record_batch([b"a", b"b"]))}]}
    fetched = {"topic": name, "topic_id": topic.topic_id, "partitions": [{"partition_max_bytes": 1000}]}
    committed = {**by_id, "partitions": [{"committed_offset": 7}]}
    values: dict[ApiKey, dict[str, Any]] = {
        ApiKey.PRODUCE: {"acks": 1, "timeout_ms": 1000, "topic_data": [produced]},
        ApiKey.FETCH: {"max_bytes": 10_000, "session_epoch": -1, "topics": [fetched]},
        ApiKey.LIST_OFFSETS: {"replica_id": -1, "topics": [{"name": name, "partitions": [{"timestamp": -1}]}]},
        ApiKey.METADATA: {"topics": [{"name": name}]},
        ApiKey.API_VERSIONS: {"client_software_name": "any", "client_software_version": "1"},
        ApiKey.HEARTBEAT: {**who, "generation_id": member.generation},
        ApiKey.OFFSET_COMMIT: {**who, "generation_id_or_member_epoch": member.generation, "topics": [committed]},
    }
    commit, beat = values[ApiKey.OFFSET_COMMIT], values[ApiKey.HEARTBEAT]
    elsewhere = {**by_id, "partitions": [{"committed_offset": 7}, {"partition_index": 9, "committed_offset": 7}]}
    wrong: list[tuple[ApiKey, dict[str, Any]]] = [
        (ApiKey.OFFSET_COMMIT, {**commit, "topics": [elsewhere]}),
        (ApiKey.OFFSET_COMMIT, {**commit, "topics": [{"name": "nowhere", "partitions": [{}]}]}),
        (ApiKey.OFFSET_COMMIT, {**commit, "generation_id_or_member_epoch": 99}),
        (ApiKey.HEARTBEAT, {**beat, "generation_id": 99}),
        (ApiKey.HEARTBEAT, {**beat, "group_id": ""}),
    ]
    for key, fields in [*values.items(), *wrong]:
        for version in range(APIS[key].min_version, APIS[key].max_version + 1):
            yield Asked(key, version, codec.encode_request(key, version, 0, "any", fields)[4:])


def answers(broker: SteppedBroker, corpus: list[Asked]) -> list[bytes]:
    """Send each request twice on one connection and once on another; return all responses in this order."""
    first, second = broker.client(), broker.client()
    sent = []
    for api_key, version, frame in corpus:
        for client in (first, first, second):
            sent.append(client.send_frame(api_key, version, frame))
            broker.settle()
    return [b"".join([each.payload for each in request.answers]) for request in sent]


@pytest.mark.parametrize("_course", range(3))
def test_every_api_responses_in_the_same_bytes_without_its_special_ways(tmp_path: Path, _course: int) -> None:
    """The ids that a broker makes, and the size of its disk, are the same in each course."""
    seed = secrets.randbits(32)
    print(f"seed {seed}")
    disk = os.statvfs(tmp_path)
    courses: list[tuple[list[Asked], list[bytes], int]] = []
    corpus: list[Asked] = []
    for ways in (EVERY_WAY, NO_CACHES, NO_WAYS):
        chance = random.Random(seed)
        with (
            mock.patch.object(os, "urandom", chance.randbytes),
            mock.patch.object(os, "statvfs", return_value=disk),
            mock.patch.object(secrets, "randbelow", chance.randrange),
            broker_with_groups(tmp_path / "broker", TOPICS, ways=ways) as broker,
        ):
            member = Member(broker, groups_of(broker, 0, 1)[0])
            member.join()
            asked = list(frequent(broker, member))
            corpus = corpus or random_corpus(
                random.Random(seed), tuple(t.topic_id for t in broker.parts(0).metadata.topics())
            )
            with mock.patch.object(codec, "decode", wraps=codec.decode) as decode:
                courses.append((asked, answers(broker, asked + corpus), decode.call_count))
        shutil.rmtree(tmp_path / "broker")
    (asked, expected, few), (_, uncached, more), (_, plain, most) = courses
    assert few < more < most
    for number, answer in enumerate(expected):
        request = (asked + corpus)[number // 3]
        assert answer == uncached[number] == plain[number], (number, ApiKey(request.api_key), request)


def test_only_heartbeats_of_members_are_cached(broker: SteppedBroker) -> None:
    """A non-member could fill the cache with arbitrary ids."""
    member = Member(broker, groups_of(broker, 0, 1)[0])
    member.join()
    assert member.heartbeat() == 0
    with mock.patch.object(codec, "decode", wraps=codec.decode) as decode:
        assert member.heartbeat() == 0
        assert not decode.called
        member.generation += 1
        for sent in range(3):
            assert member.heartbeat() == ErrorCode.ILLEGAL_GENERATION
            assert decode.call_count == sent + 1
