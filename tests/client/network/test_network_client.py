"""The network client against brokers that a test plays, on a clock that a test moves."""

from __future__ import annotations

import logging
import math
from dataclasses import replace

import pytest

from rotunda.broker.client.errors import IllegalState, SaslAuthenticationFailed, UnsupportedVersion
from rotunda.broker.client.network.channel import ChannelPhase, ChannelState
from rotunda.broker.client.network.network_config import NetworkConfig
from rotunda.broker.client.network.requests import CLIENT_VERSIONS, ClientResponse
from rotunda.broker.protocol.api_keys import ApiKey
from rotunda.broker.protocol.codec import encode_response
from rotunda.broker.protocol.error_codes import ErrorCode
from tests.client.network.fake_selector import SERVED, World, metadata_answer, versions_answer

ANSWER = {"error_code": 0, "producer_id": 7, "producer_epoch": 0}


@pytest.fixture
def world() -> World:
    """Return a client that has its brokers' metadata, and is connected to broker 1."""
    world = World()
    world.know("topic")
    world.connect(1)
    return world


def test_g28_api_versions_are_requested_before_a_connection_is_used() -> None:
    world = World()
    world.know()
    [node, _] = world.nodes
    assert not world.client.ready(node, world.now_ms)
    assert not world.client.is_ready(node, world.now_ms), "connecting"
    world.selector.establish(1)
    world.poll()
    header = world.selector.unanswered[1][0]
    assert (header.api_key, header.api_version) == (ApiKey.API_VERSIONS, CLIENT_VERSIONS[ApiKey.API_VERSIONS][1])
    assert not world.client.is_ready(node, world.now_ms), "checking versions"
    world.selector.response(1, versions_answer(SERVED))
    world.poll()
    assert world.client.is_ready(node, world.now_ms)


@pytest.mark.parametrize(("served", "asked_next"), [({ApiKey.API_VERSIONS: (0, 2)}, 2), ({}, 0)])
def test_g28_error_35_is_followed_by_the_version_that_the_broker_names(
    served: dict[int, tuple[int, int]], asked_next: int
) -> None:
    world = World()
    world.know()
    world.client.ready(world.nodes[0], world.now_ms)
    world.selector.establish(1)
    world.poll()
    rejection = versions_answer(served) | {"error_code": ErrorCode.UNSUPPORTED_VERSION}
    world.selector.response(1, rejection, version=0)
    world.poll()
    assert world.selector.unanswered[1][0].api_version == asked_next
    world.selector.response(1, versions_answer(SERVED))
    world.poll()
    assert world.client.is_ready(world.nodes[0], world.now_ms)


def test_g28_another_error_to_api_versions_ends_the_connection() -> None:
    world = World()
    world.know()
    world.client.ready(world.nodes[0], world.now_ms)
    world.selector.establish(1)
    world.poll()
    world.selector.response(1, {"error_code": ErrorCode.INVALID_REQUEST, "api_keys": []})
    world.poll()
    assert world.client.connection_failed(world.nodes[0])
    assert 1 not in world.selector.endpoints


def test_g28_a_rejected_authentication_is_reported(world: World) -> None:
    error = SaslAuthenticationFailed("wrong password")
    world.client.ready(world.nodes[1], world.now_ms)
    world.selector.end(2, ChannelState(ChannelPhase.AUTHENTICATION_FAILED, "host2", error))
    world.poll()
    assert world.client.connection_failed(world.nodes[1])
    with pytest.raises(SaslAuthenticationFailed, match="wrong password"):
        world.client.raise_authentication_error(world.nodes[1])
    with pytest.raises(SaslAuthenticationFailed, match="wrong password"):
        world.metadata.raise_fatal_error()


def test_g22_a_node_is_ready_when_no_metadata_is_due_and_its_connection_is_free(world: World) -> None:
    node, client = world.nodes[0], world.client
    assert client.ready(node, world.now_ms)
    world.metadata.request_update()
    assert not client.ready(node, world.now_ms + 1000), "metadata is due"
    assert client.can_send_request(1, world.now_ms + 1000)
    world.clock.advance_ms(200)
    world.poll()
    assert client.ready(node, world.now_ms), "metadata is in progress"
    world.selector.response(1, metadata_answer(world.nodes, ["topic"]))
    world.poll()
    world.selector.leaves = False
    world.send(1)
    assert not client.ready(node, world.now_ms), "the newest request has not left yet"
    with pytest.raises(IllegalState, match="not ready"):
        world.send(1)


def test_g22_no_more_requests_than_allowed_are_in_flight(world: World) -> None:
    for _ in range(world.config.max_in_flight_requests_per_connection):
        assert world.client.ready(world.nodes[0], world.now_ms)
        world.send(1)
    assert not world.client.ready(world.nodes[0], world.now_ms)
    assert world.client.in_flight_count == 5
    world.selector.response(1, ANSWER)
    world.poll()
    assert world.client.ready(world.nodes[0], world.now_ms)


def test_g23_responses_complete_requests_in_order(world: World) -> None:
    sent = [world.send(1) for _ in range(3)]
    for _ in sent:
        world.selector.response(1, ANSWER)
    responses = world.poll()
    assert [each.request for each in responses] == sent
    assert [each.body.producer_id for each in responses] == [7, 7, 7]
    assert world.client.in_flight_count == 0


def test_g23_a_request_without_a_response_completes_when_it_has_left(world: World) -> None:
    world.send(1, expects_response=False)
    [response] = world.poll()
    assert response.was_received
    assert response.body is None
    assert world.client.in_flight_count == 0


@pytest.mark.parametrize("damage", ["another id", "cut short", "not asked for"])
def test_g23_an_invalid_response_ends_the_connection(
    world: World, damage: str, caplog: pytest.LogCaptureFixture
) -> None:
    sent = [world.send(1), world.send(1)]
    header = world.selector.unanswered[1][0]
    number = header.correlation_id + (17 if damage == "another id" else 0)
    response = encode_response(header.api_key, header.api_version, number, ANSWER)[4:]
    expected = sent
    if damage == "not asked for":
        for _ in sent:
            world.selector.response(1, ANSWER)
        expected = []
    world.selector.receive(1, response[:-3] if damage == "cut short" else response)
    world.selector.receive(1, response)
    with caplog.at_level(logging.ERROR):
        responses = world.poll()
    assert [each.request for each in responses if each.disconnected] == expected
    assert world.client.connection_failed(world.nodes[0])
    assert "invalid response of node" in caplog.text


def test_g34_the_highest_common_version_is_used(world: World) -> None:
    world.send(1, versions=(0, 3))
    world.send(1, versions=(4, 9))
    assert [each.api_version for each in world.selector.sent[-2:]] == [3, 5]


def test_g34_unsupported_requests_are_not_sent(world: World) -> None:
    before = len(world.selector.sent)
    request = world.send(1, versions=(6, 9))
    polls = len(world.selector.timeouts)
    [response] = world.poll(1000)
    assert len(world.selector.timeouts) == polls, "local failures are returned at once and alone"
    assert response.request is request
    assert isinstance(response.version_mismatch, UnsupportedVersion)
    assert not response.was_received
    assert len(world.selector.sent) == before
    assert world.client.in_flight_count == 0


def test_g33_a_throttled_node_is_left_alone_and_its_requests_get_longer(world: World) -> None:
    world.send(1)
    waiting = world.send(1)
    world.selector.response(1, ANSWER | {"throttle_time_ms": 700})
    world.poll()
    node = world.nodes[0]
    assert not world.client.ready(node, world.now_ms)
    assert world.client.poll_delay_ms(node, world.now_ms) == 700
    world.clock.advance_ms(700)
    assert world.client.ready(node, world.now_ms)
    # The other one is in flight since the same moment, and may be so for the timeout and the throttle time.
    world.clock.advance_ms(int(waiting.timeout_ms) - 1)
    assert world.poll() == []
    world.clock.advance_ms(1)
    [response] = world.poll()
    assert response.timed_out


def test_g33_in_an_older_version_the_broker_has_waited_itself(world: World) -> None:
    world.send(1, versions=(0, 0))
    world.selector.response(1, ANSWER | {"throttle_time_ms": 700})
    world.poll()
    assert world.client.ready(world.nodes[0], world.now_ms)


def test_g30_a_request_without_a_response_ends_its_connection(world: World) -> None:
    first = world.send(1)
    world.clock.advance_ms(10)
    second = world.send(1)
    world.clock.advance_ms(int(first.timeout_ms) - 11)
    assert world.poll() == []
    responses = world.poll(math.inf)
    assert [each.request for each in responses] == [first, second]
    assert all(each.timed_out and each.disconnected for each in responses)
    assert world.client.connection_failed(world.nodes[0])
    assert 1 not in world.selector.endpoints


def test_g30_a_slow_connection_is_closed_and_the_next_attempt_has_more_time() -> None:
    world = World(NetworkConfig(client_id="me", socket_connection_setup_timeout_ms=1000))
    world.know()
    node = world.nodes[0]
    lengths = []
    for _ in range(7):
        while 1 not in world.selector.endpoints:
            world.client.ready(node, world.now_ms)
            world.poll(100)
        while 1 in world.selector.endpoints:
            world.poll(math.inf)
        lengths.append(world.now_ms - world.selector.begun_ms[1])
    for attempt, length in enumerate(lengths):
        assert min(0.8 * 1000 * 2**attempt, 24_000) - 1 <= length <= min(1.2 * 1000 * 2**attempt, 30_000) + 1


def test_g31_requests_in_flight_fail_in_the_order_in_which_they_were_sent(world: World) -> None:
    sent = [world.send(1) for _ in range(4)]
    world.selector.response(1, ANSWER)
    world.selector.end(1)
    responses = world.poll()
    assert [each.request for each in responses] == sent
    assert [each.disconnected for each in responses] == [False, True, True, True], "data before the end counts"
    assert world.client.connection_failed(world.nodes[0])
    assert world.metadata.update_requested


def test_g31_a_metadata_request_that_is_lost_is_sent_again_by_the_client_itself(world: World) -> None:
    world.metadata.request_update()
    world.clock.advance_ms(500)
    world.poll()
    assert world.selector.unanswered[1][0].api_key == ApiKey.METADATA
    world.selector.end(1)
    assert world.poll() == []
    asked = [each.api_key for each in world.selector.sent].count(ApiKey.METADATA)
    for _ in range(100):
        world.poll(50)
        for node_id in set(world.selector.endpoints) - world.selector.ready:
            world.establish(node_id)
        if [each.api_key for each in world.selector.sent].count(ApiKey.METADATA) > asked:
            return
    raise AssertionError("it is not sent again")


def test_g31_an_idle_connection_ends_without_a_warning(world: World, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        world.selector.end(1, ChannelState(ChannelPhase.EXPIRED, "host1"))
        world.poll()
    assert world.client.connection_failed(world.nodes[0])
    assert not caplog.records


def test_g32_a_poll_waits_for_whatever_is_first(world: World) -> None:
    world.poll(25)
    assert world.selector.timeouts[-1] == 25
    world.send(1, timeout_ms=17)
    world.poll(25)
    assert world.selector.timeouts[-1] == 17
    world.poll(math.inf)
    assert world.selector.timeouts[-1] < world.config.metadata_max_age_ms


def test_g32_a_callback_that_fails_is_logged_and_the_others_are_called(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    called = []

    def fail(_: ClientResponse) -> None:
        raise ValueError("of the callback")

    world.send(1, callback=fail)
    world.send(1, callback=called.append)
    for _ in range(2):
        world.selector.response(1, ANSWER)
    responses = world.poll()
    assert called == responses[1:]
    assert "of the callback" in caplog.text


def test_g09_metadata_is_asked_of_the_node_with_the_least_to_do(world: World) -> None:
    world.connect(2)
    busy, idle = world.nodes
    world.send(1)
    assert {world.client.least_loaded_node(world.now_ms) for _ in range(20)} == {idle}
    world.send(2)
    world.send(2)
    assert {world.client.least_loaded_node(world.now_ms) for _ in range(20)} == {busy}
    world.selector.response(1, ANSWER)
    for _ in range(2):
        world.selector.response(2, ANSWER)
    world.poll()
    found = {world.client.least_loaded_node(world.now_ms) for _ in range(100)}
    assert found == {busy, idle}, "it begins anywhere"


def test_g09_a_connecting_node_is_preferred_to_an_unconnected_one() -> None:
    world = World(brokers=3)
    world.know()
    first, second, third = world.nodes
    world.client.ready(second, world.now_ms)
    assert {world.client.least_loaded_node(world.now_ms) for _ in range(20)} == {second}
    world.selector.end(2)
    world.poll()
    assert world.client.least_loaded_node(world.now_ms) in {first, third}, "the other is in its backoff"
    world.clock.advance_ms(1000)
    world.client.ready(first, world.now_ms)
    world.selector.end(1)
    world.poll()
    world.clock.advance_ms(1000)
    assert world.client.least_loaded_node(world.now_ms) == third, "it was never tried, so longest ago"


def test_g09_without_any_node_that_can_be_asked_the_client_begins_again(world: World) -> None:
    for node in world.nodes:
        del world.addresses[node.host]
    world.selector.end(1)
    for _ in range(500):
        world.poll(20)
        if world.metadata.fetch().is_bootstrap:
            break
    assert list(world.metadata.fetch().nodes) == [-1]
    for _ in range(100):
        world.poll(50)
        if -1 in world.selector.endpoints:
            return
    raise AssertionError("the bootstrap server is not tried again")


def test_g09_with_the_strategy_none_the_client_stays_with_the_nodes_it_knows() -> None:
    world = World(replace(World().config, metadata_recovery_strategy="none"))
    world.know("topic")
    world.connect(1)
    world.addresses.pop("host1")
    world.addresses.pop("host2")
    world.selector.end(1)
    for _ in range(200):
        world.poll(50)
    assert set(world.metadata.fetch().nodes) == {1, 2}


@pytest.mark.parametrize(("by", "strategy"), [("time", "rebootstrap"), ("error code", "REBOOTSTRAP")])
def test_g09_rebootstrap_after_too_long_without_metadata_or_by_the_brokers_error(by: str, strategy: str) -> None:
    world = World(
        NetworkConfig(
            client_id="me", metadata_recovery_strategy=strategy, metadata_recovery_rebootstrap_trigger_ms=5000
        )
    )
    world.know("topic")
    served = {**SERVED, ApiKey.METADATA: (0, 13)}
    world.connect(1, served=served)
    world.metadata.request_update()
    world.clock.advance_ms(500)
    world.poll()
    if by == "time":
        world.clock.advance_ms(5001)
    else:
        world.selector.response(1, {"brokers": [], "topics": [], "error_code": ErrorCode.REBOOTSTRAP_REQUIRED})
    world.poll()
    assert world.metadata.fetch().is_bootstrap
    assert 1 not in world.selector.endpoints


def test_g08_a_response_without_brokers_counts_as_none(world: World) -> None:
    version = world.metadata.update_version
    world.metadata.request_update()
    world.clock.advance_ms(500)
    world.poll()
    world.selector.response(1, {"brokers": [], "topics": []})
    world.poll()
    assert world.metadata.update_version == version
    assert world.metadata.update_requested
    assert world.metadata.time_to_next_update_ms(world.now_ms) > 0, "after a backoff"


def test_correlation_ids_leave_out_those_of_sasl(world: World) -> None:
    world.client._correlation_id = 2**31 - 10
    assert [world.client.next_correlation_id() for _ in range(3)] == [2**31 - 9, 0, 1]


def test_a_closed_client_sends_nothing(world: World) -> None:
    world.client.initiate_close()
    assert world.selector.wakeups == 1
    with pytest.raises(IllegalState):
        world.send(1)
    world.client.close()
    world.client.close()
    assert world.metadata.is_closed
