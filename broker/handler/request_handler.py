"""The request handler: reads requests from its rings, sends their responses, and sleeps on its bell when idle.

Runs in handler processes 0..M-1 and, with index M, in the controller, which handles the APIs that change metadata. One
turn of the loop reads a batch of frames, commits the staged changes, completes requests that have waited for them,
publishes the responses and releases the requests, in this order. A Produce is held in its ring until its response is in
its processor's ring, so a replacement finds it. Other requests are released with the turn, also while they wait or run
in slices; processors resend the unanswered ones to a replacement (`resender`).
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from rotunda.broker.apis.table import APIS
from rotunda.broker.apis.topics.list_offsets_fast_path import ListOffsetsFastPath
from rotunda.broker.coordinator.share_state.share_fetches import ShareFetches
from rotunda.broker.errors import InvalidReceive
from rotunda.broker.handler.api_calls import ApiCalls
from rotunda.broker.handler.broker_context import make_context
from rotunda.broker.handler.group_fast_path import CommitResponses, GroupFastPath
from rotunda.broker.handler.peer_calls import PeerCalls, PeerPayloads
from rotunda.broker.handler.peer_rpc import PeerRpc
from rotunda.broker.handler.ring_requests import API_KEY_AT, RingRequests
from rotunda.broker.ipc.peer_channel import Peers
from rotunda.broker.ipc.request import MemoryAreas, Request, RequestDecoder
from rotunda.broker.ipc.request_rings import RequestRings
from rotunda.broker.log.segments.open_segments import OPEN_SEGMENTS
from rotunda.broker.partitions.fetch.fetches import Fetches
from rotunda.broker.partitions.produce.partition_appender import PartitionAppender
from rotunda.broker.partitions.produce.produces import Produces
from rotunda.broker.partitions.request_cache import MOST_CACHE_BYTES, RequestCache, RequestCaches
from rotunda.broker.partitions.row_flags import RowFlags
from rotunda.broker.protocol.api_keys import ApiKey
from rotunda.broker.scheduling.purgatory import Purgatory
from rotunda.broker.scheduling.slices import Slices
from rotunda.broker.server_log.slow_turns import COMMITTING, LONG_NS, MAINTENANCE, METADATA, TAKING, WAITING, SlowTurns
from rotunda.shm.tables.current_request import REQUEST_AT

if TYPE_CHECKING:
    from rotunda.broker.ipc.peer_channel import Received
    from rotunda.broker.ipc.poison_requests import PoisonRequests
    from rotunda.broker.ipc.process_context import ProcessContext
    from rotunda.broker.ipc.request import RequestRing, RingFrame
    from rotunda.broker.ipc.request_rings import RingBatch
    from rotunda.broker.ipc.response_writer import ResponseWriter
    from rotunda.broker.metadata.active_controller import ActiveController
    from rotunda.broker.partitions.partition_manager import PartitionManager

logger = logging.getLogger(__name__)

#: Handles one request.
Handle = Callable[[Request], None]


class Wrapper(Protocol):
    """Wraps the handling of each request while it is installed."""

    def __call__(self, request: Request, handle: Handle) -> None:
        """Handle a request, by calling ``handle`` or instead of it."""


class FastPathSettings(NamedTuple):
    """Whether frequent requests have a faster path than `ApiCalls`; responses are the same without.

    ``cache_bytes``: memory for the cached requests of each API.
    """

    cache_bytes: int = MOST_CACHE_BYTES
    have_fast_paths: bool = True


ALL_FAST_PATHS = FastPathSettings()

#: Frames read from one ring in one turn. A larger batch would save little per frame and delay the others' responses.
BATCH = 32

_PRODUCE, _FETCH = int(ApiKey.PRODUCE), int(ApiKey.FETCH)
_LIST_OFFSETS, _SHARE_FETCH = int(ApiKey.LIST_OFFSETS), int(ApiKey.SHARE_FETCH)

#: The loop runs at least this often, as Kafka's handlers do (``D05``).
WAIT_MS = 300

#: Interval of the logs' maintenance.
TICK_NS = 100_000_000

#: Retry interval for events that no bell announces, such as room in a ring or a peer's release.
RETRY_MS = 1


class RequestHandler:
    """The loop of one target, and the paths of requests through it."""

    def __init__(
        self,
        context: ProcessContext,
        partitions: PartitionManager,
        controller: ActiveController | None,
        responses: ResponseWriter,
        areas: MemoryAreas,
        poison: PoisonRequests,
        fast_paths: FastPathSettings,
    ) -> None:
        index, channel, generation = partitions.index, context.channel, poison.generation
        now_ns = partitions.clock.monotonic_ns
        self._partitions, self._controller, self._poison = partitions, controller, poison
        self._responses, self.now_ns = responses, now_ns
        self._rings, self._reader = RequestRings(channel, index, responses), RequestDecoder(channel.view, areas)
        self._row_flags = RowFlags(partitions.table, index, context.target_bells)
        self.turns = SlowTurns(logger, now_ns)
        self.slices = Slices(now_ns, self.turns, poison.current)
        self._peers = Peers(channel, index, generation, context.target_bells)
        self._peer_calls = PeerCalls(self._peers, PeerPayloads(context.run_dir, index), context.slots, context.handlers)
        self._appends = PartitionAppender(responses, self._peers.new_tokens(), now_ns, partitions.storage.write_failed)
        commit_responses = CommitResponses(responses, now_ns)
        self.broker = make_context(
            context, partitions, controller, self._peer_calls, self._appends, commit_responses, self.slices
        )
        self._coordinators, self._quotas = self.broker.coordinators, self.broker.quotas
        self._purgatory = Purgatory(self._row_flags.raise_all, self._row_flags.lower, self._coordinators.timers)
        verify = self._coordinators.transaction_rpc.verify_membership
        self._caches = caches = RequestCaches(partitions.metadata, fast_paths.cache_bytes)
        self._calls = ApiCalls(self.broker, responses, self._purgatory, self.slices, self.turns, poison.current, caches)
        produce_ways = responses, self.slices, self._calls.close_faulty
        self._produce = Produces(partitions, self._appends, produce_ways, self._peers, poison, verify, caches)
        self.fetch = Fetches(context, partitions, responses, self._purgatory, self.slices, poison.current, caches)
        self._share = ShareFetches(self._coordinators, partitions, responses, self._purgatory, poison.current)
        self._quotas.forgotten = self._produce.cache.clear
        groups = GroupFastPath(self.broker, responses, self.slices, commit_responses, caches)
        offsets = ListOffsetsFastPath(partitions, responses, self.slices.has, caches)
        own = {_PRODUCE: self._produce.try_fast, _FETCH: self.fetch.try_fast, _LIST_OFFSETS: offsets.try_fast}
        #: By API: each returns False if the request must use the general path.
        self._fast_paths = {**own, **groups.fast_paths, **self._calls.fast_paths} if fast_paths.have_fast_paths else {}
        self._ring_requests = self._handled_in_ring(caches, offsets, groups)
        self._wrappers: list[Wrapper] = []
        self._chain()
        self._peer_rpc = PeerRpc(self._peer_calls, self.broker.tasks, self._produce, areas, poison, self.slices, now_ns)
        #: Whether the last turn may have left a task that no bell has rung for since it began.
        self.has_more = True
        #: Rows of this handler that have moved, until the operations waiting for them are woken.
        self._moved: list[int] = []
        self._moved_elsewhere = partitions.table.moved_rows.reader(index)
        self._next_tick_ns, self._handled_ns, self.requests = 0, 0, 0
        self._inherited = self._peers.unread_before()
        #: Requests and peer messages that are read and not handled yet.
        self._read: list[RingBatch] = self._rings.unreleased() if generation > 1 else []
        self._received: list[Received] = []
        if generation > 1 and index < context.handlers:
            self._row_flags.announce_all()
        # Before the first request: delete the offsets of topics that were deleted while their groups had no
        # coordinator.
        self._coordinators.metadata_changed()

    def _handled_in_ring(
        self, caches: RequestCaches, offsets: ListOffsetsFastPath, groups: GroupFastPath
    ) -> RingRequests:
        """Return the requests that compiled code may handle."""
        by_api: dict[int, RequestCache[Any]] = {_PRODUCE: self._produce.cache, _LIST_OFFSETS: offsets.cache}
        by_api |= {**groups.caches, **self._calls.caches}
        return RingRequests(
            self.broker,
            caches,
            by_api,
            self._appends,
            self._responses,
            self._reader,
            self.slices,
            self._poison.current,
        )

    def run_once(self) -> bool:
        """Run one turn of the loop; False if it was idle.

        Raises a fault that cannot be attributed to a request; the next turn continues with the remaining requests.
        """
        if not self.has_more:
            # No client is charged for the time asleep.
            self._quotas.book.mark_ns = self.now_ns()
        try:
            return self._turn()
        except Exception:
            # Clear the current request, so that a later crash is not attributed to it.
            self._poison.current.clear()
            # Publish the responses that precede the fault. Release nothing: some requests may not be handled yet.
            self._responses.publish()
            self._responses.ring_bells()
            raise

    def _turn(self) -> bool:
        self.has_more = True
        if self._responses.are_waiting:
            self._responses.retry()
        # A ring returns each frame once: after a fault the next turn continues with the frames already read.
        read = self._read
        if not read:
            read += self._rings.read(BATCH)
        if not self._received:
            self._received = self._peers.receive()
        # Refresh after reading the rings: a frame may have been sent because of an announced change, such as the first
        # request to a topic whose creation response has just been sent.
        worked = has_more = self._partitions.is_behind
        if worked:
            self._refresh_metadata()
        # The controller applies its own changes immediately, so `_refresh_metadata` never sees them.
        if self._quotas.follow_metadata(self._partitions.metadata):
            self._chain()
        self._partitions.storage.run_once()
        self._calls.late.until_ns = end_ns = self.now_ns() + LONG_NS
        # The frames may depend on any announced change, so none is handled before all metadata is loaded.
        if read and not self._partitions.is_taking:
            worked = True
            has_more |= self._handle_batches(read, end_ns)
        if self._received and not self._partitions.is_taking:
            messages, self._received, has_more = self._received, [], True
            self._received = self._peer_rpc.take(messages, end_ns)
        has_more |= self.slices.run_once() or bool(read)
        self.commit()
        now_ns = self.now_ns()
        self.turns.spent(now_ns, COMMITTING)
        if now_ns >= self._next_tick_ns:
            self._tick(now_ns)
        self._rows_moved()
        # Before the responses are published: one bell wakes the processor for them and for the completed fetches.
        if self._purgatory.run_once():
            self.turns.spent(self.now_ns(), WAITING)
        self._publish()
        self._partitions.publish_taken_over()
        self.has_more = has_more
        return worked or has_more

    def _tick(self, now_ns: int) -> None:
        """Run periodic maintenance: flushes, checkpoints, expired producers, caches, and an operator's requests."""
        self._next_tick_ns = now_ns + TICK_NS
        self._partitions.tick()
        self._follow_partitions()
        if self._controller is not None:
            self._controller.tick()
        self.fetch.forget_removed()
        self._caches.forget_unused(now_ns)
        self._share.forget_unused()
        self._peer_calls.repeat()
        self.turns.spent(self.now_ns(), MAINTENANCE)

    def wait_ms(self) -> int:
        """Return how long the loop may sleep: until the next deadline, or briefly while a ring is blocked."""
        if not self.slices.is_idle:
            return 0
        if self._inherited or self._peers.waiting or self._rings.are_waiting:
            return RETRY_MS
        deadline_ns = 0 if self._purgatory.has_woken else self._coordinators.next_deadline_ns()
        if deadline_ns is None:
            return WAIT_MS
        return max(0, min(WAIT_MS, (deadline_ns - self.now_ns()) // 1_000_000 + 1))

    def finish(self) -> None:
        """Commit the staged changes and send all waiting responses."""
        self._calls.late.finish()
        self._coordinators.stop_waiting()
        while self._produce.verify() or self._coordinators.flush() or self._appends.dirty:
            self._appends.commit()
        self._publish()

    def counters(self) -> dict[str, int]:
        """Return the counters since the start, by metric name."""
        authorizer = self._partitions.metadata.authorizer
        return {
            "requests_handled": self.requests,
            "compiled_requests": self._ring_requests.requests,
            "errors": self._responses.errors,
            **self._appends.counters(),
            "write_failures": self._partitions.storage.write_failures,
            "segments_closed": OPEN_SEGMENTS.closed,
            **self.fetch.counters(),
            "authorization_denied": authorizer.denied if authorizer is not None else 0,
            "overload_throttled": self._quotas.overload.throttled,
            "requests_dropped": self._poison.count,
            **self.turns.counters(),
            **self._coordinators.counters(),
            **({} if self.broker.telemetry is None else self.broker.telemetry.counters()),
        }

    def gauges(self) -> dict[str, int]:
        """Return the gauges, by metric name."""
        return {
            "longest_turn_ns": self.turns.longest_ns,
            "operations_waiting": self._purgatory.waiting,
            "rows_watched": self._purgatory.watched_rows,
            **self.fetch.gauges(),
            "overload_throttle_ns": self._quotas.overload.throttle_ms * 1_000_000,
            "works_waiting": self.slices.waiting,
            "producer_ids": self._partitions.log_manager.producer_ids,
            "settings_bytes": 0 if self._controller is None else self._controller.controller.settings_bytes,
            **self._coordinators.gauges(),
            **({} if self.broker.telemetry is None else self.broker.telemetry.gauges()),
        }

    def commit(self) -> None:
        """Commit this turn's staged changes, and further ones staged by their callbacks."""
        now_ns = self.now_ns()
        self.turns.spent(now_ns, TAKING)
        self._coordinators.run_once(now_ns)
        while self._produce.verify() or self._coordinators.flush() or self._appends.dirty:
            self._moved += self._appends.commit()

    def _refresh_metadata(self) -> None:
        """Load the controller's changes."""
        try:
            self._partitions.take_metadata(self.now_ns() + LONG_NS // 4)
        finally:
            # Also after a fault: some changes may have been loaded.
            self._follow_partitions()
            if not self._partitions.is_taking:
                self._coordinators.metadata_changed()
            self._purgatory.something_changed()
            self.turns.spent(self.now_ns(), METADATA)

    def _follow_partitions(self) -> None:
        """Update coordinators and purgatory after partitions were opened or closed; the rest follows in slices."""
        self._coordinators.follow_partitions()
        self._purgatory.rows_moved(self._partitions.take_closed_rows())
        self._partitions.changes.begin(self.slices, self._follow_partitions, self._purgatory.something_changed)

    def _handle_batches(self, batches: list[RingBatch], end_ns: int) -> bool:
        """Handle requests until a time, and remove them from the list; return whether a ring may have more."""
        has_more = False
        while batches:
            ring, frames = batches.pop(0)
            has_more |= len(frames) >= BATCH
            left = self._handle_requests(ring, frames, end_ns)
            if left:
                batches.insert(0, (ring, left))
            if self._handled_ns >= end_ns:
                break
        return has_more

    def _handle_requests(self, ring: RequestRing, frames: list[RingFrame], end_ns: int) -> list[RingFrame]:
        """Handle requests of a ring, at least one, until a time; return the remaining frames for the next turn."""
        current, read, handle, now_ns = self._poison.current.words, self._reader.read, self._handle, self.now_ns
        dequeued_ns = now_ns()
        view, is_charged = self._responses.view, self._quotas.is_in_force
        if is_charged:
            self._quotas.begin(view, frames[0][0], dequeued_ns)
        ring_requests, is_direct, number, count = self._ring_requests, self._is_direct, 0, len(frames)
        while number < count:
            if is_direct and ring_requests.keys[view[frames[number][0] + API_KEY_AT]]:
                number = ring_requests.handle(ring, frames, number, dequeued_ns, end_ns)
                if number == count:
                    handled_ns = now_ns()
                    break
            frame = frames[number]
            number += 1
            current[REQUEST_AT] = frame[0]
            request = read(ring, frame, dequeued_ns)
            try:
                handle(request)
            except Exception as error:
                self._calls.close_faulty(request, error)
            handled_ns = now_ns()
            if handled_ns >= end_ns:
                break
        current[REQUEST_AT] = 0
        if is_charged:
            self._quotas.end(handled_ns)
        self._handled_ns, self.requests = handled_ns, self.requests + number
        return frames[number:]

    def _handle_charged(self, request: Request) -> None:
        """Handle a request and charge its client's quotas for the time."""
        may_be_fast = True
        if request.api_key == _PRODUCE and not request.area:
            # A request like the last of its connection has the same quotas, and shares the cost of the commit.
            last = self._produce.cache.last.recent.get(request.connection_id)
            if last is not None:
                request.quotas = last.quotas
                if self._produce.try_fast(request):
                    return
                may_be_fast = False
        self.charge(request)
        try:
            self.dispatch(request, may_be_fast=may_be_fast)
        finally:
            self._quotas.end_one(request.quotas, self.now_ns())

    def charge(self, request: Request) -> None:
        """Charge the quotas of a request's client from now on, if any are in force."""
        if self._quotas.is_in_force:
            request.quotas = self._quotas.begin_one(
                request.session.user, request.listener, request.view, request.start, self.now_ns()
            )

    def wrap(self, wrapper: Wrapper) -> None:
        """Install a wrapper around the handling, outside the existing wrappers, from the next batch on."""
        self._wrappers.append(wrapper)
        self._chain()

    def unwrap(self, wrapper: Wrapper) -> None:
        """Remove a wrapper."""
        self._wrappers.remove(wrapper)
        self._chain()

    def _chain(self) -> None:
        is_charged = self._quotas.is_in_force
        self._handle: Handle = self._handle_charged if is_charged else self.dispatch
        #: Whether compiled code may handle requests: nothing comes before their fast path.
        self._is_direct = (
            self._ring_requests.is_compiled and bool(self._fast_paths) and not self._wrappers and not is_charged
        )
        for wrapper in self._wrappers:
            self._handle = partial(wrapper, handle=self._handle)

    def dispatch(self, request: Request, *, may_be_fast: bool = True) -> None:
        """Call the function of a request's API (``E07``): its fast path, or the general one if that returns False."""
        fast_path = self._fast_paths.get(request.api_key) if may_be_fast else None
        if fast_path is not None and fast_path(request):
            return
        api = APIS.get(request.api_key)
        if api is None:
            raise InvalidReceive(f"api key {request.api_key} is not supported")
        if not api.min_version <= request.api_version <= api.max_version:
            self._calls.reject_version(api, request)
        elif request.api_key == _PRODUCE:
            self._produce.handle(request)
        elif request.api_key == _FETCH:
            self.fetch.handle(request)
        elif request.api_key == _SHARE_FETCH:
            self._share.handle(request)
        else:
            self._calls.handle(api, request)

    def _publish(self) -> None:
        """Publish responses, then release the memory of their requests, then ring the bells (``D07``)."""
        self._responses.publish()
        if self._inherited:
            self._inherited = [(ring, end) for ring, end in self._inherited if ring.consumed() < end]
        if not self._inherited:
            self._rings.release()
        self._peer_rpc.publish()
        self._responses.ring_bells()

    def _rows_moved(self) -> None:
        """Wake the operations that wait for moved rows, here and, for rows of this handler, in other handlers."""
        moved, self._moved = self._moved, []
        if moved:
            self._row_flags.announce(moved)
            self.fetch.rows_moved(moved)
            self._purgatory.rows_moved(moved)
        elsewhere = self._moved_elsewhere.read()
        if elsewhere is None:
            self.fetch.rows_moved(None)
            self._purgatory.anything_moved()
        elif elsewhere:
            self.fetch.rows_moved(elsewhere)
            self._purgatory.rows_moved(elsewhere)
