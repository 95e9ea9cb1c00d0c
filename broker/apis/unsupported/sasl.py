"""SaslHandshake and SaslAuthenticate on a connection that needs no authentication: an error, and the connection lives.

Kafka lists both APIs without SASL too and answers them with ILLEGAL_SASL_STATE (``C16``).
"""

from __future__ import annotations

from typing import Any

from broker.apis.context import RequestContext
from broker.protocol.error_codes import ErrorCode


def handle_sasl_handshake(context: RequestContext, request: Any) -> dict[str, Any]:
    """Return ILLEGAL_SASL_STATE and no mechanisms."""
    del context, request
    return {"error_code": ErrorCode.ILLEGAL_SASL_STATE, "mechanisms": []}


def handle_sasl_authenticate(context: RequestContext, request: Any) -> dict[str, Any]:
    """Return ILLEGAL_SASL_STATE and no token."""
    del context, request
    message = "SaslAuthenticate request received after successful authentication"
    return {"error_code": ErrorCode.ILLEGAL_SASL_STATE, "error_message": message, "auth_bytes": b""}
