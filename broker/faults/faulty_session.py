"""The session of a request that matches faults: carries the faults to the code that applies them.

Runs in targets. It is a copy of the client's session, used for this request only. Code that compares requests by their
session, such as the caches of the fast paths, treats it as another client's.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from rotunda.broker.security.session import Session


@dataclass(frozen=True, slots=True, eq=False)
class FaultySession(Session):
    """The effects on the one request with this session."""

    is_faulty = True

    #: The error of every topic, or of one; 0: none.
    error: int = 0
    topic: str | None = None
    #: Whether the response is built normally, and then changed to contain the error.
    alters_response: bool = False
    #: Delay of its response, and the throttle time in it.
    delay_ms: int = 0
    throttle_ms: int = 0
    #: Whether its connection is closed instead of sending the response.
    loses_response: bool = False
    #: As in REQUEST_ROW.
    injected: int = field(default=0)

    def error_of(self, topic: str) -> int:
        """Return the error of a topic, or 0."""
        return self.error if self.topic in (None, topic) else 0
