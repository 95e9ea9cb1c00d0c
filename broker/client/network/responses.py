"""A response's bytes to its body, and how long the broker wants to be left alone (`G23`, `G33`). Pure."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import Any, Final

from broker.client.network.in_flight_requests import InFlightRequest
from broker.client.network.network_send import NetworkReceive
from broker.errors import InvalidReceive
from broker.protocol.api_keys import ApiKey, response_header_version
from broker.protocol.codec import decode_body
from broker.protocol.primitives import MALFORMED, skip_tagged_fields

_CORRELATION_ID = struct.Struct(">i")
#: The first version in which the broker leaves the waiting to the client (KIP-219); of other APIs every one is.
_THROTTLED_FROM: Final[Mapping[int, int]] = {
    ApiKey.PRODUCE: 6,
    ApiKey.METADATA: 6,
    ApiKey.FIND_COORDINATOR: 2,
    ApiKey.API_VERSIONS: 2,
    ApiKey.INIT_PRODUCER_ID: 1,
    ApiKey.ADD_PARTITIONS_TO_TXN: 1,
    ApiKey.ADD_OFFSETS_TO_TXN: 1,
    ApiKey.END_TXN: 1,
    ApiKey.TXN_OFFSET_COMMIT: 1,
}


def body_of(sent: InFlightRequest, receive: NetworkReceive) -> Any:
    """Return the body of the response to the oldest request in flight. Raises InvalidReceive if it is none."""
    request = sent.request
    _, buffer, offset, end = receive
    try:
        (correlation_id,) = _CORRELATION_ID.unpack_from(buffer, offset)
        if correlation_id != request.correlation_id:
            raise InvalidReceive(
                f"Correlation id for response ({correlation_id}) does not match request ({request.correlation_id}), "
                f"which is of API {request.api_key} in version {sent.version}"
            )
        offset += _CORRELATION_ID.size
        if response_header_version(request.api_key, sent.version) > 0:
            offset = skip_tagged_fields(buffer, offset, end)
        decode = request.decode
        if decode is not None:
            return decode(sent.version, buffer, offset, end)
        return decode_body(request.api_key, sent.version, buffer, offset, end)
    except (*MALFORMED, ValueError) as failure:
        raise InvalidReceive(f"malformed response of API {request.api_key}: {failure}") from failure


def throttle_time_ms(sent: InFlightRequest, body: Any) -> float:
    """Return for how long nothing is to be sent to the broker."""
    throttle = getattr(body, "throttle_time_ms", 0)
    if not throttle or sent.version < _THROTTLED_FROM.get(sent.request.api_key, 0):
        return 0.0
    return float(throttle)
