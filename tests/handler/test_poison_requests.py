"""Requests that kill their handler: dropped after the second death, with a log line, without harm to others."""

from __future__ import annotations

import logging
import struct
from collections.abc import Callable
from typing import Any
from unittest import mock

import pytest

from rotunda.broker.handler.api_calls import ApiCalls
from rotunda.broker.handler.screening import Screening
from rotunda.broker.ipc.request_channel import CLOSE_CONNECTION, SEND
from rotunda.broker.log.partition_log import PartitionLog
from rotunda.broker.log.segments.log_segment import LogSegment
from rotunda.broker.partitions.fetch.fetch import Fetch
from rotunda.broker.partitions.fetch.fetches import Fetches
from rotunda.broker.partitions.produce.partition_appender import PartitionAppender
from tests.support.stepped_broker import Killed, Sent, SteppedBroker, batch_for, produced
from tests.support.wire_messages import CREATE_TOPICS, FETCH, FETCH_VERSION, METADATA, fetch_body, metadata_body, string

POISON = b"poison"
LIST_GROUPS = 16
CONTROLLER = 2
METADATA_VERSION = 4

pytestmark = pytest.mark.stepped({"topic": 4}, most_deaths=2)


@pytest.fixture
def kills(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Return a function that patches a method to kill its process if one of its arguments, as bytes, has the poison."""

    def patch(owner: type, name: str, bytes_of: Callable[..., bytes]) -> None:
        real = getattr(owner, name)

        def deadly(*args: Any, **named: Any) -> Any:
            if POISON in bytes_of(*args):
                raise Killed
            return real(*args, **named)

        monkeypatch.setattr(owner, name, deadly)

    return patch


def settle(broker: SteppedBroker) -> int:
    """Run all targets until every request has a response, and replace dead ones; return the number of deaths."""
    deaths = 0
    for _ in range(40):
        for index in range(CONTROLLER + 1):
            try:
                broker.run_once(index)
            except Killed:
                deaths += 1
                broker.replace(index)
        broker.drain()
        broker.clock.advance_ns(100_000)
    return deaths


def is_dropped(sent: Sent) -> bool:
    return [each.kind for each in sent.answers] == [CLOSE_CONNECTION]


def lines(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [each.getMessage() for each in caplog.records if each.levelno == logging.ERROR]


@pytest.mark.parametrize("known", [0, 3])
def test_a_produce_that_kills_is_dropped_after_the_second_death(
    stepped: SteppedBroker, kills: Callable[..., None], caplog: pytest.LogCaptureFixture, known: int
) -> None:
    """Earlier and later requests in its ring get a response, and are in the log once."""
    kills(LogSegment, "try_stage", lambda _, batch, *__: bytes(batch))
    partition = stepped.owned_by("topic", 0)[0]
    clients = [stepped.client() for _ in range(3)]
    for client in clients[:known]:
        client.produce([batch_for(partition, b"known")])
    stepped.settle()
    before, poison, behind = (
        client.produce([batch_for(partition, value)])
        for client, value in zip(clients, (b"one", POISON, b"two"), strict=True)
    )
    assert settle(stepped) == 2
    assert is_dropped(poison)
    assert poison.answer.error_code == -1
    assert (produced(before), produced(behind)) == ([(0, known)], [(0, known + 1)])
    assert stepped.values("topic", partition) == [b"known"] * known + [b"one", b"two"]
    [line] = lines(caplog)
    assert "Produce version 7 of client 'test' at " in line
    assert "has killed handler 0 2 times; it is dropped" in line
    assert stepped.released(0, 0)


def test_a_response_that_kills_is_dropped_after_the_second_death(
    stepped: SteppedBroker, kills: Callable[..., None], caplog: pytest.LogCaptureFixture
) -> None:
    """The copy that its processor resends is the same request."""
    kills(ApiCalls, "handle", lambda _, __, frame: bytes(frame.view[frame.start : frame.end]))
    bystander = stepped.client().send(METADATA, METADATA_VERSION, metadata_body([]), target=0)
    poison = stepped.client().send(METADATA, METADATA_VERSION, metadata_body(["poison"]), target=0)
    behind = stepped.client().send(METADATA, METADATA_VERSION, metadata_body([]), target=0)
    assert settle(stepped) == 2
    assert is_dropped(poison)
    assert bystander.answer.kind == behind.answer.kind == SEND
    assert len(lines(caplog)) == 1


def test_the_controller_outlives_a_request_that_kills_it(
    stepped: SteppedBroker, kills: Callable[..., None], caplog: pytest.LogCaptureFixture
) -> None:
    kills(ApiCalls, "handle", lambda _, __, frame: bytes(frame.view[frame.start : frame.end]))
    body = struct.pack(">i", 1) + string("poison") + struct.pack(">ihiii?", 1, 1, 0, 0, 30_000, False)
    poison = stepped.client().send(CREATE_TOPICS, 2, body, target=CONTROLLER)
    assert settle(stepped) == 2
    assert is_dropped(poison)
    [line] = lines(caplog)
    assert "CreateTopics version 2" in line
    assert "has killed the controller 2 times" in line


def test_a_part_that_kills_its_owner_closes_the_connection_at_its_taker(
    stepped: SteppedBroker, kills: Callable[..., None], caplog: pytest.LogCaptureFixture
) -> None:
    """The part of the origin handler has been appended; the other is rejected permanently."""
    kills(PartitionLog, "stage", lambda _, batch, *__, **___: bytes(batch))
    own, other = stepped.owned_by("topic", 0)[0], stepped.owned_by("topic", 1)[0]
    poison = stepped.client().produce([batch_for(own, b"one"), batch_for(other, POISON)])
    behind = stepped.client().produce([batch_for(other, b"two")])
    assert poison.target == 0
    assert settle(stepped) == 2
    assert is_dropped(poison)
    assert produced(behind) == [(0, 0)]
    assert stepped.values("topic", own) == [b"one"]
    assert stepped.values("topic", other) == [b"two"]
    refused, closed = sorted(lines(caplog), key=len)
    assert refused == "a part of a Produce from handler 0 has killed handler 1 2 times; it is rejected"
    assert "Produce version 7 of client 'test'" in closed
    assert "has killed handler 1 2 times" in closed
    assert all(stepped.released(0, target) for target in range(2))


def test_a_response_that_was_put_off_and_kills_is_its_requests_fault(
    stepped: SteppedBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And not attributed to the request that was being handled when it was retried."""
    partition = stepped.owned_by("topic", 1)[0]
    real = Fetches._send

    def deadly(self: Fetches, fetch: Fetch) -> None:
        if fetch.request.connection_id == fetching.connection:
            raise Killed
        real(self, fetch)

    monkeypatch.setattr(Fetches, "_send", deadly)
    fetching = stepped.client()
    parked = fetching.send(FETCH, FETCH_VERSION, fetch_body("topic", partition, 0, max_wait_ms=60_000), target=0)
    stepped.run_once(0)
    produce = stepped.client().produce([batch_for(partition, b"value")])
    assert settle(stepped) == 2
    assert is_dropped(parked)
    assert produced(produce) == [(0, 0)]


def test_a_slice_that_kills_is_its_requests_fault(stepped: SteppedBroker, caplog: pytest.LogCaptureFixture) -> None:
    """The death occurs turns after the request was read and its memory released."""

    def deadly(self: ApiCalls, request: Any, work: Any) -> Any:
        for _ in range(5):
            yield None
        if request.connection_id == poisonous.connection:
            raise Killed
        return (yield from real(self, request, work))

    real = ApiCalls._in_slices
    with mock.patch.object(ApiCalls, "_in_slices", deadly):
        poisonous = stepped.client()
        sent = [
            client.send(LIST_GROUPS, 0, b"", target=0) for client in (stepped.client(), poisonous, stepped.client())
        ]
        assert settle(stepped) == 2
    assert is_dropped(sent[1])
    assert sent[0].answer.kind == sent[2].answer.kind == SEND
    assert "ListGroups version 0 of client 'test'" in lines(caplog)[-1]


def test_a_request_that_kills_in_the_commit_is_found_by_handling_each_alone(
    stepped: SteppedBroker, kills: Callable[..., None]
) -> None:
    """The first death is not attributed: a turn commits all its staged batches together."""
    kills(
        PartitionAppender,
        "commit",
        lambda appends: b"".join(
            bytes(answer[-1]) for owned in appends.dirty.values() for answer in [*owned.callbacks, *owned.fast_appends]
        ),
    )
    partition = stepped.owned_by("topic", 0)[0]
    before, poison, behind = (
        stepped.client().produce([batch_for(partition, value)]) for value in (b"one", POISON, b"two")
    )
    assert settle(stepped) == 3
    assert is_dropped(poison)
    assert (produced(before), produced(behind)) == ([(0, 0)], [(0, 1)])
    assert stepped.values("topic", partition) == [b"one", b"two"]


def test_a_replacement_does_not_screen_requests_dropped_before_the_window(
    stepped: SteppedBroker, kills: Callable[..., None]
) -> None:
    kills(ApiCalls, "handle", lambda _, __, frame: bytes(frame.view[frame.start : frame.end]))
    stepped.client().send(METADATA, METADATA_VERSION, metadata_body(["poison"]), target=0)
    assert settle(stepped) == 2
    stepped.clock.advance_ns(stepped.config.process_restart_window_ms * 1_000_000)
    with mock.patch.object(Screening, "handle", autospec=True, side_effect=Screening.handle) as screened:
        stepped.replace(0)
        stepped.clock.advance_ms(1)
        for _ in range(3):
            stepped.client().send(METADATA, METADATA_VERSION, metadata_body([]), target=0)
            assert settle(stepped) == 0
    assert screened.call_count == 1


def test_one_death_drops_nothing(stepped: SteppedBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    deaths = iter([True])
    real = ApiCalls.handle

    def deadly_once(self: ApiCalls, api: Any, request: Any) -> None:
        if next(deaths, False):
            raise Killed
        real(self, api, request)

    monkeypatch.setattr(ApiCalls, "handle", deadly_once)
    sent = [stepped.client().send(METADATA, METADATA_VERSION, metadata_body([]), target=0) for _ in range(3)]
    assert settle(stepped) == 1
    assert [each.answer.kind for each in sent] == [SEND] * 3


def test_nobody_is_blamed_for_a_death_after_a_fault(stepped: SteppedBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    """A fault ends a turn in the middle of a request; the process is killed later, while it sleeps."""
    handler = stepped.handler(0)

    def run_once() -> bool:
        handler._poison.current.enter((1, 7))
        raise ZeroDivisionError("ours")

    for _ in range(2):
        handler = stepped.handler(0)
        monkeypatch.setattr(handler.slices, "run_once", run_once)
        with pytest.raises(ZeroDivisionError, match="ours"):
            stepped.run_once(0)
        stepped.replace(0)
    assert stepped.handler(0)._poison.current.deaths() == {}


@pytest.mark.parametrize("size", [6, 5000])
@pytest.mark.parametrize("what", ["produce", "forwarded", "metadata"])
def test_a_request_dropped_twice_is_dropped_without_a_death(
    stepped: SteppedBroker, kills: Callable[..., None], caplog: pytest.LogCaptureFixture, what: str, size: int
) -> None:
    """A client resends requests without a response. It is tried again after the window of restarts."""
    kills(PartitionLog, "stage", lambda _, batch, *__, **___: bytes(batch))
    kills(ApiCalls, "handle", lambda _, __, frame: bytes(frame.view[frame.start : frame.end])[:80])
    own, other = stepped.owned_by("topic", 0)[0], stepped.owned_by("topic", 1)[0]

    def send(value: bytes) -> Sent:
        client = stepped.client()
        client.send(METADATA, METADATA_VERSION, metadata_body([]), target=0)
        if what == "metadata":
            return client.send(METADATA, METADATA_VERSION, metadata_body([value.decode()]), target=0)
        parts = [batch_for(own, value)] if what == "produce" else []
        if what == "forwarded":
            parts = [batch_for(own, b"harmless"), batch_for(other, value)]
        return client.produce(parts)

    poison, harmless = POISON.ljust(size, b"."), b"posion".ljust(size, b".")
    assert is_dropped_in(stepped, send(poison), 2)
    assert is_dropped_in(stepped, send(poison), 2)
    for _ in range(3):
        assert is_dropped_in(stepped, send(poison), 0)
        again = send(harmless)
        assert settle(stepped) == 0
        assert again.answer.kind == SEND
    assert (
        "equals 2 dropped requests, the last 0 s ago; it is rejected, and its connection is closed" in lines(caplog)[-1]
    )
    stepped.clock.advance_ns(stepped.config.process_restart_window_ms * 1_000_000)
    assert is_dropped_in(stepped, send(poison), 2)


def is_dropped_in(broker: SteppedBroker, sent: Sent, deaths: int) -> bool:
    """Return whether a request is dropped after this number of deaths."""
    return settle(broker) == deaths and is_dropped(sent)
