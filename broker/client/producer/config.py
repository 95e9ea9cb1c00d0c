"""The settings of a producer, by Kafka 4.4's names, types, defaults and ranges; and how a configuration is read.

Besides types and ranges, rules across settings are checked (G07, G25), and removed names of Kafka (G38) and unknown
names. TLS and SASL settings (security.protocol, ssl.*, sasl.*) are read by `broker.client.access`. Runs in the user's
process, once per producer. docs/producer-settings.md is generated from the declarations.
"""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Mapping
from itertools import count
from typing import Any, Final, NamedTuple

from rotunda.broker.client.access import PLAIN_TEXT, Access, access_of
from rotunda.broker.client.network.network_config import NetworkConfig
from rotunda.broker.config.keys import MAX_INT, Key, Kind, keys_of, setting
from rotunda.broker.config.settings.log import LZ4_LEVELS, ZSTD_LEVELS, gzip_level_complaint
from rotunda.broker.errors import ConfigError, UsageError
from rotunda.broker.records.record_batch import CODECS
from rotunda.broker.text_table import did_you_mean

_LOG: Final = logging.getLogger(__name__)

#: Settings of Kafka 0.8 to 0.10, and their replacements.
_LEGACY: Final[Mapping[str, str]] = {
    "metadata.fetch.timeout.ms": "max.block.ms",
    "timeout.ms": "request.timeout.ms",
}
_BLOCK_ON_BUFFER_FULL: Final = "block.on.buffer.full"

#: TLS and SASL settings, read by `broker.client.access`.
_ACCESS_PREFIXES: Final = ("ssl.", "sasl.")
_ACCESS_NAMES: Final = frozenset({"security.protocol", "enable.ssl.certificate.verification"})
#: Settings of Kafka's Java client alone: accepted without effect, with a warning in the log.
WITHOUT_MEANING: Final[Mapping[str, str]] = {
    "bootstrap.resolve.timeout.ms": "names are resolved once, by the constructor",
    "buffer.memory.allocation.strategy": "memory is counted, not allocated ahead",
    "client.rack": "racks do not affect partitioning",
    "config.providers": "values are not resolved",
    "enable.metrics.push": "metrics are not pushed to brokers; use Producer.metrics()",
    "metadata.cluster.check.enable": "a change of cluster is not checked",
    "metric.reporters": "use Producer.metrics()",
    "metrics.num.samples": "rates are of the producer's whole life",
    "metrics.recording.level": "all metrics are recorded",
    "metrics.sample.window.ms": "rates are of the producer's whole life",
    "partitioner.rack.aware": "racks do not affect partitioning",
    "security.providers": "Python's own TLS is used",
}
REJECTED: Final[Mapping[str, str]] = {
    "transaction.two.phase.commit.enable": "two-phase commit (KIP-939) is not supported",
}
_MOST_IN_FLIGHT: Final = 5

_numbers = count(1)


def _non_empty(value: str) -> str | None:
    return None if value else "String must be non-empty"


class Compression(NamedTuple):
    """A codec number, and its level; None for the codec's default."""

    codec: int = 0
    level: int | None = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class ProducerSettings(NetworkConfig):
    """The settings, by Kafka's names with underscores. Times are milliseconds."""

    acks: str = setting(
        Kind.STRING,
        "all",
        choices=("all", "-1", "0", "1"),
        doc="Replicas that must have a record before it counts as delivered: all in sync (all, -1), the leader "
        "(1), or none (0).",
    )
    enable_idempotence: bool = setting(
        Kind.BOOLEAN,
        True,
        doc="Write each record exactly once and in order, also with retries. Needs acks=all, retries and at most "
        "5 requests in flight. If not set explicitly, it is disabled by incompatible acks or retries.",
    )
    transactional_id: str | None = setting(
        Kind.STRING,
        None,
        nullable=True,
        validator=_non_empty,
        doc="Name of a transactional producer, the same over restarts; the latest producer with it fences the others.",
    )
    transaction_timeout_ms: int = setting(
        Kind.INT, 60_000, least=1, doc="Time after which the broker aborts an open transaction."
    )
    key_serializer: object = setting(
        Kind.CLASS,
        "bytes",
        nullable=True,
        doc="Serializer of keys: a function (topic, key, headers), or `bytes`, `string`, `integer`, `long`, "
        "`double`, `json`, a name of Kafka's (`org.apache.kafka.common.serialization.StringSerializer`), or "
        "`module:name` of a function.",
    )
    value_serializer: object = setting(
        Kind.CLASS, "bytes", nullable=True, doc="Serializer of values, like key.serializer."
    )
    batch_size: int = setting(
        Kind.INT, 16_384, unit="bytes", least=0, doc="Size at which a batch is sent; 0: one record per batch."
    )
    linger_ms: int = setting(Kind.LONG, 5, least=0, doc="Time that a batch waits for more records.")
    buffer_memory: int = setting(
        Kind.LONG,
        33_554_432,
        unit="bytes",
        least=0,
        doc="Memory for undelivered records. When it is full, `send` waits.",
    )
    max_block_ms: int = setting(
        Kind.LONG,
        60_000,
        least=0,
        doc="Maximum wait of `send`, `partitions_for` and transaction calls, for metadata, memory or the broker.",
    )
    max_request_size: int = setting(
        Kind.INT,
        1_048_576,
        unit="bytes",
        least=0,
        doc="Maximum uncompressed size of a record, and maximum size of a request.",
    )
    compression_type: str = setting(Kind.STRING, "none", choices=CODECS, doc="Codec of batches.")
    compression_gzip_level: int = setting(
        Kind.INT, -1, validator=gzip_level_complaint, doc="Level of gzip, 1 to 9; -1 is the library's own."
    )
    compression_lz4_level: int = setting(Kind.INT, 9, least=LZ4_LEVELS[0], most=LZ4_LEVELS[1], doc="Level of lz4.")
    compression_zstd_level: int = setting(Kind.INT, 3, least=ZSTD_LEVELS[0], most=ZSTD_LEVELS[1], doc="Level of zstd.")
    partitioner_class: object = setting(
        Kind.CLASS,
        None,
        nullable=True,
        doc="A function (topic, key, key's bytes, value, value's bytes, cluster) that returns a "
        "partition, or `RoundRobinPartitioner`; none: the key's hash, or the sticky partition.",
    )
    partitioner_ignore_keys: bool = setting(
        Kind.BOOLEAN, False, doc="Send records with a key to the sticky partition too."
    )
    partitioner_adaptive_partitioning_enable: bool = setting(
        Kind.BOOLEAN, True, doc="Prefer partitions with few waiting batches as sticky partition."
    )
    partitioner_availability_timeout_ms: int = setting(
        Kind.LONG,
        0,
        least=0,
        doc="The sticky partitioner avoids brokers that have not accepted ready batches for this long; 0: off.",
    )
    interceptor_classes: tuple[object, ...] = setting(
        Kind.LIST,
        (),
        doc="Objects with `on_send(record)` and `on_acknowledgement(metadata, error)`, or `module:name` "
        "of their classes.",
    )
    retries: int = setting(
        Kind.INT,
        2_147_483_647,
        least=0,
        most=2_147_483_647,
        doc="Maximum number of retries of a batch, within `delivery.timeout.ms`.",
    )
    delivery_timeout_ms: int = setting(
        Kind.INT,
        120_000,
        least=0,
        doc="Time after which an unacknowledged record fails. At least linger.ms plus request.timeout.ms.",
    )

    @property
    def required_acks(self) -> int:
        """-1 for all."""
        return -1 if self.acks == "all" else int(self.acks)

    @property
    def compression(self) -> Compression:
        """The codec and its level; Kafka's default levels are the codecs' own."""
        name = self.compression_type
        levels = {name: getattr(self, f"compression_{name}_level") for name in ("gzip", "lz4", "zstd")}
        level = levels.get(name)
        is_default = name not in levels or level == KEYS[f"compression.{name}.level"].default
        return Compression(CODECS.index(name), None if is_default else level)

    @property
    def guarantees_message_order(self) -> bool:
        """Whether at most one batch of a partition is in flight (`G24`)."""
        return self.max_in_flight_requests_per_connection == 1


KEYS: Final[Mapping[str, Key]] = keys_of(ProducerSettings)


@dataclasses.dataclass(frozen=True)
class ProducerConfig:
    """A validated configuration."""

    settings: ProducerSettings
    access: Access


def read_config(given: Mapping[str, Any]) -> ProducerConfig:
    """Validate a configuration given by Kafka's names. Raises ConfigError with a remedy."""
    named = _without_legacy(given)
    access = {name: _text(value) for name, value in named.items() if _is_of_access(name)}
    values: dict[str, Any] = {}
    for name, value in named.items():
        if name in KEYS:
            values[KEYS[name].attribute] = _value(KEYS[name], value)
        elif name in REJECTED:
            if _text(value).lower() != "false":
                raise ConfigError(f"{name}={_text(value)}: {REJECTED[name]}; remove it")
        elif name in WITHOUT_MEANING:
            _LOG.warning("%s has no effect here: %s", name, WITHOUT_MEANING[name])
        elif name not in access:
            hint = did_you_mean(name, [*KEYS, *_ACCESS_NAMES])
            raise ConfigError(f"unknown setting {name}{hint}: see docs/producer-settings.md")
    if not values.get("bootstrap_servers"):
        raise ConfigError("bootstrap.servers is missing: set it to at least one broker, as host:port")
    names = frozenset(named)
    _check_idempotence(values, names)
    _check_delivery_timeout(values, names)
    _check_backoff(values, names)
    values["client_id"] = values.get("client_id") or _client_id(values)
    try:
        found = access_of(access) if access else PLAIN_TEXT
    except UsageError as failure:
        raise ConfigError(str(failure)) from failure
    return ProducerConfig(ProducerSettings(**values), found)


def _without_legacy(given: Mapping[str, Any]) -> dict[str, Any]:
    """Replace removed names by their current names (G38)."""
    for name in given:
        if not isinstance(name, str):
            raise ConfigError(f"invalid setting name {name!r:.60}: not a str")
    named = dict(given)
    for old, new in _LEGACY.items():
        if old in named:
            value = named.pop(old)
            _LOG.warning("%s is a name of Kafka 0.10: use %s", old, new)
            named.setdefault(new, value)
    if _BLOCK_ON_BUFFER_FULL in named:
        blocks = _text(named.pop(_BLOCK_ON_BUFFER_FULL)).lower() == "true"
        _LOG.warning("%s is a name of Kafka 0.10: use max.block.ms", _BLOCK_ON_BUFFER_FULL)
        # Java blocked without limit if it was true, and not at all otherwise.
        named.setdefault("max.block.ms", (1 << 63) - 1 if blocks else 0)
    return named


def _is_of_access(name: str) -> bool:
    return name in _ACCESS_NAMES or name.startswith(_ACCESS_PREFIXES)


def _text(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (list, tuple)):
        return ",".join(map(str, value))
    return "" if value is None else str(value)


def _value(key: Key, value: object) -> object:
    """Parse a setting given as text or as a Python value. Raises ConfigError."""
    if key.name == "interceptor.classes":
        given = value.split(",") if isinstance(value, str) else value
        return tuple(given) if isinstance(given, (list, tuple)) else (given,)
    if value is None and key.nullable:
        return None
    if key.kind == Kind.CLASS and not isinstance(value, str):
        return value
    try:
        if value == "":
            key.check("")  # an empty value differs from an unset one
        return key.parse(_text(value))
    except ValueError as complaint:
        shown = "null" if value is None else _text(value)
        raise ConfigError(f"Invalid value {shown} for configuration {key.name}: {complaint}") from complaint


def _whole(values: Mapping[str, Any], name: str) -> int:
    key = KEYS[name]
    return int(values.get(key.attribute, key.default))


def _check_idempotence(values: dict[str, Any], given: frozenset[str]) -> None:
    """Check the requirements of idempotence; disable it if they are not met and it was not set explicitly (G25)."""
    wanted = "enable.idempotence" in given
    if values.get("enable_idempotence", True):
        conflict = ""
        if values.get("retries", 1) == 0:
            conflict = "retries=0: set it to more than 0"
        elif values.get("acks", "all") not in {"all", "-1"}:
            conflict = f"acks={values['acks']}: set it to all"
        if conflict and wanted:
            raise ConfigError(f"enable.idempotence=true is incompatible with {conflict}")
        in_flight = values.get("max_in_flight_requests_per_connection", _MOST_IN_FLIGHT)
        if not conflict and in_flight > _MOST_IN_FLIGHT:
            raise ConfigError(
                f"an idempotent producer has at most {_MOST_IN_FLIGHT} requests in flight, and "
                f"max.in.flight.requests.per.connection is {in_flight}: lower it, or set enable.idempotence=false"
            )
        if conflict:
            _LOG.info("Idempotence is disabled by %s", conflict.partition(":")[0])
            values["enable_idempotence"] = False
    if values.get("transactional_id") is not None and not values.get("enable_idempotence", True):
        raise ConfigError("transactional.id needs enable.idempotence=true, acks=all and retries above 0")


def _check_delivery_timeout(values: dict[str, Any], given: frozenset[str]) -> None:
    """Check the delivery timeout, or raise its default to the minimum (G07)."""
    least = min(_whole(values, "linger.ms") + _whole(values, "request.timeout.ms"), MAX_INT)
    wanted = _whole(values, "delivery.timeout.ms")
    if wanted < least:
        if "delivery.timeout.ms" in given:
            raise ConfigError(
                f"delivery.timeout.ms={wanted} is less than linger.ms and request.timeout.ms "
                f"together: set it to {least} or more"
            )
        _LOG.warning("delivery.timeout.ms is raised to %d, the sum of linger.ms and request.timeout.ms", least)
        values["delivery_timeout_ms"] = least


def _check_backoff(values: dict[str, Any], given: frozenset[str]) -> None:
    """Raise a default maximum backoff to the configured initial backoff, as Kafka does."""
    for first, longest in (
        ("reconnect.backoff.ms", "reconnect.backoff.max.ms"),
        ("retry.backoff.ms", "retry.backoff.max.ms"),
    ):
        wait = _whole(values, first)
        if longest not in given and wait > _whole({}, longest):
            values[KEYS[longest].attribute] = wait


def _client_id(values: Mapping[str, Any]) -> str:
    """Return a default client id (G01)."""
    transactional_id = values.get("transactional_id")
    return f"producer-{next(_numbers) if transactional_id is None else transactional_id}"
