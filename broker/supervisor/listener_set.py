"""Opens and closes listeners while the broker runs, as the settings change (`A30`).

Runs in the supervisor's loop with the current settings. A listener is bound and published before the
acceptor gets its socket, so that every process knows the listener of a connection. A removed one is first published as
closed: processors stop reading its connections, and close each after its last response; then the acceptor closes its
socket, and this process its own. A listener's name is permanent: another address needs another name.

Orders to the acceptor wait in a socket pair while it is replaced, and its replacement also inherits the sockets open at
its fork: the last order for a listener counts. The controller has checked that the address is free; a failure to bind
is logged once, and retried.
"""

from __future__ import annotations

import logging
from collections import deque
from typing import TYPE_CHECKING

from rotunda.broker.config.listeners import MOST_LISTENERS
from rotunda.broker.errors import BootFailed
from rotunda.broker.ipc.listener_table import publish_listeners
from rotunda.broker.network.acceptor.listener import bind, listen
from rotunda.broker.network.acceptor.listener_orders import CLOSE, OPEN, packed
from rotunda.broker.network.fd_passing import send_fd

if TYPE_CHECKING:
    from collections.abc import Callable

    from rotunda.broker.config.broker_config import BrokerConfig
    from rotunda.broker.config.listeners import Listener
    from rotunda.broker.ipc.process_context import BoundListener, ProcessContext

_log = logging.getLogger(__name__)


class ListenerSet:
    """The listeners of a run; ``changed`` is called after the open ones have changed."""

    def __init__(self, context: ProcessContext, now_ns: Callable[[], int], changed: Callable[[], None]) -> None:
        self._context = context
        self._now_ns = now_ns
        self._changed = changed
        self._entries = list(context.listener_table)
        self._orders: deque[tuple[int, int, BoundListener]] = deque()
        self._followed: tuple[tuple[Listener, ...], tuple[Listener, ...]] | None = None
        #: By listener: the reason why it could not be opened, as logged.
        self._failures: dict[str, str] = {}

    @property
    def closing_fds(self) -> list[int]:
        """The sockets to be closed by orders not yet sent to the acceptor: no child may inherit them."""
        return [listener.socket.fileno() for kind, _, listener in self._orders if kind == CLOSE]

    def run_once(self, config: BrokerConfig) -> None:
        """Open and close listeners as the settings require, and send the orders to the acceptor."""
        wanted = config.bound_listeners, config.effective_advertised_listeners
        if self._followed != wanted:
            self._followed = wanted
            self._follow(dict(zip((each.name for each in wanted[0]), zip(*wanted, strict=True), strict=True)), config)
        while self._orders:
            kind, index, listener = self._orders[0]
            if not send_fd(self._context.listener_orders[0], packed(kind, index, listener), listener.socket.fileno()):
                return
            self._orders.popleft()
            if kind == CLOSE:
                listener.socket.close()

    def _follow(self, wanted: dict[str, tuple[Listener, Listener]], config: BrokerConfig) -> None:
        before = list(self._entries)
        is_open = {self._entries[each.index].name for each in self._context.listeners}
        for name, (listener, advertised) in wanted.items():
            if name not in is_open:
                self._open(listener, advertised, config)
            else:
                self._advertise(name, advertised)
        for bound in [each for each in self._context.listeners if each.name not in wanted]:
            self._close(bound)
        if self._entries != before:
            self._publish()
            self._changed()

    def _open(self, listener: Listener, advertised: Listener, config: BrokerConfig) -> None:
        names = [entry.name for entry in self._entries]
        index = names.index(listener.name) if listener.name in names else len(names)
        if index >= MOST_LISTENERS:
            self._failed(listener.name, f"cannot open listener {listener}: at most {MOST_LISTENERS} until a restart")
            return
        try:
            bound = bind(listener, advertised, config.socket_receive_buffer_bytes, index)
            listen(bound, config.socket_listen_backlog_size)
        except BootFailed as failure:
            self._failed(listener.name, f"{failure.reason}; retrying")
            # A listener just removed also holds its port until the acceptor has closed it.
            self._followed = None
            return
        self._failures.pop(listener.name, None)
        self._entries[index : index + 1] = [bound.entry]
        # The acceptor may get it only after it is published to all.
        self._publish()
        self._context.listeners.append(bound)
        self._orders.append((OPEN, index, bound))
        _log.info("listener %s is open at port %d", listener, bound.port)

    def _failed(self, name: str, reason: str) -> None:
        if self._failures.get(name) != reason:
            self._failures[name] = reason
            _log.error("%s", reason)

    def _advertise(self, name: str, advertised: Listener) -> None:
        [bound] = [each for each in self._context.listeners if each.name == name]
        entry = self._entries[bound.index]
        self._entries[bound.index] = entry.advertised_at(advertised.host, advertised.port or bound.port)

    def _close(self, bound: BoundListener) -> None:
        self._entries[bound.index] = self._entries[bound.index]._replace(is_open=False)
        self._publish()
        self._context.listeners.remove(bound)
        self._orders.append((CLOSE, bound.index, bound))
        _log.info("listener %s closed; its connections are closed after their last responses", bound.name)

    def _publish(self) -> None:
        publish_listeners(self._context.snapshot_segment.of_listeners(), self._entries, self._now_ns())
        self._context.ring_everyone()
