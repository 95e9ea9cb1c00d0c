"""The cache contract: every API answers in the same bytes with the caches and fast paths and without."""

from __future__ import annotations

import os
import random
import secrets
import shutil
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple
from unittest import mock

import pytest

from ops.reliability.frames import NAMES, FrameMaker
from rotunda.broker.apis.table import APIS
from rotunda.broker.handler.request_handler import ALL_FAST_PATHS, FastPathSettings
from rotunda.broker.protocol import codec
from rotunda.broker.protocol.api_keys import ApiKey
from rotunda.broker.protocol.error_codes import ErrorCode
from tests.support.groups.requests import Member, broker_with_groups, groups_of
from tests.support.record_batches import record_batch
from tests.support.stepped_broker import NO_FAST_PATHS, SteppedBroker

TOPICS = dict.fromkeys(NAMES[:3], 4)
#: Random requests of each version.
FRAMES = 2
NO_CACHES: Final = FastPathSettings(cache_bytes=0)


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


class Frequent:
    """The requests that have fast paths, with and without errors, by their fields."""

    def __init__(self, broker: SteppedBroker, member: Member) -> None:
        topic = broker.topic(NAMES[0])
        self._topic = {"name": topic.name, "topic_id": topic.topic_id}
        self._partitions = [each.index for each in topic.partitions]
        self._fetched = {"topic": topic.name, "topic_id": topic.topic_id}
        self._member = {"group_id": member.group_id, "member_id": member.member_id}
        self._generation = member.generation

    def frames(self) -> Iterator[Asked]:
        """Yield all of them version by version, so that each is repeated after the others have changed something."""
        asked = [
            *((ApiKey.PRODUCE, fields) for fields in self._produces()),
            *((ApiKey.FETCH, self._fetch(offset)) for offset in (0, 1, 2, 9999)),
            (ApiKey.FETCH, self._fetch(0, level=1)),
            *((ApiKey.LIST_OFFSETS, fields) for fields in self._list_offsets()),
            *((ApiKey.METADATA, self._metadata(*names)) for names in (NAMES[:1], ("absent",), NAMES[:3])),
            *((ApiKey.API_VERSIONS, self._software(name)) for name in ("any", "bad name")),
            *((ApiKey.OFFSET_COMMIT, fields) for fields in self._commits()),
            *((ApiKey.HEARTBEAT, fields) for fields in self._heartbeats()),
        ]
        for version in range(max(APIS[key].max_version for key, _ in asked) + 1):
            for key, fields in asked:
                if APIS[key].min_version <= version <= APIS[key].max_version:
                    yield Asked(key, version, codec.encode_request(key, version, 0, "any", fields)[4:])

    def _produces(self) -> Iterator[dict[str, Any]]:
        # Sizes around the limits of a varint's bytes; all partitions, some of which have the same owner.
        sizes = ((1, 0, 1), (30, 0, 1), (200, 0, 1), (20_000, 0, 1), (1, 0, -1))
        for size, partition, acks in (*sizes, *((1, each, 1) for each in self._partitions)):
            data = {"index": partition, "records": bytes(record_batch([b"x" * size]))}
            yield {"acks": acks, "timeout_ms": 1000, "topic_data": [{**self._topic, "partition_data": [data]}]}

    def _fetch(self, offset: int, level: int = 0) -> dict[str, Any]:
        part = {"fetch_offset": offset, "partition_max_bytes": 1000}
        topics = [{**self._fetched, "partitions": [part]}]
        return {"max_bytes": 10_000, "session_epoch": -1, "isolation_level": level, "topics": topics}

    def _list_offsets(self) -> Iterator[dict[str, Any]]:
        parts: list[dict[str, int]] = [{"timestamp": timestamp} for timestamp in (-1, -2, -3, 5)]
        parts += [{"timestamp": -1, "partition_index": 99}, {"timestamp": -1, "current_leader_epoch": 9}]
        for some in (*([part] for part in parts), parts[:1] * 2):
            yield {"replica_id": -1, "topics": [{"name": NAMES[0], "partitions": some}]}

    def _metadata(self, *names: str) -> dict[str, Any]:
        return {"topics": [{"name": each} for each in names], "allow_auto_topic_creation": False}

    def _software(self, name: str) -> dict[str, Any]:
        return {"client_software_name": name, "client_software_version": "1"}

    def _commits(self) -> Iterator[dict[str, Any]]:
        def topic(offset: int, *indexes: int) -> dict[str, Any]:
            parts = [{"partition_index": each, "committed_offset": offset} for each in indexes]
            return {**self._topic, "partitions": parts}

        nowhere = {"name": "nowhere", "partitions": [{}]}
        generation = self._generation
        for given, named in ((generation, topic(7, 0)), (generation, topic(8, 0)), (generation, topic(7, 0, 9)),
                             (99, topic(7, 0)), (generation, nowhere)):  # fmt: skip
            yield {**self._member, "generation_id_or_member_epoch": given, "topics": [named]}

    def _heartbeats(self) -> Iterator[dict[str, Any]]:
        for generation, group in ((self._generation, {}), (99, {}), (self._generation, {"group_id": ""})):
            yield {**self._member, "generation_id": generation, **group}


def answers(broker: SteppedBroker, corpus: list[Asked]) -> list[bytes]:
    """Send each request twice on one connection and once on another; return all responses in this order."""
    first, second = broker.client(), broker.client()
    sent = []
    for api_key, version, frame in corpus:
        for client in (first, first, second):
            sent.append(client.send_frame(api_key, version, frame))
            broker.settle()
    return [b"".join([each.payload for each in request.answers]) for request in sent]


@pytest.mark.parametrize("_course", range(2))
def test_every_api_responds_in_the_same_bytes_without_its_fast_paths(tmp_path: Path, _course: int) -> None:
    """The ids that a broker makes, and the size of its disk, are the same in each course."""
    seed = secrets.randbits(32)
    print(f"seed {seed}")
    disk = os.statvfs(tmp_path)
    courses: list[tuple[list[Asked], list[bytes], Counter[int]]] = []
    corpus: list[Asked] = []
    for fast_paths in (ALL_FAST_PATHS, NO_CACHES, NO_FAST_PATHS):
        chance = random.Random(seed)
        with (
            mock.patch.object(os, "urandom", chance.randbytes),
            mock.patch.object(os, "statvfs", return_value=disk),
            mock.patch.object(secrets, "randbelow", chance.randrange),
            broker_with_groups(tmp_path / "broker", TOPICS, fast_paths=fast_paths) as broker,
        ):
            member = Member(broker, groups_of(broker, 0, 1)[0])
            member.join()
            asked = list(Frequent(broker, member).frames())
            corpus = corpus or random_corpus(
                random.Random(seed), tuple(t.topic_id for t in broker.parts(0).metadata.topics())
            )
            with mock.patch.object(codec, "decode", wraps=codec.decode) as decode:
                found = answers(broker, asked + corpus)
                courses.append((asked, found, Counter(call.args[0] for call in decode.call_args_list)))
        shutil.rmtree(tmp_path / "broker")
    (asked, expected, few), (_, uncached, more), (_, plain, most) = courses
    assert few.total() < more.total()
    assert more[ApiKey.OFFSET_COMMIT] < most[ApiKey.OFFSET_COMMIT]
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
