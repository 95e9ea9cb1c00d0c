"""The acceptor's state of each processor: its queue, its pending order, and whether it receives connections.

Part of the acceptor. The supervisor decides the number of processors (`A28`). The acceptor reads it once per iteration;
after it has confirmed a smaller number, the processors above it receive no more connections. If it is killed before
that, its replacement confirms the number before it accepts anything.

An order to close excess connections (`A17`) states the number to keep, so the processor closes only the excess at the
time it reads the order (`A18`); there is at most one order at a time.
"""

from __future__ import annotations

from collections.abc import Callable

from rotunda.broker.network.handoff import QUEUE_SOCKETS, HandoffSender


class ProcessorLink:
    """The acceptor's state of one processor: the room in its queue, its pending reconciliation and order."""

    def __init__(self, sender: HandoffSender) -> None:
        self.sender = sender
        self.untaken: set[int] = set()
        self.reconciliation_token = 0
        self.asked_about: set[int] | None = None
        #: The token of the pending order; 0: none.
        self.order_token = 0

    @property
    def has_room(self) -> bool:
        """Whether the processor can receive another connection: its loop runs and its queue is not full (`A22`)."""
        return len(self.untaken) < QUEUE_SOCKETS and not self.sender.is_silent()

    @property
    def is_asked(self) -> bool:
        """Whether an order or a reconciliation is pending: the processor may have fewer connections than counted."""
        return self.order_token != 0 or self.asked_about is not None


class ProcessorsInUse:
    """The number of processors that receive connections: always the first ones."""

    def __init__(
        self,
        count: Callable[[], int],
        has_ended: Callable[[int], bool] = lambda _: False,
        confirm: Callable[[int], None] = lambda _: None,
        control_listener: int = -1,
    ) -> None:
        """``has_ended``: whether a processor has ended and is not replaced; ``control_listener`` -1: none."""
        self.has_ended = has_ended
        self._count = count
        self._confirm = confirm
        self._control_listener = control_listener
        self._confirmed = 0

    def confirmed(self) -> int:
        """Return the current number, and confirm it if it has changed."""
        count = self._count()
        if count != self._confirmed:
            self._confirmed = count
            self._confirm(count)
        return count

    def of(self, listener: int) -> range:
        """Return the processors for a listener's connections: the first serves only the control plane (`H01`)."""
        if self._control_listener < 0:
            return range(self._confirmed)
        return range(1) if listener == self._control_listener else range(1, self._confirmed)
