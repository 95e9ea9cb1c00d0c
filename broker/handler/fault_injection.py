"""Fault injection: closes or rejects the requests that match a fault, or attaches the fault to their session.

Runs in targets of a broker started for tests; no other broker loads this module. It wraps the handling of requests
(`RequestHandler.wrap`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from rotunda.broker.apis.table import APIS
from rotunda.broker.faults.fault import Fault, FaultKind
from rotunda.broker.faults.faulty_session import FaultySession
from rotunda.broker.faults.injected_errors import MESSAGE
from rotunda.broker.faults.request_names import RequestNames, names_in
from rotunda.broker.ipc.request_facts import NO_SUBJECT, subject_of
from rotunda.broker.ipc.response_writer import ResponseFacts, ResponseWriter
from rotunda.broker.partitions.fetch.fetch_response import frame_fetch_response
from rotunda.broker.protocol import codec
from rotunda.broker.protocol.api_keys import ApiKey
from rotunda.broker.protocol.error_codes import ErrorCode
from rotunda.broker.protocol.error_responses import error_response
from rotunda.broker.protocol.headers import parse_header
from rotunda.shm.recorder_layout import INJECTED, INJECTED_SHIFT

if TYPE_CHECKING:
    from rotunda.broker.faults.fault_table import FaultTable
    from rotunda.broker.handler.request_handler import Handle, RequestHandler
    from rotunda.broker.ipc.request import Request
    from rotunda.broker.partitions.partition_manager import PartitionManager

_PRODUCE, _FETCH = int(ApiKey.PRODUCE), int(ApiKey.FETCH)
#: Requests without harmful side effects: they are handled normally, and the error is put into the response.
_ALTERED: Final = {key for key in ApiKey if key.is_read_only} | {ApiKey.FIND_COORDINATOR, ApiKey.API_VERSIONS}
#: Errors of a whole Fetch, not of a partition.
_OF_SESSIONS: Final = frozenset(
    {
        ErrorCode.FETCH_SESSION_ID_NOT_FOUND,
        ErrorCode.INVALID_FETCH_SESSION_EPOCH,
        ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR,
    }
)
#: Later than the end of any lock.
_ANY_TIME_NS: Final = 1 << 62
#: By fault kind, its bit of INJECTED.
_BITS: Final = {"fail": 0, "delay": 1, "disconnect": 2, "lose-answer": 2, "throttle": 3}
assert len(INJECTED) == max(_BITS.values()) + 1  # noqa: S101 - two tables of the same kinds


class FaultInjection:
    """Applies faults to the requests of one target."""

    def __init__(
        self, handler: RequestHandler, faults: FaultTable, responses: ResponseWriter, partitions: PartitionManager
    ) -> None:
        self._handler, self._faults, self._responses, self._partitions = handler, faults, responses, partitions
        handler.wrap(self.handle)

    def handle(self, request: Request, handle: Handle) -> None:
        """Handle a request, with the faults that match it. Raises InvalidReceive."""
        self._faults.follow()
        struck = self._strike(request)
        if struck.pop(FaultKind.EXPIRE_LOCKS, None):
            self._expire_locks(request)
        if struck:
            self._handle_struck(struck, request)
        else:
            handle(request)

    def _strike(self, request: Request) -> dict[FaultKind, Fault]:
        """Return the faults that match a request."""
        if not self._faults.concern(request.api_key):
            return {}
        api = APIS.get(request.api_key)
        if api is None or not api.min_version <= request.api_version <= api.max_version:
            return {}
        header = parse_header(request.view, request.start, request.end)
        return self._faults.strike(request.api_key, header.client_id, lambda: self._names(request, header.body_offset))

    def _handle_struck(self, struck: dict[FaultKind, Fault], request: Request) -> None:
        self._handler.charge(request)
        injected = sum({1 << _BITS[kind] for kind in struck})
        if FaultKind.DISCONNECT in struck:
            facts = ResponseFacts(throttled_by=injected << INJECTED_SHIFT)
            self._responses.close_connection(request, self._handler.now_ns(), facts)
            return
        fail, delay, throttle = (struck.get(k) for k in (FaultKind.FAIL, FaultKind.DELAY, FaultKind.THROTTLE))
        session = FaultySession(
            request.session.user,
            request.session.host,
            error=0 if fail is None else fail.error,
            topic=None if fail is None else fail.topic,
            alters_response=fail is not None and request.api_key in _ALTERED,
            delay_ms=0 if delay is None else delay.ms,
            throttle_ms=0 if throttle is None else throttle.ms,
            loses_response=FaultKind.LOSE_RESPONSE in struck,
            injected=injected,
        )
        request.session = session
        if fail is None or request.api_key == _PRODUCE or session.alters_response:
            self._handler.dispatch(request, may_be_fast=False)
        elif request.api_key != _FETCH:
            self._reject(request, fail.error)
        elif fail.error in _OF_SESSIONS:
            wire = frame_fetch_response(request.api_version, request.correlation_id, [], [], status=(0, fail.error, 0))[
                0
            ]
            self._send(request, wire, ResponseFacts(fail.error))
        else:
            self._handler.dispatch(request, may_be_fast=False)

    def _expire_locks(self, request: Request) -> None:
        names = self._names(request, parse_header(request.view, request.start, request.end).body_offset)
        for group in self._handler.broker.coordinators.share_states.groups():
            if group.group_id in names.groups:
                for place in list(group.windows):
                    group.expire(place, _ANY_TIME_NS)

    def _reject(self, request: Request, error: int) -> None:
        """Send an error response to a request without executing it."""
        body = parse_header(request.view, request.start, request.end).body_offset
        api, version, decoded = APIS[request.api_key], request.api_version, self._decoded(request, body)
        about = NO_SUBJECT if api.function is None else subject_of(decoded, api.key, self._partitions.row_of)
        values = error_response(api.key, version, decoded, error, MESSAGE)
        wire = codec.encode_response(api.key, version, request.correlation_id, values)
        self._send(request, wire, ResponseFacts(error, about=about))

    def _send(self, request: Request, wire: bytes, facts: ResponseFacts) -> None:
        now_ns = self._handler.now_ns()
        self._responses.send(request, now_ns, now_ns, wire, facts)

    def _names(self, request: Request, body: int) -> RequestNames:
        """Return the topics and groups that a request names; for a Fetch also the topics of its session."""
        decoded = self._decoded(request, body)
        names = names_in(request.api_key, decoded, self._name_of)
        if request.api_key != _FETCH:
            return names
        further = self._handler.fetch.topics_of_session(decoded.session_id)
        topics = {name or self._name_of(topic_id or b"") for name, topic_id in further}
        return names._replace(topics=names.topics | {name for name in topics if name is not None})

    def _decoded(self, request: Request, body: int) -> Any:
        """Return the compiled message of a request, independent of the API's own decoding."""
        return codec.decode(request.api_key, request.api_version, request.view, body, request.end)

    def _name_of(self, topic_id: bytes) -> str | None:
        topic = self._partitions.metadata.topic_by_id(topic_id)
        return None if topic is None else topic.name
