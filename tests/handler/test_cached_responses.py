"""Cached responses: the same bytes as a newly encoded response, after any change in between."""

from __future__ import annotations

import random
import secrets
from typing import Any

import pytest

from rotunda.broker.apis.table import APIS
from rotunda.broker.metadata.topics.topic_validation import AddedPartitions
from rotunda.broker.protocol import codec
from rotunda.broker.protocol.api_keys import ApiKey
from rotunda.broker.scheduling.deferred import Deferred
from tests.support.record_batches import record_batch
from tests.support.stepped_broker import Client, SteppedBroker


def frame_of(key: ApiKey, version: int, client_id: str, values: dict[str, Any]) -> bytes:
    """Return a request from its api key on."""
    return codec.encode_request(key, version, 0, client_id, values)[4:]


def answered(client: Client, broker: SteppedBroker, frame: bytes, key: ApiKey, version: int) -> bytes:
    """Return handler 0's response to a request, without its size."""
    sent = client.send_frame(key, version, frame, 0)
    broker.settle()
    return sent.answer.payload[4:]


def metadata(names: list[str] | None, client_id: str = "a", version: int = 8) -> bytes:
    topics = None if names is None else [{"name": name} for name in names]
    return frame_of(ApiKey.METADATA, version, client_id, {"topics": topics, "allow_auto_topic_creation": False})


def test_a_response_about_a_closed_partition_is_not_repeated(stepped: SteppedBroker) -> None:
    stepped.settle()
    client, table = stepped.client(), stepped.parts(0).partitions.table
    row = stepped.partition("topic", 2).row
    state = table.state(row)
    table.set_state(row, 0)
    closed = answered(client, stepped, metadata(["topic"]), ApiKey.METADATA, 8)
    table.set_state(row, state)
    assert answered(client, stepped, metadata(["topic"]), ApiKey.METADATA, 8)[4:] != closed[4:]


def test_a_response_made_while_the_topics_change_is_not_cached(
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


def questions(names: list[str], name: str) -> list[tuple[ApiKey, int, dict[str, Any]]]:
    """Return requests with cached responses, or whose decoded form is cached, about existing and missing topics."""
    topics = [None, [{"name": name}], [{"name": each} for each in names]]
    metadata = [{"topics": each, "allow_auto_topic_creation": False} for each in topics]
    part = {"partition_index": 0, "timestamp": -1}
    fetched = [{"topic": name, "partitions": [{"fetch_offset": at, "partition_max_bytes": 1000}]} for at in (0, 1)]
    return [
        *((ApiKey.METADATA, version, fields) for version in range(5, 9) for fields in metadata),
        *((ApiKey.LIST_OFFSETS, 7, {"topics": [{"name": name, "partitions": [part]}]}),) * 4,
        *((ApiKey.FETCH, 11, {"session_epoch": -1, "max_bytes": 1000, "topics": [each]}) for each in fetched * 2),
    ]


def test_a_response_is_that_to_a_new_connection_of_a_new_client(stepped: SteppedBroker) -> None:
    """Topics are created, deleted, recreated, extended and written to; requests of new client ids are not cached."""
    seed = secrets.randbits(32)
    print(f"seed {seed}")
    chance = random.Random(seed)
    names = [f"t{number}" for number in range(4)]
    there: dict[str, int] = {}
    client = stepped.client()
    for step in range(200):
        name = chance.choice(names)
        match chance.randrange(7):
            case 0 if name not in there:
                there[name] = chance.randint(1, 3)
                stepped.create(name, there[name])
            case 1 if name in there:
                del there[name]
                stepped.delete(name)
            case 2 if name in there:
                there[name] += 1
                stepped.controller.create_partitions([AddedPartitions(name, there[name])])
                stepped.announce()
            case 3 | 4 if name in there:
                stepped.client().produce([(name, 0, record_batch([b"a"]))])
                stepped.settle()
        key, version, fields = chance.choice(questions(names, name))
        kept = answered(client, stepped, frame_of(key, version, "same", fields), key, version)
        fresh = answered(stepped.client(), stepped, frame_of(key, version, f"new {step}", fields), key, version)
        assert kept[4:] == fresh[4:], (seed, step, key)
