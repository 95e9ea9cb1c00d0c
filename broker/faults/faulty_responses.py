"""The response writer of a broker started for tests: changes the responses of matched requests as their faults demand.

Runs in targets. Other responses are sent as in any broker (`ResponseWriter`). A response is changed here, immediately
before it is sent. Its delay is applied by its processor, which holds it in its memory from then on, so a target that is
killed meanwhile loses none.
"""

from __future__ import annotations

from collections.abc import Sequence

from rotunda.broker.faults.faulty_session import FaultySession
from rotunda.broker.faults.injected_errors import altered
from rotunda.broker.ipc.request import Request
from rotunda.broker.ipc.request_channel import CLOSE_CONNECTION, DELAYED
from rotunda.broker.ipc.request_facts import Records
from rotunda.broker.ipc.response_spool import ResponseSpool
from rotunda.broker.ipc.response_writer import NO_FACTS, FileRange, ResponseFacts, ResponseWriter
from rotunda.broker.protocol.schema.marks import with_throttle_time
from rotunda.shm.recorder_layout import INJECTED_SHIFT

_NS_PER_MS = 1_000_000


class FaultyResponses(ResponseWriter):
    """The producing ends of one target's response rings."""

    def send(
        self, request: Request, local_ns: int, complete_ns: int, payload: bytes, facts: ResponseFacts = NO_FACTS
    ) -> None:
        """Send ``payload``, changed by the request's faults."""
        struck = request.session
        if isinstance(struck, FaultySession):
            if struck.loses_response:
                self.close_connection(request, local_ns, facts)
                return
            if struck.alters_response:
                wire = altered(
                    request.api_key, request.api_version, request.correlation_id, payload, struck.error, struck.topic
                )
                if wire is not None:
                    payload, facts = wire, facts._replace(error_code=struck.error)
            payload, facts = _throttled(request, payload, facts)
        super().send(request, local_ns, complete_ns, payload, facts)

    def send_spooled(
        self, request: Request, local_ns: int, complete_ns: int, spool: ResponseSpool, facts: ResponseFacts = NO_FACTS
    ) -> None:
        """Send the contents of a spool. Raises OSError."""
        if request.session.is_faulty and spool.payload() is None:
            path = spool.finish()
            payload = path.read_bytes()
            path.unlink()
            self.send(request, local_ns, complete_ns, payload, facts)
            return
        super().send_spooled(request, local_ns, complete_ns, spool, facts)

    def try_put(self, request: Request, now_ns: int, size: int, records: Records, tail: bytes) -> int:
        """Begin a response as in the base class; -1 for a matched request, which then uses `send`. HOT."""
        return -1 if request.session.is_faulty else super().try_put(request, now_ns, size, records, tail)

    def try_ranges(
        self,
        request: Request,
        stamps: tuple[int, int],
        chunks: Sequence[bytes],
        ranges: Sequence[tuple[bytes, int, int, int, int]],
        facts: tuple[Records, bytes],
    ) -> bool:
        """Send ranges as in the base class; False for a matched request, which then uses `send_ranges`. HOT."""
        return not request.session.is_faulty and super().try_ranges(request, stamps, chunks, ranges, facts)

    def send_ranges(
        self,
        request: Request,
        stamps: tuple[int, int],
        inline: bytes,
        ranges: Sequence[FileRange],
        facts: ResponseFacts = NO_FACTS,
    ) -> None:
        """Send ranges of files, changed by the request's faults."""
        struck = request.session
        if isinstance(struck, FaultySession):
            if struck.loses_response:
                self.close_connection(request, stamps[0], facts)
                return
            if inline:
                inline, facts = _throttled(request, inline, facts)
        super().send_ranges(request, stamps, inline, ranges, facts)

    def no_response(self, request: Request, local_ns: int, complete_ns: int, facts: ResponseFacts = NO_FACTS) -> None:
        """End a request without a response on the wire, or close its connection."""
        struck = request.session
        if isinstance(struck, FaultySession) and struck.loses_response:
            self.close_connection(request, local_ns, facts)
            return
        super().no_response(request, local_ns, complete_ns, _throttled(request, b"", facts)[1])

    def _envelope(
        self, request: Request, stamps: tuple[int, int], shape: tuple[int, int, int, int], facts: ResponseFacts
    ) -> bytes:
        """Return an envelope with the injected faults, and with the time until which the response is delayed."""
        struck = request.session
        if isinstance(struck, FaultySession):
            facts = facts._replace(throttled_by=facts.throttled_by | struck.injected << INJECTED_SHIFT)
            if struck.delay_ms and shape[0] != CLOSE_CONNECTION:
                shape = (shape[0] + DELAYED, *shape[1:])
                stamps = stamps[0], stamps[1] + struck.delay_ms * _NS_PER_MS
        return super()._envelope(request, stamps, shape, facts)


def _throttled(request: Request, wire: bytes, facts: ResponseFacts) -> tuple[bytes, ResponseFacts]:
    """Return a response and its facts with the injected throttle time, if there is one."""
    struck = request.session
    if not isinstance(struck, FaultySession) or struck.throttle_ms <= facts.throttle_ms:
        return wire, facts
    wire = with_throttle_time(request.api_key, request.api_version, wire, struck.throttle_ms) if wire else wire
    return wire, facts._replace(throttle_ms=struck.throttle_ms, throttled_by=0)
