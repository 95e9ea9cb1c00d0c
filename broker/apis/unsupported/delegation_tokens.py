"""The four delegation token APIs on connections that say nothing of who the client is: not allowed there (KIP-48).

Kafka answers so on a listener of plain text, before it asks whether it has a secret key for tokens.
"""

from __future__ import annotations

from typing import Any

from broker.apis.context import RequestContext
from broker.protocol.error_codes import ErrorCode

_REFUSAL = ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED
_NO_TIMESTAMP = -1
_USER = "User"
_ANONYMOUS = "ANONYMOUS"


def handle_create_delegation_token(context: RequestContext, request: Any) -> dict[str, Any]:
    """Return the refusal, with the owner and the requester that the token would have had."""
    del context
    owner = getattr(request, "owner_principal_name", None)
    owner_type = getattr(request, "owner_principal_type", None)
    return {
        "error_code": _REFUSAL,
        "principal_type": (owner_type or _USER) if owner else _USER,
        "principal_name": owner or _ANONYMOUS,
        "token_requester_principal_type": _USER,
        "token_requester_principal_name": _ANONYMOUS,
        "issue_timestamp_ms": _NO_TIMESTAMP,
        "expiry_timestamp_ms": _NO_TIMESTAMP,
        "max_timestamp_ms": _NO_TIMESTAMP,
        "token_id": "",
        "hmac": b"",
        "throttle_time_ms": 0,
    }


def handle_alter_delegation_token(context: RequestContext, request: Any) -> dict[str, Any]:
    """Return the refusal to a RenewDelegationToken or an ExpireDelegationToken."""
    del context, request
    return {"error_code": _REFUSAL, "expiry_timestamp_ms": _NO_TIMESTAMP, "throttle_time_ms": 0}


def handle_describe_delegation_token(context: RequestContext, request: Any) -> dict[str, Any]:
    """Return the refusal and no tokens."""
    del context, request
    return {"error_code": _REFUSAL, "tokens": [], "throttle_time_ms": 0}
