"""The open listeners of an acceptor: which are polled or backing off, and the supervisor's orders for them (`A30`).

Used by the acceptor's loop. A listener is not polled while one of its connections waits, or after descriptors or memory
ran out. A replaced acceptor has inherited the listeners open at its fork, and may receive orders for them again.
"""

from __future__ import annotations

import select
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from rotunda.broker.network.acceptor.listener_state import Held, ListenerState

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rotunda.broker.ipc.process_context import BoundListener
    from rotunda.broker.network.acceptor.listener_orders import ListenerOrders

_FIRST_BACKOFF_NS = 100_000_000
_LONGEST_BACKOFF_NS = 1_000_000_000


class OpenListeners:
    """The states of open listeners, and the polling of their sockets."""

    def __init__(self, listeners: Sequence[BoundListener], epoll: select.epoll) -> None:
        self._epoll = epoll
        self._by_fd = {each.socket.fileno(): ListenerState(each) for each in listeners}
        self._orders: ListenerOrders | None = None

    def __iter__(self) -> Iterator[ListenerState]:
        return iter(self._by_fd.values())

    def find(self, fd: int) -> ListenerState | None:
        """Return the listener with this socket descriptor."""
        return self._by_fd.get(fd)

    def follow(self, orders: ListenerOrders) -> None:
        """Start reading orders from the supervisor."""
        self._orders = orders
        self._epoll.register(orders.fileno(), select.EPOLLIN)

    def obey(self, ready: list[int]) -> list[ListenerState]:
        """Apply the received orders; return the closed listeners, for their held connections."""
        closed: list[ListenerState] = []
        if self._orders is None or self._orders.fileno() not in ready:
            return closed
        for order in self._orders.received():
            known = [state for state in self if state.index == order.listener.index]
            if known or not order.is_open:
                # A known listener, or one to close: the listening copy is the one that this process already has.
                order.listener.socket.close()
            else:
                state = self._by_fd[order.listener.socket.fileno()] = ListenerState(order.listener)
                self.resume(state)
            if not order.is_open:
                closed += known
                for state in known:
                    self._close(state)
        return closed

    def block(self, state: ListenerState, held: Held) -> None:
        """Stop polling a listener until its connection has been handed over."""
        state.held = held
        self._suspend(state)

    def back_off(self, state: ListenerState, now_ns: int) -> None:
        """Stop polling a listener for a while, longer each time (`A24`)."""
        state.backoff_ns = min(max(2 * state.backoff_ns, _FIRST_BACKOFF_NS), _LONGEST_BACKOFF_NS)
        state.retry_at_ns = now_ns + state.backoff_ns
        self._suspend(state)

    def end_backoffs(self, now: Callable[[], int]) -> None:
        """Resume polling listeners after their backoff."""
        for state in self:
            if state.retry_at_ns and now() >= state.retry_at_ns:
                state.retry_at_ns = 0
                self.resume(state)

    def resume_all(self) -> None:
        """Poll all listeners that are not blocked or backing off."""
        for state in self:
            self.resume(state)

    def resume(self, state: ListenerState) -> None:
        """Poll a listener unless it is blocked or backing off."""
        if not state.polled and state.held is None and not state.retry_at_ns:
            self._epoll.register(state.listener.socket.fileno(), select.EPOLLIN)
            state.polled = True

    def close_all(self) -> None:
        """Close the sockets and their held connections."""
        for state in self:
            state.listener.socket.close()
            if state.held is not None:
                state.held.client.close()

    def _suspend(self, state: ListenerState) -> None:
        if state.polled:
            self._epoll.unregister(state.listener.socket.fileno())
            state.polled = False

    def _close(self, state: ListenerState) -> None:
        self._suspend(state)
        del self._by_fd[state.listener.socket.fileno()]
        state.listener.socket.close()
        if state.held is not None:
            state.held.client.close()
