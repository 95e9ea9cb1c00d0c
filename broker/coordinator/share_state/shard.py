"""One partition of `__share_group_state`: the stored states of its groups, and the groups in use.

Runs in the handler that owns the partition. A group in use has windows, locks, sessions and waiting fetches. A window
begins with the stored state when a member first fetches from its partition, and ends with the group's last session.
Memory changes when the record of the change is appended, so that the order of the records is the order of the changes;
a response is sent only after the record it depends on is committed. If a write fails, the partition is loaded again:
windows and sessions end as after a death of the process.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, Final

from rotunda.broker.coordinator.coordinator_log import nobody_waits
from rotunda.broker.coordinator.records import RecordTable
from rotunda.broker.coordinator.share_state.records import (
    SHARE_SNAPSHOT,
    SHARE_UPDATE,
    SharePlace,
    StoredState,
    batches_of,
    state_of,
    tombstone,
)
from rotunda.broker.partitions.share.share_window import DeadLetter, DeliveryTerms, ShareWindow
from rotunda.broker.protocol.error_codes import ErrorCode
from rotunda.broker.steps import Steps

if TYPE_CHECKING:
    from rotunda.broker.coordinator.coordinator_log import CoordinatorLog, Done
    from rotunda.broker.coordinator.group_memory import GroupMemory
    from rotunda.broker.coordinator.records import Record
    from rotunda.broker.partitions.share.delivery import DeliveryCounts, StateBatch
    from rotunda.broker.partitions.share.share_session import ShareSession
    from rotunda.broker.scheduling.timers import Timer, Timers


class ShareStateShard:
    """The share groups of one partition of the internal topic."""

    def __init__(
        self,
        log: CoordinatorLog,
        loaded: Callable[[ShareStateShard], None],
        updates_per_snapshot: Callable[[], int],
        wall_ms: Callable[[], int],
        log_end: Callable[[], int],
    ) -> None:
        """Use ``log_end()`` for the published end of the log."""
        self.partition = log.partition
        #: By group id.
        self.states: dict[str, dict[SharePlace, StoredState]] = {}
        #: The groups with open sessions.
        self.groups: dict[str, ShareGroup] = {}
        self.is_open = True
        self._log = log
        self._loaded = loaded
        self._updates_per_snapshot = updates_per_snapshot
        self._wall_ms, self._log_end = wall_ms, log_end
        #: The end of the log before the last record that is not a repeated snapshot.
        self._changed_at = log_end()

    # ---- loading -------------------------------------------------------------------------------------------------

    def replay(self, key: bytes, value: bytes | None, producer_id: int) -> Steps[None] | None:
        return _RECORDS.apply(self, key, value, producer_id)

    def end_transaction(self, producer_id: int, *, commit: bool) -> None:
        """Ignore a marker: no transaction writes to this topic."""

    def loaded(self) -> Steps[None]:
        """Start serving the groups after all records have been applied."""
        self._loaded(self)
        yield from ()

    # ---- changes -------------------------------------------------------------------------------------------------

    @property
    def has_failed(self) -> bool:
        """Whether a write has failed, so that memory is ahead of the log."""
        return self._log.has_failed

    def state(self, group_id: str, place: SharePlace) -> StoredState | None:
        return self.states.get(group_id, {}).get(place)

    def window(self, group_id: str, place: SharePlace, state: StoredState) -> ShareWindow:
        """Return the window of a share partition: the stored one while nobody reads from it."""
        group = self.groups.get(group_id)
        window = None if group is None else group.windows.get(place)
        return window or ShareWindow(state.start_offset, state.batches)

    def initialize(
        self, group_id: str, places: Iterable[SharePlace], state_epoch: int, start_offset: int, done: Done
    ) -> None:
        """Set the start offset of share partitions and discard their earlier state, unless the epoch is an old one."""
        records: list[Record] = []
        error, now_ms = 0, self._wall_ms()
        for place in places:
            known = self.state(group_id, place)
            if known is not None and state_epoch < known.state_epoch:
                error = int(ErrorCode.FENCED_STATE_EPOCH)
                continue
            state = StoredState(state_epoch, start_offset, 0 if known is None else known.snapshot_epoch + 1, now_ms)
            self.states.setdefault(group_id, {})[place] = state
            self._drop(group_id, place)
            records.append(self._snapshot(group_id, place, state))
        self._append(records, lambda failure: done(failure or error))

    def store(
        self, group_id: str, place: SharePlace, start_offset: int, complete_count: int, batches: Sequence[StateBatch]
    ) -> None:
        """Write a change of a share partition's state; `when_committed` waits for it."""
        state = self.states[group_id][place]
        state.merge(start_offset, complete_count, batches)
        if state.updates > self._updates_per_snapshot():
            record = self._new_snapshot(group_id, place, state)
        else:
            record = state.update(group_id, place, batches)
            state.written_ms = self._wall_ms()
        self._append([record], nobody_waits)

    def store_changes(self, group_id: str, place: SharePlace, window: ShareWindow) -> None:
        """Write the changes of a window, if there are any."""
        changes = window.drain_changes()
        if changes or window.start_offset > self.states[group_id][place].start_offset:
            self.store(group_id, place, window.start_offset, window.complete_count, changes)

    def archive(self, group_id: str, place: SharePlace, letters: Iterable[DeadLetter]) -> None:
        """Archive records that were written to the dead letter topic, also if nobody reads from the partition now."""
        state = self.state(group_id, place)
        if state is None:
            return
        window = self.window(group_id, place, state)
        for each in letters:
            window.archived(each.first, each.last)
        group = self.groups.get(group_id)
        if group is not None and place in group.windows:
            group.changed(place)
        else:
            self.store_changes(group_id, place, window)

    def delete(self, group_id: str, topic_ids: Iterable[bytes], done: Done) -> None:
        """Delete a group's state for topics."""
        deleted = frozenset(topic_ids)
        states = self.states.get(group_id, {})
        places = [place for place in states if place.topic_id in deleted]
        for place in places:
            del states[place]
            self._drop(group_id, place)
        if not states:
            self.states.pop(group_id, None)
        self._append([tombstone(group_id, place) for place in places], done)

    def refresh(self, cold_ms: int) -> None:
        """Write a snapshot of each state without a record in the last ``cold_ms``, so that older records can go.

        Those that follow all other records are not repeated.
        """
        before_ms = self._wall_ms() - cold_ms
        records = [
            self._new_snapshot(group_id, place, state)
            for group_id, states in self.states.items()
            for place, state in states.items()
            if state.written_ms <= before_ms and state.snapshot_from <= self._changed_at
        ]
        if records:
            self._log.append(records, nobody_waits)

    def oldest_needed(self) -> int:
        """Return the offset of the log from which on its records are needed."""
        return min(
            (state.snapshot_from for states in self.states.values() for state in states.values()),
            default=self._log_end(),
        )

    def when_committed(self, done: Done) -> None:
        """Call ``done`` once all appended records are committed: at once if there are none."""
        if self.is_open:
            self._log.when_committed(done)
        else:
            done(int(ErrorCode.NOT_COORDINATOR))

    def close(self) -> None:
        """Close the partition and fail pending requests."""
        self.is_open = False
        for group in self.groups.values():
            group.close()
        self.groups.clear()
        self._log.give_up(ErrorCode.NOT_COORDINATOR)

    def _drop(self, group_id: str, place: SharePlace) -> None:
        """End the window of a share partition whose state was replaced."""
        group = self.groups.get(group_id)
        if group is not None:
            group.drop(place)

    def _new_snapshot(self, group_id: str, place: SharePlace, state: StoredState) -> Record:
        state.snapshot_epoch += 1
        state.updates = 0
        return self._snapshot(group_id, place, state)

    def _snapshot(self, group_id: str, place: SharePlace, state: StoredState) -> Record:
        state.snapshot_from, state.written_ms = self._log_end(), self._wall_ms()
        return state.snapshot(group_id, place, state.written_ms)

    def _append(self, records: Sequence[Record], done: Done) -> None:
        if records:
            self._changed_at = self._log_end()
            self._log.append(records, done)
        else:
            done(0)


def _place(key: Any) -> SharePlace:
    return SharePlace(bytes(key.topic_id), key.partition)


def _apply_snapshot(shard: ShareStateShard, key: Any, value: Any, _: int) -> None:
    if value is not None:
        shard.states.setdefault(key.group_id, {})[_place(key)] = state_of(value)
        return
    states = shard.states.get(key.group_id, {})
    states.pop(_place(key), None)
    if not states:
        shard.states.pop(key.group_id, None)


def _apply_update(shard: ShareStateShard, key: Any, value: Any, _: int) -> None:
    state = shard.state(key.group_id, _place(key))
    if state is not None and value is not None and value.snapshot_epoch == state.snapshot_epoch:
        state.merge(value.start_offset, value.delivery_complete_count, batches_of(value))


_RECORDS: Final = RecordTable[ShareStateShard]({SHARE_SNAPSHOT: _apply_snapshot, SHARE_UPDATE: _apply_update})


class ShareCounts:
    """Numbers for the metrics that outlive the groups."""

    def __init__(self) -> None:
        #: Acquired records whose lock has run out.
        self.expired = 0


class ShareGroup:
    """The share partitions of one group."""

    def __init__(
        self,
        group_id: str,
        shard: ShareStateShard,
        terms: Callable[[str], DeliveryTerms],
        timers: Timers,
        give_up: Callable[[ShareGroup, SharePlace, Sequence[DeadLetter]], None],
        counts: ShareCounts,
        memory: GroupMemory,
    ) -> None:
        """Use ``terms(group id)`` for the group's current settings, ``give_up`` for stored dead letters."""
        self.group_id = group_id
        self.shard = shard
        self.windows: dict[SharePlace, ShareWindow] = {}
        #: By member id.
        self.sessions: dict[str, ShareSession[SharePlace]] = {}
        #: Number of closed sessions by member whose records are being released.
        self.releasing: Counter[str] = Counter()
        #: Share partitions whose start offset is being looked up.
        self.resolving: set[SharePlace] = set()
        #: Called when records may have become available.
        self.wake: dict[object, Callable[[], None]] = {}
        self._terms, self._give_up, self._counts = terms, give_up, counts
        self._timers, self._memory = timers, memory
        self._lock_timers: dict[SharePlace, Timer] = {}

    @property
    def terms(self) -> DeliveryTerms:
        """The group's current settings."""
        return self._terms(self.group_id)

    def begin(self, place: SharePlace, start_offset: int, batches: list[StateBatch]) -> ShareWindow:
        """Begin the window of a share partition with its stored state."""
        window = self.windows[place] = ShareWindow(start_offset, batches)
        self.count_memory(window)
        self._send_letters(place, window)
        return window

    def drop(self, place: SharePlace) -> None:
        """End a window: its state was replaced or deleted, or nobody fetches from it."""
        self.windows.pop(place, None)
        timer = self._lock_timers.pop(place, None)
        if timer is not None:
            timer.cancel()

    def close(self) -> None:
        """End all windows and sessions."""
        self.sessions.clear()
        for place in list(self.windows):
            self.drop(place)
        self.wake_all()

    def changed(self, place: SharePlace) -> None:
        """Store the changes of a window, and wake the fetches that wait for its records."""
        window = self.windows[place]
        self.count_memory(window)
        self.shard.store_changes(self.group_id, place, window)
        self._send_letters(place, window)
        if window.has_news:
            self.wake_all()

    def counts_of(self, place: SharePlace) -> DeliveryCounts:
        """Return the counts of a share partition with a window."""
        return self.shard.states[self.group_id][place].counts

    def count_memory(self, window: ShareWindow) -> None:
        """Count the memory by which a window has grown."""
        self._memory.add(window.drain_growth())

    def _send_letters(self, place: SharePlace, window: ShareWindow) -> None:
        letters = window.drain_letters()
        if letters:
            self.counts_of(place).dead_letters += sum(each.size for each in letters)
            self.shard.when_committed(lambda error: None if error else self._give_up(self, place, letters))

    def wake_all(self) -> None:
        for wake in list(self.wake.values()):
            wake()

    def release(self, member: str, place: SharePlace) -> None:
        """Release the records that a member has acquired from a partition."""
        window = self.windows.get(place)
        if window is not None and window.release(member, self.terms):
            self.changed(place)

    def watch_locks(self, place: SharePlace) -> None:
        """Set the timer for the first lock of a window, unless an earlier one is set.

        A later lock may end first: the group's lock duration may have been lowered.
        """
        deadline_ns = self.windows[place].next_deadline_ns
        timer = self._lock_timers.get(place)
        if deadline_ns is None or (timer is not None and timer.deadline_ns <= deadline_ns):
            return
        if timer is not None:
            timer.cancel()
        self._lock_timers[place] = self._timers.at_ns(deadline_ns, lambda: self._expire(place))

    def _expire(self, place: SharePlace) -> None:
        del self._lock_timers[place]
        if place in self.windows:
            self.expire(place, self._timers.now_ns())

    def expire(self, place: SharePlace, until_ns: int) -> None:
        """End the locks of a window that last until then at most, and watch the others."""
        expired = self.windows[place].expire(until_ns, self.terms)
        if expired:
            self._counts.expired += expired
            self.counts_of(place).locks_expired += expired
            self.changed(place)
        self.watch_locks(place)
