"""Admission of connections, with a fake clock: the layers of limits in their order."""

from __future__ import annotations

import pytest

from rotunda.broker.network.acceptor import admission
from rotunda.broker.network.acceptor.admission import Admission
from rotunda.broker.network.acceptor.connection_limits import ConnectionLimits, ListenerLimits
from rotunda.broker.network.acceptor.connection_quotas import ConnectionQuotas

HERE, THERE = "10.0.0.1", "10.0.0.2"
CLIENTS, BROKERS = 0, 1


def admitting(**limits: object) -> Admission:
    """Return the admission of a broker with two listeners and one processor."""
    return Admission(ConnectionQuotas(2, 1), ConnectionLimits(**limits))  # type: ignore[arg-type]


def open_connections(chosen: Admission, listener: int, count: int, address: str = HERE) -> None:
    for _ in range(count):
        assert chosen._quotas.inc(0, chosen._quotas.total, listener, address)


def test_a08_a_slot_of_the_listener_and_of_the_broker() -> None:
    chosen = admitting(total=5, listeners=(ListenerLimits(total=3), ListenerLimits()))
    open_connections(chosen, CLIENTS, 3)
    assert not chosen.has_slot(CLIENTS)
    assert chosen.has_slot(BROKERS)
    open_connections(chosen, BROKERS, 2)
    assert not chosen.has_slot(BROKERS)
    chosen.limits = chosen.limits._replace(total=6)
    assert chosen.has_slot(BROKERS)
    assert not chosen.has_slot(CLIENTS)


def test_a16_the_protected_listener_has_its_own_limits_only() -> None:
    chosen = admitting(
        total=3, rate=1, refusal_rate=1, protected=BROKERS, listeners=(ListenerLimits(), ListenerLimits(5))
    )
    open_connections(chosen, CLIENTS, 3)
    assert not chosen.has_slot(CLIENTS)
    for number in range(5):
        assert chosen.arrived(BROKERS, 0) == 0
        assert chosen.has_slot(BROKERS)
        assert chosen.rejection_ms(BROKERS, HERE, number) == 0
        open_connections(chosen, BROKERS, 1)
    assert not chosen.has_slot(BROKERS)
    # Ten of the clients' connections are free, independent of other listeners.
    assert [chosen.arrived(CLIENTS, 0) for _ in range(10)] == [0] * 10
    assert chosen.arrived(CLIENTS, 0) == 1000
    # The excess includes those of the protected listener, although no client is closed for its sake.
    assert chosen.excess() == 3


def test_a10_the_longer_wait_of_listener_and_broker() -> None:
    chosen = admitting(rate=5, listeners=(ListenerLimits(rate=4), ListenerLimits()))
    assert [chosen.arrived(CLIENTS, 0) for _ in range(40)] == [0] * 40
    assert chosen.arrived(CLIENTS, 0) == 250
    # The other listener has its own rate, and the broker's.
    assert [chosen.arrived(BROKERS, 0) for _ in range(9)] == [0] * 9
    assert chosen.arrived(BROKERS, 0) == 200
    # Waiting connections are counted as well: now both rates are above their limit.
    assert chosen.arrived(CLIENTS, 0) == 500


def test_a09_a12_each_address_has_the_rate_of_its_quota_or_the_default() -> None:
    chosen = admitting(address_rate=3, address_rates={THERE: 5})
    for address, free in ((HERE, 30), (THERE, 50), ("::1", 30)):
        assert [chosen.rejection_ms(CLIENTS, address, 0) for _ in range(free)] == [0] * free
        assert chosen.rejection_ms(CLIENTS, address, 0) > 0


def test_a12_a_rejected_connection_was_never_there_for_any_rate() -> None:
    """So each attempt has the same delay, and others are not delayed by it: A11's vector gives 200 ms each time."""
    chosen = admitting(rate=6, address_rates={HERE: 5}, listeners=(ListenerLimits(rate=6), ListenerLimits()))
    for number in range(50):
        assert chosen.arrived(CLIENTS, 0) == 0
        assert chosen.rejection_ms(CLIENTS, HERE, 0) == 0, number
    for _ in range(500):
        assert chosen.arrived(CLIENTS, 0) == 0
        assert chosen.rejection_ms(CLIENTS, HERE, 0) == 200
    for _ in range(10):
        assert chosen.arrived(CLIENTS, 0) == 0
        assert chosen.rejection_ms(CLIENTS, THERE, 0) == 0
    assert chosen.arrived(CLIENTS, 0) > 0


def test_a13_beyond_the_rejection_rate_nothing_of_it_stays_in_any_rate() -> None:
    """Nor in that of its address, which has its full rate as soon as the broker accepts connections again."""
    chosen = admitting(refusal_rate=5, address_rates={THERE: 1})
    assert [chosen.rejection_ms(CLIENTS, HERE, 0) for _ in range(50)] == [0] * 50
    assert [chosen.rejection_ms(CLIENTS, THERE, 0) for _ in range(500)] == [200] * 500
    chosen.limits = chosen.limits._replace(refusal_rate=100)
    assert [chosen.rejection_ms(CLIENTS, THERE, 0) for _ in range(10)] == [0] * 10
    assert chosen.rejection_ms(CLIENTS, THERE, 0) > 0


def test_a14_as_many_as_an_address_may_have_and_no_more() -> None:
    chosen = admitting(per_address=2, overrides={THERE: 0})
    open_connections(chosen, CLIENTS, 1)
    assert not chosen.is_full(HERE)
    open_connections(chosen, BROKERS, 1)
    assert chosen.is_full(HERE)
    assert chosen.is_full(THERE)


def test_rates_of_addresses_expire(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(admission, "MOST_ADDRESSES", 3)
    chosen = admitting(address_rate=1)
    for number in range(50):
        chosen.rejection_ms(CLIENTS, f"10.0.0.{number}", 0)
    assert list(chosen._addresses) == ["10.0.0.47", "10.0.0.48", "10.0.0.49"]
    for _ in range(3):
        chosen.rejection_ms(CLIENTS, HERE, admission.ADDRESS_EXPIRATION_MS)
    assert list(chosen._addresses) == [HERE]
