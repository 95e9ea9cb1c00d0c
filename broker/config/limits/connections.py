"""The limits of connections: their number and rate, and the acceptor's records of rejected ones."""

from __future__ import annotations

from rotunda.broker.config.limits.rows import Area, Limit

CONNECTIONS = Area(
    title="Connections",
    limits=(
        Limit(
            name="Connections, of the broker and of each listener",
            bounds=("max.connections",),
            metrics=("rotunda_processor_connections", "rotunda_acceptor_blocked_seconds_total"),
            beyond="others wait to be accepted; connections already in excess are closed, the most silent first",
            end="the client disconnects, or is silent for connections.max.idle.ms",
        ),
        Limit(
            name="Connections of an address",
            bounds=("max.connections.per.ip", "max.connections.per.ip.overrides"),
            metrics=("rotunda_acceptor_connections_refused_total",),
            beyond="the connection is closed at once",
            end="as any connection",
        ),
        Limit(
            name="New connections a second, of the broker and of each listener",
            bounds=("max.connection.creation.rate",),
            metrics=("rotunda_acceptor_accept_throttled_total", "rotunda_acceptor_accept_throttle_seconds_total"),
            beyond="the listener accepts nothing for a second at most",
            end="quota.window.num windows",
        ),
        Limit(
            name="New connections a second of all addresses; of one address, by its connection_creation_rate",
            bounds=("connection.refusal.rate",),
            metrics=("rotunda_acceptor_ip_accept_throttled_total", "rotunda_acceptor_ip_accept_throttle_seconds_total"),
            beyond="the connection is closed, unread, a second later at most",
            end="quota.window.num windows",
        ),
        Limit(
            name="TLS handshakes under way, of each processor",
            bounds=("max.connection.handshakes", "connection.handshake.timeout.ms"),
            metrics=("rotunda_processor_handshakes_under_way", "rotunda_processor_connections_closed_total"),
            beyond="the oldest is closed",
            end="they complete, or connection.handshake.timeout.ms",
        ),
        Limit(
            name="Message size and time of a client that has not authenticated by SASL",
            bounds=("sasl.server.max.receive.size", "authentication.timeout.ms"),
            metrics=("rotunda_processor_authentications_failed_total", "rotunda_processor_connections_closed_total"),
            beyond="the connection is closed",
            end="it authenticates",
        ),
        Limit(
            name="Connections that wait to be closed; half of the open files where that is less",
            bounds=("rotunda.broker.network.acceptor.parked_sockets:MOST_PARKED",),
            metrics=("rotunda_acceptor_connections_parked",),
            beyond="the one that would end first is closed at once",
            end="a second at most",
        ),
        Limit(
            name="Addresses with a known rate",
            bounds=("rotunda.broker.network.acceptor.admission:MOST_ADDRESSES",),
            metrics=("rotunda_acceptor_ip_accept_throttled_total",),
            beyond="the longest silent one is dropped, and may start with a burst",
            end="an hour without a connection",
        ),
    ),
)
