"""The broker settings of metrics. Declarations only; `broker_config` joins them with the others."""

from __future__ import annotations

from dataclasses import dataclass

from rotunda.broker.config.keys import Key, Kind, setting


@dataclass(frozen=True, kw_only=True, init=False, repr=False, eq=False)
class MetricsSettings:
    """Settings of /metrics. Only ever part of a BrokerConfig."""

    metrics_per_partition: bool = setting(
        Key(
            name="metrics.per.partition",
            kind=Kind.BOOLEAN,
            default=False,
            doc="Add offsets, sizes and lags of each partition to /metrics, besides the sums by topic and group. With "
            "many partitions these are many series; /metrics?partitions=true returns them on request.",
        )
    )
