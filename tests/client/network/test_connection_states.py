"""When a connection may be made again, and to which address."""

from __future__ import annotations

import random
from socket import AF_INET

import pytest

from rotunda.broker.client.network.addresses import Address
from rotunda.broker.client.network.connection_states import ClusterConnectionStates
from rotunda.broker.client.network.network_config import NetworkConfig
from tests.client.network.fake_selector import SEED

CONFIG = NetworkConfig()
ADDRESSES = [Address(AF_INET, f"10.0.0.{number}") for number in range(1, 4)]


class Resolver:
    """DNS that a test changes, and counts."""

    def __init__(self) -> None:
        self.addresses = list(ADDRESSES)
        self.asked = 0

    def __call__(self, host: str) -> list[Address]:
        assert host in {"host", "elsewhere"}
        self.asked += 1
        return list(self.addresses)


@pytest.fixture
def resolver() -> Resolver:
    """Return a DNS with three addresses."""
    return Resolver()


@pytest.fixture
def states(resolver: Resolver) -> ClusterConnectionStates:
    """Return states with Kafka's defaults."""
    return ClusterConnectionStates(CONFIG, random.Random(SEED), resolver)


def test_g29_reconnect_backoff_doubles_with_jitter_up_to_the_most(states: ClusterConnectionStates) -> None:
    now_ms = 0.0
    for base in (50, 100, 200, 400, 800, 1000, 1000):
        states.connecting(1, now_ms, "host")
        now_ms += 5
        states.disconnected(1, now_ms)
        delay_ms = states.connection_delay_ms(1, now_ms)
        assert 0.8 * base <= delay_ms <= min(1.2 * base, 1000)
        assert not states.can_connect(1, now_ms + delay_ms - 0.01), "measured from the last attempt"
        assert states.connection_delay_ms(1, now_ms + delay_ms / 2) == pytest.approx(delay_ms / 2)
        now_ms += delay_ms
        assert states.can_connect(1, now_ms)
    states.connecting(1, now_ms, "host")
    states.ready(1)
    states.disconnected(1, now_ms)
    assert states.connection_delay_ms(1, now_ms) <= 60, "ready nodes reconnect"


def test_g29_equal_backoffs_have_no_jitter() -> None:
    config = NetworkConfig(reconnect_backoff_ms=70, reconnect_backoff_max_ms=70)
    states = ClusterConnectionStates(config, random.Random(SEED), Resolver())
    for _ in range(5):
        states.connecting(1, 0, "host")
        states.disconnected(1, 0)
        assert states.connection_delay_ms(1, 0) == 70


def test_g29_addresses_are_tried_one_after_the_other_and_looked_up_again_at_the_end(
    states: ClusterConnectionStates, resolver: Resolver
) -> None:
    tried = []
    for _ in ADDRESSES:
        tried.append(states.connecting(1, 0, "host"))
        states.disconnected(1, 0)
        assert states.has_another_address(1) is (len(tried) < len(ADDRESSES))
    assert tried == ADDRESSES
    assert resolver.asked == 1
    resolver.addresses = [ADDRESSES[2], ADDRESSES[0]]
    assert states.connecting(1, 0, "host") == ADDRESSES[0], "not the one that has just failed"
    assert resolver.asked == 2


def test_g29_a_lost_connection_is_looked_up_again(states: ClusterConnectionStates, resolver: Resolver) -> None:
    states.connecting(1, 0, "host")
    states.ready(1)
    states.disconnected(1, 0)
    resolver.addresses = [Address(AF_INET, "10.9.9.9")]
    assert states.connecting(1, 1000, "host").host == "10.9.9.9"


def test_g29_another_host_begins_again(states: ClusterConnectionStates, resolver: Resolver) -> None:
    for _ in range(5):
        states.connecting(1, 0, "host")
        states.disconnected(1, 0)
    states.connecting(1, 0, "elsewhere")
    assert resolver.asked == 3
    states.disconnected(1, 0)
    assert states.connection_delay_ms(1, 0) <= 60


def test_g30_setup_timeout_doubles_up_to_the_most_and_begins_again_when_connected(
    states: ClusterConnectionStates,
) -> None:
    now_ms = 0.0
    for base in (10_000, 20_000, 30_000, 30_000):
        states.connecting(1, now_ms, "host")
        timeout_ms = states.setup_timeout_ms(1)
        assert 0.8 * base <= timeout_ms <= min(1.2 * base, 30_000)
        assert states.nodes_with_setup_timeout(now_ms + timeout_ms - 1) == []
        assert states.next_setup_timeout_ms(now_ms + timeout_ms - 1) == pytest.approx(1)
        now_ms += timeout_ms
        assert states.nodes_with_setup_timeout(now_ms) == [1]
        states.disconnected(1, now_ms)
        assert states.nodes_with_setup_timeout(now_ms) == []
    states.connecting(1, now_ms, "host")
    states.checking_api_versions(1)
    assert states.nodes_with_setup_timeout(now_ms + 1e6) == [], "connected nodes wait for their requests"
    assert states.setup_timeout_ms(1) <= 12_000


def test_g33_throttled_is_not_ready(states: ClusterConnectionStates) -> None:
    states.connecting(1, 0, "host")
    states.ready(1)
    states.throttle(1, 500)
    states.throttle(1, 300)
    assert not states.is_ready(1, 499)
    assert states.is_ready(1, 500)
    assert states.poll_delay_ms(1, 200) == 300
    states.disconnected(1, 400)
    assert states.poll_delay_ms(1, 400) <= 60, "a lost connection does not wait for the throttle"
