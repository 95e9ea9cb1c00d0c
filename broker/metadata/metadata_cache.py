"""The metadata cache: a process's copy of the topics, their partitions and owners, and the effective settings.

Handlers, controller, cleaner, recorder and the status page's process have one each; acceptor and processors have
`LiveSettings` instead. It is filled from the metadata file and updated by ``refresh`` when the broker word
``metadata_version`` is greater than ``version``. A refresh applies whole changes only, if necessary in steps, and its
cost is that of the changes. Never writes; independent of requests.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import islice, repeat
from pathlib import Path
from typing import NamedTuple

from rotunda.broker.config.broker_config import BrokerConfig
from rotunda.broker.config.share_group_config import ShareGroupConfig
from rotunda.broker.config.topic_config import LogConfig
from rotunda.broker.metadata.configs.broker_settings import BrokerSettings
from rotunda.broker.metadata.configs.quota_entities import ClientQuotas, QuotaEntity, quotas_of
from rotunda.broker.metadata.configs.stored_values import KEEP_RECORDS, SetAside
from rotunda.broker.metadata.features import INITIAL_LEVELS, LEVEL, finalized_levels
from rotunda.broker.metadata.store.entity_store import BROKER, TOPIC, Entities, EntityKind, replace_changed
from rotunda.broker.metadata.store.metadata_reader import MetadataDelta, MetadataReader, TopicRecord
from rotunda.broker.metadata.topics.topic_validation import metric_name
from rotunda.broker.protocol.routing import INTERNAL_TOPICS, owner_of, topic_hash
from rotunda.broker.security.acl.acls import Acl
from rotunda.broker.security.acl.authorizer import Authorizer, super_users_of
from rotunda.broker.steps import ELEMENTS_AT_ONCE, Steps, finished

log = logging.getLogger(__name__)


class PartitionInfo(NamedTuple):
    """One partition: its index, its row in the partition table, and the handler that owns it."""

    index: int  # type: ignore[assignment]  # hides tuple.index, which has no use here
    row: int
    owner: int


class TopicInfo(NamedTuple):
    """One topic. ``partitions[i].index == i``; ``configs`` are its own settings only."""

    name: str
    topic_id: bytes
    partitions: tuple[PartitionInfo, ...]
    configs: Mapping[str, str]
    internal: bool


class Changes(NamedTuple):
    """The changes of a refresh. The owner of a deleted partition releases its row in the partition table."""

    created: list[tuple[TopicInfo, PartitionInfo]]
    deleted: list[tuple[TopicInfo, PartitionInfo]]
    altered: list[TopicInfo]


class MetadataCache:
    """The topics and settings as of change ``version``."""

    def __init__(self, path: Path, handlers: int, broker_config: BrokerConfig) -> None:
        self._reader = MetadataReader(path)
        self._handlers = handlers
        #: The stored values without effect, because this version cannot decode them.
        self.set_aside = SetAside()
        self._settings = BrokerSettings(broker_config, self.set_aside)
        #: The last loaded configuration, from flags, environment and file.
        self.loaded_config = broker_config
        self._by_name: dict[str, TopicInfo] = {}
        self._by_id: dict[bytes, TopicInfo] = {}
        #: By the name in metrics, in which topics may collide; it has one of the colliding topics.
        self._by_metric_name: dict[str, TopicInfo] = {}
        self._log_configs: dict[bytes, LogConfig] = {}
        self._at_start: frozenset[bytes] | None = None
        self.version = 0
        #: The broker's settings, including the dynamic ones.
        self.broker_config = broker_config
        #: By broker id as text ("" for all brokers): the dynamic settings.
        self.broker_overrides: Mapping[str, Mapping[str, str]] = {}
        #: By name, the level at which each feature is used.
        self.finalized_features: Mapping[str, int] = finalized_levels(INITIAL_LEVELS)
        self._client_quotas: dict[QuotaEntity, Mapping[str, float]] = {}
        self._client_metrics_configs: dict[str, Mapping[str, str]] = {}
        self._group_configs: dict[str, Mapping[str, str]] = {}
        #: By group with settings of its own, and "" for all others.
        self._share_group_configs: dict[str, ShareGroupConfig] = {}
        self._user_credentials: dict[str, Mapping[str, str]] = {}
        #: The authorizer; None if every operation is allowed.
        self.authorizer = _authorizer_of(broker_config)

    def own_by(self, handlers: int) -> None:
        """Recompute the owners of all partitions for a changed number of handlers (`E04`)."""
        self._handlers = handlers
        for topic in list(self._by_id.values()):
            name_hash = topic_hash(topic.name.encode())
            own = [each._replace(owner=owner_of(name_hash, each.index, handlers)) for each in topic.partitions]
            self._by_id[topic.topic_id] = self._by_name[topic.name] = topic._replace(partitions=tuple(own))
            self._by_metric_name[metric_name(topic.name)] = self._by_name[topic.name]

    def topic(self, name: str) -> TopicInfo | None:
        """Return the topic of that name, or None."""
        return self._by_name.get(name)

    def topic_by_id(self, topic_id: bytes) -> TopicInfo | None:
        """Return the topic of that id (16 bytes), or None."""
        return self._by_id.get(topic_id)

    def colliding(self, name: str) -> str | None:
        """Return the topic whose metric names a topic of that name would share, or None."""
        topic = self._by_metric_name.get(metric_name(name))
        return None if topic is None else topic.name

    def topic_names(self) -> frozenset[str]:
        """Return the names of all topics."""
        return frozenset(self._by_name)

    def topics(self) -> list[TopicInfo]:
        """Return all topics, by name."""
        return [self._by_name[name] for name in sorted(self._by_name)]

    def partition(self, name: str, index: int) -> PartitionInfo | None:
        """Return one partition, or None for an unknown topic or partition."""
        topic = self._by_name.get(name)
        if topic is None or not 0 <= index < len(topic.partitions):
            return None
        return topic.partitions[index]

    def existed_at_start(self, topic: TopicInfo) -> bool:
        """Return whether the topic is older than this process, so that its partitions may hold records."""
        return self._at_start is not None and topic.topic_id in self._at_start

    def log_config(self, topic: TopicInfo) -> LogConfig:
        """Return the effective settings of a topic: its own, else the broker's, else the defaults.

        ``topic`` may have been altered since it was looked up.
        """
        config = self._log_configs.get(topic.topic_id)
        if config is None:
            now = self._by_id.get(topic.topic_id, topic)
            keeps_records = KEEP_RECORDS if self.set_aside.of(TOPIC, now.name) else {}
            config = LogConfig.resolve({**now.configs, **keeps_records}, self.broker_config)
            self._log_configs[topic.topic_id] = config
        return config

    @property
    def certificate_readings(self) -> int:
        """Number of requests since the start of the broker to reload the certificate files."""
        return self._settings.certificate_readings

    @property
    def log_levels(self) -> Mapping[str, str]:
        """By logger: the configured levels."""
        return self._settings.log_levels

    @property
    def client_quotas(self) -> ClientQuotas:
        """The quotas by entity. Another refresh may change them."""
        return self._client_quotas

    @property
    def client_metrics_configs(self) -> Mapping[str, Mapping[str, str]]:
        """By name, the settings of each client metrics subscription. Another refresh may change them."""
        return self._client_metrics_configs

    @property
    def user_credentials(self) -> Mapping[str, Mapping[str, str]]:
        """By user and mechanism: the credentials as stored. A reserved name has the secret for unknown users' salts."""
        return self._user_credentials

    def group_configs(self, group_id: str) -> Mapping[str, str]:
        """Return a group's own settings, whether the group exists or not."""
        return self._group_configs.get(group_id, {})

    def share_group_config(self, group_id: str) -> ShareGroupConfig:
        """Return the effective settings of a share group, whether the group exists or not."""
        own = self._group_configs.get(group_id)
        key = "" if own is None else group_id
        config = self._share_group_configs.get(key)
        if config is None:
            config = self._share_group_configs[key] = ShareGroupConfig.resolve(own or {}, self.broker_config)
        return config

    def configured_groups(self) -> list[str]:
        """Return the ids of the groups with settings of their own, in order."""
        return sorted(self._group_configs)

    def refresh(self) -> Changes:
        """Apply every change since the last refresh, and return the changed partitions and topics.

        The first refresh of a process reports all partitions as created, and as deleted those of deleted topics with
        unreleased rows. A topic created and deleted in between is reported as deleted only.
        """
        changes = Changes([], [], [])
        finished(self.refresh_in_steps(changes))
        return changes

    def refresh_in_steps(self, changes: Changes) -> Steps[None]:
        """Run `refresh` in steps: each adds to `changes`, from which entries may be removed between steps.

        Later changes than the first step are left for another refresh. `version` changes with the last step; after an
        interruption another refresh repeats all of them. Only one may run at a time.
        """
        delta = yield from self._reader.read_in_steps(self.version)
        if delta is not None:
            yield from self._apply_delta(delta, changes)
        if self._at_start is None:
            self._at_start = frozenset(self._by_id)

    def apply_acls(self, change: int, added: Sequence[Acl], removed: Sequence[Acl]) -> None:
        """Apply a change of ACLs that this process has made itself, without reading them again."""
        if self.authorizer is not None and self.version == change - 1:
            self.authorizer.update(added, removed)
            self.version = change
        else:
            # A later change has been made, so a refresh applies both.
            self.refresh()

    def has_row(self, topic: TopicInfo, partition: PartitionInfo) -> bool:
        """Return whether a deleted partition still has its row; reads the metadata file."""
        return self._reader.is_assigned_to(partition.row, topic.topic_id)

    def close(self) -> None:
        """Close the connection to the metadata file."""
        self._reader.close()

    def _apply_delta(self, delta: MetadataDelta, changes: Changes) -> Steps[None]:
        if delta.complete:
            yield from self._drop_missing(delta.topics, changes)
        for number, record in enumerate(delta.topics):
            if number % ELEMENTS_AT_ONCE == 0:
                yield
            self._apply_topic(record, changes)
        with _contained(BROKER, delta.version):
            if self._settings.apply(delta.broker_configs):
                self._apply_settings(changes)
        if not self.version:
            # The file of an earlier version may have no levels.
            self.finalized_features = finalized_levels({})
        for kind, entities in delta.entities.items():
            yield
            with _contained(kind, delta.version):
                if kind is EntityKind.ACL:
                    yield from self._refresh_acls(entities, are_all=True)
                else:
                    found = self.set_aside.readable_entities(kind, entities)
                    self._replace_entities(kind, {name: values for name, values in found.items() if values})
        for kind, entities in delta.changed_entities.items():
            yield
            with _contained(kind, delta.version):
                if kind is EntityKind.ACL:
                    yield from self._refresh_acls(entities, are_all=False)
                else:
                    self._apply_entities(kind, self.set_aside.readable_entities(kind, entities))
        self.version = delta.version

    def _drop_missing(self, records: list[TopicRecord], changes: Changes) -> Steps[None]:
        remaining = {record.topic_id for record in records}
        removed = [topic for topic in self._by_id.values() if topic.topic_id not in remaining]
        for number, topic in enumerate(removed):
            if number % ELEMENTS_AT_ONCE == 0:
                yield
            self._forget(topic)
            changes.deleted.extend((topic, partition) for partition in topic.partitions)

    def _apply_topic(self, record: TopicRecord, changes: Changes) -> None:
        configs = self.set_aside.readable(TOPIC, record.name, {} if record.deleted else record.configs)
        record = record._replace(configs=configs)
        known = self._by_id.get(record.topic_id)
        known_partitions = len(known.partitions) if known is not None else 0
        if record.deleted:
            # Report the partitions in the cache, released or not, and those created and deleted since the last refresh.
            if known is not None:
                self._forget(known)
                changes.deleted.extend(zip(repeat(known), known.partitions, strict=False))
            rows = record.rows
            if rows and rows[-1][0] >= known_partitions:
                unknown = record._replace(rows=tuple([row for row in rows if row[0] >= known_partitions]))
                rest = self._topic_of(unknown)
                changes.deleted.extend(zip(repeat(rest), rest.partitions, strict=False))
            return
        topic = self._topic_of(record)
        self._by_id[topic.topic_id] = self._by_name[topic.name] = topic
        self._by_metric_name[metric_name(topic.name)] = topic
        self._log_configs.pop(topic.topic_id, None)
        changes.created.extend((topic, partition) for partition in topic.partitions[known_partitions:])
        if known is not None and known.configs != topic.configs:
            changes.altered.append(topic)

    def _forget(self, topic: TopicInfo) -> None:
        del self._by_id[topic.topic_id]
        self._log_configs.pop(topic.topic_id, None)
        name, in_metrics = topic.name, metric_name(topic.name)
        # A topic of the same name may have replaced it within one refresh.
        if self._by_name.get(name) is topic:
            del self._by_name[name]
        if self._by_metric_name.get(in_metrics) is topic:
            del self._by_metric_name[in_metrics]

    def _apply_settings(self, changes: Changes) -> None:
        """Apply settings of the broker. They are defaults of topics, so all topics count as altered."""
        self.broker_overrides = self._settings.overrides
        self.loaded_config = self._settings.loaded
        self.broker_config = self._settings.in_force
        self._log_configs.clear()
        self._share_group_configs.clear()
        altered = {topic.topic_id for topic in changes.altered}
        changes.altered.extend(topic for topic in self._by_id.values() if topic.topic_id not in altered)

    def _replace_entities(self, kind: EntityKind, entities: Entities) -> None:
        if kind is EntityKind.CLIENT_QUOTA:
            self._client_quotas = dict(quotas_of(entities))
        elif kind is EntityKind.FEATURE:
            self.finalized_features = finalized_levels(entities)
        elif kind is EntityKind.GROUP:
            self._group_configs = _configs_of(entities)
            self._share_group_configs.clear()
        elif kind is EntityKind.USER_CREDENTIAL:
            self._user_credentials = _configs_of(entities)
        else:
            self._client_metrics_configs = _configs_of(entities)

    def _apply_entities(self, kind: EntityKind, entities: Entities) -> None:
        """Apply changed entities: the cost depends on their number, not on the total."""
        if kind is EntityKind.FEATURE:
            levels = {name: {LEVEL: level} for name, level in self.finalized_features.items()}
            self.finalized_features = finalized_levels({**levels, **entities})
        elif kind is EntityKind.CLIENT_QUOTA:
            replace_changed(self._client_quotas, quotas_of(entities))
        else:
            known = {
                EntityKind.GROUP: self._group_configs,
                EntityKind.USER_CREDENTIAL: self._user_credentials,
            }.get(kind, self._client_metrics_configs)
            replace_changed(known, _configs_of(entities))
            self._share_group_configs.clear()

    def _refresh_acls(self, entities: Entities, *, are_all: bool) -> Steps[None]:
        """Apply ACLs in steps: the changed ones, or all. They become effective together in the last step."""
        if self.authorizer is None:
            return
        added: list[Acl] = []
        removed: list[Acl] = []
        left = iter(entities.items())
        while some := list(islice(left, ELEMENTS_AT_ONCE)):
            for acl, (_, is_there) in zip(self.set_aside.readable_acls([name for name, _ in some]), some, strict=True):
                if acl is not None:
                    (added if is_there else removed).append(acl)
            yield
        if are_all:
            yield from self.authorizer.replace(added)
        else:
            self.authorizer.update(added, removed)

    def _topic_of(self, record: TopicRecord) -> TopicInfo:
        name_hash = topic_hash(record.name.encode())
        partitions = tuple(
            PartitionInfo(index, row, owner_of(name_hash, index, self._handlers)) for index, row in record.rows
        )
        return TopicInfo(record.name, record.topic_id, partitions, record.configs, record.name in INTERNAL_TOPICS)


@contextmanager
def _contained(kind: str, version: int) -> Iterator[None]:
    """Log an exception while values of one kind are applied; the process continues with its previous values."""
    try:
        yield
    except Exception:  # it would end every process, and each of its replacements
        log.exception("cannot apply values of kind %s in this process as of change %d", kind, version)


def _authorizer_of(config: BrokerConfig) -> Authorizer | None:
    if not config.authorizer_class_name:
        return None
    super_users = super_users_of(config.super_users)
    return Authorizer(super_users, allow_without_acls=config.allow_everyone_if_no_acl_found)


def _configs_of(entities: Entities) -> dict[str, Mapping[str, str]]:
    return {name: {key: str(value) for key, value in values.items()} for name, values in entities.items()}
