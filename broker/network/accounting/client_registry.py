"""The client registry: client id, software, address and lifetime totals of each connection.

Runs in processor processes. The request log records a client as a text, sent once in each frame that needs it; a row
carries the number of that text. A connection with a new client id or software gets another number, and requests sent
before the change keep the old one. Numbers map to small *places*, which are reused, so that rows of many connections
can be aggregated by arrays.
"""

from __future__ import annotations

import json
from collections import OrderedDict
from collections.abc import Callable, Sequence
from struct import Struct
from typing import TYPE_CHECKING

from rotunda.broker.errors import InvalidReceive
from rotunda.broker.network.accounting.client import Client
from rotunda.broker.protocol import codec
from rotunda.broker.protocol.api_keys import FLEXIBLE_FROM, ApiKey
from rotunda.broker.protocol.headers import is_valid_software, parse_header
from rotunda.broker.security.session import principal_of
from rotunda.shm.rings.recorder_rings import pack_text

if TYPE_CHECKING:
    from rotunda.broker.ipc.listener_table import ListenerEntry
    from rotunda.broker.network.processor.channel import Channel
    from rotunda.shm.tables.client_hosts import ClientHostWriter

#: Client texts are truncated to this many characters, and client ids compared by this many bytes: a connection may send
#: 32 KB of them.
MOST_CHARACTERS = 255
MOST_CLIENT_ID_BYTES = 512

#: The number of closed connections kept for responses that follow their end.
MOST_DEPARTED = 1000

_CLIENT_ID_AT = 8  # after api key, version and correlation id
_LENGTH = Struct(">h")
_NO_CLIENT_ID = _LENGTH.pack(-2)  # a length that no request has
_API_VERSIONS = int(ApiKey.API_VERSIONS)
_SOFTWARE_FROM = FLEXIBLE_FROM[_API_VERSIONS]


class ClientRegistry:
    """Assigns numbers to connections and keeps their texts while rows may refer to them."""

    def __init__(
        self,
        new_id: Callable[[], int],
        listeners: Sequence[ListenerEntry],
        hosts: ClientHostWriter | None = None,
    ) -> None:
        """Store the (name, security protocol) of each listener, by index; ``hosts``: for addresses and software."""
        self.by_place: list[Client | None] = []
        #: By number.
        self.texts: dict[int, bytes] = {}
        self._new_id = new_id
        self._listeners = listeners
        self._hosts = hosts
        self._free: list[int] = []
        #: Number of open connections by (listener, software, version).
        self.software: dict[tuple[int, str, str], int] = {}
        self._retired: list[Client] = []
        #: By connection id: connections that ended with requests in flight.
        self._departed: OrderedDict[int, Client] = OrderedDict()

    def connected(self, channel: Channel) -> None:
        """Assign a new connection its number: its connection id until it sends a client id."""
        channel.client_prefix = _NO_CLIENT_ID
        if self._hosts is not None:
            self._hosts.put(channel.connection_id, channel.peer)
        self._count(channel, 1)
        self._give(channel, channel.connection_id, [0, 0, 0, 0])

    def named(self, channel: Channel, frame: bytes | memoryview) -> None:
        """Record the client id of a request that differs from the connection's last one."""
        length = _LENGTH.unpack_from(frame, _CLIENT_ID_AT)[0] if len(frame) >= _CLIENT_ID_AT + _LENGTH.size else 0
        start = _CLIENT_ID_AT + _LENGTH.size
        raw = bytes(frame[start : start + min(max(length, 0), MOST_CLIENT_ID_BYTES)])
        channel.client_prefix = _LENGTH.pack(length) + raw
        names = (raw.decode(errors="replace")[:MOST_CHARACTERS], *channel.names[1:])
        if names != channel.names:
            self._rename(channel, names)

    def introduced(self, channel: Channel, frame: bytes | memoryview, api_version: int) -> None:
        """Record the software in a valid ApiVersions request (KIP-511)."""
        if api_version < _SOFTWARE_FROM:
            return
        try:
            body_at = parse_header(frame, 0, len(frame)).body_offset
            body = codec.decode(_API_VERSIONS, api_version, frame, body_at, len(frame))
        except InvalidReceive:
            # Its handler responds with the error.
            return
        software = body.client_software_name, body.client_software_version
        if not all(map(is_valid_software, software)):
            return
        names = (channel.names[0], *[text[:MOST_CHARACTERS] for text in software])
        if names != channel.names:
            self._rename(channel, names)
            if self._hosts is not None:
                self._hosts.introduce(channel.connection_id, *names[1:])

    def authenticated(self, channel: Channel) -> None:
        """Record the authenticated user of a connection, valid from its next request."""
        self._rename(channel, channel.names)

    def retire(self, channel: Channel) -> None:
        """Delete a closed connection once the rows before the next `forget_retired` are aggregated."""
        if self._hosts is not None:
            self._hosts.end(channel.connection_id)
        self._retired += [client for _, client in channel.former_clients]
        client = channel.client
        if client is None:
            return
        self._count(channel, -1)
        if not channel.in_flight:
            self._retired.append(client)
            return
        self._departed[channel.connection_id] = client
        if len(self._departed) > MOST_DEPARTED:
            self._retired.append(self._departed.popitem(last=False)[1])

    def number_of(self, connection_id: int) -> int:
        """Return the client number of a closed connection, or its connection id if it is no longer known."""
        client = self._departed.get(connection_id)
        return connection_id if client is None else client.number

    def forget_retired(self) -> None:
        """Delete retired clients; no row refers to them any more."""
        for client in self._retired:
            self.by_place[client.place] = None
            del self.texts[client.number]
            self._free.append(client.place)
        self._retired.clear()

    def outgrown(self, client: Client) -> None:
        """Delete a former name after its last request, as `retire` does."""
        self._retired.append(client)

    def _rename(self, channel: Channel, names: tuple[str, str, str]) -> None:
        self._count(channel, -1)
        channel.names = names
        self._count(channel, 1)
        former = channel.client
        assert former is not None  # noqa: S101 - `connected` came first
        # Requests in flight were sent under the old names. A fresh connection has none, and never had any.
        if channel.next_sequence > channel.next_response - len(channel.completions):
            channel.former_clients.append((channel.next_sequence, former))
        else:
            self._retired.append(former)
        self._give(channel, self._new_id(), former.totals)

    def _count(self, channel: Channel, change: int) -> None:
        key = (channel.listener, *channel.names[1:])
        count = self.software.get(key, 0) + change
        if count:
            self.software[key] = count
        else:
            self.software.pop(key, None)

    def _give(self, channel: Channel, number: int, totals: list[int]) -> None:
        if self._free:
            place = self._free.pop()
        else:
            place = len(self.by_place)
            self.by_place.append(None)
        client = Client(number, place, channel.connection_id, totals)
        listener, protocol, *_ = self._listeners[channel.listener]
        texts = [channel.connection_id, *channel.names, channel.peer]
        texts += [listener, protocol, principal_of(channel.user)]
        client.text = pack_text(number, json.dumps(texts, ensure_ascii=False).encode(errors="replace"))
        channel.client = self.by_place[place] = client
        self.texts[number] = client.text
