"""The request handler: takes requests from its rings, answers them, and sleeps on its bell when there are none.

Runs in handler processes 0..M-1 and, with index M, in the controller, which is a handler of the APIs that change
metadata. One turn of the loop takes a batch of frames, commits what they staged, publishes the answers and releases
the requests, in this order: a request is released only when its answer is in its processor's ring, so a replacement
finds every request that has none.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from broker.apis.table import APIS
from broker.apis.topics.list_offsets_memo import ListOffsetsMemo
from broker.errors import InvalidReceive
from broker.handler.api_calls import ApiCalls
from broker.handler.broker_context import make_context
from broker.handler.commit_answers import CommitAnswers
from broker.handler.group_fast_path import GroupFastPath
from broker.handler.peer_calls import PeerCalls
from broker.handler.peer_payloads import PeerPayloads
from broker.handler.peer_rpc import PeerRpc
from broker.handler.screening import Screening, fault_table, response_writer
from broker.ipc.memory_areas import MemoryAreas
from broker.ipc.peer_channel import Peers
from broker.ipc.request import NOTED, Request
from broker.ipc.request_channel import INLINE, REQUEST
from broker.ipc.request_rings import RequestRings
from broker.ipc.unreleased_requests import RingFrame
from broker.log.segments.open_segments import OPEN_SEGMENTS
from broker.partitions.fetch.fetch import FetchPath
from broker.partitions.produce.partition_appender import PartitionAppender
from broker.partitions.produce.produce import ProducePath
from broker.partitions.row_flags import RowFlags
from broker.protocol.api_keys import ApiKey
from broker.scheduling.purgatory import Purgatory
from broker.scheduling.slices import Slices
from broker.security.session import ANONYMOUS, Sessions
from broker.server_log.slow_turns import COMMITTING, LONG_NS, METADATA, TAKING, UPKEEP, WAITING, SlowTurns
from shm.tables.current_request import REQUEST_AT

if TYPE_CHECKING:
    from collections.abc import Collection

    from broker.ipc.peer_channel import Received
    from broker.ipc.poison_requests import PoisonRequests
    from broker.ipc.process_context import ProcessContext
    from broker.ipc.request_ring import RequestRing
    from broker.metadata.active_controller import ActiveController
    from broker.partitions.partition_manager import PartitionManager
    from broker.partitions.produce.produce_memo import RememberedRequest

logger = logging.getLogger(__name__)

#: Frames taken from one ring in one turn. More would save a little for each, and let the processor wait for all.
BATCH = 32

_PRODUCE, _FETCH = int(ApiKey.PRODUCE), int(ApiKey.FETCH)
_LIST_OFFSETS = int(ApiKey.LIST_OFFSETS)

#: The loop turns at least this often, as Kafka's handlers do (``D05``).
WAIT_MS = 300

#: How often the logs are asked for upkeep that is due.
TICK_NS = 100_000_000

#: While something waits that no bell announces (room in a ring, a peer's release), the loop looks again after this.
RETRY_MS = 1


class RequestHandler:
    """The loop of one target and the paths that requests take through it."""

    def __init__(
        self,
        context: ProcessContext,
        partitions: PartitionManager,
        controller: ActiveController | None,
        areas: MemoryAreas,
        poison: PoisonRequests,
        generation: int,
    ) -> None:
        index, channel, now_ns = partitions.index, context.channel, partitions.clock.monotonic_ns
        self._partitions, self._now_ns = partitions, now_ns
        self._controller, self._areas, self._poison = controller, areas, poison
        self._responses = responses = response_writer(context, index)
        self._rings = RequestRings(channel, index, responses)
        self._row_flags = RowFlags(partitions.table, index, context.target_bells)
        self.turns = SlowTurns(logger, now_ns)
        self.slices = Slices(now_ns, self.turns, poison.current)
        self._peers = Peers(channel, index, generation, context.target_bells)
        self._peer_calls = PeerCalls(self._peers, PeerPayloads(context.run_dir, index), context.slots, context.handlers)
        self._appends = PartitionAppender(responses, self._peers.new_tokens(), now_ns, partitions.storage.write_failed)
        commit_answers = CommitAnswers(responses, now_ns)
        self.broker = make_context(
            context, partitions, controller, self._peer_calls, self._appends, commit_answers, self.slices
        )
        self._coordinators, self._quotas = self.broker.coordinators, self.broker.quotas
        self._purgatory = Purgatory(self._row_flags.raise_all, self._row_flags.lower, self._coordinators.timers)
        ask_membership = self._coordinators.transaction_rpc.ask_membership
        ways = responses, self._purgatory, self.slices
        self._calls = ApiCalls(self.broker, ways, self.turns, poison.current, context.listener_table)
        produce_ways = responses, self.slices, self._calls.close_faulty
        self._produce = ProducePath(partitions, self._appends, produce_ways, self._peers, poison, ask_membership)
        self._fetch = FetchPath(partitions, *ways, poison.current, context.client_hosts, context.handlers)
        self._quotas.forgotten = self._produce.forget_metadata
        self._faults = fault_table(context, index)
        self._screening = Screening(poison, self._faults, responses, partitions, self._fetch, self._dispatch)
        self._groups = GroupFastPath(self.broker, responses, self.slices, commit_answers)
        #: By API, what takes a request that is like an earlier one; False when it is not.
        offsets = ListOffsetsMemo(partitions, responses, self.slices.has)
        self._with_memo = self._produce, self._fetch, offsets, self._groups
        self._fast_paths = {**self._groups.ways, _FETCH: self._fetch.try_fast, _LIST_OFFSETS: offsets.answer}
        self._peer_rpc = PeerRpc(self._peer_calls, self.broker.tasks, self._produce, areas, poison, self.slices, now_ns)
        #: Whether the last turn may have left something that no bell has rung for since it began.
        self.has_more = True
        #: Rows of this handler that have moved, until those who wait for them have been woken.
        self._moved: list[int] = []
        self._moved_elsewhere = partitions.table.moved_rows.reader(index)
        self._next_tick_ns, self._taken_ns, self.requests, self._sessions = 0, 0, 0, Sessions()
        self._inherited = self._peers.unread_before()
        #: What was sent to an earlier generation comes again, but for Produce.
        self._oldest_generation = generation if generation > 1 else 0
        #: What was received by then may be what a predecessor has died in: it is committed before the next is taken.
        self._alone_until_ns = now_ns() if generation > 1 else -1
        #: What has been read and not taken yet: from processors, and from other targets.
        self._read: list[tuple[int, list[RingFrame]]] = self._rings.unreleased() if generation > 1 else []
        self._received: list[Received] = []
        if generation > 1 and index < context.handlers:
            self._row_flags.announce_all()
        # Before anybody asks: the offsets of topics go that were deleted while nobody coordinated their groups.
        self._coordinators.metadata_changed()

    def turn(self) -> bool:
        """Do what there is to do; False when there was nothing.

        A fault that has no request to blame is raised; the next turn goes on with what this one has left.
        """
        try:
            return self._turn()
        except Exception:
            # Nobody is to be blamed if this process is killed when it has long done with what it was doing.
            self._poison.current.clear()
            # What was answered before it is not kept back by it. Nothing is released: not all has been looked at.
            self._responses.publish()
            self._responses.ring_bells()
            raise

    def _turn(self) -> bool:
        self.has_more = True
        self._responses.retry()
        # No ring gives anything twice: after a fault of this turn the next one goes on with what has been read.
        read = self._read
        if not read:
            read += self._rings.read(BATCH)
        if not self._received:
            self._received = self._peer_rpc.receive()
        # After the last look into a ring: what is in there may have been sent because of what was announced, such as
        # the first request to a topic whose creation has just been answered.
        worked = has_more = self._refresh_metadata()
        self._quotas.follow_metadata(self._partitions.metadata)  # the controller's own changes are never behind
        self._partitions.storage.turn()
        self._calls.late.until_ns = end_ns = self._now_ns() + LONG_NS
        # What was sent may rest on all that has been announced.
        while read and not self._partitions.is_taking:
            processor, frames = read.pop(0)
            if not frames:
                continue
            worked = True
            has_more |= len(frames) >= BATCH
            left = self._take_frames(processor, self._rings[processor], frames, end_ns)
            if left:
                read.insert(0, (processor, left))
            if self._taken_ns >= end_ns:
                break
        if self._received and not self._partitions.is_taking:
            messages, self._received, has_more = self._received, [], True
            self._received = self._peer_rpc.take(messages, end_ns)
        has_more |= self.slices.turn() or bool(read)
        self._commit()
        now_ns = self._now_ns()
        self.turns.spent(now_ns, COMMITTING)
        if now_ns >= self._next_tick_ns:
            self._tick(now_ns)
        self._publish()
        self._partitions.publish_taken_over()
        self._rows_moved()
        if self._purgatory.turn():
            self._publish()
            self.turns.spent(self._now_ns(), WAITING)
        self.has_more = has_more
        return worked or has_more

    def _tick(self, now_ns: int) -> None:
        """Do what is due: flushes, checkpoints, producers that have expired; what an operator asks for."""
        self._next_tick_ns = now_ns + TICK_NS
        self._partitions.tick()
        self._follow_partitions()
        if self._controller is not None:
            self._controller.tick()
        for path in self._with_memo:
            path.forget_unused(now_ns)
        self._calls.forget_unused(now_ns)
        self._peer_calls.repeat()
        self.turns.spent(self._now_ns(), UPKEEP)

    def wait_ms(self) -> int:
        """How long the loop may sleep: until the next deadline, or a moment when something is in the way."""
        if not self.slices.is_idle:
            return 0
        if self._inherited or self._peers.waiting or self._rings.are_waiting:
            return RETRY_MS
        deadline_ns = 0 if self._purgatory.has_woken else self._coordinators.next_deadline_ns()
        if deadline_ns is None:
            return WAIT_MS
        return max(0, min(WAIT_MS, (deadline_ns - self._now_ns()) // 1_000_000 + 1))

    def finish(self) -> None:
        """Write and answer what still waits for company."""
        self._calls.late.finish()
        self._coordinators.stop_waiting()
        while self._coordinators.flush() or self._produce.is_dirty:
            self._produce.commit()
        self._publish()

    def counters(self) -> dict[str, int]:
        """Return what has been counted since the start, by metric name."""
        authorizer = self._partitions.metadata.authorizer
        return {
            "requests_handled": self.requests,
            "errors": self._responses.errors,
            **self._appends.counters(),
            "write_failures": self._partitions.storage.write_failures,
            "segments_closed": OPEN_SEGMENTS.closed,
            **self._fetch.counters(),
            "authorization_denied": authorizer.denied if authorizer is not None else 0,
            "overload_throttled": self._quotas.overload.throttled,
            "requests_dropped": self._poison.count,
            **self.turns.counters(),
            **self._coordinators.counters(),
        }

    def gauges(self) -> dict[str, int]:
        """Return what is so now, by metric name."""
        return {
            "longest_turn_ns": self.turns.longest_ns,
            "operations_waiting": self._purgatory.waiting,
            "rows_watched": self._purgatory.watched_rows,
            **self._fetch.gauges(),
            "overload_throttle_ns": self._quotas.overload.throttle_ms * 1_000_000,
            "works_waiting": self.slices.waiting,
            "producer_ids": self._partitions.log_manager.producer_ids,
            "settings_bytes": 0 if self._controller is None else self._controller.controller.settings_bytes,
            **self._coordinators.gauges(),
        }

    def _commit(self) -> None:
        """Commit what this turn has staged, and what answering that has staged in turn."""
        now_ns = self._now_ns()
        self.turns.spent(now_ns, TAKING)
        self._coordinators.turn(now_ns)
        self._moved += self._produce.commit()
        while self._coordinators.flush() or self._produce.is_dirty:
            self._moved += self._produce.commit()

    def _refresh_metadata(self) -> bool:
        """Take over what tests and the controller have changed; False if that is nothing of the controller's."""
        if self._faults is not None:
            self._faults.follow()
        if not self._partitions.is_behind:
            return False
        try:
            self._partitions.take_metadata(self._now_ns() + LONG_NS // 4)
        finally:
            # Also after a fault: some of it may have been taken over.
            self._follow_partitions()
            for path in self._with_memo:
                path.forget_metadata()
            if not self._partitions.is_taking:
                self._coordinators.metadata_changed()
            self._purgatory.something_changed()
            self.turns.spent(self._now_ns(), METADATA)
        return True

    def _follow_partitions(self) -> None:
        """Have coordinators, and who waits for rows, take over what has been opened and closed; the rest in slices."""
        self._coordinators.follow_partitions()
        self._purgatory.rows_moved(self._partitions.take_closed_rows())
        self._partitions.changes.begin(self.slices, self._follow_partitions, self._purgatory.something_changed)

    def _take_frames(self, processor: int, ring: RequestRing, frames: list[RingFrame], end_ns: int) -> list[RingFrame]:
        """Serve requests of one ring, one at least, until a time; return the frames that are left for the next turn."""
        view, unpack, header_bytes, new = self._responses.view, REQUEST.unpack_from, REQUEST.size, Request.__new__
        produced, oldest_generation = self._produce.last, self._oldest_generation
        current, screened, session_of = self._poison.current.words, self._screening.concerns, self._sessions.of
        quotas, book, now_ns = self._quotas, self._quotas.book, self._now_ns
        dequeued_ns = taken_ns = now_ns()
        in_force, start = quotas.begin(view, frames[0][0], dequeued_ns), ring.cursor
        for number, (at, _, end) in enumerate(frames, 1):  # noqa: B007 - read behind the loop
            request = new(Request)
            (
                request.connection_id, request.sequence, request.received_ns, request.api_key, request.api_version,
                request.correlation_id, size, session_bytes, address, request.listener, area, generation, state,
            ) = unpack(view, at)  # fmt: skip
            is_produce = request.api_key == _PRODUCE
            if generation < oldest_generation and not is_produce:
                start = end
                continue
            current[REQUEST_AT] = at
            memory, first = (view, at + header_bytes) if area == INLINE else (self._areas.view(area), address)
            request.processor, request.dequeued_ns, request.size_bytes = processor, dequeued_ns, size
            request.area, request.view, request.start, request.end = area, memory, first, first + size
            request.ring, request.ring_start, request.envelope_at, request.is_noted = ring, start, at, state == NOTED
            like = produced.recent.get(request.connection_id) if is_produce and not screened else None
            if like is not None:
                request.session = like.session
            elif session_bytes:
                session_at = at + header_bytes + (0 if area else size)
                request.session = session_of(bytes(view[session_at : session_at + session_bytes]))
            else:
                request.session = ANONYMOUS
            if like is not None and not area:
                request.quotas = like.quotas
            else:
                user = request.session.user
                request.quotas = quotas.begin_one(user, request.listener, memory, first, taken_ns) if in_force else None
            is_fast = self._serve(request, like, screened, taken_ns)
            start, taken_ns = end, now_ns()
            whose = request.quotas
            if whose is not None and (not is_produce or area or not is_fast):
                whose.spent_ns += taken_ns - book.mark_ns
                book.mark_ns = taken_ns
            if taken_ns >= end_ns:
                break
        quotas.end(taken_ns)
        current[REQUEST_AT], ring.cursor, self._taken_ns, self.requests = 0, start, taken_ns, self.requests + number
        return frames[number:]

    def _serve(
        self, request: Request, like: RememberedRequest | None, screened: Collection[object], now_ns: int
    ) -> bool:
        """Serve a request by the first way that takes it, and contain its faults; False if that is the general way."""
        key = request.api_key
        is_alone = request.received_ns <= self._alone_until_ns
        is_fast = True
        try:
            if (is_alone or screened) and self._screening.takes(request):
                pass
            elif key == _PRODUCE:
                is_fast = not request.is_noted and self._produce.try_fast(request, like)
            else:
                way = self._fast_paths.get(key)
                is_fast = way is not None and way(request)
            if not is_fast:
                if key == _PRODUCE and self._quotas.is_in_force:
                    # So far it has the quotas of its connection's last client, which may have been another.
                    user, listener = request.session.user, request.listener
                    request.quotas = self._quotas.begin_one(user, listener, request.view, request.start, now_ns)
                self._dispatch(request)
            if is_alone:
                self._commit()
        except Exception as error:
            self._calls.close_faulty(request, error)
        return is_fast

    def _dispatch(self, request: Request) -> None:
        """Take a request to the function that the registry names for it (``E07``)."""
        api = APIS.get(request.api_key)
        if api is None:
            raise InvalidReceive(f"api key {request.api_key} is not served")
        if not api.min_version <= request.api_version <= api.max_version:
            self._calls.refuse_version(api, request)
        elif request.api_key == _PRODUCE:
            self._produce.handle(request)
        elif request.api_key == _FETCH:
            self._fetch.handle(request)
        else:
            self._calls.handle(api, request)

    def _publish(self) -> None:
        """Answers first, then the memory of the requests, then the bells (``D07``)."""
        self._responses.publish()
        if self._inherited:
            self._inherited = [(ring, end) for ring, end in self._inherited if ring.consumed() < end]
        if not self._inherited:
            self._rings.release()
        self._peer_rpc.publish()
        self._responses.ring_bells()

    def _rows_moved(self) -> None:
        """Wake the operations that wait for rows that have moved: here, and in other handlers if the rows are ours."""
        moved, self._moved = self._moved, []
        if moved:
            self._row_flags.announce(moved)
            self._fetch.rows_moved(moved)
            self._purgatory.rows_moved(moved)
        elsewhere = self._moved_elsewhere.read()
        if elsewhere is None:
            self._fetch.rows_moved(None)
            self._purgatory.anything_moved()
        elif elsewhere:
            self._fetch.rows_moved(elsewhere)
            self._purgatory.rows_moved(elsewhere)
