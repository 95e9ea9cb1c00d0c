"""Stored values that this version cannot decode: rejected before they are stored, skipped where they are read.

Every process reads all stored values at each of its starts. `check_readable` decodes a value before it is stored, with
the same functions as the readers. `SetAside` skips values that cannot be decoded all the same (an older version stored
them, or the file was damaged): such a value has no effect, and stays in the file until its entity is changed. The
controller logs them at its start. Pure.
"""

from __future__ import annotations

import logging
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import MappingProxyType
from typing import Final, NamedTuple, TypeVar

from rotunda.broker.config.broker_config import find_key
from rotunda.broker.config.group_config import GROUP_CONFIGS
from rotunda.broker.config.topic_config import TOPIC_CONFIGS
from rotunda.broker.errors import ApiError
from rotunda.broker.metadata.configs.client_metrics_config import CLIENT_METRICS_CONFIGS
from rotunda.broker.metadata.configs.quota_entities import is_entity, quotas_of
from rotunda.broker.metadata.features import finalized_levels
from rotunda.broker.metadata.store.entity_store import BROKER, TOPIC, EntityKind, StoredValue
from rotunda.broker.metadata.store.metadata_file import CERTIFICATES, LOG_LEVELS, UNTIL_RESTART
from rotunda.broker.protocol.error_codes import ErrorCode
from rotunda.broker.security.acl.acls import Acl, acls_of
from rotunda.broker.security.sasl.user_credentials import UserCredentials
from rotunda.broker.server_log.log_levels import LEVELS
from rotunda.broker.server_log.rate_limit import UNLIMITED

#: Substitutes for unreadable settings until they are set again, so that no records are deleted meanwhile: all of them
#: for a topic with any unreadable setting, and each by itself for a broker.
KEEP_RECORDS: Final[Mapping[str, str]] = MappingProxyType(
    {"cleanup.policy": "delete", "retention.ms": "-1", "retention.bytes": "-1"}
)
KEEP_RECORDS_OF_ALL: Final[Mapping[str, str]] = MappingProxyType(
    {"log.retention.ms": "-1", "log.retention.bytes": "-1"}
)

_log = logging.getLogger(__name__)

_Value = TypeVar("_Value", bound=StoredValue)


class StoredKey(NamedTuple):
    """The location of a stored value."""

    kind: str
    name: str
    key: str

    def __str__(self) -> str:
        name = self.name or ("default" if self.kind == BROKER else "''")
        return f"{self.key or 'the value'} of {self.kind} {name}"


class SetAside:
    """The stored values that this process cannot decode, with the reasons."""

    def __init__(self) -> None:
        self._reasons: dict[tuple[str, str], dict[str, str]] = {}

    def readable(self, kind: str, name: str, values: Mapping[str, _Value]) -> Mapping[str, _Value]:
        """Return the readable values of an entity, and record the others."""
        reasons = {key: reason for key, value in values.items() if (reason := _why_unreadable(kind, name, key, value))}
        self.note(kind, name, reasons)
        return {key: value for key, value in values.items() if key not in reasons} if reasons else values

    def readable_entities(
        self, kind: EntityKind, entities: Mapping[str, Mapping[str, StoredValue]]
    ) -> dict[str, Mapping[str, StoredValue]]:
        """Return entities with their readable values, which may be none."""
        found = {name: self.readable(kind, name, values) for name, values in entities.items()}
        if kind is EntityKind.CLIENT_QUOTA:
            return {name: values for name, values in found.items() if values or is_entity(name)}
        return found

    def readable_acls(self, names: Sequence[str]) -> list[Acl | None]:
        """Return the ACLs that are stored under names; None for an unreadable one."""
        # Decoding all at once is faster than one by one.
        with suppress(ValueError, TypeError):
            acls = acls_of(names)
            if len(acls) == len(names) and all(map(_has_fields, acls)):
                return list(acls)
        return [acls_of([name])[0] if self.readable(EntityKind.ACL, name, {"": 1}) else None for name in names]

    def note(self, kind: str, name: str, reasons: Mapping[str, str]) -> None:
        """Replace the recorded reasons of an entity: by key, why its value has no effect."""
        if reasons:
            self._reasons[kind, name] = dict(reasons)
        else:
            self._reasons.pop((kind, name), None)

    def of(self, kind: str, name: str) -> Mapping[str, str]:
        """Return by key the reasons why values of an entity have no effect."""
        return self._reasons.get((kind, name), {})

    def log(self, path: Path) -> None:
        """Log each value without effect, and how to remove it from the metadata file."""
        for place, reason in self:
            line = "%s cannot be read and has no effect: %s; %s"
            _log.error(line, place, reason, remedy(place, path), extra=UNLIMITED)

    def __iter__(self) -> Iterator[tuple[StoredKey, str]]:
        """Yield each location with the reason, in order."""
        for (kind, name), reasons in sorted(self._reasons.items()):
            for key, reason in sorted(reasons.items()):
                yield StoredKey(kind, name, key), reason


def check_readable(kind: str, name: str, values: Mapping[str, StoredValue]) -> None:
    """Raise ApiError(INVALID_CONFIG) if a new value could not be decoded again."""
    for key, value in values.items():
        reason = _why_unreadable(kind, name, key, value)
        if reason:
            text = f"{StoredKey(kind, name, key)} is not stored, since no process could read it: {reason}"
            raise ApiError(ErrorCode.INVALID_CONFIG, text)


def remedy(place: StoredKey, path: Path) -> str:
    """Return instructions to remove an unreadable value, for the end of a log line."""
    name, key = shlex.quote(place.name), shlex.quote(place.key)
    if place.kind in _REMEDIES:
        return f"set it again, or remove it with: {_REMEDIES[place.kind].format(name=name, key=key)}"
    if place.kind == BROKER:
        every = "" if place.name else " --cluster"
        return f"set it again, or remove it with: rotunda config delete {key}{every}"
    if place.kind == EntityKind.CLIENT_QUOTA and is_entity(place.name):
        return f"set it again, or remove it with: rotunda quota delete {key} and the options of the entity"
    escaped = place.name.replace("'", "''")
    where = f"kind = '{place.kind}' AND name = '{escaped}'"
    statement = shlex.quote(f"DELETE FROM entities WHERE {where}")  # noqa: S608 - a line for a person
    return f"remove it while the broker is stopped, with: sqlite3 {shlex.quote(str(path))} {statement}"


_REMEDIES: Final[Mapping[str, str]] = {
    TOPIC: "rotunda config delete {key} --topic {name}",
    EntityKind.GROUP: "rotunda config delete {key} --group {name}",
    EntityKind.CLIENT_METRICS: "kafka-configs.sh --alter --entity-type client-metrics --entity-name {name} "
    "--delete-config {key}",
    EntityKind.FEATURE: "kafka-features.sh upgrade --feature {name}=LEVEL",
    EntityKind.USER_CREDENTIAL: "kafka-configs.sh --alter --entity-type users --entity-name {name} "
    "--delete-config {key}",
}


def _why_unreadable(kind: str, name: str, key: str, value: StoredValue) -> str | None:
    """Return the error of decoding a value; None if it succeeds."""
    try:
        _READ[kind](name, key, value)
    except Exception as error:
        return str(error) or type(error).__name__
    return None


def _read_broker(name: str, key: str, value: StoredValue) -> None:
    if name in UNTIL_RESTART and key == name:
        if name == CERTIFICATES:
            int(value)
    elif name == LOG_LEVELS:
        if value not in LEVELS:
            raise ValueError(f"unknown log level {value}")
    else:
        found = find_key(key)
        if found is None:
            raise ValueError("unknown setting")
        found.parse(str(value))


def _read_topic(_name: str, key: str, value: StoredValue) -> None:
    if key in TOPIC_CONFIGS:
        TOPIC_CONFIGS[key].parse(str(value))


def _read_group(_name: str, key: str, value: StoredValue) -> None:
    if key in GROUP_CONFIGS:
        GROUP_CONFIGS[key].parse(str(value))


def _read_client_metrics(_name: str, key: str, value: StoredValue) -> None:
    if key in CLIENT_METRICS_CONFIGS:
        CLIENT_METRICS_CONFIGS[key].parse(str(value))


def _read_quota(name: str, key: str, value: StoredValue) -> None:
    [quotas] = quotas_of({name: {key: value}}).values()
    if not quotas[key] > 0:
        raise ValueError("a quota must be greater than 0")


def _read_feature(name: str, key: str, value: StoredValue) -> None:
    finalized_levels({name: {key: value}})


def _read_credential(name: str, key: str, value: StoredValue) -> None:
    UserCredentials({name: {key: value}})


def _read_acl(name: str, _key: str, _value: StoredValue) -> None:
    [acl] = acls_of([name])
    if not _has_fields(acl):
        raise ValueError("fields of another type")


def _has_fields(acl: Acl) -> bool:
    return tuple(map(type, acl)) == (int, str, int, str, str, int, int)


_READ: Final[Mapping[str, Callable[[str, str, StoredValue], None]]] = {
    TOPIC: _read_topic,
    BROKER: _read_broker,
    EntityKind.GROUP: _read_group,
    EntityKind.CLIENT_METRICS: _read_client_metrics,
    EntityKind.CLIENT_QUOTA: _read_quota,
    EntityKind.FEATURE: _read_feature,
    EntityKind.USER_CREDENTIAL: _read_credential,
    EntityKind.ACL: _read_acl,
}
