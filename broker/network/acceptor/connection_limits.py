"""The current connection limits, built from the broker's settings and the quotas of addresses.

Pure values, used by the acceptor. Replaced whenever a setting or a quota changes, or a host name has been resolved
(`A26`, `A27`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, NamedTuple

from rotunda.broker.network.acceptor.connection_rate import UNLIMITED, Windows
from rotunda.broker.network.acceptor.descriptors import Descriptors
from rotunda.broker.network.acceptor.host_names import is_address

if TYPE_CHECKING:
    from rotunda.broker.config.broker_config import BrokerConfig

_NONE: Final[Mapping[str, int]] = MappingProxyType({})
_KAFKAS_WINDOWS: Final = Windows()
_NO_END_OF_DESCRIPTORS: Final = Descriptors()
_ADDRESS_QUOTA: Final = "connection_creation_rate"

#: By (("ip", address, host name or None for the default),): quotas by key, as in the metadata.
Quotas = Mapping[tuple[tuple[str, str | None], ...], Mapping[str, float]]


class ListenerLimits(NamedTuple):
    """Maximum connections of a listener, and its maximum of new connections per second."""

    total: int = UNLIMITED
    rate: int = UNLIMITED


class ConnectionLimits(NamedTuple):
    """All limits. ``listeners`` is by listener index; listeners beyond its end are unlimited."""

    total: int = UNLIMITED
    rate: int = UNLIMITED
    #: Connections above this rate are rejected; those above ``rate`` wait.
    refusal_rate: int = UNLIMITED
    listeners: tuple[ListenerLimits, ...] = ()
    #: The listener exempt from ``total`` and from the broker's rates; -1: none (`A16`).
    protected: int = -1
    per_address: int = UNLIMITED
    overrides: Mapping[str, int] = _NONE
    address_rate: int = UNLIMITED
    address_rates: Mapping[str, int] = _NONE
    descriptors: Descriptors = _NO_END_OF_DESCRIPTORS
    #: The windows of the rates; fixed when the acceptor starts.
    windows: Windows = _KAFKAS_WINDOWS

    def of(self, address: str) -> int:
        """Return the maximum number of connections of an address."""
        return self.overrides.get(address, self.per_address)

    def rate_of(self, address: str) -> int:
        """Return the maximum rate of new connections of an address, per second."""
        return self.address_rates.get(address, self.address_rate)

    def listener(self, index: int) -> ListenerLimits:
        """Return the limits of a listener."""
        return self.listeners[index] if index < len(self.listeners) else _UNLIMITED_LISTENER


_UNLIMITED_LISTENER: Final = ListenerLimits()


def limits_of(
    config: BrokerConfig,
    quotas: Quotas,
    listeners: Sequence[str],
    addresses_of: Callable[[str], Sequence[str]],
    descriptors: Descriptors = _NO_END_OF_DESCRIPTORS,
) -> ConnectionLimits:
    """Return the limits of a broker with these listener names.

    ``addresses_of`` returns the addresses of a host, empty for an unknown or not yet resolved one.
    """
    rates = {entity[0][1]: int(values[_ADDRESS_QUOTA]) for entity, values in quotas.items() if entity[0][0] == "ip"}
    default_rate = rates.pop(None, UNLIMITED)
    protected = config.protected_listener
    return ConnectionLimits(
        total=config.max_connections,
        rate=config.max_connection_creation_rate,
        refusal_rate=config.connection_refusal_rate,
        listeners=tuple(
            ListenerLimits(
                _number(config.of_listener(name, "max.connections")),
                _number(config.of_listener(name, "max.connection.creation.rate")),
            )
            for name in listeners
        ),
        protected=listeners.index(protected) if protected in listeners else -1,
        per_address=config.max_connections_per_ip,
        overrides=_by_address(_entries(config.max_connections_per_ip_overrides), addresses_of),
        address_rate=default_rate,
        address_rates=_by_address(((host, rate) for host, rate in rates.items() if host is not None), addresses_of),
        descriptors=descriptors,
        windows=Windows(config.quota_window_num, config.quota_window_size_seconds * 1000),
    )


def _number(value: object) -> int:
    return value if isinstance(value, int) else UNLIMITED


def _entries(text: str) -> Iterator[tuple[str, int]]:
    """Yield host and number of ``host:number,host:number``. An IPv6 address contains colons (`A14`)."""
    for entry in filter(None, (each.strip() for each in text.split(","))):
        host, _, number = entry.rpartition(":")
        yield host, int(number)


def _by_address(limits: Iterable[tuple[str, int]], addresses_of: Callable[[str], Sequence[str]]) -> dict[str, int]:
    """Return limits by address. An entry for the address itself overrides entries for host names."""
    found: dict[str, int] = {}
    named: dict[str, int] = {}
    for host, limit in limits:
        for address in addresses_of(host):
            (found if is_address(host) else named)[address] = limit
    return named | found
