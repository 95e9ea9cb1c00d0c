"""SASL authentication of a connection before its first use, and re-authentication before the session expires (KIP-368).

Pure: a generator that yields requests and receives responses; the channel moves the bytes. SASL requests use a reserved
range of correlation ids, so that their responses are distinguishable from responses that were in flight when
re-authentication began. Kafka's SaslClientAuthenticator.
"""

from __future__ import annotations

import random
from collections.abc import Generator, Mapping
from functools import partial
from typing import Any, Final, NamedTuple

from rotunda.broker.client.access import Access
from rotunda.broker.client.errors import (
    NetworkFailure,
    SaslAuthenticationFailed,
    UnsupportedSaslMechanism,
)
from rotunda.broker.client.network.requests import (
    CLIENT_VERSIONS,
    Buffer,
    Build,
    Decode,
    NodeApiVersions,
    api_versions_request,
    codec_request,
    decode_api_versions,
    node_api_versions,
    version_to_try_next,
)
from rotunda.broker.client.sasl import NotTheBroker, exchange
from rotunda.broker.errors import InvalidReceive
from rotunda.broker.protocol.api_keys import ApiKey, response_header_version
from rotunda.broker.protocol.codec import decode_body
from rotunda.broker.protocol.error_codes import ErrorCode
from rotunda.broker.protocol.primitives import MALFORMED, skip_tagged_fields

LARGEST_CORRELATION_ID: Final = 2**31 - 1
#: First correlation id reserved for SASL.
FIRST_RESERVED_CORRELATION_ID: Final = LARGEST_CORRELATION_ID - 7
#: Fraction of a session after which it is renewed: early enough to finish, and spread over the connections.
_SOONEST, _LATEST = 0.85, 0.95
_ILLEGAL: Final = frozenset({ErrorCode.ILLEGAL_SASL_STATE, ErrorCode.SASL_AUTHENTICATION_FAILED})


class SaslRequest(NamedTuple):
    """A SASL request and the decoder of its response."""

    api_key: int
    version: int
    build: Build
    decode: Decode


#: Returns the session lifetime in milliseconds; 0 for unlimited.
Conversation = Generator[SaslRequest, Any, float]


class SaslAuthenticator:
    """One authentication or re-authentication."""

    def __init__(self, access: Access, client_id: str, known: NodeApiVersions | None = None) -> None:
        self._client_id = client_id
        #: The broker's API versions; re-authentications reuse them without another ApiVersions request.
        self.versions = known
        self._conversation = self._converse(access)
        self._awaited: SaslRequest | None = None
        self._correlation_id = FIRST_RESERVED_CORRELATION_ID - 1
        self.is_complete = False
        self.session_ms = 0.0

    def begin(self) -> tuple[Buffer, ...]:
        """Return the bytes of the first request."""
        return self._sent(next(self._conversation))

    def is_for(self, buffer: Buffer, offset: int) -> bool:
        """Whether the response at `offset` belongs to the last SASL request."""
        return int.from_bytes(bytes(buffer[offset : offset + 4]), "big") == self._correlation_id

    def receive(self, buffer: Buffer, offset: int, end: int) -> tuple[Buffer, ...]:
        """Handle a response and return the next request's bytes; empty when authentication is complete.

        Raises AuthenticationFailed, NetworkFailure if a retry may succeed, and InvalidReceive.
        """
        awaited = self._awaited
        if awaited is None:
            raise InvalidReceive("a response before any request")
        offset += 4
        try:
            if response_header_version(awaited.api_key, awaited.version) > 0:
                offset = skip_tagged_fields(buffer, offset, end)
            response = awaited.decode(awaited.version, buffer, offset, end)
        except MALFORMED as failure:
            raise InvalidReceive(f"malformed response: {failure}") from failure
        try:
            return self._sent(self._conversation.send(response))
        except StopIteration as ended:
            self.is_complete, self._awaited = True, None
            self.session_ms = ended.value
            return ()
        except NotTheBroker as failure:
            raise SaslAuthenticationFailed(str(failure)) from failure

    def _sent(self, request: SaslRequest) -> tuple[Buffer, ...]:
        self._awaited = request
        used_up = self._correlation_id == LARGEST_CORRELATION_ID
        self._correlation_id = FIRST_RESERVED_CORRELATION_ID if used_up else self._correlation_id + 1
        return tuple(request.build(request.version, self._correlation_id, self._client_id))

    def _converse(self, access: Access) -> Conversation:
        if self.versions is None:
            self.versions = yield from _ask_versions()
        response = yield self._request(ApiKey.SASL_HANDSHAKE, {"mechanism": access.mechanism})
        code = int(response.error_code)
        if code == ErrorCode.UNSUPPORTED_SASL_MECHANISM:
            raise UnsupportedSaslMechanism(
                f"Client SASL mechanism '{access.mechanism}' not enabled in the server, "
                f"enabled mechanisms are {', '.join(response.mechanisms)}"
            )
        _check(code, None)
        session_ms = 0.0
        steps = exchange(access.mechanism, access.user, access.password, access.current_token())
        message = next(steps)
        while True:
            response = yield self._request(ApiKey.SASL_AUTHENTICATE, {"auth_bytes": message})
            _check(int(response.error_code), response.error_message)
            session_ms = float(response.session_lifetime_ms) or session_ms
            try:
                message = steps.send(bytes(response.auth_bytes))
            except StopIteration:
                return session_ms

    def _request(self, api_key: ApiKey, fields: Mapping[str, Any]) -> SaslRequest:
        oldest, latest = CLIENT_VERSIONS[api_key]
        if self.versions is None:
            raise InvalidReceive("the broker did not return its API versions")
        version = self.versions.latest_usable_version(api_key, oldest, latest)
        return SaslRequest(api_key, version, codec_request(api_key, fields), partial(decode_body, api_key))


def renewal_ms(session_ms: float, chance: random.Random) -> float:
    """Return the time after which a session of this length is renewed."""
    return session_ms * chance.uniform(_SOONEST, _LATEST)


def _ask_versions() -> Generator[SaslRequest, Any, NodeApiVersions]:
    _, version = CLIENT_VERSIONS[ApiKey.API_VERSIONS]
    response = yield SaslRequest(ApiKey.API_VERSIONS, version, api_versions_request(), decode_api_versions)
    if int(response.error_code) == ErrorCode.UNSUPPORTED_VERSION:
        version = version_to_try_next(response)
        response = yield SaslRequest(ApiKey.API_VERSIONS, version, api_versions_request(), decode_api_versions)
    _check(int(response.error_code), None)
    return node_api_versions(response)


def _check(code: int, message: str | None) -> None:
    if code in _ILLEGAL:
        raise SaslAuthenticationFailed(message)
    if code:
        raise NetworkFailure(f"the broker returned error {code} during authentication: {message or ''}")
