"""The acceptor's table of open connections (`A33`)."""

import random

import pytest

from rotunda.broker.network.acceptor.connection_quotas import ConnectionQuotas


@pytest.mark.parametrize("address", ["fe80::1%eth-0-1", "::ffff:10.0.0.1", "10.0.0.1", "2001:db8::1-2"])
def test_b18_the_address_is_remembered_not_read_from_an_id(address: str) -> None:
    """A scope id may contain the separator of Kafka's connection ids."""
    quotas = ConnectionQuotas(1, 1)
    for serial in range(3):
        quotas.inc(0, serial, 0, address)
    assert quotas.by_address == {address: 3}
    for serial in range(3):
        assert quotas.dec(0, serial) == 0
    assert quotas.by_address == {}


@pytest.mark.parametrize("seed", [random.randrange(2**32)])
def test_a19_random_reports_against_a_set(seed: int) -> None:
    print("seed", seed)
    chance = random.Random(seed)
    quotas = ConnectionQuotas(3, 2)
    model: dict[tuple[int, int], tuple[int, str]] = {}
    for _ in range(2000):
        key = chance.randrange(2), chance.randrange(40)
        if chance.random() < 0.5:
            entry = chance.randrange(3), f"host{chance.randrange(4)}"
            assert quotas.inc(*key, *entry) == (key not in model)
            model.setdefault(key, entry)
        else:
            assert quotas.dec(*key) == model.pop(key, (-1, ""))[0]
        assert quotas.total == len(model)
        assert quotas.by_listener == [sum(e[0] == i for e in model.values()) for i in range(3)]
        assert set(quotas.by_address) == {entry[1] for entry in model.values()}
