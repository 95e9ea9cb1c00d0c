"""Notices events of the broker: replaced processes, changed settings, the disk, listeners and certificates.

Runs in the recorder, once a second, also while no requests arrive: it compares published states with the last ones, and
reads the changes of the metadata file. Events of groups are sent by their coordinators instead.
"""

from __future__ import annotations

import logging
import sqlite3
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from rotunda.broker.config.broker_config import find_key
from rotunda.broker.metadata.configs.quota_entities import entity_text
from rotunda.broker.metadata.store.entity_store import EntityKind
from rotunda.broker.metadata.store.metadata_reader import MetadataDelta, MetadataReader, TopicRecord
from rotunda.broker.security.acl.acls import Operation, PatternType, Permission, ResourceType, acls_of, name_of
from rotunda.broker.text_table import counted

if TYPE_CHECKING:
    from rotunda.broker.ipc.listener_table import ListenerEntry
    from rotunda.shm.metrics.process_metrics import MetricsReader
    from rotunda.shm.storage import StorageReading
    from rotunda.shm.tables.process_slots import ProcessSlots

logger = logging.getLogger(__name__)

#: Longest text of an event.
MOST_CHARACTERS: Final = 300

#: Names that one event lists.
_MOST_LISTED: Final = 10

_CERTIFICATE: Final = "certificate_not_after_ms"

#: By kind of a changed entity: the type of the event and the first words of its text.
_ENTITIES: Final = {
    EntityKind.GROUP: ("setting", "group"),
    EntityKind.CLIENT_METRICS: ("setting", "client metrics"),
    EntityKind.CLIENT_QUOTA: ("quota", "quota of"),
    EntityKind.FEATURE: ("setting", "feature"),
    EntityKind.USER_CREDENTIAL: ("security", "credentials of"),
    EntityKind.ACL: ("security", "ACL"),
}

Event = dict[str, Any]


class EventSources(NamedTuple):
    """The inputs. `announced` returns the number of the last change of the metadata file."""

    slots: ProcessSlots
    processor: MetricsReader
    storage: Callable[[], StorageReading]
    listeners: Sequence[ListenerEntry]
    metadata: Path
    announced: Callable[[], int]


def event(time_us: int, name: str, detail: str) -> Event:
    """Return the row of an event."""
    return {"time": time_us, "kind": "event", "name": name, "detail": detail[:MOST_CHARACTERS]}


class EventWatch:
    """The last known states."""

    def __init__(self, sources: EventSources, *, replaces_killed: bool) -> None:
        """Remember the present states; with `replaces_killed` the last restart of the recorder is an event."""
        self._sources = sources
        self._restarts = {(each.role, each.index): each.restarts for each in sources.slots.statuses()}
        if replaces_killed:
            self._restarts["recorder", 0] -= 1
        self._rejection = sources.storage().rejection
        self._listeners = self._open_listeners()
        self._certificates = self._certificate_ends()
        self._reader = MetadataReader(sources.metadata)
        self._version = 0
        self._configs: Mapping[str, Mapping[str, str]] = {}
        self._read_changes(with_topics=False)

    def look(self, now_us: int) -> list[Event]:
        """Return the events since the last look."""
        found = [*self._restarted(), *self._disk(), *self._listening(), *self._certified(), *self._changed()]
        return [event(now_us, name, detail) for name, detail in found]

    def _restarted(self) -> Iterator[tuple[str, str]]:
        for each in self._sources.slots.statuses():
            place = each.role, each.index
            if each.restarts > self._restarts.get(place, 0):
                ended = f"signal {-each.exit_status}" if each.exit_status < 0 else f"exit status {each.exit_status}"
                error = f": {each.last_error}" if each.last_error else ""
                yield "process_restart", f"{each.role} {each.index} ended with {ended}{error}"
            self._restarts[place] = each.restarts

    def _disk(self) -> Iterator[tuple[str, str]]:
        rejection, before = self._sources.storage().rejection, self._rejection
        self._rejection = rejection
        if rejection and not before:
            yield "disk_full", rejection
        elif before and not rejection:
            yield "disk_freed", "Records are accepted again."

    def _listening(self) -> Iterator[tuple[str, str]]:
        before, self._listeners = self._listeners, self._open_listeners()
        yield from (("listener", f"added {text}") for text in sorted(self._listeners - before))
        yield from (("listener", f"removed {text}") for text in sorted(before - self._listeners))

    def _certified(self) -> Iterator[tuple[str, str]]:
        before, self._certificates = self._certificates, self._certificate_ends()
        for index, end_ms in self._certificates.items():
            if before.get(index) and before[index] != end_ms:
                name = self._sources.listeners[index].name
                yield "certificate", f"{name}: valid until {datetime.fromtimestamp(end_ms / 1000, UTC):%Y-%m-%d}"

    def _changed(self) -> Iterator[tuple[str, str]]:
        if self._sources.announced() <= self._version:
            return
        before = self._configs
        delta = self._read_changes()
        if delta is not None:
            yield from _setting_changes(before, delta.broker_configs)
            yield from _listed([("topic", _topic_text(topic)) for topic in delta.topics])
            for kind, entities in delta.changed_entities.items():
                name, noun = _ENTITIES[kind]
                text = _TEXTS.get(kind, str)
                yield from _listed(
                    [(name, f"{noun} {text(each)}{_values_text(kind, values)}") for each, values in entities.items()]
                )

    def _read_changes(self, *, with_topics: bool = True) -> MetadataDelta | None:
        """Read the changes of the metadata file. If it cannot be read, it is read again later."""
        try:
            delta = self._reader.read(self._version, with_topics=with_topics)
        except sqlite3.Error as error:
            logger.debug("cannot read changes of the metadata file: %s", error)
            return None
        finally:
            self._reader.close()
        if delta is not None:
            self._version, self._configs = delta.version, delta.broker_configs
        return delta

    def _open_listeners(self) -> set[str]:
        found = (each for each in self._sources.listeners if each.is_open)
        return {f"{each.name} ({each.protocol}) at {each.advertised_host}:{each.advertised_port}" for each in found}

    def _certificate_ends(self) -> dict[int, int]:
        values = self._sources.processor.values()
        return {int(label): end_ms for (name, label), end_ms in values.items() if name == _CERTIFICATE and end_ms}


def _setting_changes(
    before: Mapping[str, Mapping[str, str]], after: Mapping[str, Mapping[str, str]]
) -> Iterator[tuple[str, str]]:
    """Yield the changed dynamic settings, by broker id."""
    for broker in sorted({*before, *after}):
        old, new = before.get(broker, {}), after.get(broker, {})
        for name in sorted({*old, *new}):
            if old.get(name) != new.get(name):
                key = find_key(name)
                hidden = key is None or key.sensitive
                was, now = ("(hidden)" if hidden and value else value for value in (old.get(name), new.get(name)))
                yield "setting", f"{name}={now} (was {was or 'not set'})" if now is not None else f"{name} removed"


def _topic_text(topic: TopicRecord) -> str:
    if topic.deleted:
        return f"{topic.name} deleted"
    configs = "".join(f", {name}={value}" for name, value in sorted(topic.configs.items()))
    return f"{topic.name}: {counted(len(topic.rows), 'partition')}{configs}"


def _values_text(kind: EntityKind, values: Mapping[str, object]) -> str:
    if not values:
        return " removed"
    if kind is EntityKind.ACL:
        return " added"
    if kind is EntityKind.USER_CREDENTIAL:
        return " changed"
    return ": " + ", ".join(f"{key}={value}" for key, value in values.items())


def _acl_text(stored: str) -> str:
    """Return an ACL in the words of `rotunda acl list`; the stored text if this version cannot read it."""
    try:
        [acl] = acls_of([stored])
    except (ValueError, TypeError):
        return stored
    resource = f"{name_of(ResourceType, acl.resource_type)} {acl.name}"
    if acl.pattern_type == PatternType.PREFIXED:
        resource += " (prefixed)"
    permission, operation = name_of(Permission, acl.permission), name_of(Operation, acl.operation)
    return f"{permission} {operation} on {resource} for {acl.principal} from {acl.host}"


_TEXTS: Final[Mapping[EntityKind, Callable[[str], str]]] = {
    EntityKind.ACL: _acl_text,
    EntityKind.CLIENT_QUOTA: entity_text,
}


def _listed(found: list[tuple[str, str]]) -> Iterator[tuple[str, str]]:
    """Yield the first of many changes of one kind, and the number of the others."""
    yield from found[:_MOST_LISTED]
    if len(found) > _MOST_LISTED:
        yield found[0][0], counted(len(found) - _MOST_LISTED, "more change")
