"""APIs of features that this broker does not have, and their error responses, as from a Kafka without the features.

- SaslHandshake and SaslAuthenticate on a connection that needs neither: ILLEGAL_SASL_STATE, and the connection stays
  open (``C16``).
- Delegation tokens (KIP-48): not allowed for unauthenticated clients, which Kafka checks first; for users not enabled,
  as in a Kafka without ``delegation.token.secret.key``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, Final

from rotunda.broker.apis.context import BrokerContext
from rotunda.broker.ipc.request import Request
from rotunda.broker.protocol.api_keys import ApiKey
from rotunda.broker.protocol.error_codes import ErrorCode
from rotunda.broker.protocol.error_responses import error_response
from rotunda.broker.security.session import ANONYMOUS_USER, USER_TYPE

Rejection = Callable[[Request, BrokerContext, Any], dict[str, Any]]

_AUTHENTICATED = "SaslAuthenticate request received after successful authentication"
_TIMES = ("issue_timestamp_ms", "expiry_timestamp_ms", "max_timestamp_ms")


def _no_sasl(request: Request, _broker: BrokerContext, body: Any) -> dict[str, Any]:
    return error_response(request.api_key, request.api_version, body, ErrorCode.ILLEGAL_SASL_STATE, _AUTHENTICATED)


def _no_token(request: Request) -> tuple[ErrorCode, int]:
    """Return the error for a token request, and the time next to it."""
    if request.session.user == ANONYMOUS_USER:
        return ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED, -1
    return ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED, 0


def _no_token_created(request: Request, _broker: BrokerContext, body: Any) -> dict[str, Any]:
    """Return the error, with the owner and the requester of the rejected token."""
    error, time_ms = _no_token(request)
    owner = body.owner_principal_name
    owner_type = body.owner_principal_type
    return {
        "error_code": error,
        "principal_type": (owner_type or USER_TYPE) if owner else USER_TYPE,
        "principal_name": owner or request.session.user,
        "token_requester_principal_type": USER_TYPE,
        "token_requester_principal_name": request.session.user,
        **dict.fromkeys(_TIMES, time_ms),
    }


def _no_token_changed(request: Request, _broker: BrokerContext, _body: Any) -> dict[str, Any]:
    error, time_ms = _no_token(request)
    return {"error_code": error, "expiry_timestamp_ms": time_ms}


def _no_tokens_described(request: Request, _broker: BrokerContext, _body: Any) -> dict[str, Any]:
    return {"error_code": _no_token(request)[0]}


REFUSALS: Final[Mapping[ApiKey, Rejection]] = MappingProxyType(
    {
        ApiKey.SASL_HANDSHAKE: _no_sasl,
        ApiKey.SASL_AUTHENTICATE: _no_sasl,
        ApiKey.CREATE_DELEGATION_TOKEN: _no_token_created,
        ApiKey.RENEW_DELEGATION_TOKEN: _no_token_changed,
        ApiKey.EXPIRE_DELEGATION_TOKEN: _no_token_changed,
        ApiKey.DESCRIBE_DELEGATION_TOKEN: _no_tokens_described,
    }
)
