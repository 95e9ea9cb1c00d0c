"""Cached responses: the same bytes as a newly encoded response, after any change in between."""

from __future__ import annotations

import random
import secrets
from collections import Counter
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest

from rotunda.broker.apis.table import APIS
from rotunda.broker.apis.topics import metadata as described_metadata
from rotunda.broker.handler import answer_cache, api_calls
from rotunda.broker.ipc.response_writer import NO_FACTS
from rotunda.broker.metadata.topics.topic_validation import AddedPartitions
from rotunda.broker.protocol import codec
from rotunda.broker.protocol.api_keys import ApiKey
from rotunda.broker.security.session import ANONYMOUS
from tests.support.stepped_broker import Client, SteppedBroker

if TYPE_CHECKING:
    from rotunda.broker.ipc.listener_table import ListenerTable
    from rotunda.broker.metadata.metadata_cache import MetadataCache


def frame_of(key: ApiKey, version: int, client_id: str, values: dict[str, Any]) -> bytes:
    """Return a request from its api key on."""
    return codec.encode_request(key, version, 0, client_id, values)[4:]


def answered(client: Client, broker: SteppedBroker, frame: bytes, key: ApiKey, version: int) -> bytes:
    """Return handler 0's response to a request, without its size."""
    sent = client.send_frame(key, version, frame, 0)
    broker.settle()
    return sent.answer.payload[4:]


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> Counter[ApiKey]:
    """Count how often an API's function is called."""
    counted: Counter[ApiKey] = Counter()
    for key in (ApiKey.METADATA, ApiKey.API_VERSIONS):
        api = APIS[key]
        function = api.function
        assert function is not None

        def called(request: Any, broker: Any, body: Any, key: ApiKey = key, function: Any = function) -> Any:
            counted[key] += 1
            return function(request, broker, body)

        monkeypatch.setitem(APIS, key, api._replace(function=called))
    return counted


def metadata(names: list[str] | None, client_id: str = "a", version: int = 8) -> bytes:
    topics = None if names is None else [{"name": name} for name in names]
    return frame_of(ApiKey.METADATA, version, client_id, {"topics": topics, "allow_auto_topic_creation": False})


def test_the_same_request_is_answered_again_with_its_own_correlation_id(
    stepped: SteppedBroker, calls: Counter[ApiKey]
) -> None:
    stepped.settle()
    first, second = stepped.client(), stepped.client()
    answers = [answered(client, stepped, metadata(["topic"]), ApiKey.METADATA, 8) for client in (first, first, second)]
    assert calls[ApiKey.METADATA] == 1
    # Here the correlation id of a request is its number on its connection.
    assert [int.from_bytes(each[:4], "big") for each in answers] == [0, 1, 0]
    assert len({each[4:] for each in answers}) == 1


def test_another_version_client_or_topic_is_another_request(stepped: SteppedBroker, calls: Counter[ApiKey]) -> None:
    stepped.settle()
    client = stepped.client()
    for frame, version in (
        (metadata(["topic"]), 8),
        (metadata(["topic"], version=7), 7),
        (metadata(["topic"], client_id="b"), 8),
        (metadata(None), 8),
    ):
        answered(client, stepped, frame, ApiKey.METADATA, version)
    assert calls[ApiKey.METADATA] == 4


def test_errors_and_partitions_that_are_not_open_are_looked_at_again(
    stepped: SteppedBroker, calls: Counter[ApiKey]
) -> None:
    stepped.settle()
    client = stepped.client()
    for _ in range(2):
        answered(client, stepped, metadata(["nothing"]), ApiKey.METADATA, 8)
    assert calls[ApiKey.METADATA] == 2
    row = stepped.partition("topic", 2).row
    table = stepped.parts(0).partitions.table
    state = table.state(row)
    table.set_state(row, 0)
    closed = answered(client, stepped, metadata(["topic"]), ApiKey.METADATA, 8)
    table.set_state(row, state)
    assert answered(client, stepped, metadata(["topic"]), ApiKey.METADATA, 8) != closed
    assert calls[ApiKey.METADATA] == 4


def test_software_that_is_refused_is_refused_each_time(stepped: SteppedBroker, calls: Counter[ApiKey]) -> None:
    client = stepped.client()
    for name in ("bad name", "bad name", "good", "good"):
        values = {"client_software_name": name, "client_software_version": "1"}
        answered(client, stepped, frame_of(ApiKey.API_VERSIONS, 4, "a", values), ApiKey.API_VERSIONS, 4)
    assert calls[ApiKey.API_VERSIONS] == 3


def test_what_is_described_in_slices_is_given_again_too(
    stepped: SteppedBroker, calls: Counter[ApiKey], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(described_metadata, "MOST_PARTITIONS_AT_ONCE", 2)
    stepped.settle()
    # Also more than is decoded in one step.
    request = metadata(["topic"] * 1000)
    first, second = (answered(stepped.client(), stepped, request, ApiKey.METADATA, 8) for _ in range(2))
    assert calls[ApiKey.METADATA] == 1
    assert first[4:] == second[4:]


def test_long_requests_long_answers_and_too_many_of_them_are_not_kept(
    stepped: SteppedBroker, calls: Counter[ApiKey], monkeypatch: pytest.MonkeyPatch
) -> None:
    stepped.settle()
    client = stepped.client()
    monkeypatch.setattr(api_calls, "MOST_ANSWER_BYTES", 50)
    for _ in range(2):
        answered(client, stepped, metadata(["topic"]), ApiKey.METADATA, 8)
    assert calls[ApiKey.METADATA] == 2
    monkeypatch.undo()
    cache = answer_cache.AnswerCache(stepped.parts(0).metadata, stepped.context.listener_table)
    for number in range(5 * answer_cache.MOST_ANSWERS):
        cache.keep((0, b"", number.to_bytes(4, "big")), bytes(8), None, ("", ""))  # type: ignore[arg-type]
    assert len(cache) <= 2 * answer_cache.MOST_ANSWERS
    cache.forget_unused(0)
    cache.forget_unused(2 * answer_cache.KEPT_NS)
    cache.forget_unused(4 * answer_cache.KEPT_NS)
    assert len(cache) == 0


def test_an_answer_is_what_a_client_that_asks_for_the_first_time_gets(stepped: SteppedBroker) -> None:
    """Topics are created, deleted, recreated and extended; a request from a new client id is not cached."""
    seed = secrets.randbits(32)
    print(f"seed {seed}")
    chance = random.Random(seed)
    names = [f"t{number}" for number in range(4)]
    there: dict[str, int] = {}
    client = stepped.client()
    for step in range(150):
        name = chance.choice(names)
        controller = stepped.controller
        assert controller is not None
        match chance.randrange(6):
            case 0 if name not in there:
                there[name] = chance.randint(1, 3)
                stepped.create(name, there[name])
            case 1 if name in there:
                del there[name]
                stepped.delete(name)
            case 2 if name in there:
                there[name] += 1
                controller.create_partitions([AddedPartitions(name, there[name])])
                stepped.announce()
        asked = chance.choice([None, [name], names])
        version = chance.randint(5, 8)
        kept = answered(client, stepped, metadata(asked, "same", version), ApiKey.METADATA, version)
        fresh = answered(client, stepped, metadata(asked, f"new {step}", version), ApiKey.METADATA, version)
        assert kept[4:] == fresh[4:], (seed, step)


def test_what_is_kept_while_the_metadata_change_is_not_given_again() -> None:
    """A response started with the old ACLs must not outlast them, despite concurrent requests."""
    metadata, listeners = SimpleNamespace(version=5), SimpleNamespace(version=1)
    cache = answer_cache.AnswerCache(cast("MetadataCache", metadata), cast("ListenerTable", listeners))

    def frame(request: bytes) -> Any:
        return SimpleNamespace(view=memoryview(request), start=0, end=len(request), session=ANONYMOUS, listener=0)

    asked = b"\0\3\0\x0c\0\0\0\1a long request"
    key = cache.key_of(frame(asked))
    assert key is not None
    assert cache.find(key) is None
    metadata.version = 6
    other = cache.key_of(frame(b"\0\3\0\x0c\0\0\0\2another request"))
    assert other is not None
    assert cache.find(other) is None
    cache.keep(key, b"\0\0\0\5\0\0\0\1x", NO_FACTS, ("METADATA", ""))
    again = cache.key_of(frame(asked))
    assert again is not None
    assert cache.find(again) is None
    cache.keep(again, b"\0\0\0\5\0\0\0\1y", NO_FACTS, ("METADATA", ""))
    found = cache.find(again)
    assert found is not None
    assert found.payload(9).endswith(b"y")
