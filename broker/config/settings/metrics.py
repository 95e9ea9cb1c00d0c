"""The broker settings of metrics, of the broker and of clients. Declarations only; `broker_config` joins them."""

from __future__ import annotations

from dataclasses import dataclass

from rotunda.broker.config.keys import Kind, setting


@dataclass(frozen=True, kw_only=True, init=False, repr=False, eq=False)
class MetricsSettings:
    """Settings of /metrics and of the receiver of client metrics. A part of BrokerConfig."""

    metrics_per_client: bool = setting(
        Kind.BOOLEAN,
        False,
        doc="Add the latest values of the metrics that clients push to /metrics, at most 2,000 of each handler. "
        "Needs client.telemetry.receiver.enable.",
    )
    metrics_per_partition: bool = setting(
        Kind.BOOLEAN,
        False,
        doc="Add offsets, sizes and lags of each partition to /metrics, besides the sums by topic and group. With "
        "many partitions these are many series; /metrics?partitions=true returns them on request.",
    )
    client_telemetry_receiver_enable: bool = setting(
        Kind.BOOLEAN,
        False,
        doc="Receive the metrics that clients push (KIP-714). Subscriptions, made with kafka-client-metrics, "
        "choose them. They are on the status page and in the request log. Kafka needs a plugin for this.",
    )
    telemetry_max_bytes: int = setting(
        Kind.INT,
        1048576,
        least=1,
        doc="Maximum size of a push of client metrics, compressed. Uncompressed 16 times that.",
    )
