"""What the selector counts beside the traffic of each broker: its turns, connections, and who was let in.

The I/O thread counts, once a turn or a connection; any thread may look. Times are of the I/O thread, in nanoseconds,
those of renewals in milliseconds.
"""

from __future__ import annotations


class SelectorCounts:
    """The counts of one selector."""

    __slots__ = (
        "authentications",
        "connections_closed",
        "connections_created",
        "failed_authentications",
        "failed_renewals",
        "longest_renewal_ms",
        "renewals",
        "renewals_ms",
        "turns",
        "waited_ns",
        "worked_ns",
    )

    def __init__(self) -> None:
        self.turns = self.waited_ns = self.worked_ns = 0
        self.connections_created = self.connections_closed = 0
        #: With TLS or SASL. A renewal is another one on the same connection, before its session ends.
        self.authentications = self.failed_authentications = self.renewals = self.failed_renewals = 0
        self.renewals_ms = self.longest_renewal_ms = 0.0

    def turned(self, begin_ns: int, woken_ns: int, end_ns: int) -> None:
        """Count a turn: it waited for events, then it worked."""
        self.turns += 1
        self.waited_ns += woken_ns - begin_ns
        self.worked_ns += end_ns - woken_ns

    def authenticated(self, renewal_ms: float | None) -> None:
        """Count that a broker has let this client in; `renewal_ms`: how long that took when it was in already."""
        if renewal_ms is None:
            self.authentications += 1
            return
        self.renewals += 1
        self.renewals_ms += renewal_ms
        self.longest_renewal_ms = max(self.longest_renewal_ms, renewal_ms)

    def refused(self, *, is_renewal: bool) -> None:
        """Count that a broker has not."""
        if is_renewal:
            self.failed_renewals += 1
        else:
            self.failed_authentications += 1
