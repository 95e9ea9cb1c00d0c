"""One partition of `__consumer_offsets`: its groups and their offsets.

Runs in the handler that owns the partition. Memory changes when the record of the change is appended, so that the order
of the records is the order of the changes; a response is sent only after the record it depends on is committed. A table
has the function that applies each type of record, by the version of its key.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Protocol

from rotunda.broker.coordinator.offsets.offsets import OffsetStore
from rotunda.broker.protocol.error_codes import ErrorCode
from rotunda.broker.steps import Steps

if TYPE_CHECKING:
    from rotunda.broker.coordinator.coordinator_log import CoordinatorLog
    from rotunda.broker.coordinator.group import Group
    from rotunda.broker.coordinator.offsets.offsets import CommitPartitions
    from rotunda.broker.coordinator.offsets.repeated_records import RepeatedRecords
    from rotunda.broker.coordinator.records import Apply, RecordTable, RecordType

#: Returns whether a group, by id, may use this many more bytes of memory.
Admit = Callable[[str, int], bool]


def admit_all(group_id: str, more_bytes: int) -> bool:
    del group_id, more_bytes
    return True


class CommitToRepeat(Protocol):
    """A cached commit, for repeated commits of a member to the same partitions."""

    @property
    def partitions(self) -> CommitPartitions:
        """The offsets that it sets."""

    @property
    def records(self) -> RepeatedRecords:
        """The records that it writes."""


class GroupShard:
    """The groups of one partition."""

    def __init__(
        self,
        log: CoordinatorLog,
        table: RecordTable[GroupShard],
        loaded: Callable[[GroupShard], Steps[None]],
        admit: Admit = admit_all,
    ) -> None:
        self.partition = log.partition
        self.groups: dict[str, Group] = {}
        self.offsets = OffsetStore()
        self.admit = admit
        self.is_open = True
        self._is_loaded = False
        self._log = log
        #: Append records of changes (`CoordinatorLog.append`), and wait for those appended before.
        self.append, self.when_committed = log.append, log.when_committed
        self._table = table
        self._loaded = loaded

    # ---- loading -------------------------------------------------------------------------------------------------

    def replay(self, key: bytes, value: bytes | None, producer_id: int) -> Steps[None] | None:
        """Apply a record, a long one in steps."""
        return self._table.apply(self, key, value, producer_id)

    def loaded(self) -> Steps[None]:
        """Start the groups, now that all records have been applied."""
        yield from self._loaded(self)
        self._is_loaded = True

    # ---- changes -------------------------------------------------------------------------------------------------

    @property
    def has_failed(self) -> bool:
        """Whether memory may differ from the log: the partition is being loaded, or a write has failed."""
        return self._log.has_failed or not self._is_loaded

    def commit_again(self, commit: CommitToRepeat, offsets: Sequence[int], now_ms: int, committer: object) -> None:
        """Apply and append an offset for each partition of a cached commit. HOT.

        The log's `send_commits` sends the response to ``committer``, together with others.
        """
        self.offsets.restore(commit.partitions, offsets, now_ms)
        self._log.append_repeated(commit.records, offsets, now_ms, committer)

    def end_transaction(self, producer_id: int, *, commit: bool) -> None:
        """Commit or drop the offsets of a transaction after its marker is in the log."""
        self.offsets.end_transaction(producer_id, commit=commit)

    def close(self) -> None:
        """Close the partition and fail pending requests."""
        self.is_open = False
        self._log.give_up(ErrorCode.NOT_COORDINATOR)


def group_table(
    group_class: type[Any], metadata: RecordType, table: Mapping[RecordType, Callable[[Any, Any, Any], None]]
) -> Mapping[RecordType, Apply[GroupShard]]:
    """Return the record table of a kind of group whose records each describe a part of it.

    ``table``: by type, the function that applies (group, key, value or None if deleted). The first record of a group
    creates it, and the deletion of its ``metadata`` deletes it.
    """

    def applied(record_type: RecordType, apply: Callable[[Any, Any, Any], None]) -> Apply[GroupShard]:
        def apply_to_group(shard: GroupShard, key: Any, value: Any, _: int) -> None:
            group = shard.groups.get(key.group_id)
            if not isinstance(group, group_class):
                if value is None:
                    return
                group = shard.groups[key.group_id] = group_class(key.group_id)
            if value is None and record_type is metadata:
                del shard.groups[key.group_id]
            else:
                apply(group, key, value)

        return apply_to_group

    return MappingProxyType({each: applied(each, apply) for each, apply in table.items()})
