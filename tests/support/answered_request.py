"""A request as a target sees it when it responds: the envelope, without the request's memory."""

from rotunda.broker.ipc.request import Request
from rotunda.broker.security.session import ANONYMOUS


def answered_request(
    connection_id: int,
    sequence: int = 0,
    *,
    stamps_ns: tuple[int, int] = (0, 0),
    api: tuple[int, int] = (0, 0),
    correlation_id: int = 0,
    size_bytes: int = 0,
) -> Request:
    """Return a request from processor 0; ``stamps_ns`` are (received, dequeued), ``api`` is (key, version)."""
    request = Request()
    request.processor, request.connection_id, request.sequence = 0, connection_id, sequence
    request.received_ns, request.dequeued_ns = stamps_ns
    request.api_key, request.api_version = api
    request.correlation_id, request.size_bytes = correlation_id, size_bytes
    request.quotas, request.session = None, ANONYMOUS
    return request
