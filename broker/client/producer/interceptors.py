"""User-defined interceptors: called for each record before it is sent, and with its result (G04).

`on_send` runs in the sending thread, `on_acknowledgement` on the I/O thread before the record's callback. Exceptions of
an interceptor are logged and otherwise ignored.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, NamedTuple

from rotunda.broker.client.errors import KafkaError
from rotunda.broker.client.producer.futures import DeliveryCallback, RecordMetadata
from rotunda.broker.client.producer.serializers import load
from rotunda.broker.errors import ConfigError
from rotunda.broker.records.record_writer import Headers

_LOG: Final = logging.getLogger(__name__)


class ProducerRecord(NamedTuple):
    """A record as passed to `send`; `_replace` returns a changed copy."""

    topic: str
    value: Any = None
    key: Any = None
    headers: Headers = ()
    partition: int | None = None
    timestamp_ms: int | None = None


class ProducerInterceptors:
    """The interceptors, in the order of `interceptor.classes`."""

    def __init__(self, given: Iterable[Any]) -> None:
        self._chain: Sequence[Any] = [_made(each) for each in given]

    def __bool__(self) -> bool:
        return bool(self._chain)

    def on_send(self, record: ProducerRecord) -> ProducerRecord:
        """Return the record to send."""
        for interceptor in self._chain:
            method: Callable[[ProducerRecord], ProducerRecord | None] | None = getattr(interceptor, "on_send", None)
            if method is not None:
                try:
                    record = method(record) or record
                except Exception:
                    _LOG.exception("on_send of an interceptor failed for a record of %s", record.topic)
        return record

    def on_acknowledgement(self, metadata: RecordMetadata, error: KafkaError | None) -> None:
        """Notify the interceptors of a record's result."""
        for interceptor in self._chain:
            method = getattr(interceptor, "on_acknowledgement", None)
            if method is not None:
                try:
                    method(metadata, error)
                except Exception:
                    _LOG.exception("on_acknowledgement of an interceptor failed for a record of %s", metadata.topic)

    def around(self, callback: DeliveryCallback | None) -> DeliveryCallback | None:
        """Return a callback that runs the interceptors and then `callback`."""
        if not self._chain:
            return callback

        def acknowledged(metadata: RecordMetadata, error: KafkaError | None) -> None:
            self.on_acknowledgement(metadata, error)
            if callback is not None:
                callback(metadata, error)

        return acknowledged

    def close(self) -> None:
        """Close the interceptors that have a `close` method."""
        for interceptor in self._chain:
            close = getattr(interceptor, "close", None)
            if close is not None:
                try:
                    close()
                except Exception:
                    _LOG.exception("close of an interceptor failed")


def _made(given: Any) -> Any:
    found = load("interceptor.classes", given.strip()) if isinstance(given, str) else given
    made = found() if isinstance(found, type) else found
    if not hasattr(made, "on_send") and not hasattr(made, "on_acknowledgement"):
        raise ConfigError(f"interceptor.classes: {given!r} has neither on_send nor on_acknowledgement")
    return made
