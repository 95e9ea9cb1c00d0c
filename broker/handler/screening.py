"""The screening of requests before they are taken: which of them take another way than their API's.

Runs in handler processes and the controller. What has killed predecessors is dropped (`poison_requests`). In a broker
that was started for tests, requests that a fault strikes are closed, refused, or go on with a session that says what is
to become of them (`broker.faults`); any other broker has no faults, and loads nothing of them.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, Any, Final

from broker.apis.table import APIS
from broker.ipc.poison_requests import DROPPED
from broker.ipc.request_facts import NO_SUBJECT, subject_of
from broker.ipc.response_writer import AnswerFacts, ResponseWriter
from broker.protocol import codec
from broker.protocol.api_keys import ONLY_ANSWERED, ApiKey
from broker.protocol.error_codes import ErrorCode
from broker.protocol.error_responses import error_response
from broker.protocol.headers import parse_header
from broker.protocol.messages.fetch import frame_fetch_response
from shm.recorder_layout import INJECTED, INJECTED_SHIFT

if TYPE_CHECKING:
    from broker.faults.fault import Fault, FaultKind
    from broker.faults.fault_table import FaultTable
    from broker.faults.request_names import RequestNames
    from broker.ipc.poison_requests import PoisonRequests
    from broker.ipc.process_context import ProcessContext
    from broker.ipc.request import Request
    from broker.partitions.fetch.fetch import FetchPath
    from broker.partitions.partition_manager import PartitionManager

_PRODUCE, _FETCH = int(ApiKey.PRODUCE), int(ApiKey.FETCH)
#: Their answers are put together as ever before an error is put into them: what they do besides is no harm.
_ALTERED: Final = ONLY_ANSWERED | {ApiKey.FIND_COORDINATOR, ApiKey.API_VERSIONS}
#: Errors of a whole Fetch, which no partition has.
_OF_SESSIONS: Final = frozenset(
    {
        ErrorCode.FETCH_SESSION_ID_NOT_FOUND,
        ErrorCode.INVALID_FETCH_SESSION_EPOCH,
        ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR,
    }
)
#: By kind of a fault, the bit of INJECTED.
_BITS: Final = {"fail": 0, "delay": 1, "disconnect": 2, "lose-answer": 2, "throttle": 3}
assert len(INJECTED) == max(_BITS.values()) + 1  # noqa: S101 - two tables of the same things


_FAULTS: Final = ("faults",)


def response_writer(context: ProcessContext, index: int) -> ResponseWriter:
    """Return the way back of a target's answers."""
    ends = context.channel, index, context.processor_bells, context.run_dir, context.slots.processor_has_gone
    if context.faults is None:
        return ResponseWriter(*ends)
    from broker.faults.faulty_answers import FaultyAnswers  # noqa: PLC0415 - only a broker for tests has faults

    return FaultyAnswers(*ends)


def fault_table(context: ProcessContext, index: int) -> FaultTable | None:
    """Return the faults that a target lets strike; None in a broker that was not started for tests."""
    words = context.fault_words
    if words is None:
        return None
    from broker.faults.fault_table import FaultTable  # noqa: PLC0415 - only a broker for tests has faults

    return FaultTable(words, index, context.run_dir)


class Screening:
    """What one target looks at before it takes a request."""

    def __init__(
        self,
        poison: PoisonRequests,
        faults: FaultTable | None,
        responses: ResponseWriter,
        partitions: PartitionManager,
        fetch: FetchPath,
        dispatch: Callable[[Request], None],
    ) -> None:
        self._poison, self.faults = poison, faults
        self._responses, self._partitions, self._fetch = responses, partitions, fetch
        self._dispatch = dispatch
        self._now_ns = partitions.clock.monotonic_ns

    @property
    def concerns(self) -> Collection[object]:
        """What is true as long as any request may take another way: also while requests are taken."""
        return _FAULTS if self.faults is not None and self.faults.is_in_force else self._poison.dropped

    def takes(self, request: Request) -> bool:
        """Take a request that is not to go its API's way; False if it is. Raises InvalidReceive."""
        now_ns = self._now_ns()
        if self._poison.is_dropped(request, now_ns):
            self._responses.close_connection(request, now_ns, DROPPED)
            return True
        faults = self.faults
        if faults is None or not faults.concern(request.api_key):
            return False
        api = APIS.get(request.api_key)
        if api is None or not api.min_version <= request.api_version <= api.max_version:
            return False
        header = parse_header(request.view, request.start, request.end)
        struck = faults.strike(request.api_key, header.client_id, lambda: self._names(request, header.body_offset))
        if struck:
            self._let_strike(struck, request, header.body_offset)
        return bool(struck)

    def _let_strike(self, struck: dict[FaultKind, Fault], request: Request, body: int) -> None:
        from broker.faults.fault import FaultKind  # noqa: PLC0415 - only a broker for tests has faults
        from broker.faults.faulty_session import FaultySession  # noqa: PLC0415

        injected = sum({1 << _BITS[kind] for kind in struck})
        if FaultKind.DISCONNECT in struck:
            facts = AnswerFacts(throttled_by=injected << INJECTED_SHIFT)
            self._responses.close_connection(request, self._now_ns(), facts)
            return
        fail, delay, throttle = (struck.get(k) for k in (FaultKind.FAIL, FaultKind.DELAY, FaultKind.THROTTLE))
        session = FaultySession(
            request.session.user,
            request.session.host,
            error=0 if fail is None else fail.error,
            topic=None if fail is None else fail.topic,
            alters_answer=fail is not None and request.api_key in _ALTERED,
            delay_ms=0 if delay is None else delay.ms,
            throttle_ms=0 if throttle is None else throttle.ms,
            loses_answer=FaultKind.LOSE_ANSWER in struck,
            injected=injected,
        )
        request.session = session
        if fail is None or request.api_key == _PRODUCE or session.alters_answer:
            self._dispatch(request)
        elif request.api_key != _FETCH:
            self._refuse(request, body, fail.error)
        elif fail.error in _OF_SESSIONS:
            wire = frame_fetch_response(request.api_version, request.correlation_id, [], [], status=(0, fail.error, 0))[
                0
            ]
            self._send(request, wire, AnswerFacts(fail.error))
        else:
            self._dispatch(request)

    def _refuse(self, request: Request, body: int, error: int) -> None:
        """Answer a request with an error, and do nothing of it."""
        from broker.faults.error_answers import MESSAGE  # noqa: PLC0415 - only a broker for tests has faults

        api, version, decoded = APIS[request.api_key], request.api_version, self._decoded(request, body)
        about = NO_SUBJECT
        if api.decode is not None:
            typed = api.decode(request.view, version, body, request.end)
            about = subject_of(typed, api.key, self._partitions.row_of)
        values = error_response(api.key, version, decoded, error, MESSAGE)
        wire = codec.encode_response(api.key, version, request.correlation_id, values)
        self._send(request, wire, AnswerFacts(error, about=about))

    def _send(self, request: Request, wire: bytes, facts: AnswerFacts) -> None:
        now_ns = self._now_ns()
        self._responses.send(request, now_ns, now_ns, wire, facts)

    def _names(self, request: Request, body: int) -> RequestNames:
        """Return which topics and groups a request names; of a Fetch those of its session besides."""
        from broker.faults.request_names import names_in  # noqa: PLC0415 - only a broker for tests has faults

        decoded = self._decoded(request, body)
        names = names_in(request.api_key, decoded, self._name_of)
        if request.api_key != _FETCH:
            return names
        further = self._fetch.topics_of_session(decoded.session_id)
        topics = {name or self._name_of(topic_id or b"") for name, topic_id in further}
        return names._replace(topics=names.topics | {name for name in topics if name is not None})

    def _decoded(self, request: Request, body: int) -> Any:
        """Return the compiled message of a request, whatever its API's own functions take."""
        return codec.decode(request.api_key, request.api_version, request.view, body, request.end)

    def _name_of(self, topic_id: bytes) -> str | None:
        topic = self._partitions.metadata.topic_by_id(topic_id)
        return None if topic is None else topic.name
