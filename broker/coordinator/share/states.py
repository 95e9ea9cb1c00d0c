"""The state of share partitions as seen by a group's coordinator: initialization and deletion in the state's owner.

Runs in the handler that coordinates the group. The state is in `__share_group_state`, whose owner may be another
handler. A coordinator records what it is about to do, calls the owner, and records the outcome: after a death the next
heartbeat, or the load, repeats an unfinished step, which is harmless.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol

from rotunda.broker.coordinator.consumer.target_assignment import existing
from rotunda.broker.coordinator.coordinator_log import nobody_waits
from rotunda.broker.coordinator.share.group import ShareGroup
from rotunda.broker.coordinator.share.member import ShareGroupMember
from rotunda.broker.coordinator.share.update import Initialization, ShareGroupUpdate
from rotunda.broker.protocol.error_codes import ErrorCode

if TYPE_CHECKING:
    from rotunda.broker.config.broker_config import BrokerConfig
    from rotunda.broker.config.share_group_config import ShareGroupConfig
    from rotunda.broker.coordinator.consumer.target_assignment import Topics
    from rotunda.broker.coordinator.coordinator_log import Done
    from rotunda.broker.coordinator.group_shard import GroupShard
    from rotunda.broker.scheduling.timers import Timers

logger = logging.getLogger(__name__)

#: Errors while the state's owner starts, and the interval of repetitions.
_RETRIABLE: Final = (
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
)
_RETRY_MS: Final = 50

#: Kafka waits at least offsets.commit.timeout.ms, which is fixed here, before it initializes a partition again.
_LEAST_RETRY_INTERVAL_MS: Final = 5000


class ShareStates(Protocol):
    """The calls to the owner of a group's state; each may be repeated. ``done`` is called now or in a later turn."""

    def initialize(
        self,
        group_id: str,
        topic_id: bytes,
        partitions: Sequence[int],
        state_epoch: int,
        start_offset: int,
        done: Callable[[int], None],
    ) -> None:
        """Write the state of partitions; -1: the start offset follows from share.auto.offset.reset."""

    def delete(self, group_id: str, topic_ids: Sequence[bytes], done: Callable[[int], None]) -> None:
        """Delete the state of all partitions of topics."""


@dataclass(frozen=True, slots=True)
class ShareEnvironment:
    """The environment of share groups: topics, current settings, and the settings of single groups."""

    topics: Topics
    config: Callable[[], BrokerConfig]
    group_config: Callable[[str], ShareGroupConfig]
    wall_ms: Callable[[], int]

    def update(self, group: ShareGroup) -> ShareGroupUpdate:
        """Return an empty update of a group, as of now."""
        return ShareGroupUpdate(group, self.topics, self.wall_ms())

    def awaits_state(self, group: ShareGroup, member: ShareGroupMember) -> bool:
        """Return whether partitions of the member's topics are under initialization."""
        return not existing(self.topics, member.topic_names).keys().isdisjoint(group.initializing_since_ms)

    @property
    def retry_interval_ms(self) -> int:
        """Time after which an initialization without an outcome is repeated."""
        return max(self.config().group_share_initialize_retry_interval_ms, _LEAST_RETRY_INTERVAL_MS)


class StateChanges:
    """Initializes and deletes the state of one handler's share groups."""

    def __init__(self, environment: ShareEnvironment, timers: Timers, states: ShareStates) -> None:
        self._environment = environment
        self._timers = timers
        self._states = states

    def initialize(self, shard: GroupShard, group: ShareGroup, steps: Iterable[Initialization]) -> None:
        """Initialize partitions that are recorded as under initialization, and wake the heartbeats that wait."""
        for step in steps:
            self._initialize(shard, group, step, group.initializing_since_ms[step.topic_id])

    def delete(self, shard: GroupShard, group: ShareGroup, topic_ids: Iterable[bytes], done: Done) -> None:
        """Delete the state of topics of the group; ``done`` is called after the commit of the outcome."""
        update = self._environment.update(group)
        update.begin_deletion(topic_ids)

        def recorded(error: int) -> None:
            if error:
                done(error)
            else:
                self.finish_deletions(shard, group, done)

        update.commit(shard, recorded)

    def finish_deletions(self, shard: GroupShard, group: ShareGroup, done: Done) -> None:
        """Delete the state of the topics that are recorded as under deletion."""
        topic_ids = sorted(group.deleting)
        if not topic_ids:
            done(0)
            return

        def deleted(error: int) -> None:
            if not is_there(shard, group):
                done(ErrorCode.NOT_COORDINATOR)
            elif error:
                logger.warning("share group %s: cannot delete the state of its topics: error %d", group.group_id, error)
                done(error)
            else:
                update = self._environment.update(group)
                update.deleted(topic_ids)
                update.commit(shard, done)

        self._states.delete(group.group_id, topic_ids, deleted)

    def drop_deleted_topics(self, shard: GroupShard, group: ShareGroup) -> None:
        """Delete the state of topics that no longer exist."""
        known = group.initialized.keys() | group.initializing.keys()
        missing = [topic_id for topic_id in known if self._environment.topics.topic_by_id(topic_id) is None]
        if missing:
            self.delete(shard, group, missing, nobody_waits)

    def reset(
        self, shard: GroupShard, group: ShareGroup, topic_id: bytes, offsets: Mapping[int, int], done: Done
    ) -> None:
        """Set the start offsets of partitions of a topic; ``done`` is called after the commit of the outcome."""
        errors: list[int] = []
        if topic_id in group.deleting:
            done(ErrorCode.COORDINATOR_NOT_AVAILABLE)
            return

        def recorded(error: int) -> None:
            if error:
                done(error)
                return
            for partition, offset in offsets.items():
                self._initialize_with_retries(
                    group, Initialization(topic_id, frozenset({partition}), offset), completed
                )

        def completed(error: int) -> None:
            errors.append(error)
            if len(errors) < len(offsets):
                return
            failed = next((each for each in errors if each), 0)
            if failed or not is_there(shard, group):
                # A member's heartbeat initializes partitions that have no state yet.
                group.initializing_since_ms.pop(topic_id, None)
                done(failed or ErrorCode.NOT_COORDINATOR)
                return
            update = self._environment.update(group)
            update.initialized(topic_id, offsets)
            update.commit(shard, done)

        update = self._environment.update(group)
        update.begin_reset(topic_id, offsets)
        update.commit(shard, recorded)

    def _initialize(self, shard: GroupShard, group: ShareGroup, step: Initialization, since_ms: int) -> None:
        def done(error: int) -> None:
            if not is_there(shard, group) or group.initializing_since_ms.get(step.topic_id) != since_ms:
                return
            if error:
                logger.warning("share group %s: cannot initialize its partitions: error %d", group.group_id, error)
                del group.initializing_since_ms[step.topic_id]
                group.is_stale = True
            else:
                update = self._environment.update(group)
                update.initialized(step.topic_id, step.partitions)
                update.commit(shard, nobody_waits)
            group.wake()

        self._initialize_with_retries(group, step, done)

    def _initialize_with_retries(self, group: ShareGroup, step: Initialization, done: Done) -> None:
        """Call the state's owner, repeatedly while it starts."""
        until_ms = self._environment.wall_ms() + self._environment.retry_interval_ms

        def attempt() -> None:
            self._states.initialize(
                group.group_id, step.topic_id, sorted(step.partitions), group.epoch, step.start_offset, completed
            )

        def completed(error: int) -> None:
            if error in _RETRIABLE and self._environment.wall_ms() < until_ms:
                self._timers.after_ms(_RETRY_MS, attempt)
            else:
                done(error)

        attempt()


def is_there(shard: GroupShard, group: ShareGroup) -> bool:
    """Return whether a group is still coordinated here."""
    return shard.is_open and shard.groups.get(group.group_id) is group
