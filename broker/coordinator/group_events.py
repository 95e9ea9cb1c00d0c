"""What happened to a group and why, for whoever keeps a record of it.

Called at each event with the wall-clock time in ms, the group, the member (empty: the group as a whole), the kind of
event and its reason. Must not fail and not wait.
"""

from __future__ import annotations

from collections.abc import Callable

GroupEvents = Callable[[int, str, str, str, str], None]


def nobody_listens(time_ms: int, group_id: str, member_id: str, kind: str, reason: str) -> None:
    """Let an event pass."""
