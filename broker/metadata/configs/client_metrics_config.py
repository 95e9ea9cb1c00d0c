"""The settings of client metrics subscriptions (KIP-714): names and accepted values.

Subscriptions are created, described and deleted with the config APIs on CLIENT_METRICS resources. Without
`client.telemetry.receiver.enable` they are only stored. Pure; runs in handlers and the controller.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from rotunda.broker.config.keys import Key, Kind, Value
from rotunda.broker.errors import ApiError
from rotunda.broker.protocol.error_codes import ErrorCode
from rotunda.broker.text_table import did_you_mean

_INTERVAL: Final = "interval.ms"
_MATCH: Final = "match"
_LEAST_MS, _GREATEST_MS = 100, 3_600_000

CLIENT_METRICS_CONFIGS: Mapping[str, Key] = MappingProxyType(
    {
        key.name: key
        for key in (
            Key(
                name="metrics",
                kind=Kind.LIST,
                default=(),
                doc="Prefixes of metric names that clients push; * for all.",
            ),
            Key(
                name=_INTERVAL,
                kind=Kind.INT,
                default=300_000,
                unit="ms",
                doc="How often clients push.",
            ),
            Key(
                name=_MATCH,
                kind=Kind.LIST,
                default=(),
                doc="Which clients push: pairs of selector=pattern, all of which must match; all clients if there is "
                "none.",
            ),
        )
    }
)

#: The selectors of a `match` pair.
_SELECTORS: Final = frozenset(
    {
        "client_instance_id",
        "client_id",
        "client_software_name",
        "client_software_version",
        "client_source_address",
        "client_source_port",
    }
)


def client_metrics_value(key: Key, configs: Mapping[str, str]) -> Value:
    """Return the effective value for a subscription with the settings ``configs``."""
    own = configs.get(key.name)
    return key.default if own is None else key.parse(own)


def validate_client_metrics(name: str, configs: Mapping[str, str]) -> None:
    """Raise ApiError, with the valid choices, if a subscription has an invalid name or invalid settings.

    As in Kafka, INVALID_CONFIG for a value of the wrong type or a malformed pair of `match`, else INVALID_REQUEST.
    """
    if not name:
        raise _bad_request("Subscription name can't be empty")
    for key in configs:
        if key not in CLIENT_METRICS_CONFIGS:
            hint = did_you_mean(key, CLIENT_METRICS_CONFIGS)
            raise _bad_request(f"Unknown client metrics configuration: {key}{hint}")
    for key_name, text in configs.items():
        _check_type(CLIENT_METRICS_CONFIGS[key_name], text)
    interval_ms = client_metrics_value(CLIENT_METRICS_CONFIGS[_INTERVAL], configs)
    if not isinstance(interval_ms, int) or not _LEAST_MS <= interval_ms <= _GREATEST_MS:
        raise _bad_request(
            f"Invalid value {interval_ms} for {_INTERVAL}, interval must be between {_LEAST_MS} and {_GREATEST_MS} "
            "(1 hour)"
        )
    pairs = client_metrics_value(CLIENT_METRICS_CONFIGS[_MATCH], configs)
    for pair in pairs if isinstance(pairs, tuple) else ():
        if not _is_pair(pair):
            raise _bad_value(
                f"Illegal client matching pattern: {pair}; it is selector=pattern, and the selectors are "
                f"{', '.join(sorted(_SELECTORS))}"
            )


def _check_type(key: Key, text: str) -> None:
    try:
        key.parse(text)
    except ValueError as error:
        raise _bad_value(f"Invalid value {text} for configuration {key.name}: {error}") from None


def _is_pair(pair: str) -> bool:
    """Return whether a pair is a selector, one equals sign and a pattern."""
    selector, *patterns = pair.rstrip("=").split("=")
    return selector.strip() in _SELECTORS and len(patterns) == 1 and _is_pattern(patterns[0].strip())


def _is_pattern(pattern: str) -> bool:
    """Return whether Python or RE2 accepts a pattern: nearly all of Java's syntax is valid in one of them."""
    from rotunda.broker.metadata.topics.topic_regex import InvalidPatternError, compiled  # noqa: PLC0415 - few admins need RE2

    try:
        compiled(pattern)
    except InvalidPatternError:
        try:
            re.compile(pattern)
        except re.error:
            return False
    return True


def _bad_request(message: str) -> ApiError:
    return ApiError(ErrorCode.INVALID_REQUEST, message)


def _bad_value(message: str) -> ApiError:
    return ApiError(ErrorCode.INVALID_CONFIG, message)
