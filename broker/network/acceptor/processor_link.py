"""The processors as the acceptor sees them: what each has to take, what it was ordered, and which get connections.

Part of the acceptor. How many processors there are the supervisor decides (`A28`). The acceptor looks once a turn; from
the moment on when it has confirmed a smaller number, nothing more is handed to those above it. If it is killed before,
its replacement confirms the number before it accepts anything.

An order to close excess connections (`A17`) names the number that is to be left, so it closes no more than there are
too many of when the processor reads it (`A18`); while one is under way no other is given.
"""

from __future__ import annotations

from collections.abc import Callable

from rotunda.broker.network.handoff import QUEUE_SOCKETS, HandoffSender


class ProcessorLink:
    """What the acceptor knows of one processor: room in its queue, and the reconciliation and the order under way."""

    def __init__(self, sender: HandoffSender) -> None:
        self.sender = sender
        self.untaken: set[int] = set()
        self.reconciliation_token = 0
        self.asked_about: set[int] | None = None
        #: The token of the order that it has not carried out yet; 0: there is none.
        self.order_token = 0

    @property
    def has_room(self) -> bool:
        """Whether the processor takes another connection: it turns, and its queue is not full (`A22`)."""
        return len(self.untaken) < QUEUE_SOCKETS and not self.sender.is_silent()

    @property
    def is_asked(self) -> bool:
        """Whether an order or a reconciliation is under way: then it may have fewer connections than are counted."""
        return self.order_token != 0 or self.asked_about is not None


class ProcessorsInUse:
    """How many processors get connections: the first so many."""

    def __init__(
        self,
        count: Callable[[], int],
        has_gone: Callable[[int], bool] = lambda _: False,
        confirm: Callable[[int], None] = lambda _: None,
        control_listener: int = -1,
    ) -> None:
        """``has_gone``: whether a processor has ended and is not replaced; of no ``control_listener`` there is -1."""
        self.has_gone = has_gone
        self._count = count
        self._confirm = confirm
        self._control_listener = control_listener
        self._taken = 0

    def take(self) -> int:
        """Return the number as it is now, and confirm it if it has changed."""
        count = self._count()
        if count != self._taken:
            self._taken = count
            self._confirm(count)
        return count

    def of(self, listener: int) -> range:
        """Return the processors that get the connections of a listener: the first has the control plane's (`H01`)."""
        if self._control_listener < 0:
            return range(self._taken)
        return range(1) if listener == self._control_listener else range(1, self._taken)
