"""The quota manager of one process: finds a client's quotas by its user and the client id in its requests.

Runs in targets and processors. Results are cached until quotas change. While no quota is set, `is_in_force` is False,
and requests only check that flag (`E10`).
"""

from __future__ import annotations

from struct import Struct
from struct import error as struct_error
from typing import TYPE_CHECKING, Final

from rotunda.broker.quotas.broker_sensors import BrokerSensors
from rotunda.broker.quotas.client_sensors import ClientSensors
from rotunda.broker.quotas.entities import Limit, is_set, limit_of, limits_of_all, quotas_in_force
from rotunda.broker.quotas.meters import NS_PER_PERCENT, Book, RateMeter, TokenMeter
from rotunda.broker.quotas.overload import Overload
from rotunda.shm.layout import REQUEST_ENVELOPE
from rotunda.shm.tables.quota_rates import Windows
from rotunda.shm.tables.quota_tables import FETCH, MUTATION, PRODUCE, REQUEST, REQUEST_RATE, QuotaTableWriter

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

    from rotunda.broker.config.broker_config import BrokerConfig
    from rotunda.broker.metadata.configs.quota_entities import ClientQuotas
    from rotunda.broker.metadata.metadata_cache import MetadataCache
    from rotunda.shm.tables.quota_tables import QuotaTables, QuotaUse

#: Maximum number of cached clients and entities; beyond it the caches are cleared.
MOST_KNOWN: Final = 10_000

#: Stored bytes of a client id: ids that are equal in these bytes share their sensors.
MOST_ID_BYTES: Final = 512

#: Offset of the length of the client id in a request, followed by the id.
_LENGTH: Final = 8
_LENGTH_BYTES: Final = 2
_NULL: Final = 0x8000

_RECEIVED_AT: Final = REQUEST_ENVELOPE.offset("received_ns")
_ByHeader = dict[bytes, ClientSensors]

#: By the low byte of the length, a function that reads the length and the id: faster than a slice.
_ID_OF_BYTES: Final = tuple(Struct(f"{_LENGTH_BYTES + size}s").unpack_from for size in range(256))

_unpack_int64 = Struct("@q").unpack_from


class QuotaManager:
    """The quotas in force, charged in the table of one owner."""

    def __init__(self, tables: QuotaTables, owner: int, config: BrokerConfig, listeners: Sequence[str]) -> None:
        """Charge in the table of an ``owner``; ``listeners`` are names by index, and the list may grow."""
        windows = Windows(config.quota_window_num, config.quota_window_size_seconds * 1000)
        token_windows = Windows(config.controller_quota_window_num, config.controller_quota_window_size_seconds * 1000)
        writer = QuotaTableWriter(tables.of(owner))
        self.book = Book(writer, tables.but(owner), windows)
        self._token_book = Book(writer, [], token_windows)
        #: Whether any quota or any limit on all clients is set.
        self.is_in_force = False
        self.overload = Overload()
        self._common: BrokerSensors | None = None
        #: Delay in ms of responses to a client with repeated failures (`D22`); 0: none.
        self.backoff_ms = 0
        self._exempt_users: tuple[str, ...] = ()
        self._exempt_client_ids: tuple[str, ...] = ()
        #: Whether a quota for thread time is set.
        self.limits_time = False
        self._version = -1
        self._in_force: frozenset[str] = frozenset()
        self._quotas: ClientQuotas = {}
        self._listeners = listeners
        #: Listeners whose clients are exempt from the shared limits.
        self._exempt_listeners: frozenset[str] = frozenset()
        #: By user, then by listener, then by client id with its length prefix, as in requests.
        self._by_user: dict[str, list[_ByHeader]] = {}
        self._headers = 0
        self._by_id: dict[tuple[str, str, bool], ClientSensors] = {}
        #: Called when previously returned sensors are invalid for later requests.
        self.forgotten: Callable[[], None] = _nobody_keeps_any
        self._rates: dict[tuple[str, Limit], RateMeter] = {}

    def follow(self, quotas: ClientQuotas, config: BrokerConfig) -> None:
        """Apply these quotas. They may have changed in place, so the caches are cleared."""
        self._quotas = quotas
        self._in_force = quotas_in_force(quotas)
        self.limits_time = REQUEST in self._in_force
        self._forget()
        self._follow_broker(config)
        of_all = limits_of_all(config).keys()
        self.book.writer.keep(lambda use: _is_set(quotas, of_all, use))
        self.is_in_force = bool(self._in_force) or self._common is not None

    def _follow_broker(self, config: BrokerConfig) -> None:
        """Apply the shared limits, and the exemptions from them."""
        limits, target_ms = limits_of_all(config), config.overload_queue_time_ms
        self.overload.follow(target_ms)
        self._common = None
        if limits or target_ms:
            produce, fetch = (self._rate(quota, limits.get(quota)) for quota in (PRODUCE, FETCH))
            rate = self._rate(REQUEST_RATE, limits.get(REQUEST_RATE))
            self._common = BrokerSensors(produce, fetch, rate, self.overload)
        self.backoff_ms = (
            config.automq_retry_storm_backoff_max_delay_ms if config.automq_retry_storm_backoff_enabled else 0
        )
        self._exempt_users = config.broker_quota_white_list_user
        self._exempt_client_ids = config.broker_quota_white_list_client_id
        exempt = *config.broker_quota_white_list_listener, config.control_plane_listener_name or ""
        self._exempt_listeners = frozenset(name.upper() for name in exempt)

    def begin(self, view: memoryview, at: int, now_ns: int) -> None:
        """Begin to charge for the requests just read, if `is_in_force`; the oldest is at ``at``. HOT."""
        self.book.mark_ns = now_ns
        self.overload.waited(now_ns - _unpack_int64(view, at + _RECEIVED_AT)[0], now_ns)

    def follow_metadata(self, metadata: MetadataCache) -> bool:
        """Apply the quotas in the metadata; False if nothing has changed. HOT."""
        if metadata.version == self._version:
            return False
        self._version = metadata.version
        self.follow(metadata.client_quotas, metadata.broker_config)
        return True

    def of_request(self, user: str, listener: int, view: memoryview, start: int) -> ClientSensors:
        """Return the sensors of the client of a request, which begins with its api key at ``start``. HOT."""
        at = start + _LENGTH
        try:
            # For an id of 256 bytes or more, or a null one, this lookup always misses.
            return self._by_user[user][listener][_ID_OF_BYTES[view[at + 1]](view, at)[0]]
        except (LookupError, struct_error):
            length = view[at] << 8 | view[at + 1]
            # A longer id is truncated.
            size = _LENGTH_BYTES + (min(length, MOST_ID_BYTES) if length < _NULL else 0)
            return self._of_header(user, listener, bytes(view[at : at + size]))

    def begin_one(self, user: str, listener: int, view: memoryview, start: int, now_ns: int) -> ClientSensors:
        """Return the sensors of a request's client, which is charged for the time from now on. HOT."""
        self.book.begin_one(now_ns)
        return self.of_request(user, listener, view, start)

    def end_one(self, sensors: ClientSensors | None, now_ns: int) -> None:
        """Charge the client of a request, if it has quotas, for the time since `begin_one`. HOT."""
        if sensors is not None:
            sensors.spent_ns += now_ns - self.book.mark_ns
            self.book.mark_ns = now_ns

    def end(self, now_ns: int) -> None:
        """End the batch of `begin`: its uncharged time is shared by the requests that are committed together."""
        book = self.book
        book.spent_ns += now_ns - book.mark_ns
        book.mark_ns = now_ns

    def charge_time(self, user: str, header: bytes, spent_ns: int, now_ns: int) -> None:
        """Charge time to a client without throttling; ``header``: its id as in a request. HOT."""
        try:
            sensors = self._by_user[user][0][header]
        except LookupError:
            sensors = self._of_header(user, 0, header[: _LENGTH_BYTES + MOST_ID_BYTES])
        sensors.charge_time(spent_ns, now_ns)

    def of_client(self, user: str, client_id: str) -> ClientSensors | None:
        """Return the sensors of a client; None while no quota is set."""
        if not self.is_in_force:
            return None
        return self._of_client(user, client_id.encode()[:MOST_ID_BYTES].decode(errors="replace"), is_exempt=True)

    def is_exempt(self, user: str, listener: int, client_id: str) -> bool:
        """Return whether a client is exempt from the shared limits: by its listener (`H03`) or names."""
        return (
            user in self._exempt_users
            or client_id in self._exempt_client_ids
            or self._listeners[listener] in self._exempt_listeners
        )

    def _of_client(self, user: str, client_id: str, *, is_exempt: bool) -> ClientSensors:
        key = user, client_id, is_exempt
        if key not in self._by_id:
            if len(self._by_id) >= MOST_KNOWN:
                self._forget()
            self._by_id[key] = self._sensors(user, client_id, None if is_exempt else self._common)
        return self._by_id[key]

    def _of_header(self, user: str, listener: int, header: bytes) -> ClientSensors:
        known = self._by_user.get(user, ())
        if listener < len(known) and header in known[listener]:
            return known[listener][header]
        # Clients choose the id; the request parser rejects invalid text.
        client_id = header[_LENGTH_BYTES:].decode(errors="replace")
        found = self._of_client(user, client_id, is_exempt=self.is_exempt(user, listener, client_id))
        if self._headers >= MOST_KNOWN:
            self._forget()
        self._headers += 1
        known = self._by_user.setdefault(user, [])
        known += [{} for _ in range(len(known), len(self._listeners))]
        known[listener][header] = found
        return found

    def _sensors(self, user: str, client_id: str, common: BrokerSensors | None) -> ClientSensors:
        limits = {quota: limit_of(self._quotas, quota, user, client_id) for quota in self._in_force}
        mutation = limits.get(MUTATION)
        return ClientSensors(
            self.book,
            self._rate(PRODUCE, limits.get(PRODUCE)),
            self._rate(FETCH, limits.get(FETCH)),
            self._rate(REQUEST, limits.get(REQUEST)),
            None if mutation is None else TokenMeter(self._token_book, MUTATION, mutation),
            common,
        )

    def _rate(self, quota: str, limit: Limit | None) -> RateMeter | None:
        """Return the meter of a limit: the same one for all clients that share it."""
        if limit is None:
            return None
        meter = self._rates.get((quota, limit))
        if meter is None:
            windows = self.book.windows
            if quota == REQUEST:
                meter = RateMeter(self.book, quota, limit, NS_PER_PERCENT, most_ms=windows.size_ms)
            elif limit.is_of_all:
                meter = RateMeter(self.book, quota, limit, most_ms=windows.number * windows.size_ms)
            else:
                meter = RateMeter(self.book, quota, limit)
            self._rates[quota, limit] = meter
        return meter

    def _forget(self) -> None:
        self._by_user.clear()
        self._headers = 0
        self._by_id.clear()
        self._rates.clear()
        self.forgotten()


def _is_set(quotas: ClientQuotas, of_all: Collection[str], use: QuotaUse) -> bool:
    if not (use.user or use.client_id):
        return use.quota in of_all
    return is_set(quotas, use.quota, use.user, use.client_id)


def _nobody_keeps_any() -> None:
    """Do nothing: no sensors are cached elsewhere."""
