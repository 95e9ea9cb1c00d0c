"""The controller: the one writer of the cluster's metadata. Runs in the controller process.

Each method validates a change by Kafka's rules, commits it to the metadata file and applies it to the process's own
``MetadataCache``; the caller then announces the new version to the other processes. A change is on disk before any
process sees it. Independent of responses and connections; a request is only a text that identifies it: a recorded
outcome of that request is never executed again, not by a replacement either. Settings and quotas need no record: their
changes are idempotent, because a list has a value once, and the rest is assigned.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager

from rotunda.broker.config.broker_config import BrokerConfig
from rotunda.broker.config.group_config import out_of_bounds
from rotunda.broker.errors import ApiError, BootFailed
from rotunda.broker.metadata.configs.config_changes import (
    BROKER,
    CLIENT_METRICS,
    GROUP,
    HAVE_SETTINGS,
    TOPIC,
    Alteration,
    altered_broker,
    altered_client_metrics,
    altered_group,
    altered_topic,
    check_broker_id,
    shown,
)
from rotunda.broker.metadata.configs.quota_entities import QuotaEntity, QuotaOp, altered_quotas, stored_name
from rotunda.broker.metadata.configs.stored_values import check_readable
from rotunda.broker.metadata.features import LEVEL, FeatureUpdate, check_updates
from rotunda.broker.metadata.metadata_cache import MetadataCache, TopicInfo
from rotunda.broker.metadata.new_topics import Charge, check_more_partitions, check_new_topic, free_of_charge
from rotunda.broker.metadata.producer_ids import ProducerIds
from rotunda.broker.metadata.security.acls import AclChanges
from rotunda.broker.metadata.security.scram_users import Deletion, Upsertion, changed_users
from rotunda.broker.metadata.store.entity_store import BROKER as BROKER_KIND
from rotunda.broker.metadata.store.entity_store import TOPIC as TOPIC_KIND
from rotunda.broker.metadata.store.entity_store import EntityKind
from rotunda.broker.metadata.store.metadata_file import CERTIFICATES, EVERY_BROKER, metadata_path
from rotunda.broker.metadata.store.metadata_store import MetadataStore, Transaction, nothing_to_do
from rotunda.broker.metadata.store.request_dedup import TopicOutcome
from rotunda.broker.metadata.store.row_allocator import PartitionRows
from rotunda.broker.metadata.thread_counts import Room, check_change
from rotunda.broker.metadata.topics.topic_validation import (
    CLUSTER_METADATA_TOPIC,
    AddedPartitions,
    NewTopic,
    check_total_partitions,
    internal_topic_configs,
)
from rotunda.broker.protocol.error_codes import ErrorCode
from rotunda.broker.protocol.routing import INTERNAL_TOPICS, CoordinatorPartitions, topic_id_for
from rotunda.broker.text_table import counted
from rotunda.shm.tables.partitions import PartitionTable

_TOPIC_ID_ENTROPY_BYTES = 16


log = logging.getLogger(__name__)


class Controller:
    """Creates, changes and deletes topics, changes settings, quotas and features, and reserves producer ids."""

    def __init__(
        self,
        store: MetadataStore,
        metadata: MetadataCache,
        rows: PartitionRows,
        config: BrokerConfig,
        coordinators: CoordinatorPartitions,
        room: Room,
    ) -> None:
        self._store = store
        self._metadata = metadata
        self._rows = rows
        self._config = config
        self._coordinators = coordinators
        self.room = room
        self._producer_ids = ProducerIds(store)
        self.acls = AclChanges(metadata, self._store.stage, self._change, self.outcomes_of)
        of_names = {GROUP: self._alter_group, CLIENT_METRICS: self._alter_client_metrics}
        self._alter_by_type = {TOPIC: self._alter_topic, BROKER: self._alter_broker, **of_names}

    @classmethod
    def open(
        cls,
        metadata: MetadataCache,
        partitions: PartitionTable,
        config: BrokerConfig,
        applied_version: Callable[[], int],
        coordinators: CoordinatorPartitions = CoordinatorPartitions(),  # noqa: B008 - an immutable value
        before_change: Callable[[], None] = nothing_to_do,
        room: Room = Room(256, 256),  # noqa: B008 - an immutable value
    ) -> Controller:
        """Open the metadata file and read it; ``applied_version`` returns the version that all handlers have applied.

        Raises BootFailed: the file is unusable, or has too many partitions.
        """
        path = metadata_path(config.data_dir)
        store = MetadataStore.open(path, ephemeral=config.ephemeral, before_change=before_change, check=check_readable)
        assigned = store.assigned_rows()
        if assigned and assigned[-1][0] >= partitions.rows:
            store.close()
            raise BootFailed(f"partition row {assigned[-1][0]} is beyond max.partitions ({partitions.rows})")
        metadata.refresh()
        metadata.set_aside.log(path)
        for name in metadata.configured_groups():
            for override in out_of_bounds(metadata.group_configs(name), metadata.broker_config):
                log.warning("group %s: %s, which is used instead", name, override)
        rows = PartitionRows(partitions, assigned, metadata.version, applied_version)
        return cls(store, metadata, rows, config, coordinators, room)

    @property
    def version(self) -> int:
        """Number of the last change, which is announced to the other processes."""
        return self._metadata.version

    def outcomes_of(self, request: str | None) -> list[TopicOutcome] | None:
        """Return the recorded outcomes of a request, or None if it has changed nothing."""
        return None if request is None else self._store.outcomes_of(request)

    def create_topics(
        self,
        wanted: Sequence[NewTopic],
        *,
        validate_only: bool = False,
        request: str | None = None,
        charge: Charge = free_of_charge,
    ) -> list[TopicOutcome]:
        """Create the valid topics, all in one change, and return an outcome for each topic.

        Names must be distinct, and the total within `check_size`. Raises ApiError, for all of them, when the change
        cannot be written.
        """
        made = self.outcomes_of(request)
        if made is not None:
            return made
        outcomes: list[TopicOutcome] = []
        accepted: list[tuple[TopicOutcome, list[int]]] = []
        for topic in wanted:
            try:
                outcome = check_new_topic(self._metadata, self._coordinators, topic)
                charge(outcome.partitions)
                rows = self._allocate_rows(outcome.partitions)
            except ApiError as error:
                outcomes.append(TopicOutcome(topic.name, error.code, error.message))
                continue
            if not validate_only:
                topic_id = topic_id_for(topic.name.encode(), os.urandom(_TOPIC_ID_ENTROPY_BYTES))
                outcome = outcome._replace(topic_id=topic_id)
            outcomes.append(outcome)
            accepted.append((outcome, rows))
        allocated = [row for _, rows in accepted for row in rows]
        if validate_only:
            self._rows.put_back(allocated)
        elif accepted:
            with self._change(request, outcomes, allocated) as transaction:
                for outcome, rows in accepted:
                    transaction.insert_topic(outcome.topic_id, outcome.name, rows, outcome.configs)
            for outcome, _ in accepted:
                log.info("created topic %s with %s", outcome.name, counted(outcome.partitions, "partition"))
            self._metadata.refresh()
        return outcomes

    def check_size(self, wanted: Sequence[NewTopic]) -> None:
        """Raise ApiError(POLICY_VIOLATION) if one request creates topics with too many partitions."""
        check_total_partitions(
            (topic for topic in wanted if topic.name != CLUSTER_METADATA_TOPIC),
            self._metadata.broker_config.num_partitions,
        )

    def auto_create(self, names: Sequence[str], configs: Mapping[str, str] | None = None) -> dict[str, int]:
        """Create topics with the broker's defaults for other settings than ``configs``; return name -> error code."""
        distinct = [self._with_defaults(name) for name in dict.fromkeys(names)]
        if configs is not None:
            distinct = [topic._replace(configs=configs) for topic in distinct]
        return {outcome.name: outcome.error_code for outcome in self.create_topics(distinct)}

    def _with_defaults(self, name: str) -> NewTopic:
        if name not in INTERNAL_TOPICS:
            return NewTopic(name)
        return NewTopic(name, self._coordinators.of(name), configs=internal_topic_configs(name, self._config))

    def delete_topics(
        self, topics: Sequence[TopicInfo], request: str | None = None, outcomes: Sequence[TopicOutcome] = ()
    ) -> None:
        """Delete topics, all in one change. Raises ApiError when it cannot be written.

        ``outcomes``: the outcomes to record, which `outcomes_of` returns from then on.
        """
        with self._change(request, outcomes) as transaction:
            for topic in topics:
                transaction.delete_topic(topic.topic_id)
        for topic in topics:
            self._rows.retire((partition.row for partition in topic.partitions), self._store.change)
            log.info("deleted topic %s", topic.name)
        self._metadata.refresh()

    def create_partitions(
        self,
        wanted: Sequence[AddedPartitions],
        *,
        validate_only: bool = False,
        request: str | None = None,
        charge: Charge = free_of_charge,
    ) -> list[TopicOutcome]:
        """Add partitions to topics, all in one change, and return an outcome for each topic.

        Names must be distinct. Raises ApiError, for all of them, when the change cannot be written.
        """
        made = self.outcomes_of(request)
        if made is not None:
            return made
        outcomes: list[TopicOutcome] = []
        accepted: list[tuple[TopicInfo, list[int]]] = []
        for each in wanted:
            try:
                topic = check_more_partitions(self._metadata, each)
                charge(each.partitions - len(topic.partitions))
                rows = self._allocate_rows(each.partitions - len(topic.partitions))
            except ApiError as error:
                outcomes.append(TopicOutcome(each.name, error.code, error.message))
                continue
            outcomes.append(TopicOutcome(each.name))
            accepted.append((topic, rows))
        allocated = [row for _, rows in accepted for row in rows]
        if validate_only:
            self._rows.put_back(allocated)
        elif accepted:
            with self._change(request, outcomes, allocated) as transaction:
                for topic, rows in accepted:
                    transaction.add_partitions(topic.topic_id, len(topic.partitions), rows)
            for topic, rows in accepted:
                log.info("topic %s now has %d partitions", topic.name, len(topic.partitions) + len(rows))
            self._metadata.refresh()
        return outcomes

    def alter_configs(self, resource_type: int, name: str, alteration: Alteration, *, validate_only: bool) -> None:
        """Change the settings of a topic, group, client metrics subscription, this broker or (no name) all brokers.

        Raises ApiError when the resource is unknown or a setting is invalid.
        """
        alter = self._alter_by_type.get(resource_type)
        if alter is None:
            raise ApiError(ErrorCode.INVALID_REQUEST, f"Unknown resource type {resource_type}: {HAVE_SETTINGS}")
        alter(name, alteration, validate_only)

    @contextmanager
    def together(self) -> Iterator[None]:
        """Combine the following changes of settings and quotas into one change of the metadata.

        They must concern different entities, and are visible at the end of the context. A rejected change leaves the
        others. Raises ApiError when the change cannot be written: none of them is made then.
        """
        with self._store.together():
            yield
        self._metadata.refresh()

    @property
    def settings_bytes(self) -> int:
        """Stored bytes of groups, client metrics subscriptions, quotas, users and ACLs."""
        return self._store.entity_bytes

    def alter_client_quotas(self, entity: QuotaEntity, operations: Sequence[QuotaOp], *, validate_only: bool) -> None:
        """Change the quotas of one entity (KIP-546). Raises ApiError when they are invalid."""
        current = self._metadata.client_quotas.get(entity, {})
        quotas = altered_quotas(entity, current, operations)
        name = stored_name(entity)
        if not validate_only and self._is_change(EntityKind.CLIENT_QUOTA, name, current, quotas):
            with self._change() as transaction:
                transaction.set_entity(EntityKind.CLIENT_QUOTA, name, quotas)
            log.info("the quotas of %s are now %s", dict(entity), quotas)
            self._metadata.refresh()

    def alter_user_credentials(self, user: str, changes: Sequence[Deletion | Upsertion]) -> None:
        """Change the SCRAM credentials of a user (KIP-554): all or nothing. Raises ApiError."""
        unreadable = self._metadata.set_aside.of(EntityKind.USER_CREDENTIAL, user)
        stored = changed_users(self._metadata.user_credentials, user, changes, unreadable)
        with self._change() as transaction:
            for name, values in stored.items():
                transaction.set_entity(EntityKind.USER_CREDENTIAL, name, values)
        self._metadata.refresh()

    def update_features(
        self, updates: Sequence[FeatureUpdate], *, validate_only: bool, request: str | None = None
    ) -> None:
        """Finalize other levels of features, all in one change (KIP-584). Raises ApiError when one is invalid."""
        if self.outcomes_of(request) is not None:
            return
        current = self._metadata.finalized_features
        check_updates(updates, current)
        changed = [
            update
            for update in updates
            if self._is_change(EntityKind.FEATURE, update.name, current.get(update.name, 0), update.level)
        ]
        if changed and not validate_only:
            with self._change(request) as transaction:
                for update in changed:
                    transaction.set_entity(EntityKind.FEATURE, update.name, {LEVEL: update.level})
            log.info("features are now at these levels: %s", {update.name: update.level for update in changed})
            self._metadata.refresh()

    def next_producer_id(self) -> int:
        """Return an unused producer id. Raises ApiError when none can be reserved."""
        return self._producer_ids.next()

    def close(self) -> None:
        """Close the metadata file."""
        self._store.close()

    @contextmanager
    def _change(
        self, request: str | None = None, outcomes: Sequence[TopicOutcome] = (), allocated: Sequence[int] = ()
    ) -> Iterator[Transaction]:
        """Yield the next change, which also records its request's outcomes and the rows that owners have released.

        ``allocated``: the rows allocated for it, which are returned if the change fails.
        """
        # Rows are free once a change is committed: not while several are combined.
        released = [] if self._store.is_together else self._rows.release()
        try:
            with self._store.transaction() as transaction:
                transaction.release_rows(released)
                if request is not None:
                    transaction.keep_outcomes(request, outcomes)
                yield transaction
        except Exception:
            self._rows.put_back(allocated)
            raise
        self._rows.free(released, self._store.change)

    def _allocate_rows(self, count: int) -> list[int]:
        self.release_rows(wanted=count)
        return self._rows.allocate(count)

    def release_rows(self, wanted: int = 0) -> bool:
        """Release rows of deleted partitions, if rows run short; False if nothing was done."""
        if not (self._rows.run_short or wanted > self._rows.available) or not self._rows.release():
            return False
        with self._change():
            pass  # releases the rows
        self._metadata.refresh()
        return True

    def _alter_topic(self, name: str, alteration: Alteration, validate_only: bool) -> None:
        topic = self._metadata.topic(name)
        current = topic.configs if topic is not None else {}
        configs = altered_topic(alteration, current, self._metadata.broker_config, name)
        if topic is None:
            raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"The topic '{name}' does not exist.")
        if not validate_only and self._is_change(TOPIC_KIND, name, current, configs):
            with self._change() as transaction:
                transaction.set_topic_configs(topic.topic_id, name, configs)
            self._changed("topic", name, configs)

    def _alter_broker(self, name: str, alteration: Alteration, validate_only: bool) -> None:
        if name != EVERY_BROKER:
            check_broker_id(name, self._config.node_id)
        overrides = self._metadata.broker_overrides
        current = overrides.get(name, {})
        configs = altered_broker(alteration, current, self._metadata.loaded_config, name)
        # As in Kafka, files are reloaded even if their names stay the same.
        reads_certificates = any("ssl." in change.name for change in alteration.changes)
        check_change(self._metadata, {**overrides, name: configs}, self.room, reads_certificates=reads_certificates)
        if not validate_only and (self._is_change(BROKER_KIND, name, current, configs) or reads_certificates):
            with self._change() as transaction:
                transaction.set_broker_configs(name, configs)
                if reads_certificates:
                    transaction.set_broker_configs(CERTIFICATES, self._next_certificates())
            self._changed("broker", name or "default", shown(configs))

    def read_certificates_again(self) -> None:
        """Make every process reload the certificate files, for new connections."""
        self.replace_until_restart(CERTIFICATES, self._next_certificates())

    def _next_certificates(self) -> dict[str, str]:
        return {CERTIFICATES: str(self._metadata.certificate_readings + 1)}

    def replace_until_restart(self, kind: str, texts: Mapping[str, str]) -> None:
        """Replace one kind of settings that apply until the next start, one of UNTIL_RESTART."""
        with self._change() as transaction:
            transaction.set_broker_configs(kind, {kind: "", **texts})
        self._metadata.refresh()

    def _alter_group(self, name: str, alteration: Alteration, validate_only: bool) -> None:
        current = self._metadata.group_configs(name)
        configs = altered_group(alteration, current, self._metadata.broker_config, name)
        if not validate_only and self._is_change(EntityKind.GROUP, name, current, configs):
            self._replace(EntityKind.GROUP, name, configs)

    def _alter_client_metrics(self, name: str, alteration: Alteration, validate_only: bool) -> None:
        current = self._metadata.client_metrics_configs.get(name, {})
        configs = altered_client_metrics(alteration, current, name)
        if not validate_only and self._is_change(EntityKind.CLIENT_METRICS, name, current, configs):
            self._replace(EntityKind.CLIENT_METRICS, name, configs)

    def _is_change(self, kind: str, name: str, current: object, new: object) -> bool:
        """Return whether the stored values would change: also by removing unreadable ones."""
        return new != current or bool(self._metadata.set_aside.of(kind, name))

    def _replace(self, kind: EntityKind, name: str, configs: Mapping[str, str]) -> None:
        """Replace the settings of an entity; without settings it is deleted."""
        with self._change() as transaction:
            transaction.set_entity(kind, name, configs)
        self._changed(kind, name, configs)

    def _changed(self, kind: str, name: str, configs: Mapping[str, str]) -> None:
        log.info("%s %s now has the settings %s", kind, name, configs)
        self._metadata.refresh()
