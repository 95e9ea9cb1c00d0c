"""The quota manager of one process: finds a client's quotas by the client id that stands in its requests.

Runs in targets and processors. What has been found is kept until quotas change. While none is set for anybody,
`is_in_force` is False, and that is all that a request has to do with quotas (`E10`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from broker.quotas.client_sensors import ClientSensors
from broker.quotas.entities import ANONYMOUS, Limit, limit_of, quotas_in_force
from broker.quotas.meters import NS_PER_PERCENT, Book, RateMeter, TokenMeter
from shm.quota_rates import Windows
from shm.quota_tables import QuotaTableWriter

if TYPE_CHECKING:
    from broker.config.broker_config import BrokerConfig
    from broker.metadata.client_quotas import ClientQuotas
    from shm.quota_tables import QuotaTables

PRODUCE, FETCH, REQUEST, MUTATION = (
    "producer_byte_rate",
    "consumer_byte_rate",
    "request_percentage",
    "controller_mutation_rate",
)

#: Clients and entities that are known; when there are more, all are looked up anew.
MOST_KNOWN: Final = 10_000

#: Where a request has the length of its client id, which the id follows.
_LENGTH: Final = 8
_LENGTH_BYTES: Final = 2
_NULL: Final = 0x8000


class QuotaManager:
    """The quotas in force, as one owner of a table charges for them."""

    def __init__(self, tables: QuotaTables, owner: int, config: BrokerConfig) -> None:
        windows = Windows(config.quota_window_num, config.quota_window_size_seconds * 1000)
        token_windows = Windows(config.controller_quota_window_num, config.controller_quota_window_size_seconds * 1000)
        writer = QuotaTableWriter(tables.of(owner))
        self.book = Book(writer, tables.but(owner), windows)
        self._token_book = Book(writer, [], token_windows)
        #: Whether any quota is set for anybody.
        self.is_in_force = False
        self._in_force: frozenset[str] = frozenset()
        self._quotas: ClientQuotas = {}
        #: By client id with its length in front, as requests have it.
        self._by_header: dict[bytes, ClientSensors] = {}
        #: By connection, how long that was in its last request.
        self._bytes_of: dict[int, int] = {}
        self._by_id: dict[str, ClientSensors] = {}
        self._rates: dict[tuple[str, Limit], RateMeter] = {}

    def follow(self, quotas: ClientQuotas) -> None:
        """Put these quotas in force. They may have changed in place, so whatever was known is looked up anew."""
        self._quotas = quotas
        self._in_force = quotas_in_force(quotas)
        self.is_in_force = bool(self._in_force)
        self._forget()

    def of_request(self, connection: int, view: memoryview, start: int) -> ClientSensors:
        """Return the sensors of the client whose request, from its api key on, begins there. HOT."""
        at = start + _LENGTH
        # As long as in the last request of that connection: what stands there says whether it is.
        header = bytes(view[at : at + self._bytes_of.get(connection, 0)])
        try:
            return self._by_header[header]
        except KeyError:
            return self._look_up(connection, view, at)

    def of_client(self, client_id: str) -> ClientSensors | None:
        """Return the sensors of a client; None while no quota is set for anybody."""
        return self._of_client(client_id) if self.is_in_force else None

    def _of_client(self, client_id: str) -> ClientSensors:
        if client_id not in self._by_id:
            if len(self._by_id) >= MOST_KNOWN:
                self._forget()
            self._by_id[client_id] = self._sensors(client_id)
        return self._by_id[client_id]

    def _look_up(self, connection: int, view: memoryview, at: int) -> ClientSensors:
        length = view[at] << 8 | view[at + 1]
        size = _LENGTH_BYTES + (length if length < _NULL else 0)
        header = bytes(view[at : at + size])
        # Clients choose it: what is no text is refused where the request is read.
        found = self._of_client(header[_LENGTH_BYTES:].decode(errors="replace"))
        for known in (self._by_header, self._bytes_of):
            if len(known) >= MOST_KNOWN:
                known.clear()
        self._bytes_of[connection] = size
        self._by_header[header] = found
        return found

    def _sensors(self, client_id: str) -> ClientSensors:
        limits = {quota: limit_of(self._quotas, quota, ANONYMOUS, client_id) for quota in self._in_force}
        mutation = limits.get(MUTATION)
        return ClientSensors(
            self.book,
            self._rate(PRODUCE, limits.get(PRODUCE)),
            self._rate(FETCH, limits.get(FETCH)),
            self._rate(REQUEST, limits.get(REQUEST)),
            None if mutation is None else TokenMeter(self._token_book, MUTATION, mutation),
        )

    def _rate(self, quota: str, limit: Limit | None) -> RateMeter | None:
        """Return the meter of a limit: the same one for all who share it."""
        if limit is None:
            return None
        meter = self._rates.get((quota, limit))
        if meter is None:
            if quota == REQUEST:
                most_ms = self.book.windows.size_ms
                meter = RateMeter(self.book, quota, limit, NS_PER_PERCENT, most_ms=most_ms)
            else:
                meter = RateMeter(self.book, quota, limit)
            self._rates[quota, limit] = meter
        return meter

    def _forget(self) -> None:
        self._by_header.clear()
        self._by_id.clear()
        self._rates.clear()
