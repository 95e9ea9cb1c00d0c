"""Checks a client's path to a broker step by step: name, port, TLS, SASL, advertised addresses, clock, permissions.

Used by `rotunda doctor`, against any Kafka broker. Each step is a `Finding` of one line with the state or a remedy;
steps that depend on a failed one are skipped. `reach` and `certificate_findings` check an address below Kafka's
protocol.
"""

from __future__ import annotations

import errno
import ipaddress
import socket
import ssl
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from struct import Struct
from typing import Any, NamedTuple

from rotunda.broker.client.access import Access
from rotunda.broker.client.network.blocking_client import BlockingClient, check
from rotunda.broker.client.sasl import exchange
from rotunda.broker.errors import ApiError, RotundaError
from rotunda.broker.protocol.api_keys import ApiKey
from rotunda.broker.protocol.error_codes import ErrorCode, name_of
from rotunda.broker.text_table import counted

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
            response = connection.recv(_ANSWER.size, socket.MSG_WAITALL)
    except OSError:
        return None
    if response.startswith(b"HTTP"):
        return HTTP
    if len(response) < _ANSWER.size:
        return None
    size, correlation_id = _ANSWER.unpack(response)
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
            WARN,
            "certificate",
            f"expires in {counted(days, 'day')}, on {end:%Y-%m-%d}: replace it, then `rotunda reload`",
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


_MOST_SKEW_MS = 5_000
_READ, _WRITE = 3, 4
_OPERATIONS = {
    3: "read",
    4: "write",
    5: "create",
    6: "delete",
    7: "alter",
    8: "describe",
    9: "cluster action",
    10: "describe configs",
    11: "alter configs",
    12: "idempotent write",
}
_NO_OPERATIONS = -(2**31)
_NOT_YET = (
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
)


class Wanted(NamedTuple):
    """Optional checks besides the connection: a topic and a group. `timeout_s` applies to each step."""

    topic: str | None
    group: str | None
    timeout_s: float
    now_ms: int


class Checkup:
    """One round of checks of a broker, with a client's security settings."""

    def __init__(self, access: Access, wanted: Wanted) -> None:
        self._access = access
        self._wanted = wanted

    def run(self) -> Iterator[Finding]:
        """Yield the findings, in the order of a client's connection."""
        reached: str | None = None
        for address in self._access.bootstrap.split(","):
            found = list(self._door(address.strip()))
            yield from found
            if reached is None and not any(each.level == FAIL for each in found):
                reached = address.strip()
        if reached is None:
            return
        try:
            with self._client(reached, _without_sasl(self._access)) as client:
                yield from self._inside(client, reached)
        except (RotundaError, OSError) as failure:
            yield self._explained(reached, failure)

    def _client(self, address: str, access: Access) -> BlockingClient:
        return BlockingClient(address, access, timeout_s=self._wanted.timeout_s)

    def _door(self, address: str) -> Iterator[Finding]:
        """Check the layers below Kafka's protocol: that the port is reachable, and which protocol it serves."""
        timeout_s = self._wanted.timeout_s
        try:
            host, port = host_port(address)
            yield Finding(OK, "port", f"{address} is reached at {reach(host, port, timeout_s)}")
        except Unreachable as failure:
            yield Finding(FAIL, "port", str(failure))
            return
        wants_tls = self._access.is_encrypted
        found = spoken(host, port, timeout_s, first=TLS if wants_tls else KAFKA)
        if found == HTTP:
            yield Finding(FAIL, "protocol", f"{address} speaks HTTP, like the status page: use the Kafka port")
        elif found is None:
            yield Finding(FAIL, "protocol", f"{address} speaks neither Kafka's protocol nor TLS: use the Kafka port")
        elif (found == TLS) != wants_tls:
            what = "TLS" if found == TLS else "plain text"
            yield Finding(
                FAIL, "protocol", f"{address} speaks {what}: set {self._instead(address, found)} in the client"
            )
        else:
            yield Finding(
                OK, "protocol", f"{address} speaks {'TLS' if wants_tls else 'plain text'}, as the client does"
            )
            if self._access.context is not None:
                yield from certificate_findings(host, port, self._access.context, timeout_s, self._wanted.now_ms)

    def _instead(self, address: str, found: str) -> str:
        """Return the client settings that match a port whose protocol differs from the client's."""
        of, context = ("SSL", unchecked()) if found == TLS else ("PLAINTEXT", None)
        offered = self._mechanisms(address, Access(protocol=of, context=context))
        if offered is None:
            return f"security.protocol={of}, or SASL_{of} if it has users,"
        if not offered:
            return f"security.protocol={of}"
        if self._access.mechanism in offered:
            return f"security.protocol=SASL_{of}"
        return f"security.protocol=SASL_{of}, sasl.mechanism to one of {', '.join(offered)}, and a user"

    def _inside(self, client: BlockingClient, address: str) -> Iterator[Finding]:
        yield Finding(OK, "Kafka", f"{address} serves {len(client.ranges)} APIs")
        if self._access.authenticates:
            found = self._authentication(client)
            yield found
            if found.level == FAIL:
                return
        fields: dict[str, Any] = {"topics": [] if client.highest_version(ApiKey.METADATA, 8) else None}
        metadata = client.request(ApiKey.METADATA, {**fields, "include_cluster_authorized_operations": True}, 8)
        yield from self._advertised(metadata, address)
        yield self._clock(client)
        yield from self._rights(client, metadata)

    def _authentication(self, client: BlockingClient) -> Finding:
        mechanism, whose = self._access.mechanism, self._access.user or "the token"
        response = client.request(ApiKey.SASL_HANDSHAKE, {"mechanism": mechanism}, 1, 1)
        code = int(response.error_code)
        if code == ErrorCode.UNSUPPORTED_SASL_MECHANISM:
            offered = ", ".join(response.mechanisms)
            text = f"{mechanism} is not offered: set sasl.mechanism to one of {offered}, or sasl.enabled.mechanisms"
            return Finding(FAIL, "mechanism", text)
        if code == ErrorCode.ILLEGAL_SASL_STATE:
            plain = _without_sasl(self._access).protocol
            return Finding(FAIL, "mechanism", f"the port has no authentication: set security.protocol={plain}")
        try:
            check(response)
            _exchange_tokens(client, self._access)
        except ApiError as error:
            said = error.message or name_of(error.code)
            remedy = "correct user and password; the broker's log has the cause"
            return Finding(FAIL, "authentication", f"{whose} is refused with {mechanism} ({said}): {remedy}")
        return Finding(OK, "authentication", f"{whose} is known, with {mechanism}")

    def _advertised(self, metadata: Any, address: str) -> Iterator[Finding]:
        """Check the advertised addresses: whether each broker is reachable from here by its name."""
        for broker in metadata.brokers:
            host, port = str(broker.host), int(broker.port)
            shown = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
            sent = f"broker {int(broker.node_id)} sends clients to {shown}"
            if shown == address:
                yield Finding(OK, "advertised", f"{sent}, as given")
                continue
            try:
                reach(host, port, self._wanted.timeout_s)
            except Unreachable as failure:
                instead = f"to where clients reach it, as with `rotunda start --advertise {address}`"
                yield Finding(FAIL, "advertised", f"{sent}, and {failure}; or set advertised.listeners {instead}")
                continue
            yield Finding(OK, "advertised", f"{sent}, which is reached from here")
            if self._access.context is not None:
                found = certificate_findings(
                    host, port, self._access.context, self._wanted.timeout_s, self._wanted.now_ms
                )
                yield from (each._replace(what="advertised") for each in found if each.level != OK)

    def _clock(self, client: BlockingClient) -> Finding:
        """Compare the clocks by the controller's last caught-up timestamp, which is its current time."""
        try:
            topics = [{"topic_name": "__cluster_metadata", "partitions": [{"partition_index": 0}]}]
            response = client.request(ApiKey.DESCRIBE_QUORUM, {"topics": topics}, 1, 1)
            check(response)
            partition = response.topics[0].partitions[0]
            told_ms = max(int(each.last_caught_up_timestamp) for each in partition.current_voters)
        except (ApiError, RotundaError, AttributeError, IndexError, ValueError):
            return Finding(UNKNOWN, "clock", "unknown: needs DESCRIBE on the cluster")
        if told_ms <= 0:
            return Finding(UNKNOWN, "clock", "not reported by this broker")
        ahead_s = (told_ms - self._wanted.now_ms) / 1000
        if abs(ahead_s) * 1000 > _MOST_SKEW_MS:
            direction = "ahead of" if ahead_s > 0 else "behind"
            text = f"the broker's is {abs(ahead_s):.0f} s {direction} this machine's: set both by NTP"
            return Finding(WARN, "clock", f"{text}; certificates, tokens and timestamps depend on it")
        return Finding(OK, "clock", "the broker's and this machine's agree")

    def _rights(self, client: BlockingClient, metadata: Any) -> Iterator[Finding]:
        whose = f"User:{self._access.user}" if self._access.user else "the client"
        cluster = getattr(metadata, "cluster_authorized_operations", _NO_OPERATIONS)
        if int(cluster) != _NO_OPERATIONS:
            yield Finding(OK, "acl", f"on the cluster {whose} may {_listed(int(cluster))}")
        if self._wanted.topic is not None:
            yield self._topic(client, self._wanted.topic, whose)
        if self._wanted.group is not None:
            yield self._group(client, self._wanted.group, whose)

    def _topic(self, client: BlockingClient, name: str, whose: str) -> Finding:
        fields = {
            "topics": [{"name": name}],
            "allow_auto_topic_creation": False,
            "include_topic_authorized_operations": True,
        }
        found = client.request(ApiKey.METADATA, fields, 8, 8).topics[0]
        remedy = f"rotunda acl add --allow-principal {whose} --operation all --topic {name}"
        if int(found.error_code):
            if int(found.error_code) == ErrorCode.TOPIC_AUTHORIZATION_FAILED:
                return Finding(FAIL, "acl", f"topic {name}: {whose} may not describe it: {remedy}")
            return Finding(FAIL, "acl", f"topic {name}: {name_of(int(found.error_code))}: create it")
        operations = int(found.topic_authorized_operations)
        if not operations & (1 << _READ | 1 << _WRITE):
            return Finding(FAIL, "acl", f"topic {name}: {whose} may neither read nor write: {remedy}")
        missing = [_OPERATIONS[each] for each in (_READ, _WRITE) if not operations & 1 << each]
        but = f", not {missing[0]} ({remedy})" if missing else ""
        return Finding(WARN if missing else OK, "acl", f"topic {name}: {whose} may {_listed(operations)}{but}")

    def _group(self, client: BlockingClient, name: str, whose: str) -> Finding:
        fields = {"groups": [name], "include_authorized_operations": True}
        found = client.request(ApiKey.DESCRIBE_GROUPS, fields, 3, 3).groups[0]
        remedy = f"rotunda acl add --allow-principal {whose} --operation read --group {name}"
        code, operations = int(found.error_code), int(found.authorized_operations)
        if code == ErrorCode.GROUP_AUTHORIZATION_FAILED or (
            not code and operations != _NO_OPERATIONS and not operations & 1 << _READ
        ):
            return Finding(FAIL, "acl", f"group {name}: {whose} may not read: {remedy}")
        if code in _NOT_YET:
            return Finding(
                UNKNOWN, "acl", f"group {name}: unknown ({name_of(code)}): no group has committed yet, or retry"
            )
        if code:
            return Finding(FAIL, "acl", f"group {name}: {name_of(code)}")
        return Finding(OK, "acl", f"group {name}: {whose} may {_listed(operations)}")

    def _explained(self, address: str, failure: Exception) -> Finding:
        """Explain a closed connection: a listener with stricter requirements closes it without an error message."""
        if isinstance(failure, ApiError):
            return Finding(FAIL, "Kafka", f"{address}: {name_of(failure.code)} {failure.message or ''}".rstrip())
        if self._access.context is not None and not self._access.has_certificate and _wants_certificate(failure):
            text = "needs a client certificate: set ssl.keystore.location (create one with rotunda tls init --client)"
            return Finding(FAIL, "TLS", f"{address} {text}")
        offered = self._mechanisms(address, self._access) if not self._access.authenticates else None
        if offered:
            protocol = "SASL_SSL" if self._access.is_encrypted else "SASL_PLAINTEXT"
            text = f"needs authentication: set security.protocol={protocol}, sasl.mechanism to one of"
            return Finding(FAIL, "authentication", f"{address} {text} {', '.join(offered)}, and a user")
        return Finding(FAIL, "Kafka", f"{address}: {failure}; the broker's log has the cause")

    def _mechanisms(self, address: str, access: Access) -> list[str] | None:
        """Return the SASL mechanisms of a port, empty if it requires none; None if unknown.

        A port that requires a client certificate does not reveal them without one.
        """
        try:
            with self._client(address, access) as client:
                response = client.request(ApiKey.SASL_HANDSHAKE, {"mechanism": "?"}, 1, 1)
                return [str(each) for each in response.mechanisms]
        except (RotundaError, OSError):
            return None


def _exchange_tokens(client: BlockingClient, access: Access) -> None:
    """Authenticate after a SaslHandshake. Raises ApiError with the broker's message, and NotTheBroker."""
    steps = exchange(access.mechanism, access.user, access.password, access.token)
    message = next(steps)
    while True:
        response = client.request(ApiKey.SASL_AUTHENTICATE, {"auth_bytes": message}, 1, 1)
        check(response)
        try:
            message = steps.send(bytes(response.auth_bytes))
        except StopIteration:
            return


def _without_sasl(access: Access) -> Access:
    return replace(access, protocol=access.protocol.removeprefix("SASL_"))


def _wants_certificate(failure: BaseException | None) -> bool:
    while failure is not None:
        if isinstance(failure, ssl.SSLError) and "certificate" in str(failure).lower():
            return True
        failure = failure.__cause__
    return False


def _listed(operations: int) -> str:
    return ", ".join(text for bit, text in _OPERATIONS.items() if operations & 1 << bit) or "nothing"
