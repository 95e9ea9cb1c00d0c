"""Cached responses: the same bytes as a newly encoded response, after any change in between."""

from __future__ import annotations

import random
import secrets
from collections import Counter
from typing import Any

import pytest

from rotunda.broker.apis.table import APIS
from rotunda.broker.apis.topics import metadata as described_metadata
from rotunda.broker.handler import api_calls
from rotunda.broker.metadata.topics.topic_validation import AddedPartitions
from rotunda.broker.protocol import codec
from rotunda.broker.protocol.api_keys import ApiKey
from rotunda.broker.scheduling.deferred import Deferred
from tests.support.stepped_broker import Client, SteppedBroker


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


def test_software_that_is_rejected_is_rejected_each_time(stepped: SteppedBroker, calls: Counter[ApiKey]) -> None:
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


def test_what_is_described_while_the_topics_change_is_not_given_again(
    stepped: SteppedBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A response started with the old ACLs must not outlast them."""
    stepped.settle()
    api = APIS[ApiKey.METADATA]
    function = api.function
    assert function is not None

    due = Deferred()

    def late(request: Any, broker: Any, body: Any) -> Any:
        response = function(request, broker, body)

        def wait() -> Any:
            yield due
            return response

        return wait()

    with monkeypatch.context() as patched:
        patched.setitem(APIS, ApiKey.METADATA, api._replace(function=late))
        before = stepped.client().send_frame(ApiKey.METADATA, 8, metadata(None), 0)
        stepped.settle()
    stepped.create("other", 1)
    answered(stepped.client(), stepped, metadata(["topic"]), ApiKey.METADATA, 8)
    due.complete(True)
    stepped.settle()
    after = answered(stepped.client(), stepped, metadata(None), ApiKey.METADATA, 8)
    assert len(after) > len(before.answer.payload)


def test_long_responses_are_not_kept(
    stepped: SteppedBroker, calls: Counter[ApiKey], monkeypatch: pytest.MonkeyPatch
) -> None:
    stepped.settle()
    client = stepped.client()
    monkeypatch.setattr(api_calls, "MOST_ANSWER_BYTES", 50)
    for _ in range(2):
        answered(client, stepped, metadata(["topic"]), ApiKey.METADATA, 8)
    assert calls[ApiKey.METADATA] == 2


def test_a_response_is_what_a_client_that_asks_for_the_first_time_gets(stepped: SteppedBroker) -> None:
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
