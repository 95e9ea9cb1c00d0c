"""Records for the status page, read as a Kafka client: with the rights, the quotas and the log entries of any other.

Runs in the web process, on threads. The client connects to a listener of this broker with the name and password of the
viewer, so the broker's own authorizer decides; without a user it is ANONYMOUS, on a listener without SASL. One reading
at a time, with a limit of time and bytes. Nothing of a record and no key is logged or kept.
"""

from __future__ import annotations

import hmac
import ssl
from threading import Lock
from typing import TYPE_CHECKING, Final

from rotunda.broker.client.access import Access
from rotunda.broker.client.consumer.reader import FROM_END, OFFSET, TIME, Start
from rotunda.broker.client.consumer.search import Search, SearchResult, search
from rotunda.broker.client.network.blocking_client import BlockingClient, ConnectionFailed
from rotunda.broker.config.settings.sasl import PLAIN, has_sasl, mechanisms_of
from rotunda.broker.errors import ApiError, RotundaError
from rotunda.broker.protocol.error_codes import ErrorCode
from rotunda.broker.security.sasl.scram_credential import HASHES
from rotunda.web.sources import ExaminedOffsets, RecordFacts, RecordsFound, RecordsRejected

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from rotunda.broker.clock import Clock
    from rotunda.broker.config.listeners import Listener
    from rotunda.broker.ipc.process_context import BoundListener
    from rotunda.broker.metadata.configs.live_settings import LiveSettings
    from rotunda.web.sources import Login, RecordsWanted

CLIENT_ID: Final = "rotunda-page"

_TIMEOUT_S: Final = 5.0
#: How long a reading waits for another one.
_WAIT_S: Final = 2.0
_FAILED_LOGINS: Final = (ErrorCode.SASL_AUTHENTICATION_FAILED, ErrorCode.UNSUPPORTED_SASL_MECHANISM)
_NO_RIGHTS: Final = (ErrorCode.TOPIC_AUTHORIZATION_FAILED, ErrorCode.CLUSTER_AUTHORIZATION_FAILED)


class PageRecords:
    """Reads records. `token` is the page's: as a password it names no user."""

    def __init__(self, live: LiveSettings, listeners: Sequence[BoundListener], token: str, clock: Clock) -> None:
        self._live = live
        self._listeners = {each.name: each for each in listeners}
        self._token = token
        self._clock = clock
        self._one_at_a_time = Lock()

    def read(self, wanted: RecordsWanted, login: Login | None) -> RecordsFound:
        """Return the wanted records. Waits. Raises RecordsRejected."""
        if login is not None and self._token and hmac.compare_digest(login.password.encode(), self._token.encode()):
            login = None
        if not self._one_at_a_time.acquire(timeout=_WAIT_S):
            raise RecordsRejected(503, "another viewer is reading records: try again")
        try:
            return self._read(wanted, login)
        except ConnectionFailed as failure:
            raise RecordsRejected(503, f"cannot read records: {failure}") from failure
        except ApiError as error:
            raise self._rejection(error, wanted, login) from error
        except RotundaError as failure:
            raise RecordsRejected(404, str(failure)) from failure
        finally:
            self._one_at_a_time.release()

    def _read(self, wanted: RecordsWanted, login: Login | None) -> RecordsFound:
        for address, access in self._ways(login):
            client = BlockingClient(
                address, access, timeout_s=_TIMEOUT_S, client_id=CLIENT_ID, clock=self._clock, is_direct=True
            )
            try:
                with client:
                    return _found(search(client, _search_of(wanted), self._clock))
            except ApiError as error:
                if error.code not in _FAILED_LOGINS:
                    raise
        if login is None:
            raise RecordsRejected(401, "log in: every listener of this broker authenticates its clients")
        raise RecordsRejected(401, "log in: wrong name or password")

    def _ways(self, login: Login | None) -> Iterator[tuple[str, Access]]:
        """Yield address and security of the listeners that may serve the viewer, with each mechanism."""
        config = self._live.broker_config
        open_ = [each for each in config.bound_listeners if each.name in self._listeners]
        # The control plane's listener is exempt from limits.
        usable = [each for each in open_ if each.name != config.control_plane_listener_name]
        if login is not None and any(has_sasl(each) for each in usable):
            for listener in filter(has_sasl, usable):
                for mechanism in self._mechanisms(listener, login.name):
                    yield self._way(listener, mechanism, login)
            return
        for listener in sorted(usable, key=lambda each: each.protocol):
            if not has_sasl(listener):
                yield self._way(listener)

    def _mechanisms(self, listener: Listener, name: str) -> list[str]:
        offered = mechanisms_of(self._live.broker_config, listener)
        known = [each for each in HASHES if each in offered and self._live.user_credentials.find(each, name)]
        return [*known, *([PLAIN] if PLAIN in offered else ())]

    def _way(self, listener: Listener, mechanism: str = "", login: Login | None = None) -> tuple[str, Access]:
        host, port = self._listeners[listener.name].local
        access = Access(
            protocol=listener.protocol,
            context=_tls() if listener.protocol.endswith("SSL") else None,
            mechanism=mechanism,
            user=login.name if login is not None else "",
            password=login.password if login is not None else "",
        )
        return f"[{host}]:{port}" if ":" in host else f"{host}:{port}", access

    def _rejection(self, error: ApiError, wanted: RecordsWanted, login: Login | None) -> RecordsRejected:
        if error.code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            return RecordsRejected(404, f"unknown topic {wanted.topic}")
        if error.code not in _NO_RIGHTS:
            return RecordsRejected(503, f"cannot read records: {error}")
        who = "ANONYMOUS" if login is None else login.name
        can_log_in = login is None and any(has_sasl(each) for each in self._live.broker_config.bound_listeners)
        return RecordsRejected(401 if can_log_in else 403, f"user {who} needs READ on topic {wanted.topic}")


def _tls() -> ssl.SSLContext:
    # The address is bound by this broker on this machine, and its certificate need not name it.
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


def _search_of(wanted: RecordsWanted) -> Search:
    start = FROM_END
    if wanted.offset is not None:
        start = Start(OFFSET, wanted.offset)
    elif wanted.time_ms is not None:
        start = Start(TIME, wanted.time_ms)
    return Search(
        topic=wanted.topic,
        partition=wanted.partition,
        start=start,
        at=wanted.older or wanted.newer,
        is_forward=bool(wanted.newer) or (start is not FROM_END and not wanted.older),
        key=wanted.key,
        count=wanted.count,
        read_committed=wanted.read_committed,
    )


def _found(result: SearchResult) -> RecordsFound:
    return RecordsFound(
        records=[
            RecordFacts(
                each.partition.partition,
                each.record.offset,
                each.record.timestamp_ms,
                each.is_log_append_time,
                each.record.key,
                each.record.value,
                each.record.headers,
            )
            for each in result.records
        ],
        partitions=[
            ExaminedOffsets(number, place.held.start, place.held.stable, place.held.end, place.low, place.high)
            for number, place in sorted(result.partitions.items())
        ],
        older=result.older,
        newer=result.newer,
        notes=result.notes,
    )
