"""The TLS handshake of one connection, with cause and remedy of a failure in one log line (`B06`, `B22`).

Runs in processor processes. It replaces the channel's ``recv``, advances with each event, and hands the channel to the
TLS connection when it is complete. A client's certificate determines its user (`H06`). If no other address is
advertised a client is sent the host name that it requested, or the address that it connected to, if the broker's
certificate covers it (`C18`): the client verifies the same name. A client that requests another name misleads only
itself.
"""

from __future__ import annotations

import socket
import ssl
from collections.abc import Callable
from typing import TYPE_CHECKING

from rotunda.broker.errors import AuthenticationFailed
from rotunda.broker.network.processor.channel import ReadBlockedByWriteError
from rotunda.broker.network.processor.foreign_protocols import describe_not_tls
from rotunda.broker.network.processor.tls import tls_kernel_transport
from rotunda.broker.network.processor.tls.tls_kernel_transport import KernelTlsTransport
from rotunda.broker.network.processor.tls.tls_transport import TlsTransport
from rotunda.broker.security.session import pack_session
from rotunda.broker.security.tls.certificate import covers, subject
from rotunda.shm.tables.client_hosts import host_text, packed_host

if TYPE_CHECKING:
    from rotunda.broker.network.processor.channel import Channel
    from rotunda.broker.security.tls.contexts import ServerTls

#: The first bytes examined: enough to recognise a TLS client.
_START_BYTES = 16
_TLS_HANDSHAKE = b"\x16"

Connection = TlsTransport | KernelTlsTransport

_NO_TRUST = (
    "the client rejects the broker's certificate ({}): add its issuer to the client's trust store (ssl.truststore.*, "
    "ssl.ca.location), or use a certificate with the host name used by the client"
)
#: By OpenSSL's reason: the cause and the remedy.
_REASONS = {
    "UNSUPPORTED_PROTOCOL": "the client supports none of the versions in ssl.enabled.protocols ({versions})",
    "VERSION_TOO_LOW": "the client supports none of the versions in ssl.enabled.protocols ({versions})",
    "NO_SHARED_CIPHER": "no shared cipher: see ssl.cipher.suites and the type of the certificate's key",
    "NO_SUITABLE_SIGNATURE_ALGORITHM": "the client does not support the signature algorithm of the broker's "
    "certificate",
    "PEER_DID_NOT_RETURN_A_CERTIFICATE": "the client has no certificate, and ssl.client.auth is required: configure "
    "one (ssl.keystore.*)",
    "CALLBACK_FAILED": "the client sent an invalid server name",
    "TLSV1_ALERT_UNKNOWN_CA": _NO_TRUST.format("unknown issuer"),
    "SSLV3_ALERT_CERTIFICATE_UNKNOWN": _NO_TRUST.format("unknown"),
    "SSLV3_ALERT_BAD_CERTIFICATE": _NO_TRUST.format("bad"),
    "SSLV3_ALERT_CERTIFICATE_EXPIRED": "the client rejects the broker's certificate (expired): replace the file and "
    "call `rotunda reload`, or correct the client's clock",
    "TLSV1_ALERT_PROTOCOL_VERSION": "the client rejects the version of TLS: ssl.enabled.protocols is {versions}",
}


class TlsHandshake:
    """A connection with an incomplete handshake."""

    __slots__ = ("_channel", "_has_names", "_ready", "_server", "_transport", "has_pending")

    def __init__(
        self, channel: Channel, server: ServerTls | None, ready: Callable[[Channel], None], *, has_names: bool = False
    ) -> None:
        """``server`` is None if the listener has no certificate; ``ready`` is called after the handshake.

        ``has_names``: the client is sent the host name that it connected to.
        """
        self._channel = channel
        self._server = server
        self._ready = ready
        self._has_names = has_names
        self._transport: Connection | None = None
        #: Whether a step is due that no event will report: one that waited for room to write.
        self.has_pending = False

    def recv(self, most: int) -> bytes:
        """Advance the handshake; once it is complete, return the bytes already received.

        Raises BlockingIOError while there is nothing to read, AuthenticationFailed, and OSError if the client has
        disconnected.
        """
        self.has_pending = False
        transport = self._transport or self._begin()
        try:
            transport.shake_hands()
        except ReadBlockedByWriteError:
            self.has_pending = True
            raise
        except (ssl.SSLEOFError, ssl.SSLZeroReturnError):
            raise ConnectionResetError from None
        except ssl.SSLError as error:
            raise AuthenticationFailed(self._describe(error)) from None
        if self._has_names:
            self._note_way(transport)
        self._name_user(transport)
        channel = self._channel
        channel.tls = transport
        channel.recv, channel.send, channel.sendfile = transport.recv, transport.send, transport.sendfile
        self._ready(channel)
        return transport.recv(most)

    def _begin(self) -> Connection:
        """Check the first bytes, and start the handshake if they are TLS."""
        plain = self._channel.sock
        assert isinstance(plain, socket.socket)  # noqa: S101 - it becomes another kind below
        start = plain.recv(_START_BYTES, socket.MSG_PEEK)
        if not start:
            raise ConnectionResetError
        if self._server is None:
            raise AuthenticationFailed("its listener has no valid certificate; see the ERROR in the log")
        if start[:1] != _TLS_HANDSHAKE:
            raise AuthenticationFailed(describe_not_tls(start))
        kind = KernelTlsTransport if tls_kernel_transport.is_offered() else TlsTransport
        self._transport = self._channel.sock = transport = kind(plain, self._server.context)
        return transport

    def _note_way(self, transport: Connection) -> None:
        """Store the host name or address that the client connected to in its session, if the certificate covers it."""
        channel = self._channel
        assert self._server is not None  # noqa: S101 - the handshake is done
        asked = transport.asked_name or host_text(packed_host(transport.own_address))
        if covers(self._server.names, asked):
            channel.reached = asked
            channel.session = pack_session(channel.user, channel.peer if channel.session else "", asked)

    def _name_user(self, transport: Connection) -> None:
        """Set the user from the client's certificate, if it has sent one."""
        der = transport.peer_certificate()
        if der is None or self._server is None:
            return
        name = subject(der)
        user = self._server.mapping.user_of(name)
        if user is None:
            raise AuthenticationFailed(f"no match in ssl.principal.mapping.rules for the certificate of {name!r}")
        try:
            self._channel.session = pack_session(user, self._channel.peer, self._channel.reached)
        except ValueError as error:
            raise AuthenticationFailed(str(error)) from None
        self._channel.user = user

    def _describe(self, error: ssl.SSLError) -> str:
        if isinstance(error, ssl.SSLCertVerificationError):
            return (
                f"invalid client certificate: {error.verify_message}; renew it, or add its issuer to ssl.truststore.*"
            )
        reason = error.reason or str(error)
        versions = ", ".join(self._server.settings.versions) if self._server else ""
        known = _REASONS.get(reason)
        text = f"{reason.lower().replace('_', ' ')}" if known is None else known.format(versions=versions)
        return f"TLS handshake failed: {text}"
