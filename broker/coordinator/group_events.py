"""Events of groups, and a target's feed to the request log: group events, and the texts of denials.

Runs in handler processes. A receiver of events must neither raise nor block. The feed writes each event as a short text
into the target's ring to the recorder; if the ring is full, the event is dropped and counted.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, NamedTuple

from rotunda.shm.recorder_layout import DATASET, GROUPS
from rotunda.shm.rings.recorder_rings import RecorderFeed, pack_text

if TYPE_CHECKING:
    from rotunda.broker.coordinator.group import Group
    from rotunda.broker.ipc.process_context import ProcessContext


#: Marks a text as an event, not one of a client.
_NOBODY = -1

#: Names and reasons are truncated to this many characters.
MOST_CHARACTERS = 1000


class GroupEvent(NamedTuple):
    """One event. ``generation`` and ``members`` are the values after it, ``kind`` is the group's."""

    time_ms: int
    group_id: str
    kind: str
    event: str
    reason: str
    member_id: str
    """Empty: the whole group."""
    generation: int
    members: int
    duration_ms: int | None
    """Of the end of a rebalance: its duration."""


GroupEvents = Callable[[GroupEvent], None]


def event_of(
    group: Group, time_ms: int, event: str, reason: str, *, member_id: str = "", duration_ms: int | None = None
) -> GroupEvent:
    """Return an event with the current state of a group; the time is on the wall clock."""
    return GroupEvent(
        time_ms, group.group_id, group.kind, event, reason, member_id, group.generation, len(group.members), duration_ms
    )


class GroupEventFeed:
    """Sends events of groups to the recorder."""

    def __init__(self, context: ProcessContext, target: int) -> None:
        rings = context.recorder_rings
        self._feed = RecorderFeed(rings, rings.of_target(target))
        self._processors = [rings.account(processor) for processor in range(rings.processors)]
        self._bell = context.recorder_bell
        self._target = target

    @property
    def interval_ns(self) -> int:
        """The interval at which the lags of groups are sent; 0: never."""
        return self._feed.settings.roles_interval_ns

    @property
    def is_used(self) -> bool:
        """Whether any request has been completed since the broker started."""
        return any(account.get("rows_taken") for account in self._processors)

    @property
    def fill(self) -> float:
        """The fill of the ring to the recorder, from 0 to 1."""
        return self._feed.fill

    def __call__(self, event: GroupEvent) -> None:
        """Send an event to the recorder."""
        if self._feed.settings.enabled:
            duration_ms = event.duration_ms
            self.send(
                [
                    {
                        "time": event.time_ms * 1000,
                        "group": event.group_id[:MOST_CHARACTERS],
                        "member": event.member_id[:MOST_CHARACTERS] or None,
                        "event": event.event,
                        "reason": event.reason[:MOST_CHARACTERS] or None,
                        "kind": event.kind,
                        "generation": event.generation,
                        "members": event.members,
                        "durationUs": None if duration_ms is None else duration_ms * 1000,
                    }
                ]
            )

    def name_denial(self, number: int, text: bytes) -> None:
        """Send the text for a denial number in request rows. If the ring is full, the rows have no text."""
        if self._feed.settings.enabled and self._feed.try_push((0, b""), (0, b""), (1, pack_text(number, text))):
            self._feed.publish()
            self._bell.ring()

    def send(self, rows: Iterable[dict[str, Any]], dataset: str = GROUPS) -> None:
        """Push rows of a dataset without their constant columns; null columns may be omitted."""
        for row in rows:
            text = pack_text(_NOBODY, json.dumps({**row, "handler": self._target, DATASET: dataset}).encode())
            if not self._feed.try_push((0, b""), (1, b""), (1, text)):
                self._feed.account.add("events_dropped", 1)
        self._feed.publish()
        self._bell.ring()
