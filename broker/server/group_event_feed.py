"""What happens to groups, on its way to the request log's dataset groups.

Runs in handler processes. An event is a small text in the target's ring to the recorder; one that finds no room is
dropped and counted there.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from shm.recorder_rings import RecorderFeed, pack_text

if TYPE_CHECKING:
    from broker.heritage import Heritage

#: Says that a text is an event and tells of no client.
_NOBODY = -1

#: Names and reasons are cut to this many characters.
MOST_CHARACTERS = 1000


class GroupEventFeed:
    """Takes events as `coordinator.group_events.GroupEvents` describes them."""

    def __init__(self, heritage: Heritage, target: int) -> None:
        rings = heritage.recorder_rings
        self._feed = RecorderFeed(rings, rings.of_target(target))
        self._bell = heritage.recorder_bell
        self._target = target

    def __call__(self, time_ms: int, group_id: str, member_id: str, kind: str, reason: str) -> None:
        """Tell the recorder of an event."""
        if not self._feed.settings.enabled:
            return
        event = {
            "time": time_ms * 1000,
            "group": group_id[:MOST_CHARACTERS],
            "member": member_id[:MOST_CHARACTERS] or None,
            "event": kind,
            "reason": reason[:MOST_CHARACTERS] or None,
            "handler": self._target,
        }
        text = pack_text(_NOBODY, json.dumps(event).encode())
        if self._feed.try_push((0, b""), (1, b""), (1, text)):
            self._feed.publish()
            self._bell.ring()
        else:
            self._feed.account.add("events_dropped", 1)
