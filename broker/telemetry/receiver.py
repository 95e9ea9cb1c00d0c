"""The receiver of client metrics in a handler: serves GetTelemetrySubscriptions and PushTelemetry (KIP-714).

Exists only with `client.telemetry.receiver.enable`. A push is unpacked and decoded in steps and within bounds, and
changes nothing unless all of it is valid.
"""

from __future__ import annotations

from base64 import urlsafe_b64encode
from collections.abc import Callable
from math import isfinite
from typing import TYPE_CHECKING, Any, Final

from rotunda.broker.errors import ApiError, InvalidReceive
from rotunda.broker.protocol.error_codes import ErrorCode
from rotunda.broker.records.compression import unpacked
from rotunda.broker.telemetry.instances import RESERVED_IDS, ZERO_ID, Instance, Instances, push_error
from rotunda.broker.telemetry.otlp import DataPoint, data_points
from rotunda.broker.telemetry.series import MOST_SERIES, TooManySeriesError
from rotunda.broker.telemetry.subscriptions import ClientFacts

if TYPE_CHECKING:
    from rotunda.broker.clock import Clock
    from rotunda.broker.ipc.request import Request
    from rotunda.broker.metadata.metadata_cache import MetadataCache
    from rotunda.broker.steps import Steps
    from rotunda.shm.tables.client_hosts import ClientHosts

#: Accepted codecs, the preferred first: zstd, lz4, gzip, snappy.
ACCEPTED_CODECS: Final = (4, 3, 1, 2)

#: A push may expand to so many times `telemetry.max.bytes`.
MOST_EXPANSION: Final = 16

#: Most values of all instances of a handler; beyond it those of the longest silent are dropped.
MOST_SERIES_OF_ALL: Final = 50_000

#: Metrics decoded between two steps.
_METRICS_AT_ONCE: Final = 50

#: The most characters of a client's id.
MOST_CHARACTERS: Final = 255

#: Called with some points of a push at a time, and the time of the push (ms since the epoch).
OnPush = Callable[[Instance, list[DataPoint], int], None]


class TelemetryReceiver:
    """The client instances of one handler, and the metrics that they push."""

    def __init__(self, metadata: MetadataCache, hosts: ClientHosts, clock: Clock, on_push: OnPush) -> None:
        self._metadata = metadata
        self._hosts = hosts
        self._clock = clock
        self._on_push = on_push
        self.instances = Instances(lambda: metadata.client_metrics_configs, lambda: metadata.version, hosts.has_ended)
        self._pushes = self._throttled = self._unknown = self._rejected = 0

    def subscription_of(self, request: Request, body: Any) -> dict[str, Any]:
        """Return the response to a GetTelemetrySubscriptions."""
        instance_id = body.client_instance_id
        if instance_id == ZERO_ID:
            instance_id = self.instances.new_id()
        instance = self._instance(request, instance_id)
        if not instance.may_get(self._clock.monotonic_ns()):
            self._throttled += 1
            return {"error_code": ErrorCode.THROTTLING_QUOTA_EXCEEDED}
        instance.last_error = 0
        subscription = instance.subscription
        return {
            "client_instance_id": instance_id,
            "subscription_id": subscription.subscription_id,
            "accepted_compression_types": ACCEPTED_CODECS,
            "push_interval_ms": subscription.interval_ms,
            "telemetry_max_bytes": self._metadata.broker_config.telemetry_max_bytes,
            "delta_temporality": True,
            "requested_metrics": subscription.metrics,
        }

    def push(self, request: Request, body: Any) -> Steps[dict[str, Any]]:
        """Return the response to a PushTelemetry, once its metrics are stored."""
        if body.client_instance_id in RESERVED_IDS:
            self._rejected += 1
            return {"error_code": ErrorCode.INVALID_REQUEST}
        instance = self._instance(request, body.client_instance_id)
        most_bytes = self._metadata.broker_config.telemetry_max_bytes
        error = push_error(instance, body, most_bytes, self._clock.monotonic_ns())
        if not error and body.metrics:
            error = yield from self._store(instance, body, most_bytes)
        instance.last_error = error
        self._count(error)
        return {"error_code": error}

    def drop_ended(self, now_ns: int) -> None:
        """Drop the instances of clients that have ended."""
        self.instances.drop_ended(now_ns)

    def counters(self) -> dict[str, int]:
        """Return the counters since the start, by metric name."""
        return {
            "client_metrics_pushes": self._pushes,
            "client_metrics_throttled": self._throttled,
            "client_metrics_unknown_subscriptions": self._unknown,
            "client_metrics_rejected": self._rejected,
        }

    def gauges(self) -> dict[str, int]:
        """Return the gauges, by metric name."""
        return {"client_instances": len(self.instances), "client_metrics_series": self.instances.series_count}

    def _instance(self, request: Request, instance_id: bytes) -> Instance:
        software, version = self._hosts.software_of(request.connection_id)
        session = request.session
        address = session.host or self._hosts.of(request.connection_id).removeprefix("/")
        client_id = request.client_id[:MOST_CHARACTERS]
        client = ClientFacts(uuid_text(instance_id), client_id, software, version, address)
        now_ns = self._clock.monotonic_ns()
        return self.instances.seen(client, instance_id, session.user, request.connection_id, now_ns)

    def _store(self, instance: Instance, body: Any, most_bytes: int) -> Steps[int]:
        """Decode the metrics of a push and store them; return the error if they are not valid."""
        points: list[DataPoint] = []
        try:
            data = yield from unpacked(body.compression_type, body.metrics, MOST_EXPANSION * most_bytes)
            for number, each in enumerate(data_points(bytes(data)), 1):
                # Not a number: the average of nothing.
                points += [point for point in each if isfinite(point.value)]
                if len(points) > MOST_SERIES:
                    return ErrorCode.INVALID_RECORD
                if not number % _METRICS_AT_ONCE:
                    yield
            pushed_ms = instance.pushed_wall_ms = self._clock.wall_ms()
            self.instances.series_count += instance.series.apply(points)
        except ApiError as error:
            is_large = error.code == ErrorCode.MESSAGE_TOO_LARGE
            return ErrorCode.TELEMETRY_TOO_LARGE if is_large else ErrorCode.INVALID_RECORD
        except (InvalidReceive, TooManySeriesError):
            return ErrorCode.INVALID_RECORD
        self.instances.drop_oldest_values(MOST_SERIES_OF_ALL)
        for start in range(0, len(points), _METRICS_AT_ONCE):
            self._on_push(instance, points[start : start + _METRICS_AT_ONCE], pushed_ms)
            yield
        return 0

    def _count(self, error: int) -> None:
        if not error:
            self._pushes += 1
        elif error == ErrorCode.THROTTLING_QUOTA_EXCEEDED:
            self._throttled += 1
        elif error == ErrorCode.UNKNOWN_SUBSCRIPTION_ID:
            self._unknown += 1
        else:
            self._rejected += 1


def uuid_text(instance_id: bytes) -> str:
    """Return an id as Kafka's clients and tools write it."""
    return urlsafe_b64encode(instance_id).decode().rstrip("=")
