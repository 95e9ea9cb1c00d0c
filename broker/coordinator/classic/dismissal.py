"""The dismissal of a classic group's members, when its partition or its place is another's.

Runs in handler processes. It writes nothing: what the log has of the group stays as it is.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker.coordinator.group import JoinResult, SyncResult

if TYPE_CHECKING:
    from broker.coordinator.classic.group import ClassicGroup
    from broker.protocol.error_codes import ErrorCode


def dismiss(group: ClassicGroup, error: ErrorCode) -> None:
    """End the timers of a group and its members, and answer with an error who waits."""
    for timer in (group.join_timer, group.sync_timer, *group.pending_members.values()):
        if timer is not None:
            timer.cancel()
    for member in group.members.values():
        member.end_session()
    joins, group.awaiting_join = group.awaiting_join, {}
    syncs, group.awaiting_sync = group.awaiting_sync, {}
    for member_id, join_answer in joins.items():
        join_answer(JoinResult(error, member_id))
    for sync_answer in syncs.values():
        sync_answer(SyncResult(error))
