"""The broker's configuration: one frozen object, and how it comes about.

Read once, by the process that starts the broker; the children inherit the object. A flag beats the
environment, the environment beats the file, the file beats the default, and where each value came from is
kept. Nothing is read at import: the caller passes the environment in. What the keys are is declared in
``broker.config.server`` and ``broker.config.log``.
"""

from __future__ import annotations

import dataclasses
import enum
import os
import socket
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

from broker.config.broker_log import BrokerLogSettings
from broker.config.cleaner import CleanerSettings
from broker.config.connections import ConnectionSettings, per_ip_complaint
from broker.config.consumer_groups import ConsumerGroupSettings
from broker.config.fetch import FetchSettings
from broker.config.groups import GroupSettings
from broker.config.kafka import kafka_settings
from broker.config.keys import Key, Value, did_you_mean, keys_of, render
from broker.config.listeners import Listener, advertised, check_listeners, parse_listeners, parse_protocol_map
from broker.config.log import LogSettings
from broker.config.metrics import MetricsSettings
from broker.config.properties_file import parse_properties
from broker.config.request_log import RequestLogSettings
from broker.config.security import SecuritySettings
from broker.config.server import ServerSettings, log_dirs_complaint, node_id_complaint, pipeline_complaint
from broker.config.status import StatusSettings, check_status_host
from broker.config.storage import StorageSettings
from broker.config.transactions import TransactionSettings
from broker.errors import ConfigError

#: Environment variables of this prefix are settings, all of them: one that names no setting is an error.
OWN_PREFIX = "ROTUNDA_"
#: Kafka's container images use this one; what is no setting of ours is meant for others.
KAFKA_PREFIX = "KAFKA_"
#: These are read by the command line itself.
COMMAND_LINE_VARIABLES = frozenset(f"{OWN_PREFIX}{name}" for name in ("CONFIG", "DATA_DIR", "LOG_FORMAT", "RUN_DIR"))

DEFAULT_ARENA_BYTES = 32 * 1024 * 1024
_SHARED_MEMORY_FILES = "/dev/shm"  # noqa: S108 - where the system keeps shared memory; no file is made here


class Source(enum.IntEnum):
    """Where a value came from, in rising order of precedence."""

    DEFAULT = 0
    FILE = 1
    ENVIRONMENT = 2
    FLAG = 3
    DYNAMIC_DEFAULT = 4
    DYNAMIC = 5


class Origin(NamedTuple):
    """Where a value came from, and the place in words: a file and line, a variable, a flag."""

    source: Source
    place: str

    def __str__(self) -> str:
        return self.place


class Assignment(NamedTuple):
    """One attempt to give a setting a value."""

    name: str
    text: str
    origin: Origin


class Layer(NamedTuple):
    """A value that a setting was given, and by whom; a later layer of higher precedence may hide it."""

    origin: Origin
    value: Value


Layers = Mapping[str, tuple[Layer, ...]]


class Sources(NamedTuple):
    """What a configuration was read from."""

    file: Path | None = None
    sets: Mapping[str, str] = MappingProxyType({})
    environment: Mapping[str, str] = MappingProxyType({})


_BY_DEFAULT = Origin(Source.DEFAULT, "default")


@dataclass(frozen=True, kw_only=True)
class BrokerConfig(
    BrokerLogSettings,
    MetricsSettings,
    RequestLogSettings,
    CleanerSettings,
    ConnectionSettings,
    TransactionSettings,
    ConsumerGroupSettings,
    FetchSettings,
    GroupSettings,
    LogSettings,
    SecuritySettings,
    ServerSettings,
    StatusSettings,
    StorageSettings,
):
    """Every setting of the broker. Attributes are property names with underscores for dots.

    ``layers`` has, by property name, what was set and by which source, strongest first.
    """

    layers: Layers = dataclasses.field(default_factory=dict, compare=False)
    sources: Sources = dataclasses.field(default=Sources(), compare=False)

    @property
    def origins(self) -> dict[str, Origin]:
        """Where each value that was set came from, by property name."""
        return {name: layers[0].origin for name, layers in self.layers.items()}

    def origin(self, name: str) -> Origin:
        """Return where the value of a property came from."""
        layers = self.layers.get(name)
        return layers[0].origin if layers else _BY_DEFAULT

    def value(self, name: str) -> Value:
        """Return the value of a property. Raises KeyError when there is no such property."""
        value: Value = getattr(self, BROKER_KEYS[name].attribute)
        return value

    @cached_property
    def bound_listeners(self) -> tuple[Listener, ...]:
        """The parsed ``listeners``."""
        return parse_listeners(self.listeners, parse_protocol_map(self.listener_security_protocol_map))

    @cached_property
    def effective_advertised_listeners(self) -> tuple[Listener, ...]:
        """The addresses that clients get, one for each of ``bound_listeners``; port 0 is the port that was bound."""
        protocols = parse_protocol_map(self.listener_security_protocol_map)
        return advertised(
            self.bound_listeners, parse_listeners(self.advertised_listeners or (), protocols), socket.gethostname()
        )

    @property
    def data_dir(self) -> Path:
        """The data directory, as an absolute path."""
        return Path(self.log_dirs[0])

    def arena_bytes(self, others_bytes: int = 0) -> int:
        """Return the shared memory to set aside for large requests, all processors together.

        ``others_bytes`` is what everything else needs; many processes on a small machine take more than half of it.
        """
        if self.queued_max_request_bytes != -1:
            return self.queued_max_request_bytes
        free_bytes = _free_shared_memory_bytes()
        return min(DEFAULT_ARENA_BYTES, free_bytes // 2, max(free_bytes // 4, free_bytes - others_bytes))

    def with_dynamic(
        self, overrides: Mapping[str, str], cluster_wide: Mapping[str, str] = MappingProxyType({})
    ) -> BrokerConfig:
        """Return this configuration with what an admin set while the broker runs, for it or cluster-wide.

        Call it on the configuration as loaded. Raises ConfigError for an unknown name, a bad value or a key
        that cannot change while the broker runs.
        """
        fixed = sorted(name for name in {*overrides, *cluster_wide} if _is_fixed(name))
        if fixed:
            raise ConfigError(f"Cannot update these configs dynamically: [{', '.join(fixed)}]")
        defaults = Origin(Source.DYNAMIC_DEFAULT, "set while running, cluster-wide")
        own = Origin(Source.DYNAMIC, "set while running")
        layers = _accept(
            [
                *(Assignment(name, text, defaults) for name, text in cluster_wide.items()),
                *(Assignment(name, text, own) for name, text in overrides.items()),
            ],
            below=self.layers,
        )
        changed = dataclasses.replace(self, **_values(layers), layers=layers)
        _check(changed)
        return changed

    def read_again(self) -> BrokerConfig:
        """Return the configuration as its sources make it now. Raises ConfigError."""
        return load(*self.sources)

    @property
    def file_texts(self) -> dict[str, str]:
        """The configuration file's settings, by property name."""
        return {
            name: render(layer.value) or ""
            for name, layers in self.layers.items()
            for layer in reversed(layers)
            if layer.origin.source == Source.FILE
        }

    def with_file(self, texts: Mapping[str, str]) -> BrokerConfig:
        """Return this configuration with what its file has now for the settings that may change while it runs.

        Raises ConfigError for an unknown name or a bad value.
        """
        origin = Origin(Source.FILE, f"{self.sources.file}, read again")
        read = _accept(Assignment(name, text, origin) for name, text in texts.items())
        layers = {name: stack for name, stack in self.layers.items() if not BROKER_KEYS[name].dynamic}
        dynamic = {key.attribute: key.default for key in BROKER_KEYS.values() if key.dynamic}
        for name in BROKER_KEYS:
            if BROKER_KEYS[name].dynamic:
                stronger = [layer for layer in self.layers.get(name, ()) if layer.origin.source != Source.FILE]
                stack = (*stronger, *read.get(name, ()))
                if stack:
                    layers[name] = stack
        changed = dataclasses.replace(self, **{**dynamic, **_values(layers)}, layers=layers)
        _check(changed)
        return changed

    def described(self) -> Iterator[tuple[str, str, str]]:
        """Yield property name, value as text and origin of every setting, by name."""
        for name in sorted(BROKER_KEYS):
            yield name, render(self.value(name)) or "", str(self.origin(name))


BROKER_KEYS: Mapping[str, Key] = keys_of(BrokerConfig)


def load(file: Path | None, sets: Mapping[str, str], environment: Mapping[str, str]) -> BrokerConfig:
    """Return the configuration from a properties file, ``--set`` flags and the environment.

    Raises ConfigError that names every unknown key and bad value, one a line, each with its place.
    """
    assignments = [
        *(_from_file(file) if file else ()),
        *_from_environment(environment),
        *(Assignment(name, text, Origin(Source.FLAG, f"flag --set {name}")) for name, text in sets.items()),
    ]
    layers = _accept(assignments)
    values = _derived_defaults() | _values(layers)
    # One for each handler: of one handler's commits all go into the same write.
    values.setdefault("offsets_topic_num_partitions", values["num_io_threads"])
    sources = Sources(file.absolute() if file else None, dict(sets), dict(environment))
    config = BrokerConfig(**values, layers=layers, sources=sources)
    _check(config)
    return config


def _is_fixed(name: str) -> bool:
    """Return whether a setting, of this broker or of Kafka alone, cannot change while the broker runs."""
    key = BROKER_KEYS.get(name)
    return name in kafka_settings() if key is None else not key.dynamic


def _from_file(file: Path) -> Iterator[Assignment]:
    try:
        text = file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"cannot read the configuration file {file}: {error}") from error
    for name, value, line in parse_properties(text):
        yield Assignment(name, value, Origin(Source.FILE, f"{file}:{line}"))


def _from_environment(environment: Mapping[str, str]) -> Iterator[Assignment]:
    """Read Kafka's way: ``_`` is a dot, ``__`` an underscore, ``___`` a hyphen. Our own prefix wins."""
    for prefix in (KAFKA_PREFIX, OWN_PREFIX):
        for variable in sorted(environment):
            if not variable.startswith(prefix) or variable in COMMAND_LINE_VARIABLES:
                continue
            name = _property_of(variable.removeprefix(prefix))
            if name in BROKER_KEYS or prefix == OWN_PREFIX:
                yield Assignment(name, environment[variable], Origin(Source.ENVIRONMENT, f"environment {variable}"))


def _property_of(variable: str) -> str:
    return variable.lower().replace("___", "-").replace("__", "\0").replace("_", ".").replace("\0", "_")


def _accept(assignments: Iterable[Assignment], below: Layers = MappingProxyType({})) -> dict[str, tuple[Layer, ...]]:
    """Lay the assignments, weakest first, over what is there. Raises ConfigError that names every error."""
    layers = dict(below)
    complaints = []
    for name, text, origin in assignments:
        # Whoever sets one while the broker runs knows where.
        place = "" if origin.source >= Source.DYNAMIC_DEFAULT else f"{origin}: "
        key = BROKER_KEYS.get(name)
        if key is None:
            kafkas = kafka_settings().get(name)
            if kafkas is None:
                complaints.append(f"{place}unknown setting {name}{did_you_mean(name, BROKER_KEYS)}")
            elif not kafkas.is_default(text):
                complaints.append(f"{place}{kafkas.refusal}")
            continue
        try:
            value = key.parse(text)
            if origin.source >= Source.DYNAMIC_DEFAULT:
                key.check_while_running(value)
            layers[name] = (Layer(origin, _absolute(name, value)), *layers.get(name, ()))
        except ValueError as error:
            complaints.append(f"{place}Invalid value {text} for configuration {name}: {error}")
    if complaints:
        raise ConfigError("\n".join(complaints))
    for name, other in (("broker.id", "node.id"), ("node.id", "broker.id")):
        if name in layers:
            layers.setdefault(other, layers[name])
    return layers


def _values(layers: Layers) -> dict[str, Any]:
    """Return attribute -> value of what was set."""
    return {BROKER_KEYS[name].attribute: stack[0].value for name, stack in layers.items()}


def _derived_defaults() -> dict[str, Any]:
    """Return attribute -> value of the defaults that depend on the machine."""
    cpus = len(os.sched_getaffinity(0))
    return {
        "num_network_threads": min(3, max(1, cpus // 2)),
        "num_io_threads": min(8, max(1, cpus // 2)),
        "log_dirs": _absolute("log.dirs", BROKER_KEYS["log.dirs"].default),
    }


def _absolute(name: str, value: Value) -> Value:
    """Make directories absolute once: a broker that becomes a daemon changes its working directory."""
    if name == "log.dirs" and isinstance(value, tuple):
        return tuple(str(Path(entry).absolute()) if entry else "" for entry in value)
    return value


def _check(config: BrokerConfig) -> None:
    """Raise ConfigError if values that are each allowed do not go together."""
    complaints = []
    for names, rule in _RULES:
        try:
            complaint = rule(config)
        except ValueError as error:
            complaint = str(error)
        if complaint:
            places = {str(config.origin(name)) for name in names if name in config.layers}
            complaints.append(f"{', '.join(sorted(places)) or 'default'}: {names[0]}: {complaint}")
    if complaints:
        raise ConfigError("\n".join(complaints))


def _listeners_complaint(config: BrokerConfig) -> str | None:
    check_listeners(config.bound_listeners, config.insecure_listen)
    return None


def _status_complaint(config: BrokerConfig) -> str | None:
    check_status_host(config.status_host, config.insecure_listen)
    return None


def _advertised_complaint(config: BrokerConfig) -> str | None:
    _ = config.effective_advertised_listeners
    return None


def _compaction_lag_complaint(config: BrokerConfig) -> str | None:
    least, most = config.log_cleaner_min_compaction_lag_ms, config.log_cleaner_max_compaction_lag_ms
    return None if least <= most else "must not be above log.cleaner.max.compaction.lag.ms"


_RULES: tuple[tuple[tuple[str, ...], Callable[[BrokerConfig], str | None]], ...] = (
    (("listeners", "listener.security.protocol.map", "insecure.listen"), _listeners_complaint),
    (("advertised.listeners", "listeners"), _advertised_complaint),
    (("status.host", "insecure.listen"), _status_complaint),
    (("node.id", "broker.id"), node_id_complaint),
    (("log.dirs",), log_dirs_complaint),
    (("pipeline.resume", "pipeline.max"), pipeline_complaint),
    (("max.connections.per.ip", "max.connections.per.ip.overrides"), per_ip_complaint),
    (("log.cleaner.min.compaction.lag.ms", "log.cleaner.max.compaction.lag.ms"), _compaction_lag_complaint),
)


def _free_shared_memory_bytes() -> int:
    try:
        state = os.statvfs(_SHARED_MEMORY_FILES)
    except OSError:
        return 2 * DEFAULT_ARENA_BYTES
    return state.f_bavail * state.f_frsize
