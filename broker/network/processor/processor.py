"""The processor: one epoll loop that reads requests from its connections and writes their responses, in order.

Runs in N processor processes. ``Processor.step`` is the loop as a list of verbs, in Kafka's order (``B01``). It decodes
no request body and knows no topic, no group and no file of the log beyond the byte ranges named in a response. Data
flows one way: socket, frame, request ring; response ring, socket. Nothing here blocks: a full ring or an empty memory
pool mutes the channel that needs it while all others continue (``B32``).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING

from rotunda.broker.errors import InvalidReceive
from rotunda.broker.network.accounting.network_time import NetworkTime
from rotunda.broker.network.handoff import HandoffReceiver
from rotunda.broker.network.processor.channel import Channel
from rotunda.broker.network.processor.lowest_priority import excess_channels
from rotunda.broker.network.processor.periodic_tasks import PeriodicTasks
from rotunda.broker.network.processor.request_reader import RequestReader
from rotunda.broker.network.processor.resender import Resender
from rotunda.broker.network.processor.response_reader import ResponseReader
from rotunda.broker.network.processor.selector import GONE, READ, WRITE, WRITING_NS, Selector
from rotunda.broker.network.processor.sessions import NewSessions
from rotunda.broker.network.processor.throttling.mute_state import ENDED_BY_HANGING_UP, MuteCause
from rotunda.broker.network.processor.tls.tls_listeners import TlsListeners
from rotunda.broker.network.processor.unwritten_responses import UnwrittenResponses
from rotunda.broker.server_log.log_setup import RepeatedWarnings

if TYPE_CHECKING:
    from rotunda.broker.config.broker_config import BrokerConfig
    from rotunda.broker.network.accounting.completed_requests import CompletedRequests
    from rotunda.broker.network.processor.processor_metrics import ProcessorMetrics
    from rotunda.shm.rings.bell import EventBell

logger = logging.getLogger(__name__)

#: The loop wakes at least this often, as Kafka's does (``B03``); more often while draining, which has a deadline.
POLL_TIMEOUT_MS, DRAINING_POLL_MS = 300, 20
#: While a channel waits for memory that is freed without a bell, the loop checks again after this time.
RETRY_MS = 1
#: Channels read between two publications. Publishing once for all would wake handlers less often, but then handlers
#: sleep while requests are read, and requests wait while handlers run: the CPUs of a small machine idle alternately.
PUBLISH_EVERY = 16
#: Causes of a close after the last response, which the client is to receive (``D12``).
_AFTER_RESPONSES = frozenset({"response", "invalid_request"})
#: The most new connections received in one iteration (``B02``).
NEW_CONNECTIONS = 20


class Processor:
    """The connections of one processor process and the steps of its loop."""

    def __init__(
        self,
        config: BrokerConfig,
        ends: tuple[RequestReader, ResponseReader, HandoffReceiver, EventBell],
        new_id: Callable[[], int],
        counts: tuple[ProcessorMetrics, CompletedRequests, NetworkTime],
        now_ns: Callable[[], int],
    ) -> None:
        self._reader, self._responses, self._handoff, self._bell = ends
        self.sender, self.authentication = self._reader.sender, self._reader.authentication
        self._metrics, self.finished, self._network_time = counts
        self._responses.record_in(self.finished)
        self._new_id, self._now_ns = new_id, now_ns
        self._selector = Selector()
        self._by_id: dict[int, Channel] = {}
        self._disconnected = self.authentication.ended
        self._warnings = RepeatedWarnings(logger, now_ns)
        unsendable = self._responses.unsendable
        self._repeats = Resender(self._reader, self._by_id, unsendable, self._warnings, self._disconnected)
        self._unwritten, self.tls = UnwrittenResponses(now_ns), TlsListeners(now_ns)
        self._periodic_tasks = PeriodicTasks(counts[:2], (self._reader, self._responses, self.tls), self._by_id)
        self._new_waiting = self._draining = False
        self._output_max_bytes, self._idle_ns = config.output_max_bytes, config.connections_max_idle_ms * 1_000_000
        self.sessions = NewSessions(names_hosts=bool(config.authorizer_class_name))
        self._selector.watch(self._handoff.fileno())
        self._selector.watch_bell(self._bell.fileno())

    def watch(self, fd: int) -> None:
        """Wake the loop, once, for a descriptor it does not handle, such as the stop flag's."""
        self._selector.watch(fd)

    def step(self) -> None:
        """Run one iteration of the loop. A fault of one connection closes only that connection (``B05``, ``B22``)."""
        self.configure_new_connections()
        self.process_new_responses()
        self.poll()
        self.process_completed_receives()
        self.process_completed_sends()
        self.process_disconnected()
        self.close_expired_connection()

    def configure_new_connections(self) -> None:
        """Receive sockets from the acceptor; close the excess that it has ordered."""
        if not self._new_waiting:
            return
        self._new_waiting = False
        for new in self._handoff.receive_some(NEW_CONNECTIONS):
            channel = Channel(new.socket, self._new_id(), new.serial, new.listener, new.peer_host)
            channel.opened_ns = channel.last_active_ns = self._now_ns()
            try:
                self._selector.register(channel)
            except OSError as error:
                logger.warning("closing a connection of %s, it cannot be watched: %s", channel.peer, error)
                channel.sock.close()
                self._handoff.report_closed(channel.serial)
                self._handoff.flush()
                continue
            self._by_id[channel.connection_id] = channel
            try:
                self.tls.begin(channel)
                self._begin(channel)
            except Exception:
                self._fault(channel)
        if self._handoff.order is not None:
            self.process_disconnected()
            for channel in excess_channels(self._handoff.order, self._selector.channels.values()):
                self._close(channel, "excess")
            self._handoff.obeyed()

    def process_new_responses(self) -> None:
        """Write all responses that targets have published (``D08``)."""
        responses = self._responses
        ready = responses.read(self._by_id, self._fault)
        has_lone = responses.has_lone
        if ready or has_lone:
            self.finished.note_received(responses.responses_received)
        if has_lone:
            responses.send_lone(ready, self._network_time.of_lone(self.finished.add_lone), self._fault)
        if ready:
            self._write(ready.values())
        if responses.orphans:
            self.finished.note_received(responses.responses_received)
            self.finished.add_orphans(responses.orphans)
        responses.release()
        if responses.unsendable:
            self._repeats.send()
        if self._reader.waiting:
            self._read_all(self._reader.take_waiting())
        if responses.throttled.ends:
            self._read_all(responses.throttled.ended(self._now_ns(), self._by_id))
        self.sender.publish()

    def poll(self) -> None:
        """Sleep until a socket, a bell or the hand-off is ready (``B04``); sort the events (``B06``)."""
        selector, responses, reader = self._selector, self._responses, self._reader
        if responses.is_behind or self._new_waiting or self._disconnected or selector.readable or selector.writable:
            timeout_ms = 0
        elif reader.waiting or responses.unsendable:
            timeout_ms = RETRY_MS
        else:
            most_ms = self.authentication.wait_ms(DRAINING_POLL_MS if self._draining else POLL_TIMEOUT_MS)
            timeout_ms = responses.wait_ms(self._now_ns, most_ms)
        before_ns = self._now_ns()
        events = selector.poll(timeout_ms)
        now_ns = self._now_ns()
        self._metrics.polled(before_ns, now_ns, arena_short=reader.memory.is_short, ready=len(events))
        channels = selector.channels
        for fd, event in events:
            if (channel := channels.get(fd)) is None:
                self._watched_event(fd)
                continue
            channel.last_active_ns = now_ns
            channels.move_to_end(fd)
            if event & WRITE:
                selector.writable[channel] = None
            if event & READ:
                selector.readable[channel] = None
            elif event & GONE:
                self._hung_up(channel)

    def process_completed_receives(self) -> None:
        """Read the readable channels within the iteration's time, and send their requests on, a batch at a time."""
        if not self._selector.readable:
            return
        for count, channel in enumerate(self._network_time.of_each(self._selector.next_readable(self._now_ns)), 1):
            if not count % PUBLISH_EVERY:
                self.sender.publish()
            try:
                if not self._reader.read(channel):
                    self._disconnected.append((channel, "client"))
                elif channel.muted:
                    self._metrics.muted(channel.muted)
                    self._selector.update(channel)
                elif channel.tls is not None and channel.tls.has_pending:
                    self._selector.readable[channel] = None
            except InvalidReceive as error:
                self._reject(channel, error)
            except Exception:
                self._fault(channel)
        self.sender.publish()

    def process_completed_sends(self) -> None:
        """Continue incomplete writes within the iteration's time."""
        if not self._selector.writable:
            return
        for channel in self._network_time.of_each(self._selector.next_writable(self._now_ns)):
            try:
                self._after_write(channel, channel.flush())
            except OSError:
                self._disconnected.append((channel, "io_error"))
            except Exception:
                self._fault(channel)

    def process_disconnected(self) -> None:
        """Close the channels found disconnected or faulty in this iteration, and report them to the acceptor."""
        self.authentication.end_due(self._by_id)
        for channel, cause in self._disconnected:
            self._close(channel, cause)
        if self._disconnected or self._handoff.wants_write:
            self._handoff.flush()
        self._disconnected.clear()

    def close_expired_connection(self) -> None:
        """Close slow connections and the longest idle one if idle too long (``B17``); run due periodic tasks."""
        now_ns = self._now_ns()
        if self._reader.memory.is_short:
            for channel, slow in self._reader.memory.too_slow(now_ns):
                self._reject(channel, slow)
        for channel, failure in self.tls.late(now_ns):
            self._reject(channel, failure)
        if self._idle_ns >= 0 and (idle := self._selector.idle_since(now_ns - self._idle_ns)) is not None:
            self._close(idle, "idle")
            self._handoff.flush()
        if now_ns >= self._periodic_tasks.next_ns:
            self._periodic_tasks.look(now_ns)

    def move(self, handlers: int, generations: Mapping[int, int]) -> None:
        """Route to this number of handlers; resend unanswered requests of other generations to their owners (`E04`)."""
        self._responses.grow()
        while self._responses.pending():
            self.process_new_responses()
        self._reader.release(handlers)
        self._repeats.move(self._by_id.values(), generations)

    def target_ready(self, target: int, generation: int) -> None:
        """Route to this generation of a target, and resend requests its predecessors have not answered."""
        self.process_new_responses()
        self._repeats.add(self._by_id.values(), target, generation)

    def drain(self, *, produce_only: bool = False) -> bool:
        """Stop reading requests; return True once all required responses are written (`UnwrittenResponses`)."""
        if not self._draining:
            self._draining = self._responses.delayed.is_ending = True
            for channel in self._by_id.values():
                self._mute(channel, MuteCause.DRAINING)
                self._selector.update(channel)
        self.step()
        return not self._unwritten.are_left(self._by_id.values(), produce_only=produce_only)

    def close_drained(self) -> bool:
        """Close connections without pending responses; return True once none remain, open or in the hand-off."""
        self._disconnected += [(c, "shutdown") for c in self._by_id.values() if not (c.in_flight or c.unsent)]
        self.process_disconnected()
        return not self._by_id and not self._new_waiting

    def end_connections(self, is_ending: Callable[[Channel], bool]) -> None:
        """Stop reading connections of closed listeners; each is closed after its last response (`A30`)."""
        for channel in filter(is_ending, self._by_id.values()):
            self._mute(channel, MuteCause.DRAINING)
            self._selector.update(channel)
            if not (channel.in_flight or channel.unsent):
                self._disconnected.append((channel, "shutdown"))

    def close_all(self) -> None:
        """Close every connection without waiting for responses (``B31``)."""
        for channel in list(self._by_id.values()):
            self._close(channel, "shutdown")
        self.finished.is_prepared = True
        self._periodic_tasks.publish(self._now_ns())

    def _watched_event(self, fd: int) -> None:
        if fd == self._handoff.fileno():
            self._new_waiting = True
        elif fd != self._bell.fileno():
            self._selector.unwatch(fd)  # it has woken the loop, and would do so at every poll

    def _hung_up(self, channel: Channel) -> None:
        """Handle a disconnected client: keep a muted channel with input still to process, else close it (``B19``)."""
        is_aside = channel.muted and not (channel.unsent or channel.muted & ENDED_BY_HANGING_UP or channel.has_ended)
        if is_aside:
            self._selector.set_aside(channel)
        else:
            self._disconnected.append((channel, "client"))

    def _write(self, channels: Iterable[Channel]) -> None:
        """Write the responses attached to channels, within the iteration's time. HOT."""
        finish, now_ns = self.finished.add, self._now_ns
        end_ns = now_ns() + WRITING_NS
        for channel in self._network_time.of_each(channels):
            try:
                if now_ns() >= end_ns:
                    channel.keep_out()
                done = self._write_out(channel)
                if done and not channel.muted and not channel.closing and not channel.held:
                    finish(channel, now_ns())
                else:
                    self._after_write(channel, done)
            except Exception:
                self._fault(channel)

    def _write_out(self, channel: Channel) -> bool:
        """Write the responses attached to a channel; return whether all is written."""
        if not channel.out:
            return not channel.unsent
        try:
            return channel.send_out()
        except OSError:
            channel.discard_output()
            self._disconnected.append((channel, "io_error"))
            return False

    def _after_write(self, channel: Channel, done: bool) -> None:
        """Account for a write, and lift or set the mutes that depend on it (``B27``, ``D10``)."""
        if done:
            self.finished.add(channel, self._now_ns())
            if channel.closing:
                self._disconnected.append((channel, "response"))
                return
            if channel.muted:
                if channel.muted & MuteCause.REFUSED and not channel.in_flight:
                    self._disconnected.append((channel, "invalid_request"))
                    return
                self._reader.lift_mutes(channel)
        if channel.out_bytes + channel.held_bytes > self._output_max_bytes:
            self._mute(channel, MuteCause.OUTPUT)
        elif done and channel.muted:
            channel.muted &= ~MuteCause.OUTPUT
        if not channel.muted and (channel.inbox or channel.large is not None):
            self._resume(channel)
        self._selector.update(channel)

    def _begin(self, channel: Channel) -> None:
        """Register a new connection with metrics, accounting, authentication and sessions."""
        self._metrics.connection_opened()
        self.finished.opened(channel)
        self.authentication.begin(channel)
        if self._draining:
            self._mute(channel, MuteCause.DRAINING)
            self._selector.update(channel)
        self.sessions.begin(channel)
        logger.debug("connection %s opened", channel.name)

    def _mute(self, channel: Channel, cause: MuteCause) -> None:
        if not channel.muted & cause:
            channel.muted |= cause
            self._metrics.muted(cause)

    def _fault(self, channel: Channel | None) -> None:
        """Close a channel after an internal error: its state may be wrong now (``B22``)."""
        if channel is None:
            logger.exception("error in a response to a closed connection")
            return
        logger.exception("error on connection %s", channel.name)
        channel.give_up()
        self._disconnected.append((channel, "fault"))

    def _reject(self, channel: Channel, error: InvalidReceive) -> None:
        """Close a connection that violated the protocol, after its earlier requests are answered (``C02``, ``D12``)."""
        self._warnings.warning(f"{channel.peer} {error.kind}", "closing connection %s: %s", channel.name, error)
        channel.inbox = b""
        self._reader.give_up_large(channel)
        if channel.in_flight or (channel.unsent and error.cause == InvalidReceive.cause):
            channel.muted |= MuteCause.REFUSED
            self._selector.update(channel)
        else:
            self._disconnected.append((channel, error.cause))

    def _resume(self, channel: Channel) -> None:
        before = channel.muted
        try:
            self._reader.resume(channel)
        except InvalidReceive as error:
            self._reject(channel, error)
        except Exception:
            self._fault(channel)
        else:
            self._metrics.muted(channel.muted & ~before)

    def _read_all(self, channels: Iterable[Channel]) -> None:
        for channel in channels:
            if channel.fd in self._selector.channels:
                self._resume(channel)
                self._selector.update(channel)

    def _close(self, channel: Channel, cause: str) -> None:
        """Close a connection at once (``B20``) and free all its resources (``B26``)."""
        if self._by_id.pop(channel.connection_id, None) is None:
            return
        self._selector.unregister(channel)
        self._reader.forget(channel)
        channel.discard_output()
        if cause in _AFTER_RESPONSES:
            channel.discard_input()
        channel.sock.close()
        if channel.tls is not None:
            self.tls.forget(channel)
        self._handoff.report_closed(channel.serial)
        self.finished.closed(channel, cause, self._now_ns())
        self._metrics.connection_closed(cause)
        logger.debug("connection %s: %s", channel.name, cause)
