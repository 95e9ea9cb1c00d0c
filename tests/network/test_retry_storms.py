"""Clients with repeated failures: the threshold from which responses are delayed, which ones, and for how long."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import pytest

from rotunda.broker.config.broker_config import load
from rotunda.broker.ipc.request_facts import subject
from rotunda.broker.ipc.response_writer import ResponseFacts
from rotunda.broker.network.processor.throttling import retry_storms
from rotunda.broker.network.processor.throttling.retry_storms import MOST_ERRORS, QUIET_NS, Failures
from rotunda.broker.protocol import codec
from rotunda.broker.protocol.api_keys import ApiKey
from rotunda.broker.protocol.error_codes import ErrorCode
from rotunda.shm.recorder_layout import HELD_BACK_BY, REQUEST_ROW
from tests.support.processor_bench import Client, ProcessorBench

MS = 1_000_000
DELAY_MS = 700
NOT_LEADER, UNKNOWN = int(ErrorCode.NOT_LEADER_OR_FOLLOWER), int(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
NOT_COORDINATOR = int(ErrorCode.NOT_COORDINATOR)
SETTINGS = {
    "automq.retry.storm.backoff.enabled": "true",
    "automq.retry.storm.backoff.max.delay.ms": str(DELAY_MS),
    "listeners": "PLAINTEXT://127.0.0.1:0,ADMIN://127.0.0.1:0",
    "listener.security.protocol.map": "ADMIN:PLAINTEXT",
}


def counted(*times_ms: int, is_transient: bool, delay_ms: int = 0) -> list[bool]:
    failures = Failures()
    return [failures.count(time_ms * MS, delay_ms * MS, is_transient=is_transient) for time_ms in times_ms]


def test_d22_the_second_error_of_a_leader_begins_it() -> None:
    assert counted(0, 1, 2, is_transient=True) == [False, True, True]
    assert counted(0, 1000, is_transient=True) == [False, True]
    assert counted(0, 1001, 2002, 3003, is_transient=True) == [False] * 4


def test_d22_the_sixth_error_of_any_kind_begins_it() -> None:
    assert counted(*range(7), is_transient=False) == [False] * 5 + [True] * 2
    assert counted(0, 200, 400, 600, 800, 1000, is_transient=False) == [False] * 5 + [True]
    assert counted(*range(0, 5000, 201), is_transient=False) == [False] * 25


def test_d22_errors_of_leaders_are_errors_of_any_kind_too() -> None:
    failures = Failures()
    kinds = [False] * 4 + [True, False]
    assert [failures.count(0, 0, is_transient=each) for each in kinds] == [False] * 5 + [True]


def test_d22_it_ends_with_a_second_without_errors_after_the_last_response_has_left() -> None:
    failures, delay_ns, now_ns = Failures(), 700 * MS, 10 * QUIET_NS
    failures.count(now_ns, delay_ns, is_transient=True)
    for _ in range(3):
        assert failures.count(now_ns, delay_ns, is_transient=True)
        now_ns += delay_ns + QUIET_NS
        assert not failures.is_over(now_ns)
        assert failures.count(now_ns, delay_ns, is_transient=False), "of whatever kind"
    now_ns += delay_ns + QUIET_NS + 1
    assert failures.is_over(now_ns)
    assert not failures.count(now_ns, delay_ns, is_transient=True)


@pytest.fixture
def on(bench: ProcessorBench) -> ProcessorBench:
    """Return a processor of a broker with delayed responses enabled."""
    follow(bench)
    return bench


def follow(bench: ProcessorBench, **changed: str) -> None:
    sets = {**SETTINGS, **{name.replace("_", "."): value for name, value in changed.items()}}
    bench.quotas.follow({}, load(None, {"log.dirs": str(bench.directory), **sets}, {}))


def produced(*errors: int, topic: str = "a") -> bytes:
    parts = [{"index": number, "error_code": error} for number, error in enumerate(errors)]
    values = {"responses": [{"name": topic, "partition_responses": parts}]}
    return codec.encode_response(ApiKey.PRODUCE, 9, 1, values)


def ask(bench: ProcessorBench, client: Client, response: bytes, facts: ResponseFacts, asked: Any = None) -> bool:
    """Send a request and its response; return whether the response arrives without delay."""
    key, version, values = asked or (ApiKey.PRODUCE, 9, {"acks": 1, "timeout_ms": 100, "topic_data": []})
    client.send(codec.encode_request(key, version, 1, "client", values))
    [request] = bench.requests(1)
    bench.targets[0].answer_failed(request, response, facts)
    bench.run_once(3)
    if not client.read():
        return False
    assert client.receive(len(response)) == response
    return True


def failing(bench: ProcessorBench, client: Client, *errors: int, topic: str = "a") -> bool:
    first = next((error for error in errors if error), 0)
    return ask(bench, client, produced(*errors, topic=topic), ResponseFacts(first))


def test_d22_a_response_is_held_back_and_nothing_of_it_changes(on: ProcessorBench) -> None:
    client = on.connect()
    assert failing(on, client, NOT_LEADER)
    assert not failing(on, client, NOT_LEADER)
    on.clock.advance_ms(DELAY_MS - 1)
    on.run_once(3)
    assert client.read() == b""
    on.clock.advance_ms(1)
    response = produced(NOT_LEADER)
    assert client.receive(len(response)) == response
    assert on.published_value("answers_delayed") == 1
    assert on.published_value("answers_held_back") == 0


def test_d22_later_responses_wait_and_other_connections_do_not(on: ProcessorBench) -> None:
    client, other = on.connect(), on.connect()
    assert failing(on, client, NOT_LEADER)
    assert not failing(on, client, NOT_LEADER)
    assert not failing(on, client, 0)
    assert failing(on, other, NOT_LEADER)
    assert failing(on, other, 0)
    assert on.published_value("answers_held_back") == 1
    on.clock.advance_ms(DELAY_MS)
    expected = produced(NOT_LEADER) + produced(0)
    assert client.receive(len(expected)) == expected


def test_d22_resources_are_counted_apart_and_one_that_has_worked_is_enough(on: ProcessorBench) -> None:
    client = on.connect()
    for topic in "abcdefgh":
        assert failing(on, client, NOT_LEADER, topic=topic)
    for _ in range(10):
        assert failing(on, client, NOT_LEADER, 0)
    # Of two failing partitions, one has failed before.
    assert failing(on, client, UNKNOWN, UNKNOWN, UNKNOWN, topic="other")
    assert not failing(on, client, NOT_LEADER, UNKNOWN, topic="h")


def fetch(bench: ProcessorBench, client: Client, max_wait_ms: int) -> bool:
    parts = [{"partition_index": 0, "error_code": NOT_LEADER}]
    response = codec.encode_response(ApiKey.FETCH, 12, 1, {"responses": [{"topic": "a", "partitions": parts}]})
    asked = ApiKey.FETCH, 12, {"max_wait_ms": max_wait_ms, "min_bytes": 1, "topics": []}
    return ask(bench, client, response, ResponseFacts(NOT_LEADER, about=subject(max_wait_ms=max_wait_ms)), asked)


def test_d22_a_fetch_waits_no_longer_than_it_would_have(on: ProcessorBench) -> None:
    client = on.connect()
    assert fetch(on, client, 100)
    assert not fetch(on, client, 100)
    on.clock.advance_ms(99)
    on.run_once(3)
    assert client.read() == b""
    on.clock.advance_ms(1)
    on.run_once(3)
    client.receive(len(client.read()))
    assert fetch(on, client, 0), "it was not to wait at all"
    assert not fetch(on, client, 60_000)
    on.clock.advance_ms(DELAY_MS)
    on.run_once(3)
    assert client.read()


def leave(bench: ProcessorBench, client: Client, group: str, error: int = NOT_COORDINATOR) -> bool:
    response = codec.encode_response(ApiKey.LEAVE_GROUP, 4, 1, {"error_code": error})
    return ask(
        bench, client, response, ResponseFacts(error), (ApiKey.LEAVE_GROUP, 4, {"group_id": group, "members": []})
    )


def test_d22_groups_are_distinguished_by_the_request(on: ProcessorBench) -> None:
    client = on.connect()
    for group in "abcdefgh":
        assert leave(on, client, group)
    assert not leave(on, client, "a")


def leader_errors(bench: ProcessorBench, clients: Iterable[Client]) -> Iterator[bool]:
    return (failing(bench, each, NOT_LEADER) for each in clients)


def test_d22_it_is_off_unless_it_is_set_and_is_set_while_it_runs(bench: ProcessorBench) -> None:
    client = bench.connect()
    for _ in range(2 * MOST_ERRORS):
        assert failing(bench, client, NOT_LEADER)
    follow(bench)
    assert failing(bench, client, NOT_LEADER), "nothing was counted before"
    assert not failing(bench, client, NOT_LEADER)
    follow(bench, automq_retry_storm_backoff_enabled="false")
    other = bench.connect()
    assert all(leader_errors(bench, [other] * 3))
    follow(bench, automq_retry_storm_backoff_max_delay_ms="0")
    assert all(leader_errors(bench, [other] * 3))


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("control_plane_listener_name", "ADMIN"),
        ("broker_quota_white_list_listener", "admin"),
        ("broker_quota_white_list_client_id", "client"),
        ("broker_quota_white_list_user", "ANONYMOUS"),
    ],
)
def test_d22_h03_exempt_clients_are_not_delayed(bench: ProcessorBench, name: str, value: str) -> None:
    """H03: for example by its listener; the id of the listener is stored with the connection."""
    follow(bench, **{name: value})
    client = bench.connect(listener=1)
    assert all(leader_errors(bench, [client] * 3))


def test_d22_the_request_log_has_the_cause_and_the_delay(on: ProcessorBench) -> None:
    client = on.connect()
    failing(on, client, NOT_LEADER)
    failing(on, client, NOT_LEADER)
    held = on.processor._by_id[next(iter(on.processor._by_id))].held
    on.clock.advance_ms(DELAY_MS)
    [(facts, _)] = [each.completion for each in held.values()]
    client.receive(len(produced(NOT_LEADER)))
    values = dict(
        zip((field.name for field in REQUEST_ROW.fields), REQUEST_ROW.struct.unpack(facts + bytes(24)), strict=True)
    )
    assert values["throttled_by"] == HELD_BACK_BY
    assert values["throttle_ms"] == 0
    assert values["response_complete_ns"] - values["local_complete_ns"] == DELAY_MS * MS


def test_d22_a_processor_that_ends_holds_nothing_back(on: ProcessorBench) -> None:
    client = on.connect()
    failing(on, client, NOT_LEADER)
    assert not failing(on, client, NOT_LEADER)
    on.processor.drain()
    response = produced(NOT_LEADER)
    assert client.receive(len(response)) == response
    on.turn_until(on.processor.drain, "nothing to be waited for")


def test_d22_known_failures_and_delayed_responses_have_limits(
    on: ProcessorBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retry_storms, "MOST_REMEMBERED", 3)
    client = on.connect()
    for topic in "abcd":
        assert failing(on, client, NOT_LEADER, topic=topic)
    assert len(on.responses.storms) == 3
    assert failing(on, client, NOT_LEADER, topic="a"), "it was forgotten"
    monkeypatch.setattr(retry_storms, "MOST_BYTES", 10)
    assert all(leader_errors(on, [client] * 3)), "too long to be looked at"


def test_d22_delayed_responses_end_with_their_connection(on: ProcessorBench) -> None:
    client = on.connect()
    failing(on, client, NOT_LEADER)
    assert not failing(on, client, NOT_LEADER)
    client.sock.close()
    on.run_once(5)
    on.clock.advance_ms(DELAY_MS + 1001)
    on.run_once(5)
    assert not len(on.responses.delayed)
    assert not len(on.responses.storms)
    assert not on.processor._by_id
