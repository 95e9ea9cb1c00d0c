"""A share session: the partitions that a member of a share group fetches from, and the epoch of its next request.

Pure. The epoch rises with every request, so that a lost or repeated request is found (KIP-932). A session ends with the
connection that opened it, and is not stored.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import Final, Generic, TypeVar

#: Epochs in requests that open a session, and close it.
INITIAL_EPOCH: Final = 0
FINAL_EPOCH: Final = -1

_LAST_EPOCH: Final = 2**31 - 1

Place = TypeVar("Place")


class ShareSession(Generic[Place]):
    """The session of a member."""

    __slots__ = ("connection_id", "due", "epoch", "member", "places")

    def __init__(self, member: str, connection_id: int, places: Iterable[Place]) -> None:
        self.member, self.connection_id = member, connection_id
        #: The epoch of the next request.
        self.epoch = INITIAL_EPOCH + 1
        #: The partitions, in the order in which they are served.
        self.places = dict.fromkeys(places)
        #: Partitions that the next response has to contain, with or without records.
        self.due: set[Place] = set(self.places)

    def update(self, added: Iterable[Place], forgotten: Iterable[Place]) -> None:
        """Continue with a request: add its partitions, then remove the forgotten ones."""
        for place in added:
            if place not in self.places:
                self.places[place] = None
                self.due.add(place)
        for place in forgotten:
            self.places.pop(place, None)
            self.due.discard(place)
        self.rise()

    def rise(self) -> None:
        """Expect the next epoch."""
        self.epoch = 1 if self.epoch == _LAST_EPOCH else self.epoch + 1

    def rotated(self) -> list[Place]:
        """Return the partitions, each time another one first."""
        places = deque(self.places)
        if places:
            places.rotate(-(self.epoch % len(places)))
        return list(places)

    def served(self, places: Iterable[Place]) -> None:
        """Move partitions that gave records behind the others."""
        for place in places:
            if place in self.places:
                del self.places[place]
                self.places[place] = None
