"""Checks a client's path to an address below Kafka's protocol: name resolution, port and TLS."""

from __future__ import annotations

import errno
import ipaddress
import socket
import ssl
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime, timedelta
from struct import Struct
from typing import NamedTuple

from rotunda.broker.errors import RotundaError

OK, WARN, FAIL, UNKNOWN = "ok", "warn", "fail", "unknown"
KAFKA, TLS, HTTP = "Kafka", "TLS", "HTTP"
#: ApiVersions 0 with correlation id 1 and no client id, supported by every Kafka broker.
_API_VERSIONS = bytes.fromhex("0000000a 0012 0000 00000001 ffff")
_ANSWER = Struct(">ii")
_LARGEST_ANSWER = 1 << 16
_HIGHEST_PORT = 65535
_SOON = timedelta(days=30)
#: Makes OpenSSL skip validity dates, which are checked separately.
_NO_CHECK_TIME = ssl.VerifyFlags(0x200000)
_WRONG_NAME = (62, 64)


class Finding(NamedTuple):
    """One line. `level` is one of those above; only `fail` prevents a client from connecting."""

    level: str
    what: str
    text: str


class Unreachable(RotundaError):  # noqa: N818 - named for what happened
    """An address is unreachable; the text has a remedy."""


def host_port(address: str) -> tuple[str, int]:
    """Parse host:port. Raises Unreachable."""
    host, _, port = address.rpartition(":")
    if not host or not port.isdecimal() or not 0 < int(port) <= _HIGHEST_PORT:
        raise Unreachable(f"invalid address {address!r}: expected HOST:PORT in bootstrap.servers")
    return host.strip("[]"), int(port)


def reach(host: str, port: int, timeout_s: float) -> str:
    """Return the address at which the port is reachable. Raises Unreachable."""
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as failure:
        because = failure.strerror if isinstance(failure, OSError) else failure
        raise Unreachable(
            f"unknown host name {host} ({because}): correct it, or add it to DNS or /etc/hosts"
        ) from failure
    last: OSError | None = None
    for family, kind, protocol, _, address in found:
        with closing(socket.socket(family, kind, protocol)) as tried:
            tried.settimeout(timeout_s)
            try:
                tried.connect(address)
            except OSError as failure:
                last = failure
            else:
                return str(address[0])
    raise Unreachable(f"{host}:{port} {_why(last, host, timeout_s)}") from last


def _why(failure: OSError | None, host: str, timeout_s: float) -> str:
    if isinstance(failure, TimeoutError):
        return f"does not respond in {timeout_s:g} s: open the firewall, or use an address of this network"
    if failure is not None and failure.errno == errno.ECONNREFUSED:
        where = "this machine" if _is_loopback(host) else host
        return f"is not open on {where}: start the broker, or correct the port (see its listeners)"
    return f"cannot be reached ({failure}): correct the address, or the network's routes"


def _is_loopback(host: str) -> bool:
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def spoken(host: str, port: int, timeout_s: float, first: str) -> str | None:
    """Return the protocol of a port, trying `first` first; None if unknown."""
    ways = (_speaks_tls, _speaks_plain) if first == TLS else (_speaks_plain, _speaks_tls)
    return next((found for way in ways if (found := way(host, port, timeout_s))), None)


def _speaks_plain(host: str, port: int, timeout_s: float) -> str | None:
    try:
        with socket.create_connection((host, port), timeout_s) as connection:
            connection.sendall(_API_VERSIONS)
            answer = connection.recv(_ANSWER.size, socket.MSG_WAITALL)
    except OSError:
        return None
    if answer.startswith(b"HTTP"):
        return HTTP
    if len(answer) < _ANSWER.size:
        return None
    size, correlation_id = _ANSWER.unpack(answer)
    return KAFKA if correlation_id == 1 and 0 < size <= _LARGEST_ANSWER else None


def _speaks_tls(host: str, port: int, timeout_s: float) -> str | None:
    try:
        _certificate(host, port, timeout_s)
    except ssl.SSLError as failure:
        # A TLS alert also proves TLS.
        return TLS if "ALERT" in (failure.reason or "") else None
    except OSError:
        return None
    return TLS


def unchecked() -> ssl.SSLContext:
    """Return a context that accepts any certificate: to identify a port's protocol, never to send secrets."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context


def _certificate(host: str, port: int, timeout_s: float) -> bytes:
    """Return the server's certificate without verification; empty if there is none. Raises OSError."""
    with (
        socket.create_connection((host, port), timeout_s) as connection,
        unchecked().wrap_socket(connection, server_hostname=host) as secured,
    ):
        return secured.getpeercert(binary_form=True) or b""


def certificate_findings(
    host: str, port: int, context: ssl.SSLContext, timeout_s: float, now_ms: int
) -> Iterator[Finding]:
    """Yield findings about a port's certificate: dates, names, and whether the client trusts it."""
    from cryptography import x509  # noqa: PLC0415 - only TLS needs it

    try:
        certificate = x509.load_der_x509_certificate(_certificate(host, port, timeout_s))
    except (OSError, ValueError) as failure:
        yield Finding(FAIL, "TLS", f"{host}:{port} ends the handshake ({failure}): the broker's log has the cause")
        return
    now = datetime.fromtimestamp(now_ms / 1000, UTC)
    begin, end = certificate.not_valid_before_utc, certificate.not_valid_after_utc
    if now > end:
        yield Finding(FAIL, "certificate", f"expired on {end:%Y-%m-%d %H:%M} UTC: replace it, then `rotunda reload`")
    elif now < begin:
        text = f"is valid from {begin:%Y-%m-%d %H:%M} UTC only: correct this machine's clock, or renew it"
        yield Finding(FAIL, "certificate", text)
    elif now > end - _SOON:
        days = (end - now).days
        yield Finding(
            WARN, "certificate", f"expires in {days} days, on {end:%Y-%m-%d}: replace it, then `rotunda reload`"
        )
    else:
        yield Finding(OK, "certificate", f"is valid until {end:%Y-%m-%d}")
    yield _trust(host, port, context, timeout_s, certificate)


def _trust(host: str, port: int, context: ssl.SSLContext, timeout_s: float, certificate: object) -> Finding:
    before = context.verify_flags
    context.verify_flags |= _NO_CHECK_TIME
    try:
        with socket.create_connection((host, port), timeout_s) as connection:
            context.wrap_socket(connection, server_hostname=host).close()
    except ssl.SSLCertVerificationError as failure:
        if failure.verify_code in _WRONG_NAME:
            text = f"is for {_names(certificate)}, not for {host}: use one of these, or create one with --host {host}"
            return Finding(FAIL, "certificate", text)
        issuer = getattr(certificate, "issuer", None)
        who = issuer.rfc4514_string() if issuer is not None else "nobody"
        text = f"was issued by {who}, which the client does not trust ({failure.verify_message}): give it the CA's file"
        return Finding(FAIL, "certificate", f"{text} as ssl.truststore.location")
    except OSError as failure:
        return Finding(FAIL, "TLS", f"{host}:{port} ends the handshake ({failure}): the broker's log has the cause")
    finally:
        context.verify_flags = before
    if context.verify_mode == ssl.CERT_NONE:
        return Finding(WARN, "certificate", "is not verified: remove enable.ssl.certificate.verification=false")
    if not context.check_hostname:
        return Finding(
            WARN, "certificate", "is trusted, its name is not verified: remove the empty identification algorithm"
        )
    return Finding(OK, "certificate", f"is trusted, and for {host}")


def _names(certificate: object) -> str:
    from cryptography import x509  # noqa: PLC0415

    assert isinstance(certificate, x509.Certificate)  # noqa: S101 - as the caller has it
    try:
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return "no name at all"
    return ", ".join(str(each.value) for each in names)
