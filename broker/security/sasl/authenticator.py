"""The authenticator of one connection: from its first frame to the authenticated user, and re-authentication.

Pure: whole frames in, `Step`s out. It implements Kafka's SaslHandshake 0 (tokens are sent bare) and 1 (tokens are sent
in SaslAuthenticate), and accepts frames in the same states as SaslServerAuthenticator (`C11`, `H08`, `H09`, `H11`,
`B25`).
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Sequence
from struct import Struct
from typing import Final, NamedTuple

from rotunda.broker.errors import InvalidReceive
from rotunda.broker.protocol import codec
from rotunda.broker.protocol.api_keys import ApiKey
from rotunda.broker.protocol.error_codes import ErrorCode
from rotunda.broker.protocol.headers import is_valid_api_versions, parse_header
from rotunda.broker.security.sasl.listener import SaslListener
from rotunda.broker.security.sasl.mechanism import INVALID_CREDENTIALS, SaslFailed, SaslServer
from rotunda.broker.security.session import MOST_USER_BYTES

_API_VERSIONS, _HANDSHAKE, _AUTHENTICATE = ApiKey.API_VERSIONS, ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE
_HANDSHAKE_VERSIONS: Final = range(2)
_AUTHENTICATE_VERSIONS: Final = range(3)
_NEWEST_API_VERSIONS: Final = 5
_NS_PER_MS: Final = 1_000_000

#: Minimum interval between two re-authentications.
REAUTHENTICATION_INTERVAL_NS: Final = 1_000_000_000

#: A longer ApiVersions is not passed on: it would not fit a ring.
MOST_PASSED_ON_BYTES: Final = 64 * 1024

#: The maximum of the response field.
_LONGEST_LIFETIME_MS: Final = (1 << 63) - 1

_SIZE = Struct(">i")


class State(enum.Enum):
    """The frame that the authenticator expects."""

    FIRST = enum.auto()
    """ApiVersions or SaslHandshake."""
    HANDSHAKE = enum.auto()
    """SaslHandshake, after an ApiVersions."""
    TOKENS = enum.auto()
    OTHER_MECHANISM = enum.auto()
    """The next frame, to fail: the mechanism differs from the session's."""
    OPEN = enum.auto()
    """Nothing: the user is authenticated."""
    FAILED = enum.auto()


class Failure(NamedTuple):
    """The reason of a failed authentication, for the log."""

    cause: str
    mechanism: str
    user: str


class Step(NamedTuple):
    """The result of a frame: a response, if any; with a ``failure`` it is sent later, before the connection is closed.

    ``passes_on``: the frame is for a handler. It may be passed to `take` again, if it cannot be sent there at once.
    """

    response: bytes = b""
    passes_on: bool = False
    failure: Failure | None = None


class Authenticator:
    """The authentication state of one connection."""

    __slots__ = (
        "_bare",
        "_begun_ns",
        "_listener",
        "_passed_on",
        "_previous",
        "_server",
        "_wall_ms",
        "ended_ns",
        "expires_ns",
        "mechanism",
        "state",
        "user",
    )

    def __init__(self, listener: SaslListener, wall_ms: Callable[[], int]) -> None:
        self._listener = listener
        self._wall_ms = wall_ms
        self._server: SaslServer | None = None
        self._bare = True
        #: Mechanism and user of the session that is re-authenticated.
        self._previous: tuple[str, str] | None = None
        self._begun_ns = 0
        #: Request number of an ApiVersions that was passed on and has a response without an error.
        self._passed_on: int | None = None
        self.state = State.FIRST
        self.mechanism = self.user = ""
        #: Time of the last completed authentication.
        self.ended_ns = 0
        #: Expiration of the session; 0: none.
        self.expires_ns = 0

    @property
    def is_open(self) -> bool:
        """Whether the user is authenticated."""
        return self.state is State.OPEN

    @property
    def is_repeated(self) -> bool:
        """Whether the current or last authentication is a re-authentication."""
        return self._previous is not None

    @property
    def begun_ns(self) -> int:
        """Start time of the last re-authentication."""
        return self._begun_ns

    @property
    def most_bytes(self) -> int:
        """Size limit of a frame."""
        return self._listener.max_receive_bytes

    def begin_again(self, listener: SaslListener, now_ns: int) -> bool:
        """Begin a re-authentication: the next frame must be its SaslHandshake. False if it is too soon."""
        if self._begun_ns and now_ns - self._begun_ns < REAUTHENTICATION_INTERVAL_NS:
            return False
        self._begun_ns = now_ns
        self._previous = self.mechanism, self.user
        self._listener, self._server, self._bare = listener, None, True
        self.state = State.HANDSHAKE
        return True

    def take(self, frame: bytes, sequence: int, now_ns: int) -> Step:
        """Handle the next frame, given without its size, and return the result.

        ``sequence``: the number of requests of the connection that were sent to handlers.
        """
        if self.state is State.FIRST and self._passed_on is not None and sequence > self._passed_on:
            self.state = State.HANDSHAKE
        try:
            if len(frame) > self.most_bytes:
                raise SaslFailed(
                    f"a frame of {len(frame)} bytes, and {self.most_bytes} are accepted (sasl.server.max.receive.size)"
                )
            if self.state is State.OTHER_MECHANISM:
                assert self._previous is not None  # noqa: S101 - a session is begun again
                raise SaslFailed(f"the session was begun with {self._previous[0]}")
            if self.state is State.TOKENS:
                return self._token(frame, now_ns)
            return self._handshake(frame, sequence)
        except SaslFailed as error:
            return self._failed(error, b"")
        except InvalidReceive as error:
            first = self.state is State.FIRST
            hint = "; perhaps the client's security.protocol is not the listener's" if first else ""
            return self._failed(SaslFailed(f"{error}{hint}"), b"")
        except (ValueError, OverflowError, RecursionError) as error:
            # JSON may have numbers, texts and nesting beyond Python's limits.
            return self._failed(SaslFailed(f"a token that cannot be read: {error}"), b"")

    def too_large(self, size: int, foreign: str | None = None) -> Step:
        """Return the result for a frame of that size, which was not received yet; ``foreign``: its likely protocol."""
        cause = f"a frame of {size} bytes, and {self.most_bytes} are accepted (sasl.server.max.receive.size)"
        return self._failed(SaslFailed(foreign or cause), b"")

    def _handshake(self, frame: bytes, sequence: int) -> Step:
        header = parse_header(frame, 0, len(frame))
        key, version = header.api_key, header.api_version
        if key == _API_VERSIONS:
            if self.state is not State.FIRST:
                raise SaslFailed("a second ApiVersions instead of a SaslHandshake")
            if len(frame) > MOST_PASSED_ON_BYTES:
                raise SaslFailed(f"an ApiVersions of {len(frame)} bytes; {MOST_PASSED_ON_BYTES} at most are accepted")
            if _is_supported(frame, version, header.body_offset):
                # After an error the client may retry.
                self._passed_on = sequence
            return Step(passes_on=True)
        if key != _HANDSHAKE:
            raise SaslFailed(
                f"{_name(key)} before the client has authenticated: give it the listener's security.protocol, a "
                "sasl.mechanism and a user"
            )
        if version not in _HANDSHAKE_VERSIONS:
            raise SaslFailed(f"SaslHandshake version {version}, and 0 and 1 are served")
        mechanism = codec.decode(_HANDSHAKE, version, frame, header.body_offset, len(frame)).mechanism
        self._bare = version == 0
        offered = self._listener.mechanisms
        if mechanism not in self._listener.servers:
            reply = _handshake_response(version, header.correlation_id, ErrorCode.UNSUPPORTED_SASL_MECHANISM, offered)
            return self._failed(SaslFailed(f"mechanism {mechanism!r} is not enabled, {', '.join(offered)} are"), reply)
        if self._previous is not None and self._previous[0] != mechanism:
            self.state = State.OTHER_MECHANISM
        else:
            self.mechanism, self.state = mechanism, State.TOKENS
            self._server = self._listener.servers[mechanism]()
        return Step(_handshake_response(version, header.correlation_id, 0, offered))

    def _token(self, frame: bytes, now_ns: int) -> Step:
        if self._bare:
            reply, _ = self._respond(frame, now_ns)
            return Step(_SIZE.pack(len(reply)) + reply)
        header = parse_header(frame, 0, len(frame))
        version, correlation_id = header.api_version, header.correlation_id
        if header.api_key != _AUTHENTICATE:
            error = SaslFailed(f"{_name(header.api_key)} instead of SaslAuthenticate", user=self._claimed)
            return self._failed(error, _illegal_state(header.api_key, version, correlation_id))
        if version not in _AUTHENTICATE_VERSIONS:
            raise SaslFailed(f"SaslAuthenticate version {version}, and 0 to 2 are served")
        token = codec.decode(_AUTHENTICATE, version, frame, header.body_offset, len(frame)).auth_bytes
        try:
            reply, lifetime_ms = self._respond(token, now_ns)
        except SaslFailed as error:
            verb = "re-authentication" if self._previous else "authentication"
            message = error.message or INVALID_CREDENTIALS.format(verb, self.mechanism)
            rejection = {"error_code": ErrorCode.SASL_AUTHENTICATION_FAILED, "error_message": message}
            return self._failed(error, codec.encode_response(_AUTHENTICATE, version, correlation_id, rejection))
        response = {"error_message": "", "auth_bytes": reply, "session_lifetime_ms": lifetime_ms}
        return Step(codec.encode_response(_AUTHENTICATE, version, correlation_id, response))

    def _respond(self, token: bytes, now_ns: int) -> tuple[bytes, int]:
        server = self._server
        assert server is not None  # noqa: S101 - tokens follow a handshake
        reply = server.respond(token)
        if not server.is_complete:
            return reply, 0
        if len(server.user.encode()) > MOST_USER_BYTES:
            raise SaslFailed(f"the user's name is longer than {MOST_USER_BYTES} bytes")
        if self._previous is not None and self._previous[1] != server.user:
            message = (
                f"Cannot change principals during re-authentication from User.{self._previous[1]}: User.{server.user}"
            )
            raise SaslFailed(f"the session was {self._previous[1]}'s", message, server.user)
        lifetime_ms = self._begin_session(server.expires_ms, now_ns)
        self.user, self.state, self.ended_ns = server.user, State.OPEN, now_ns
        return reply, lifetime_ms

    def _begin_session(self, credential_ends_ms: int | None, now_ns: int) -> int:
        """Set the expiration of the session, and return the milliseconds until then; 0 if there is none (`H10`)."""
        ends = [most] if (most := self._listener.max_reauth_ms[self.mechanism]) > 0 else []
        if credential_ends_ms is not None:
            ends.append(max(0, credential_ends_ms - self._wall_ms()))
        lifetime_ms = min(*ends, _LONGEST_LIFETIME_MS) if ends else 0
        self.expires_ns = now_ns + lifetime_ms * _NS_PER_MS if ends else 0
        return lifetime_ms

    @property
    def _claimed(self) -> str:
        return "" if self._server is None else self._server.user

    def _failed(self, error: SaslFailed, reply: bytes) -> Step:
        self.state = State.FAILED
        return Step(reply, failure=Failure(error.cause, self.mechanism, error.user or self._claimed))


def _is_supported(frame: bytes, version: int, offset: int) -> bool:
    if not 0 <= version <= _NEWEST_API_VERSIONS:
        return False
    request = codec.decode(_API_VERSIONS, version, frame, offset, len(frame))
    return is_valid_api_versions(version, request)


def _illegal_state(api_key: int, version: int, correlation_id: int) -> bytes:
    """Return Kafka's response to an illegal request in this state; empty for APIs that clients never send then."""
    code = ErrorCode.ILLEGAL_SASL_STATE
    if api_key == _HANDSHAKE and version in _HANDSHAKE_VERSIONS:
        return _handshake_response(version, correlation_id, code, ())
    if api_key == _API_VERSIONS and 0 <= version <= _NEWEST_API_VERSIONS:
        return codec.encode_response(_API_VERSIONS, version, correlation_id, {"error_code": code})
    return b""


def _handshake_response(version: int, correlation_id: int, error_code: int, mechanisms: Sequence[str]) -> bytes:
    response = {"error_code": error_code, "mechanisms": mechanisms}
    return codec.encode_response(_HANDSHAKE, version, correlation_id, response)


def _name(api_key: int) -> str:
    try:
        return ApiKey(api_key).name
    except ValueError:
        return f"API {api_key}"
