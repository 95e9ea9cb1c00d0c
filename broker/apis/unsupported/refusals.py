"""The refusals: APIs of features that this broker does not have, and their answers, as a Kafka without them would give.

- SaslHandshake and SaslAuthenticate on a connection that needs neither: ILLEGAL_SASL_STATE, and the connection lives
  (``C16``).
- Delegation tokens where nothing says who the client is: not allowed there (KIP-48). Kafka answers so on
  a listener of plain text, before it asks whether it has a secret key for tokens.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, Final

from broker.apis.context import RequestContext
from broker.protocol.api_keys import ApiKey
from broker.protocol.error_codes import ErrorCode

Refusal = Callable[[RequestContext, Any], dict[str, Any]]

_NO_TIME = -1
_USER, _ANONYMOUS = "User", "ANONYMOUS"

_NO_SASL = {"error_code": ErrorCode.ILLEGAL_SASL_STATE}
_NO_TOKENS = {"error_code": ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED}
_AUTHENTICATED = "SaslAuthenticate request received after successful authentication"


def _always(answer: Mapping[str, Any]) -> Refusal:
    return lambda _context, _request: dict(answer)


def _no_token_created(context: RequestContext, request: Any) -> dict[str, Any]:
    """Return the refusal, with the owner and the requester that the token would have had."""
    del context
    owner = getattr(request, "owner_principal_name", None)
    owner_type = getattr(request, "owner_principal_type", None)
    return {
        **_NO_TOKENS,
        "principal_type": (owner_type or _USER) if owner else _USER,
        "principal_name": owner or _ANONYMOUS,
        "token_requester_principal_type": _USER,
        "token_requester_principal_name": _ANONYMOUS,
        "issue_timestamp_ms": _NO_TIME,
        "expiry_timestamp_ms": _NO_TIME,
        "max_timestamp_ms": _NO_TIME,
        "token_id": "",
        "hmac": b"",
    }


REFUSALS: Final[Mapping[ApiKey, Refusal]] = MappingProxyType(
    {
        ApiKey.SASL_HANDSHAKE: _always({**_NO_SASL, "mechanisms": []}),
        ApiKey.SASL_AUTHENTICATE: _always({**_NO_SASL, "error_message": _AUTHENTICATED, "auth_bytes": b""}),
        ApiKey.CREATE_DELEGATION_TOKEN: _no_token_created,
        ApiKey.RENEW_DELEGATION_TOKEN: _always({**_NO_TOKENS, "expiry_timestamp_ms": _NO_TIME}),
        ApiKey.EXPIRE_DELEGATION_TOKEN: _always({**_NO_TOKENS, "expiry_timestamp_ms": _NO_TIME}),
        ApiKey.DESCRIBE_DELEGATION_TOKEN: _always({**_NO_TOKENS, "tokens": []}),
    }
)
