"""The broker's configuration: one frozen object, and how it is read from its sources.

Read once, by the process that starts the broker; the children inherit the object. A flag overrides the environment, the
environment overrides the file, the file overrides the default, and the origin of each value is stored. Nothing is read
at import: the caller passes the environment in. The keys are declared in ``broker.config.settings.server`` and
``broker.config.settings.log``; `broker.config.kafka` knows Kafka's others.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from types import MappingProxyType
from typing import Any

from rotunda.broker.config.control_plane import ControlPlaneSettings, control_plane_complaint
from rotunda.broker.config.kafka import LISTENER_ONLY, REJECTED, kafka_settings, kept_key, without_meaning
from rotunda.broker.config.keys import ONE_REPLICA, Key, Value, keys_of, render
from rotunda.broker.config.listener_overrides import own_name, split, unknown_listener
from rotunda.broker.config.listeners import (
    Listener,
    advertised,
    check_listeners,
    narrowed,
    parse_advertised,
    parse_listeners,
    parse_protocol_map,
    without_controllers,
)
from rotunda.broker.config.machine_defaults import absolute, machine_defaults
from rotunda.broker.config.settings.broker_log import BrokerLogSettings
from rotunda.broker.config.settings.cleaner import CleanerSettings
from rotunda.broker.config.settings.connections import (
    ConnectionSettings,
    inter_broker_complaint,
    per_ip_complaint,
    protected_listener,
)
from rotunda.broker.config.settings.consumer_groups import ConsumerGroupSettings
from rotunda.broker.config.settings.fetch import FetchSettings
from rotunda.broker.config.settings.groups import GroupSettings
from rotunda.broker.config.settings.identity import IdentitySettings, node_id_complaint
from rotunda.broker.config.settings.log import LogSettings, compaction_lag_complaint
from rotunda.broker.config.settings.metrics import MetricsSettings
from rotunda.broker.config.settings.quotas import QuotaSettings
from rotunda.broker.config.settings.request_log import RequestLogSettings
from rotunda.broker.config.settings.sasl import has_sasl, sasl_complaint
from rotunda.broker.config.settings.security import SecuritySettings
from rotunda.broker.config.settings.server import ServerSettings, log_dirs_complaint, pipeline_complaint
from rotunda.broker.config.settings.share_groups import ShareCoordinatorSettings, ShareGroupSettings, bounded_settings
from rotunda.broker.config.settings.status import StatusSettings, check_status_host
from rotunda.broker.config.settings.storage import StorageSettings
from rotunda.broker.config.settings.tls import REQUIRED
from rotunda.broker.config.settings.transactions import TransactionSettings
from rotunda.broker.config.sources import (
    Assignment,
    Layer,
    Layers,
    Origin,
    Source,
    Sources,
    apply_other_names,
    from_environment,
    from_file,
    with_derived_listeners,
)
from rotunda.broker.errors import ConfigError
from rotunda.broker.text_table import did_you_mean

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
    ControlPlaneSettings,
    FetchSettings,
    GroupSettings,
    LogSettings,
    QuotaSettings,
    SecuritySettings,
    ServerSettings,
    ShareCoordinatorSettings,
    ShareGroupSettings,
    IdentitySettings,
    StatusSettings,
    StorageSettings,
):
    """Every setting of the broker. Attributes are property names with underscores for dots.

    ``layers`` has, by property name, the values set by each source, highest precedence first.
    """

    #: Settings of single listeners, by property name.
    of_listeners: Mapping[str, Value] = dataclasses.field(default_factory=dict, hash=False)
    layers: Layers = dataclasses.field(default_factory=dict, compare=False)
    sources: Sources = dataclasses.field(default=Sources(), compare=False)

    @property
    def origins(self) -> dict[str, Origin]:
        """Return the origin of each value that was set, by property name."""
        return {name: layers[0].origin for name, layers in self.layers.items()}

    def origin(self, name: str) -> Origin:
        layers = self.layers.get(name)
        return layers[0].origin if layers else _BY_DEFAULT

    def value(self, name: str) -> Value:
        """Return the value of a property. Raises KeyError for an unknown property."""
        own = split(name)
        if own is not None:
            return self.of_listeners.get(name, self.value(own[1]))
        served = BROKER_KEYS.get(name)
        if served is not None:
            value: Value = getattr(self, served.attribute)
            return value
        return self.layers[name][0].value if name in self.layers else key_of(name).default

    def of_listener(self, listener: str, name: str) -> Value:
        """Return the value of a property for a listener: its own, else the broker's (``A09``)."""
        return self.value(own_name(listener, name))

    def of_mechanism(self, listener: str, mechanism: str, name: str) -> Value:
        """Return the value of a property for a mechanism of a listener: its own, else the listener's (``H05``)."""
        own = own_name(listener, f"{mechanism.lower()}.{name}")
        return self.of_listeners.get(own, self.of_listener(listener, name))

    @cached_property
    def wanted_listeners(self) -> tuple[Listener, ...]:
        """The parsed ``listeners``, without the controller's."""
        entries = without_controllers(self.listeners, self.controller_listener_names)
        return parse_listeners(entries, parse_protocol_map(self.listener_security_protocol_map))

    @cached_property
    def bound_listeners(self) -> tuple[Listener, ...]:
        """The listeners that are opened, and where."""
        if self.insecure_listen:
            return self.wanted_listeners
        return narrowed(self.wanted_listeners, self.advertised_entries, self.authenticates)

    def authenticates(self, listener: Listener) -> bool:
        if has_sasl(listener):
            return True
        return listener.protocol == "SSL" and self.of_listener(listener.name, "ssl.client.auth") == REQUIRED

    @property
    def listener_names(self) -> tuple[str, ...]:
        """The names of the listeners, in upper case."""
        return tuple(listener.name for listener in self.bound_listeners)

    @property
    def protected_listener(self) -> str | None:
        """The name of the listener that is exempt from limits of the whole broker; None if there is none (``A16``)."""
        name = self.control_plane_listener_name or self.inter_broker_listener_name
        return protected_listener(name, self.listener_names)

    @cached_property
    def effective_advertised_listeners(self) -> tuple[Listener, ...]:
        """Addresses for clients, one per listener: port 0 becomes the bound one, no host the one a client used."""
        return advertised(self.bound_listeners, self.advertised_entries)

    @property
    def advertised_entries(self) -> tuple[Listener, ...]:
        """The parsed ``advertised.listeners``, without the controller's."""
        entries = without_controllers(self.advertised_listeners or (), self.controller_listener_names)
        return parse_advertised(entries, parse_protocol_map(self.listener_security_protocol_map))

    @property
    def data_dir(self) -> Path:
        """The data directory, as an absolute path."""
        return Path(self.log_dirs[0])

    def with_dynamic(
        self, overrides: Mapping[str, str], cluster_wide: Mapping[str, str] = MappingProxyType({})
    ) -> BrokerConfig:
        """Return this configuration with the dynamic settings of an admin, for this broker or cluster-wide.

        Call it on the configuration as loaded. Raises ConfigError for an unknown name, a bad value or a key that cannot
        change while the broker runs.
        """
        fixed = sorted(name for name in {*overrides, *cluster_wide} if _is_fixed(name))
        if fixed:
            raise ConfigError(
                f"Cannot update these configs dynamically: [{', '.join(fixed)}]; they need a restart", fixed
            )
        of_listeners = sorted(LISTENER_ONLY & {*overrides, *cluster_wide})
        if of_listeners:
            raise ConfigError(
                "These security configs can be dynamically updated only per-listener using the listener prefix: "
                f"[{', '.join(of_listeners)}]",
                of_listeners,
            )
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
        """Reload the configuration from its sources. Raises ConfigError."""
        return load(*self.sources)

    @property
    def file_texts(self) -> dict[str, str]:
        """The configuration file's settings that have a meaning here, by property name."""
        return {
            name: render(layer.value) or ""
            for name, layers in self.layers.items()
            for layer in reversed(layers)
            if layer.origin.source == Source.FILE and (name in BROKER_KEYS or split(name) is not None)
        }

    def with_file(self, texts: Mapping[str, str]) -> BrokerConfig:
        """Return this configuration with its file's present values of the settings that may change while it runs.

        Raises ConfigError for an unknown name or a bad value.
        """
        origin = Origin(Source.FILE, f"{self.sources.file}, reloaded")
        read = _accept(Assignment(name, text, origin) for name, text in texts.items())
        layers = {name: stack for name, stack in self.layers.items() if not key_of(name).dynamic}
        derived, keys = machine_defaults(self.sources.environment), BROKER_KEYS.values()
        dynamic = {key.attribute: derived.get(key.attribute, key.default) for key in keys if key.dynamic}
        for name in {*BROKER_KEYS, *self.layers, *read}:
            if key_of(name).dynamic:
                stronger = [layer for layer in self.layers.get(name, ()) if layer.origin.source != Source.FILE]
                stack = (*stronger, *read.get(name, ()))
                if stack:
                    layers[name] = stack
        changed = dataclasses.replace(self, **{**dynamic, **_values(layers)}, layers=layers)
        _check(changed)
        return changed

    def described(self) -> Iterator[tuple[str, str, str]]:
        """Yield property name, value as text and origin of every setting that has a meaning or was set, by name."""
        for name in sorted({*BROKER_KEYS, *self.layers}):
            value = "(hidden)" if key_of(name).sensitive else render(self.value(name)) or ""
            yield name, value, str(self.origin(name))


BROKER_KEYS: Mapping[str, Key] = keys_of(BrokerConfig)


def find_key(name: str) -> Key | None:
    """Return the key of a setting of the broker, of a listener, or without effect here; None for an unknown name."""
    own = split(name)
    if own is not None:
        base = BROKER_KEYS.get(own[1]) or kept_key(own[1])
        return None if base is None else dataclasses.replace(base, name=name)
    return BROKER_KEYS.get(name) or kept_key(name)


def key_of(name: str) -> Key:
    """Return the key of an existing setting. Raises KeyError for an unknown name."""
    key = find_key(name)
    if key is None:
        raise KeyError(name)
    return key


def load(file: Path | None, sets: Mapping[str, str], environment: Mapping[str, str]) -> BrokerConfig:
    """Return the configuration from a properties file, ``--set`` flags and the environment.

    Raises ConfigError that names every unknown key and bad value, one a line, each with its place.
    """
    given = [
        *(from_file(file) if file else ()),
        *from_environment(environment, is_of_images),
        *(Assignment(name, text, Origin(Source.FLAG, f"flag --set {name}")) for name, text in sets.items()),
    ]
    layers = _accept(with_derived_listeners(given))
    values = machine_defaults(environment) | _values(layers)
    # One for each handler: all commits of one handler are in the same write.
    for topic in ("offsets_topic", "share_coordinator_state_topic"):
        values.setdefault(f"{topic}_num_partitions", values["num_io_threads"])
    sources = Sources(file.absolute() if file else None, dict(sets), dict(environment))
    config = BrokerConfig(**values, layers=layers, sources=sources)
    _check(config, (*_RULES, *_RULES_OF_A_START))
    return config


def _is_fixed(name: str) -> bool:
    """Return whether a setting, of this broker or of Kafka alone, cannot change while the broker runs."""
    key = find_key(name)
    return key is not None and not key.dynamic


def is_of_images(name: str) -> bool:
    """Return whether the broker should apply a variable of Kafka's images for this setting."""
    has_meaning = name in BROKER_KEYS or split(name) is not None
    return has_meaning or name in kafka_settings() or without_meaning(name) is not None


def _accept(assignments: Iterable[Assignment], below: Layers = MappingProxyType({})) -> dict[str, tuple[Layer, ...]]:
    """Put the assignments, weakest first, on top of the existing layers. Raises ConfigError that names every error."""
    layers = dict(below)
    complaints: list[str] = []
    involved: list[str] = []
    for name, text, origin in assignments:
        # Without the place for dynamic settings: the admin request has it.
        place = "" if origin.source >= Source.DYNAMIC_DEFAULT else f"{origin}: "
        key = find_key(name)
        if key is None:
            hint = did_you_mean(name, {*BROKER_KEYS, *kafka_settings()})
            complaints.append(f"{place}unknown setting {name}{hint}")
            involved.append(name)
            continue
        try:
            value = absolute(name, key.parse(text))
            if origin.source >= Source.DYNAMIC_DEFAULT:
                key.check_while_running(value)
        except ValueError as error:
            shown = "(hidden)" if key.sensitive else text
            complaints.append(f"{place}Invalid value {shown} for configuration {name}: {error}")
            involved.append(name)
        else:
            if name not in REJECTED:
                layers[name] = (Layer(origin, value), *layers.get(name, ()))
    if complaints:
        raise ConfigError("\n".join(complaints), involved)
    apply_other_names(layers)
    return layers


def _values(layers: Layers) -> dict[str, Any]:
    """Return attribute -> value of the settings that were set."""
    values = {BROKER_KEYS[name].attribute: stack[0].value for name, stack in layers.items() if name in BROKER_KEYS}
    own = {name: stack[0].value for name, stack in sorted(layers.items()) if split(name) is not None}
    return {**values, "of_listeners": own}


def _check(config: BrokerConfig, rules: _Rules | None = None) -> None:
    """Raise ConfigError for a combination of values that are each valid but conflict."""
    complaints: dict[str, str] = {}
    involved: list[str] = []
    for names, rule in rules or _RULES:
        try:
            complaint = rule(config)
        except ValueError as error:
            complaint = str(error)
        if complaint:
            places = {str(config.origin(name)) for name in names if name in config.layers}
            # Several rules parse the listeners: an invalid value is reported once, by the first, which names it.
            complaints.setdefault(complaint, f"{', '.join(sorted(places)) or 'default'}: {names[0]}: {complaint}")
            involved += names
    if complaints:
        raise ConfigError("\n".join(complaints.values()), involved)


def _listeners_complaint(config: BrokerConfig) -> str | None:
    check_listeners(config.bound_listeners, config.insecure_listen, config.authenticates)
    return None


def _of_listeners_complaint(config: BrokerConfig) -> str | None:
    loaded = [name for name in config.of_listeners if config.origin(name).source < Source.DYNAMIC_DEFAULT]
    return unknown_listener(loaded, (*config.listener_names, *(config.controller_listener_names or ())))


def _status_complaint(config: BrokerConfig) -> str | None:
    check_status_host(config, config.bound_listeners, config.insecure_listen)
    return None


def _parses(parse: Callable[[BrokerConfig], object]) -> Callable[[BrokerConfig], str | None]:
    """Return a rule that a value can be parsed."""

    def complaint(config: BrokerConfig) -> str | None:
        parse(config)
        return None

    return complaint


def _in_sync_complaint(config: BrokerConfig) -> str | None:
    """Return an error if Produce with acks=all would always fail. Not for later changes, as in Kafka."""
    is_kept = config.min_insync_replicas <= 1 or config.one_replica_suffices
    complaint = f"is {config.min_insync_replicas}, but {ONE_REPLICA}: every Produce with acks=all would fail"
    return None if is_kept else complaint


def _bounds_rule(names: tuple[str, str, str]) -> Callable[[BrokerConfig], str | None]:
    def complaint(config: BrokerConfig) -> str | None:
        value, least, greatest = map(config.value, names)
        is_valid = least <= value <= greatest  # type: ignore[operator]  # whole numbers
        return None if is_valid else f"{value} must be between {names[1]} ({least}) and {names[2]} ({greatest})"

    return complaint


def _session_rule(kind: str) -> tuple[tuple[str, ...], Callable[[BrokerConfig], str | None]]:
    names = (f"group.{kind}.session.timeout.ms", f"group.{kind}.heartbeat.interval.ms")

    def complaint(config: BrokerConfig) -> str | None:
        session, heartbeat = map(config.value, names)
        is_valid = session > heartbeat  # type: ignore[operator]  # whole numbers
        return None if is_valid else f"{session} must be greater than {names[1]} ({heartbeat})"

    return names, complaint


def _share_sessions_complaint(config: BrokerConfig) -> str | None:
    """Return an error if the members of one share group may need more sessions than the broker has. As in Kafka."""
    sessions, members = config.group_share_max_share_sessions, config.group_share_max_size
    return None if sessions >= members else f"{sessions} must be at least group.share.max.size ({members})"


_Rules = tuple[tuple[tuple[str, ...], Callable[[BrokerConfig], str | None]], ...]

_RULES_OF_A_START: _Rules = ((("min.insync.replicas", "one.replica.suffices"), _in_sync_complaint),)

_RULES: _Rules = (
    (
        ("listener.security.protocol.map",),
        _parses(lambda config: parse_protocol_map(config.listener_security_protocol_map)),
    ),
    (("listeners",), _parses(lambda config: config.wanted_listeners)),
    (("advertised.listeners",), _parses(lambda config: config.advertised_entries)),
    (("listeners", "listener.security.protocol.map", "insecure.listen"), _listeners_complaint),
    (("advertised.listeners", "listeners"), _parses(lambda config: config.effective_advertised_listeners)),
    (("control.plane.listener.name", "listeners"), control_plane_complaint),
    (("inter.broker.listener.name", "listeners"), lambda config: inter_broker_complaint(config, config.listener_names)),
    (("listeners",), _of_listeners_complaint),
    (("sasl.enabled.mechanisms", "listeners"), sasl_complaint),
    (("status.host", "insecure.listen"), _status_complaint),
    (("node.id", "broker.id"), node_id_complaint),
    (("log.dirs",), log_dirs_complaint),
    (("pipeline.resume", "pipeline.max"), pipeline_complaint),
    (("max.connections.per.ip", "max.connections.per.ip.overrides"), per_ip_complaint),
    (("log.cleaner.min.compaction.lag.ms", "log.cleaner.max.compaction.lag.ms"), compaction_lag_complaint),
    *((names, _bounds_rule(names)) for names in bounded_settings()),
    *map(_session_rule, ("consumer", "share")),
    (("group.share.max.share.sessions", "group.share.max.size"), _share_sessions_complaint),
)
