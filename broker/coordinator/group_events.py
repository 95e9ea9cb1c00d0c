"""A group event: what happened to a group, and why.

Made at each event by whatever runs the group. A receiver of events must neither raise nor block.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from broker.coordinator.group import Group


class GroupEvent(NamedTuple):
    """One event. ``generation`` and ``members`` are as it left them, ``kind`` is the group's."""

    time_ms: int
    group_id: str
    kind: str
    event: str
    reason: str
    member_id: str
    """Empty: it concerns the group as a whole."""
    generation: int
    members: int
    duration_ms: int | None
    """Of the end of a rebalance: since it began."""


GroupEvents = Callable[[GroupEvent], None]


def event_of(
    group: Group, time_ms: int, event: str, reason: str, *, member_id: str = "", duration_ms: int | None = None
) -> GroupEvent:
    """Return an event of a group as it is now; the time is on the wall clock."""
    return GroupEvent(
        time_ms, group.group_id, group.kind, event, reason, member_id, group.generation, len(group.members), duration_ms
    )


def nobody_listens(event: GroupEvent) -> None:
    """Let an event pass."""
