"""Events of consumer groups: members that join, leave and expire, rebalances that start and end.

Runs in handler processes. A rebalance of a consumer group lasts from a new epoch until all members have their
partitions of it. The state is checked after each change, so that the code of a change need not know whether it starts
or ends one.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from rotunda.broker.coordinator.consumer.group import ConsumerGroup
from rotunda.broker.coordinator.group_events import GroupEvent, GroupEvents, event_of

if TYPE_CHECKING:
    from rotunda.broker.coordinator.group import Group

logger = logging.getLogger(__name__)

#: By final state of a rebalance, its event.
_ENDS: Final = {"Stable": "stable", "Empty": "empty"}


class ConsumerGroupEvents:
    """Publishes the events of consumer groups."""

    def __init__(self, events: GroupEvents, wall_ms: Callable[[], int]) -> None:
        self._events = events
        self._wall_ms = wall_ms

    def of_member(self, group: Group, member_id: str, event: str, why: str) -> None:
        """Publish an event of a member; its group may have been converted to a classic one."""
        logger.info(
            "group %s at epoch %d: %s of member %s: %s", group.group_id, group.generation, event, member_id, why
        )
        self._events(event_of(group, self._wall_ms(), event, why, member_id=member_id))
        if isinstance(group, ConsumerGroup):
            self.follow(group, f"{event} of member {member_id}: {why}")

    def reported(self, group: ConsumerGroup, member_id: str, joined: str | None) -> None:
        """Publish the effects of a member's heartbeat; ``joined``: the reason, if the member joined with it."""
        if joined is not None:
            self.of_member(group, member_id, "join", joined)
        else:
            self.follow(group, f"the subscription of member {member_id}, or a subscribed topic, has changed")

    def follow(self, group: ConsumerGroup, why: str) -> None:
        """Publish the start or end of a rebalance caused by the last change. HOT while there is none."""
        if group.epoch != group.published_epoch:
            now_ms = self._wall_ms()
            begun: GroupEvent = event_of(group, now_ms, "rebalance", why)
            self._events(begun._replace(generation=group.published_epoch))
            group.published_epoch = group.epoch
            if group.rebalance_began_ms is None:
                group.rebalance_began_ms = now_ms
        if group.rebalance_began_ms is not None and group.state_name in _ENDS:
            now_ms = self._wall_ms()
            duration_ms = max(0, now_ms - group.rebalance_began_ms)
            group.rebalance_began_ms = None
            event, reason = _ENDS[group.state_name], f"epoch {group.epoch}"
            self._events(event_of(group, now_ms, event, reason, duration_ms=duration_ms))
