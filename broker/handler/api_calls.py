"""API requests off the hot paths: decodes them, calls the function of their API, and sends the response now or later.

Runs in handler processes and the controller. A function returns its response, or one of two ways to delay it:

- a `Deferred`, completed by a commit, a timer, a peer, another request, a metadata change or a deadline,
- a generator, which runs in slices (`slices`) and returns any of these. Its response is encoded in slices too,
  and may be as long as `response.max.bytes`.

A long request is decoded from a copy, which is made in slices if copying needs milliseconds, and its response is
encoded in slices. While a request of a connection is processed in slices, later requests of that connection wait for
it. When a client disconnects, its read-only tasks are dropped; tasks that change state are completed.

The parts of a request that its response needs are stored in the `Request`; its ring memory is released at the end of
the turn. An internal fault closes the connection of its request.
"""

from __future__ import annotations

import logging
import mmap
from collections import deque
from collections.abc import Callable
from functools import partial
from types import GeneratorType
from typing import TYPE_CHECKING, Any, Final

from rotunda.broker.apis.cluster.api_versions import unsupported_version_response
from rotunda.broker.apis.context import BrokerContext
from rotunda.broker.apis.table import APIS
from rotunda.broker.errors import InvalidReceive, TooManyElements
from rotunda.broker.handler.denials import Denials
from rotunda.broker.ipc.request import Request
from rotunda.broker.ipc.request_facts import (
    NO_RECORDS,
    NO_SUBJECT,
    about_of,
    first_error,
    subject_of,
    tail,
    throttle_of,
)
from rotunda.broker.ipc.response_spool import ResponseSpool
from rotunda.broker.ipc.response_writer import ResponseFacts, ResponseWriter, with_correlation_id
from rotunda.broker.partitions.request_cache import MOST_REQUEST_BYTES, CachedFields, RequestCache, RequestCaches
from rotunda.broker.protocol import codec
from rotunda.broker.protocol.api_keys import CONTROLLER, ApiKey
from rotunda.broker.protocol.error_codes import ErrorCode
from rotunda.broker.protocol.error_responses import whole_error_response
from rotunda.broker.protocol.headers import parse_header
from rotunda.broker.protocol.sliced_responses import AnswerTooLargeError, SlicedEncoder
from rotunda.broker.scheduling.deferred import Deferred
from rotunda.broker.scheduling.long_responses import at_length
from rotunda.broker.scheduling.purgatory import DelayedOperation, Purgatory
from rotunda.broker.scheduling.slices import SlicedWork, Slices, TooManyWaitError, Work
from rotunda.broker.security.acl.checks import ERRORS
from rotunda.broker.server_log.log_setup import RepeatedWarnings
from rotunda.broker.server_log.slow_turns import SlowTurns
from rotunda.broker.steps import Steps

if TYPE_CHECKING:
    from rotunda.broker.apis.table import Api
    from rotunda.shm.tables.current_request import CurrentRequest

logger = logging.getLogger(__name__)


#: A longer request may have so many elements that decoding needs milliseconds.
MOST_BYTES_AT_ONCE = 4096

#: Longest cached response.
MOST_RESPONSE_BYTES: Final = 32 << 10

#: Bytes of a request copied between two yields: about half a millisecond.
COPIED_AT_ONCE = 1 << 20

_DENIED = frozenset(map(int, ERRORS.values()))

_EVER_NS: Final = 1 << 62

#: Log line for an unreadable request: its api key, its version, and the error.
BAD_REQUEST = "closing the connection of an invalid request (api key %d, version %d): %s"


class CachedResponse(CachedFields):
    """A request whose response depends on it, its listener and the metadata alone, and that response.

    The versions are those of the metadata and the listeners' addresses when the request was read. ``tail``: as in
    `request_facts`, empty for a response with an error.
    """

    __slots__ = ("facts", "listeners_version", "metadata_version", "payload", "tail")

    entry_bytes = 1024

    def __init__(self, request: Request, broker: BrokerContext) -> None:
        super().__init__(request)
        self.metadata_version, self.listeners_version = broker.metadata.version, broker.listeners.version
        self.payload = self.tail = b""
        self.facts = ResponseFacts()

    @property
    def size_bytes(self) -> int:
        """Its memory, approximately."""
        return super().size_bytes + 2 * len(self.payload)


class LateResponses:
    """Responses that become due many at a time: those that exceed the time of the turn are sent in slices.

    One commit or timer completes the joins of a group of thousands of members. A response that waits here exists in
    memory only: if the target dies meanwhile, the processor resends the request to the replacement.
    """

    def __init__(self, slices: Slices, now_ns: Callable[[], int]) -> None:
        self._slices = slices
        self._now_ns = now_ns
        self._waiting: deque[Callable[[], None]] = deque()
        #: Responses are sent immediately until this time.
        self.until_ns = _EVER_NS

    def send(self, send_now: Callable[[], None]) -> None:
        """Send a response now, or queue it after the waiting ones; ``send_now`` raises nothing."""
        if not self._waiting and self._now_ns() < self.until_ns:
            send_now()
            return
        if not self._waiting:
            self._slices.begin_own(self._send_waiting())
        self._waiting.append(send_now)

    def finish(self) -> None:
        """Send all waiting responses, and later ones immediately: this is the last turn."""
        self.until_ns = _EVER_NS
        while self._waiting:
            self._waiting.popleft()()

    def _send_waiting(self) -> Work:
        while self._waiting:
            self._waiting.popleft()()
            yield None


class ApiCalls:
    """Calls the functions of the APIs, and sends their responses."""

    def __init__(
        self,
        broker: BrokerContext,
        responses: ResponseWriter,
        purgatory: Purgatory,
        slices: Slices,
        turns: SlowTurns,
        current: CurrentRequest,
        caches: RequestCaches,
    ) -> None:
        now_ns = broker.clock.monotonic_ns
        self._broker, self._listeners = broker, broker.listeners
        self._responses, self._purgatory, self._slices = responses, purgatory, slices
        self.late = LateResponses(self._slices, now_ns)
        self._turns = turns
        self._now_ns = now_ns
        self._warnings = RepeatedWarnings(logger, now_ns)
        self.caches: dict[int, RequestCache[CachedResponse]] = {
            key: caches.open(is_whole=True) for key, api in APIS.items() if api.is_cacheable is not None
        }
        #: By API key, returns False if `handle` must handle a request.
        self.fast_paths = dict.fromkeys(self.caches, self.try_cached)
        #: Holds the request being handled, also when its response is sent after its turn.
        self._current = current
        if (authorizer := broker.metadata.authorizer) is not None:
            denials = Denials(self._responses.view, current, broker.coordinators.group_feed.name_denial)
            authorizer.on_denied, self._responses.denial_of = denials.note, denials.of

    def handle(self, api: Api, request: Request) -> None:
        """Decode a request and call its API's function, now or in slices. Raises InvalidReceive."""
        function = api.function
        if function is None:
            raise InvalidReceive(f"{api.key.name} has no function")
        in_line = self._slices.has(request.connection_id)
        to_cache = None
        if api.is_cacheable is not None and not in_line and request.end - request.start <= MOST_REQUEST_BYTES:
            to_cache = CachedResponse(request, self._broker)
        header = parse_header(request.view, request.start, request.end)
        is_long = request.end - header.body_offset > MOST_BYTES_AT_ONCE
        request.client_id, request.doing = header.client_id, (api.key.name, header.client_id)
        request.is_long, request.in_slices = is_long, is_long or in_line
        request.about, request.to_cache = NO_SUBJECT, to_cache
        if request.in_slices:
            # The request's memory is reused after this turn.
            source = request.view[header.body_offset : request.end]
            copied = Deferred() if len(source) > COPIED_AT_ONCE else bytes(source)
            self._begin(request, self._from_its_bytes(request, copied))
            if isinstance(copied, Deferred):
                self._copy(request, source, copied)
            return
        body = codec.decode(request.api_key, request.api_version, request.view, header.body_offset, request.end)
        request.about = subject_of(body, api.key, self._broker.partitions.row_of)
        self._settle(request, function(request, self._broker, body))

    def reject_version(self, api: Api, request: Request) -> None:
        """Reject a version; ApiVersions gets the supported range as a response (``C08``). Raises InvalidReceive."""
        if api.key != ApiKey.API_VERSIONS:
            served = f"{api.min_version}-{api.max_version}"
            raise InvalidReceive(f"{api.key.name} version {request.api_version} is not supported; supported: {served}")
        payload = unsupported_version_response(request.correlation_id, api.min_version, api.max_version)
        now_ns = self._now_ns()
        self._responses.send(request, now_ns, now_ns, payload, ResponseFacts(int(ErrorCode.UNSUPPORTED_VERSION)))

    def close_faulty(self, request: Request, error: Exception) -> None:
        """Close the connection of a request that is unreadable or met an internal fault (``E02``, ``E08``)."""
        key, version = request.api_key, request.api_version
        if isinstance(error, InvalidReceive):
            self._warnings.warning(f"{key} {version}", BAD_REQUEST, key, version, error)
        else:
            message = "closing the connection of a failed request (api key %d, version %d)"
            logger.error(message, key, version, exc_info=error)
        self._responses.close_connection(request, self._now_ns())

    def try_cached(self, request: Request) -> bool:
        """Send the cached response for a request of the same bytes; False if there is none. HOT."""
        found, connection = self.caches[request.api_key].find(request), request.connection_id
        cached = None if found is None else found[0]
        if cached is None or cached.listeners_version != self._listeners.version or self._slices.has(connection):
            return False
        now_ns = self._now_ns()
        if cached.tail and self._responses.try_repeat(request, now_ns, cached.payload, cached.tail):
            cached.repeat(cached.payload, cached.tail)
        else:
            wire = with_correlation_id(cached.payload, request.correlation_id)
            self._responses.send(request, now_ns, now_ns, wire, cached.facts)
        return True

    def _settle(self, request: Request, response: Any) -> None:
        """Send a function's response, now or later. Raises InvalidReceive."""
        local_ns = self._now_ns()
        self._turns.spent(local_ns, request.doing)
        if isinstance(response, GeneratorType):
            self._begin(request, self._in_slices(request, response))
        elif isinstance(response, Deferred):
            settle = self._settle_late
            response.bind(
                lambda late: self.late.send(lambda: self._contained(request, lambda: settle(request, late, local_ns)))
            )
            if response.timeout_ms >= 0 and not response.is_complete:
                self._watch(request, response)
        else:
            self._respond(request, response, local_ns)

    def _settle_late(self, request: Request, response: Any, local_ns: int) -> None:
        if isinstance(response, GeneratorType):
            self._begin(request, self._in_slices(request, response))
        elif request.is_long:
            self._begin(request, self._in_slices(request, at_length(response)))
        else:
            self._respond(request, response, local_ns)

    def _respond(self, request: Request, response: Any, local_ns: int) -> None:
        payload = codec.encode_response(request.api_key, request.api_version, request.correlation_id, response)
        error_code = first_error(response, request.api_key)
        facts = ResponseFacts(error_code, NO_RECORDS, about_of(request.about, response), *throttle_of(response))
        self._keep(request, response, payload, facts)
        complete_ns = self._now_ns()
        self._turns.spent(complete_ns, request.doing)
        self._responses.send(request, local_ns, complete_ns, payload, facts)

    def _keep(self, request: Request, response: Any, payload: bytes | None, facts: ResponseFacts) -> None:
        """Cache this response for later requests of the same bytes, if it is cacheable and short."""
        lasts, cached = APIS[request.api_key].is_cacheable, request.to_cache
        if lasts is None or not isinstance(cached, CachedResponse) or payload is None or not lasts(response):
            return
        # A change during the computation may have changed the response. Each denial must be recorded.
        is_valid = cached.metadata_version == self._broker.metadata.version and facts.error_code not in _DENIED
        if is_valid and len(payload) <= MOST_RESPONSE_BYTES:
            cached.payload, cached.facts = payload, facts
            if not facts.error_code:
                cached.tail = tail(request.api_key, request.api_version, self._broker.partitions.index, facts.about)
            self.caches[request.api_key].keep(request.connection_id, cached)

    def _watch(self, request: Request, deferred: Deferred) -> None:
        deadline_ns = request.received_ns + deferred.timeout_ms * 1_000_000
        attempt = self._current.during(request.identity, deferred.try_complete)
        self._purgatory.watch(DelayedOperation(attempt, deadline_ns, lambda: self._close(request)))

    # ---- in slices -----------------------------------------------------------------------------------------------

    def _begin(self, request: Request, work: Work) -> None:
        """Run a task in slices; it returns its request and `Deferred`, or None if its response is sent."""
        api = APIS[request.api_key]
        new = SlicedWork(
            work,
            lane=request.connection_id,
            identity=request.identity,
            done=self._put_off,
            failed=lambda: self._close(request),
            doing=request.doing,
            exclusive=api.key.owner is CONTROLLER,
            size=request.size_bytes,
            is_wanted=partial(self._is_there, request.connection_id) if api.key.is_read_only else None,
        )
        try:
            self._slices.add(new)
        except TooManyWaitError as error:
            raise InvalidReceive(f"cannot start {api.key.name}: {error}") from error

    def _is_there(self, connection: int) -> bool:
        """Return whether the client of a connection is still connected. HOT."""
        return not self._broker.client_hosts.has_ended(connection)

    def _copy(self, request: Request, source: memoryview, copied: Deferred) -> None:
        """Copy a large request in slices, in parallel with all other tasks; its ring memory is held until then."""
        hold = request.ring.hold(request.ring_start)

        def pieces() -> Work:
            # The pages of the mapping are allocated as they are written.
            copy = memoryview(mmap.mmap(-1, len(source)))
            for at in range(0, len(source), COPIED_AT_ONCE):
                copy[at : at + COPIED_AT_ONCE] = source[at : at + COPIED_AT_ONCE]
                yield None
            return copy

        def done(copy: memoryview) -> None:
            hold.answered = True
            copied.complete(copy)

        def failed() -> None:
            hold.answered = True
            self._close(request)

        self._slices.add_now(SlicedWork(pieces(), "copies", done, failed, request.doing, request.identity))

    def _from_its_bytes(self, request: Request, copied: bytes | Deferred) -> Work:
        """Decode a request, call its function, and process the result."""
        source = (yield copied) if isinstance(copied, Deferred) else copied
        api, version, end = APIS[request.api_key], request.api_version, len(source)
        try:
            body = codec.decode(api.key, version, memoryview(source), 0, end)
            request.about = subject_of(body, api.key, self._broker.partitions.row_of)
            yield None
            response = api.function(request, self._broker, body) if api.function is not None else None
            return (yield from self._in_slices(request, response))
        except InvalidReceive as error:
            rejection = None
            if isinstance(error, TooManyElements):
                rejection = whole_error_response(api.key, version, ErrorCode.INVALID_REQUEST, str(error))
            if rejection is not None:
                self._respond(request, rejection, self._now_ns())
                return None
            self._warnings.warning(f"{api.key} {version}", BAD_REQUEST, api.key, version, error)
            self._close(request)
            return None

    def _in_slices(self, request: Request, response: Any) -> Work:
        """Run a function's generator and send its response; return its `Deferred`, if any, with the request."""
        while isinstance(response, GeneratorType):
            response = yield from response
        if isinstance(response, Deferred):
            return request, response
        local_ns = self._now_ns()
        spool = self._responses.spool()
        try:
            error_code = yield from self._encode(request, response, spool)
            facts = ResponseFacts(error_code, NO_RECORDS, about_of(request.about, response), *throttle_of(response))
            self._keep(request, response, spool.payload(), facts)
            self._responses.send_spooled(request, local_ns, self._now_ns(), spool, facts)
        except AnswerTooLargeError:
            most_bytes = self._most_bytes()
            self._warnings.warning(
                request.doing[0],
                "closing the connection of client %s: the response to its %s exceeds %d bytes (response.max.bytes) "
                "and has no error field; request less at a time",
                request.client_id,
                request.doing[0],
                most_bytes,
            )
            self._close(request)
        finally:
            spool.discard()
        return None

    def _put_off(self, late: tuple[Request, Deferred] | None) -> None:
        """Wait for the `Deferred` of a sliced function; None if its response is already sent."""
        if late is not None:
            self._settle(*late)

    def _encode(self, request: Request, response: Any, spool: ResponseSpool) -> Steps[int]:
        encoder = SlicedEncoder(request.api_key, request.api_version, spool, self._most_bytes())
        yield from encoder.encode(request.correlation_id, response)
        return encoder.error_code

    def _most_bytes(self) -> int:
        return self._broker.metadata.broker_config.response_max_bytes

    # ---- faults --------------------------------------------------------------------------------------------------

    def _close(self, request: Request) -> None:
        self._responses.close_connection(request, self._now_ns())

    def _contained(self, request: Request, send: Callable[[], None]) -> None:
        """Send a response; contain a fault by closing the connection, so that it does not reach the completer."""
        self._current.enter(request.identity)
        try:
            send()
        except Exception:
            logger.exception("cannot send the response to api key %d, version %d", request.api_key, request.api_version)
            self._close(request)
        self._current.leave()
