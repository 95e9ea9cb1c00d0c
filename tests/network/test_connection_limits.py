"""The connection limits from settings and quotas, by listener and address."""

from __future__ import annotations

import threading
from collections.abc import Mapping

import pytest

from rotunda.broker.config.broker_config import load
from rotunda.broker.network.acceptor.connection_limits import ConnectionLimits, ListenerLimits, limits_of
from rotunda.broker.network.acceptor.connection_rate import UNLIMITED
from rotunda.broker.network.acceptor.descriptors import descriptors_of
from rotunda.broker.network.acceptor.excess import shares
from rotunda.broker.network.acceptor.host_names import RETRY_NS, HostNames, canonical, look_up
from rotunda.broker.network.acceptor.parked_sockets import MOST_PARKED
from tests.support.deadline import deadline_s, wait_until
from tests.support.fakes import FakeClock

QUOTA = "connection_creation_rate"
LISTENERS = "CLIENTS://127.0.0.1:0,PLAINTEXT://127.0.0.1:0"
PROTOCOLS = "CLIENTS:PLAINTEXT"


def limits(sets: Mapping[str, str], quotas: Mapping[str | None, float] | None = None) -> ConnectionLimits:
    """Return the limits of two listeners, with quotas by address."""
    given = {"listeners": LISTENERS, "listener.security.protocol.map": PROTOCOLS, **sets}
    config = load(None, given, {})
    entities = {(("ip", host),): {QUOTA: rate} for host, rate in (quotas or {}).items()}
    others = {(("user", "a"),): {"producer_byte_rate": 1.0}}
    hosts = HostNames(FakeClock().monotonic_ns)
    return limits_of(config, {**entities, **others}, config.listener_names, hosts.addresses_of)


def test_without_settings_there_are_no_limits() -> None:
    found = limits({})
    assert (found.total, found.rate, found.refusal_rate, found.per_address) == (UNLIMITED,) * 4
    assert (found.listener(0), found.listener(7)) == (ListenerLimits(), ListenerLimits())
    assert found.rate_of("10.0.0.1") == UNLIMITED


def test_a09_a_listener_without_its_own_limit_has_the_brokers() -> None:
    """Including the protected one."""
    found = limits(
        {
            "max.connections": "10",
            "max.connection.creation.rate": "20",
            "listener.name.clients.max.connections": "7",
            "listener.name.plaintext.max.connection.creation.rate": "9",
        }
    )
    assert found.listeners == (ListenerLimits(7, 20), ListenerLimits(10, 9))


def test_a16_the_protected_listener_is_named_or_called_plaintext_and_never_alone() -> None:
    assert limits({}).protected == 1
    assert limits({"inter.broker.listener.name": "clients"}).protected == 0
    assert limits({"listeners": "PLAINTEXT://127.0.0.1:0"}).protected == -1
    assert (
        limits(
            {
                "listeners": "CLIENTS://127.0.0.1:0,OTHERS://127.0.0.1:0",
                "listener.security.protocol.map": "CLIENTS:PLAINTEXT,OTHERS:PLAINTEXT",
            }
        ).protected
        == -1
    )


def test_a14_overrides_of_addresses() -> None:
    """The last colon is the separator, so IPv6 works; an address has one text for all its spellings."""
    found = limits(
        {
            "max.connections.per.ip": "5",
            "max.connections.per.ip.overrides": "10.0.0.1:7, ::1:9,[FE80:0::2]:3,::ffff:10.0.0.3:2",
        }
    )
    addresses = ("10.0.0.1", "::1", "fe80::2", "10.0.0.3", "10.0.0.2")
    assert [found.of(each) for each in addresses] == [7, 9, 3, 2, 5]


def test_a12_quotas_of_addresses_and_their_default() -> None:
    found = limits({}, {"10.0.0.1": 7.0, "::1": 9.0, None: 3.0})
    assert [found.rate_of(each) for each in ("10.0.0.1", "::1", "10.0.0.2")] == [7, 9, 3]


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("::ffff:10.0.0.1", "10.0.0.1"),
        ("fe80::1%lo", "fe80::1"),
        ("2001:DB8:0:0::1", "2001:db8::1"),
        ("127.0.0.1", "127.0.0.1"),
    ],
)
def test_an_address_has_one_text(text: str, address: str) -> None:
    """An IPv4 client of a dual-stack listener has its IPv4 address, as in Java."""
    assert canonical(text) == address


def test_names_are_looked_up_outside_the_loop_and_again_if_unknown(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A12, A15: until then they have no address."""
    clock, proceed = FakeClock(), threading.Event()
    known = {"a.example": ("10.0.0.1", "::1")}

    def resolve(host: str) -> tuple[str, ...]:
        assert proceed.wait(deadline_s())
        return known.get(host, ())

    hosts = HostNames(clock.monotonic_ns, resolve)
    assert hosts.addresses_of("[::1]") == ("::1",)
    assert not hosts.run_once()
    for name in ("a.example", "b.example"):
        assert hosts.addresses_of(name) == ()
    # It does not block.
    assert not hosts.run_once()
    assert not hosts.run_once()
    proceed.set()
    wait_until(hosts.run_once, "the answer")
    assert hosts.addresses_of("a.example") == ("10.0.0.1", "::1")
    assert hosts.addresses_of("b.example") == ()
    assert "b.example" in caplog.text
    known["b.example"] = ("10.0.0.2",)
    assert not hosts.run_once()
    clock.advance_ns(RETRY_NS)
    wait_until(hosts.run_once, "the second answer")
    assert hosts.addresses_of("b.example") == ("10.0.0.2",)


def test_hosts_of_this_machine() -> None:
    assert "127.0.0.1" in look_up("localhost")
    assert look_up("no.such.invalid") == ()


@pytest.mark.parametrize(
    ("excess", "closable", "closed"),
    [
        (0, {0: 3}, {}),
        (1, {0: 3, 1: 4}, {1: 1}),
        (3, {0: 3, 1: 4}, {0: 1, 1: 2}),
        (9, {0: 3, 1: 4, 2: 0}, {0: 3, 1: 4}),
        (2, {}, {}),
    ],
)
def test_a18_exactly_the_excess_is_divided_among_the_processors(
    excess: int, closable: dict[int, int], closed: dict[int, int]
) -> None:
    assert shares(excess, closable) == closed


@pytest.mark.parametrize("limit", [64, 256, 1024, 4096, 1_048_576])
def test_descriptors_are_kept_back_for_the_processor_and_for_administrators(limit: int) -> None:
    found = descriptors_of(limit)
    assert 0 < found.ordinary < found.protected < limit
    assert limit - found.protected >= min(limit // 4, 512)
    assert found.parked <= min(limit // 2, MOST_PARKED)


def test_without_a_limit_of_open_files_there_is_none_of_connections() -> None:
    assert descriptors_of(-1).ordinary == UNLIMITED
