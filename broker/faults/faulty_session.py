"""The session of a request that faults strike: it carries what is to become of it to wherever that is decided.

Runs in targets. It is the client's session with something added, and of no other request: what compares requests by
their session, such as the memos of the fast paths, takes it for another's.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from rotunda.broker.security.session import Session


@dataclass(frozen=True, slots=True, eq=False)
class FaultySession(Session):
    """What becomes of the one request that has this session."""

    is_faulty = True

    #: The error of every topic, or of one; 0: none.
    error: int = 0
    topic: str | None = None
    #: Whether the answer is put together as always, and then has the error put into it.
    alters_answer: bool = False
    #: For how long its answer is held back, and what throttle time it gives.
    delay_ms: int = 0
    throttle_ms: int = 0
    #: Whether its connection is closed instead of an answer.
    loses_answer: bool = False
    #: As in REQUEST_ROW.
    injected: int = field(default=0)

    def error_of(self, topic: str) -> int:
        """Return the error of a topic, or 0."""
        return self.error if self.topic in (None, topic) else 0
