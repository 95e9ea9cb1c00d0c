"""The metrics that a client is asked to push: all subscriptions that match it, united (KIP-714).

Pure. A subscription's patterns are compiled when the settings of subscriptions change, by `metadata.topics.topic_regex`
or, for syntax that RE2 lacks, by Python's `re`.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final, NamedTuple

from rotunda.broker.metadata.configs.client_metrics_config import CLIENT_METRICS_CONFIGS, client_metrics_value
from rotunda.broker.metadata.topics.topic_regex import InvalidPatternError, compiled

if TYPE_CHECKING:
    from rotunda.broker.config.keys import Value

#: Asks for every metric.
EVERYTHING: Final = "*"

#: The push interval of a client without a subscription.
DEFAULT_INTERVAL_MS: Final = 300_000

_INT32_SIGN: Final = 1 << 31

Matches = Callable[[str], bool]


class ClientFacts(NamedTuple):
    """The facts of a client that selectors are about, by the name of the selector."""

    client_instance_id: str
    client_id: str
    client_software_name: str
    client_software_version: str
    client_source_address: str
    client_source_port: str = ""
    """Unknown: a processor does not pass it on."""


class Subscription(NamedTuple):
    """The request to one client: prefixes of metric names, `EVERYTHING`, or none; and the interval of pushes."""

    subscription_id: int
    metrics: tuple[str, ...]
    interval_ms: int


class _Stored(NamedTuple):
    """One subscription as an administrator has made it."""

    metrics: tuple[str, ...]
    interval_ms: int
    selectors: tuple[tuple[str, Matches], ...]

    def matches(self, client: ClientFacts) -> bool:
        """Return whether every selector matches a client."""
        return all(matches(getattr(client, selector)) for selector, matches in self.selectors)


class Subscriptions:
    """All stored subscriptions."""

    def __init__(self, configs: Mapping[str, Mapping[str, str]]) -> None:
        self._stored = [_stored(each) for each in configs.values()]

    def of(self, client: ClientFacts, instance_id: bytes) -> Subscription:
        """Return what a client is asked for. The same settings give it the same subscription id at any time."""
        matching = [each for each in self._stored if each.matches(client)]
        metrics = {metric for each in matching for metric in each.metrics}
        names = (EVERYTHING,) if EVERYTHING in metrics else tuple(sorted(metrics))
        interval_ms = min((each.interval_ms for each in matching), default=DEFAULT_INTERVAL_MS)
        terms = "\n".join((str(interval_ms), *names)).encode()
        number = zlib.crc32(terms) ^ zlib.crc32(instance_id)
        return Subscription(number - 2 * (number & _INT32_SIGN), names, interval_ms)


def _stored(configs: Mapping[str, str]) -> _Stored:
    metrics, interval_ms, pairs = (_value(name, configs) for name in ("metrics", "interval.ms", "match"))
    assert isinstance(interval_ms, int)  # noqa: S101 - the type of the setting
    assert isinstance(metrics, tuple)  # noqa: S101 - the type of the setting
    assert isinstance(pairs, tuple)  # noqa: S101 - the type of the setting
    selectors = []
    for pair in pairs:
        selector, _, pattern = pair.partition("=")
        selectors.append((selector.strip(), _matcher(pattern.strip())))
    return _Stored(metrics, interval_ms, tuple(selectors))


def _value(name: str, configs: Mapping[str, str]) -> Value:
    return client_metrics_value(CLIENT_METRICS_CONFIGS[name], configs)


def _matcher(pattern: str) -> Matches:
    """Return whether a text matches a pattern entirely."""
    try:
        return compiled(pattern).matches
    except InvalidPatternError:
        expression = re.compile(pattern)
        return lambda text: expression.fullmatch(text) is not None
