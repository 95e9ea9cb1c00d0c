"""The acceptor: accepts on every listener, distributes connections round-robin to processors, counts them.

Runs in the acceptor process, one for all listeners (`A01`), and never blocks on a listener or a processor (`A32`): if
no processor has room for a connection, the connection is held, its listener is not polled meanwhile, and further
clients stay in the kernel's backlog. It never reads a client's bytes (`H12`), and learns the fate of a connection after
the hand-off from reports only.

Loop: poll, accept from ready listeners, read reports, hand over held connections, close parked connections, resume
listeners after a backoff, order the excess to be closed. `admission` decides which connections are accepted. Waiting
means: one held connection, and its listener is not polled.

A killed acceptor's replacement learns the open connections from the processors. Held and parked connections end with
the process; rates start at zero.
"""

from __future__ import annotations

import errno
import logging
import select
import socket
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from rotunda.broker.config.listeners import MOST_LISTENERS
from rotunda.broker.network.acceptor.acceptor_metrics import AcceptorMeters
from rotunda.broker.network.acceptor.admission import Admission
from rotunda.broker.network.acceptor.connection_limits import ConnectionLimits
from rotunda.broker.network.acceptor.connection_quotas import ConnectionQuotas
from rotunda.broker.network.acceptor.descriptors import RAISE
from rotunda.broker.network.acceptor.excess import shares
from rotunda.broker.network.acceptor.host_names import canonical
from rotunda.broker.network.acceptor.listener_state import Held, ListenerState
from rotunda.broker.network.acceptor.open_listeners import OpenListeners
from rotunda.broker.network.acceptor.parked_sockets import ParkedSockets
from rotunda.broker.network.acceptor.processor_link import ProcessorLink, ProcessorsInUse
from rotunda.broker.network.handoff import (
    Closed,
    CloseOrder,
    HandoffSender,
    Hello,
    Obeyed,
    Reconciliation,
    SocketsTaken,
)
from rotunda.broker.server_log.log_setup import RepeatedWarnings
from rotunda.broker.text_table import counted

if TYPE_CHECKING:
    from rotunda.broker.clock import Clock
    from rotunda.broker.ipc.process_context import BoundListener
    from rotunda.broker.network.acceptor.listener_orders import ListenerOrders

_log = logging.getLogger(__name__)

#: accept() failures that pass once descriptors or memory are free again (`A24`).
_EXHAUSTED = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})
_LOG_EVERY_NS = 10_000_000_000
#: Connections accepted from one listener before the next listener is served.
_ACCEPT_BATCH = 16
#: The longest sleep: changed settings are applied within this time.
_TICK_NS = 250_000_000
_RECONCILIATION_PATIENCE_NS = 1_000_000_000
#: Serials of different acceptor generations never collide.
_GENERATION_SHIFT = 40

_NO_LIMITS = ConnectionLimits()
_MS_NS = 1_000_000


class Acceptor:
    """Distributes connections round-robin to processors; every step of the loop is a method."""

    def __init__(
        self,
        listeners: Sequence[BoundListener],
        senders: tuple[HandoffSender, ...],
        send_buffer_bytes: int,
        generation: int,
        meters: AcceptorMeters,
        clock: Clock,
        limits: ConnectionLimits = _NO_LIMITS,
    ) -> None:
        self._in_use = ProcessorsInUse(lambda: len(senders))
        self._processors = len(senders)
        self._warnings = RepeatedWarnings(_log, clock.monotonic_ns)
        self.quotas = ConnectionQuotas(MOST_LISTENERS, len(senders))
        self._admission = Admission(self.quotas, limits)
        self._parked = ParkedSockets(meters.closed, limits.descriptors.parked)
        self._arrivals = 0
        self._links = [ProcessorLink(sender) for sender in senders]
        self._send_buffer_bytes = send_buffer_bytes
        self._meters = meters
        self._clock = clock
        self._next_serial = generation << _GENERATION_SHIFT
        self._next_processor = 0
        self._next_token = generation << _GENERATION_SHIFT
        self._stock_until_ns = 0
        self._logged_ns = -_LOG_EVERY_NS
        self._epoll = select.epoll()
        self._listeners = OpenListeners(listeners, self._epoll)
        self._link_of = {link.sender.fileno(): number for number, link in enumerate(self._links)}

    def set_limits(self, limits: ConnectionLimits) -> None:
        """Apply new limits. Open connections stay, except those above the broker's maximum (`A17`, `A26`)."""
        self._admission.limits = limits

    def start(self, wake_fd: int, wait_for_census: bool, in_use: ProcessorsInUse | None = None) -> None:
        """Start polling; with `wait_for_census` accept only after processors have reported a predecessor's connections.

        Without ``in_use`` all processors receive connections at all times.
        """
        self._in_use = in_use or self._in_use
        self._processors = self._in_use.confirmed()
        self._epoll.register(wake_fd, select.EPOLLIN)
        for fd in self._link_of:
            self._epoll.register(fd, select.EPOLLIN)
        if wait_for_census:
            self._stock_until_ns = self._clock.monotonic_ns() + _RECONCILIATION_PATIENCE_NS
            for number, link in enumerate(self._links):
                if not self._in_use.has_ended(number):
                    self._ask(link, set())
        else:
            self._listeners.resume_all()

    def follow(self, orders: ListenerOrders) -> None:
        """Open and close listeners from now on by the supervisor's orders (`A30`)."""
        self._listeners.follow(orders)

    def step(self) -> None:
        """Run the loop once: sleep until an event or a timeout, then handle everything due."""
        ready = self._poll(self._sleep_ns())
        self._follow_processors()
        self._end_census()
        # Before accepting others, which would use the slots that held connections wait for.
        self._hand_over_held()
        for fd in ready:
            state = self._listeners.find(fd)
            if state is not None:
                self._accept_some(state)
        self._parked.close_ended(self._clock.monotonic_ns())
        self._listeners.end_backoffs(self._clock.monotonic_ns)
        self._order_excess()
        self._meters.set_parked(len(self._parked))
        self._meters.settle()

    def close(self) -> None:
        """Close listeners and held connections (`A31`)."""
        self._epoll.close()
        self._listeners.close_all()
        self._parked.close_all()

    def _poll(self, sleep_ns: int) -> list[int]:
        """Return the ready descriptors after handling the reports and orders among them."""
        ready = [fd for fd, _ in self._epoll.poll(sleep_ns / 1e9)]
        for state in self._listeners.obey(ready):
            if state.held is not None:
                self._meters.unblock(state.index)
                self._meters.closed(state.index)
        for fd in ready:
            number = self._link_of.get(fd)
            if number is not None:
                self._read_reports(number)
        for link in self._links:
            if link.sender.wants_write:
                link.sender.flush()
        return ready

    def _sleep_ns(self) -> int:
        now_ns = self._clock.monotonic_ns()
        waits = [state.retry_at_ns - now_ns for state in self._listeners if state.retry_at_ns]
        held = [state.held.ready_ns - now_ns for state in self._listeners if state.held is not None]
        waits += [wait for wait in held if wait > 0]
        if self._parked:
            waits.append(self._parked.next_end_ns - now_ns)
        if self._stock_until_ns:
            waits.append(self._stock_until_ns - now_ns)
        return max(0, min((*waits, _TICK_NS)))

    def _accept_some(self, state: ListenerState) -> None:
        for _ in range(_ACCEPT_BATCH):
            try:
                client, peer = state.listener.socket.accept()
            except BlockingIOError:
                return
            except OSError as failure:
                self._accept_failed(state, failure)
                return
            state.backoff_ns = 0
            self._meters.accepted(state.index)
            if not self._configure(client):
                self._meters.closed(state.index)
                continue
            held = self._arrived(state, client, peer)
            if not self._admit(state, held):
                self._block(state, held)
                return

    def _arrived(self, state: ListenerState, client: socket.socket, peer: tuple[str, int]) -> Held:
        """Count a connection in the rates; store how long the rates delay it (`A10`)."""
        now_ns = self._clock.monotonic_ns()
        self._arrivals += 1
        delay_ms = self._admission.arrived(state.index, now_ns // _MS_NS)
        if delay_ms:
            self._meters.throttled(state.index, delay_ms)
        ready_ns = now_ns + delay_ms * _MS_NS if delay_ms else 0
        return Held(client, canonical(peer[0]), peer[1], self._arrivals, ready_ns)

    def _configure(self, client: socket.socket) -> bool:
        """Set the options of `A06`; on failure close the socket and return False."""
        try:
            client.setblocking(False)
            client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            client.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            if self._send_buffer_bytes != -1:
                client.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, self._send_buffer_bytes)
        except OSError as failure:
            self._fault("cannot configure a connection: %s", failure)
            client.close()
            return False
        return True

    def _admit(self, state: ListenerState, held: Held) -> bool:
        """Apply the limits in order (`A07`), then hand over or close the connection. False: it waits."""
        now_ns = self._clock.monotonic_ns()
        if now_ns < held.ready_ns:
            return False
        if not self._admission.has_slot(state.index):
            total = counted(self.quotas.total, "connection")
            self._warnings.warning("slots", "%s open (max.connections): further ones wait", total)
            return False
        if not held.rate_checked:
            held.rate_checked = True
            delay_ms = self._admission.rejection_ms(state.index, held.address, now_ns // _MS_NS)
            if delay_ms:
                self._meters.parked(state.index, delay_ms)
                self._parked.park(held.client, now_ns + delay_ms * _MS_NS, state.index)
                return True
        if self._admission.is_full(held.address):
            self._reject(state, held)
            return True
        return self._hand_over(state, held)

    def _hand_over(self, state: ListenerState, held: Held) -> bool:
        """Send the connection to the next processor with room, trying each once (`A21`). False: none has room."""
        most = self._admission.most_of_a_processor(state.index)
        for _ in (processors := self._in_use.of(state.index)):
            number = processors[self._next_processor % len(processors)]
            link = self._links[number]
            self._next_processor += 1
            if self.quotas.count(number) >= most:
                self._warnings.warning(
                    "descriptors", "%d connections use all available file descriptors: %s", most, RAISE
                )
                continue
            if not link.has_room:
                continue
            serial = self._next_serial
            try:
                if not link.sender.try_send(held.client, serial, state.index, (held.address, held.port)):
                    continue
            except OSError as failure:
                self._fault("cannot send a connection to a processor: %s", failure)
                self._meters.closed(state.index)
            else:
                self._next_serial += 1
                self.quotas.inc(number, serial, state.index, held.address)
                link.untaken.add(serial)
            held.client.close()
            return True
        return False

    def _reject(self, state: ListenerState, held: Held) -> None:
        held.client.close()
        self._meters.rejected(state.index)
        self._warnings.warning(
            held.address,
            "closing a connection of %s: %d are open (max.connections.per.ip)",
            held.address,
            self._admission.limits.of(held.address),
        )

    def _accept_failed(self, state: ListenerState, failure: OSError) -> None:
        """Back off when descriptors or memory ran out: a readable listener would spin the loop (`A24`)."""
        self._fault("accept failed: %s", failure)
        if failure.errno in _EXHAUSTED:
            self._listeners.back_off(state, self._clock.monotonic_ns())

    def _fault(self, text: str, failure: OSError) -> None:
        """Count a failure that costs only its connection (`A25`); log one every ten seconds at most."""
        self._meters.accept_error()
        now_ns = self._clock.monotonic_ns()
        if now_ns - self._logged_ns >= _LOG_EVERY_NS:
            self._logged_ns = now_ns
            _log.error(text, failure)

    def _block(self, state: ListenerState, held: Held) -> None:
        self._listeners.block(state, held)
        self._meters.block(state.index)

    def _hand_over_held(self) -> None:
        """Retry held connections, oldest first: a free slot may be for one of them."""
        waiting = [(state.held, state) for state in self._listeners if state.held is not None]
        for held, state in sorted(waiting, key=lambda each: each[0].since):
            if self._admit(state, held):
                state.held = None
                self._meters.unblock(state.index)
                self._listeners.resume(state)

    def _follow_processors(self) -> None:
        """Distribute over the current number of processors (`A28`); uncount the connections of an ended one (`A29`).

        Closes that it reported are uncounted already; the supervisor has closed the connections that it never received.
        """
        self._processors = self._in_use.confirmed()
        for number in range(self._processors, len(self._links)):
            if self.quotas.serials(number) and self._in_use.has_ended(number):
                self._closed(number, tuple(self.quotas.serials(number)), lost=False)

    def _order_excess(self) -> None:
        """Order the processors to close the excess (`A17`): only the acceptor counts all connections (`A18`)."""
        excess = self._admission.excess()
        if not excess or self._stock_until_ns:
            return
        there = [number for number in range(len(self._links)) if not self._in_use.has_ended(number)]
        if any(self._links[number].is_asked for number in there):
            return
        protected = self._admission.limits.protected
        turning = [number for number in there if not self._links[number].sender.is_silent()]
        closable = {number: self.quotas.closable(number, protected) for number in turning}
        for number, share in shares(excess, closable).items():
            self._next_token += 1
            self._links[number].order_token = self._next_token
            self._links[number].sender.order_excess(CloseOrder(self._next_token, closable[number] - share, protected))
        total = counted(self.quotas.total, "connection")
        self._warnings.warning("excess", "%s open (max.connections): closing %d", total, excess)

    def _end_census(self) -> None:
        if not self._stock_until_ns:
            return
        settled = all(link.asked_about is None for link in self._links)
        if settled or self._clock.monotonic_ns() >= self._stock_until_ns:
            self._stock_until_ns = 0
            self._listeners.resume_all()

    def _read_reports(self, number: int) -> None:
        link = self._links[number]
        for report in link.sender.reports():
            match report:
                case SocketsTaken(serials):
                    link.untaken.difference_update(serials)
                case Closed(serials, lost):
                    self._closed(number, serials, lost)
                case Obeyed(token):
                    if token == link.order_token:
                        link.order_token = 0
                case Hello():
                    link.order_token = 0
                    self._ask(link, self.quotas.serials(number))
                case Reconciliation(token, connections):
                    if token == link.reconciliation_token and link.asked_about is not None:
                        self._settle(number, {each.serial for each in connections})
                        for each in connections:
                            self.quotas.inc(number, each.serial, each.listener, each.peer_host)

    def _closed(self, number: int, serials: tuple[int, ...], lost: bool) -> None:
        self._links[number].untaken.difference_update(serials)
        self._uncount(number, serials)
        if lost:
            self._fault("connections lost on the way to processors: %s", OSError(errno.EMFILE, f"{len(serials)} lost"))

    def _ask(self, link: ProcessorLink, about: set[int]) -> None:
        """Request the list of open connections among those handed over so far."""
        self._next_token += 1
        link.reconciliation_token = self._next_token
        link.asked_about = about
        link.sender.ask_reconciliation(link.reconciliation_token)

    def _settle(self, number: int, still_open: set[int]) -> None:
        """Uncount connections handed over before the request and closed since."""
        link = self._links[number]
        asked_about = link.asked_about or set()
        link.asked_about = None
        link.untaken -= asked_about
        self._uncount(number, asked_about - still_open)

    def _uncount(self, number: int, serials: Iterable[int]) -> None:
        for serial in serials:
            listener = self.quotas.dec(number, serial)
            if listener >= 0:
                self._meters.closed(listener)
