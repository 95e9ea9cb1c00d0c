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
            doc="Whether /metrics has offsets, sizes and lags of each partition besides the sums by topic and group. "
            "That is many series where there are many partitions; /metrics?partitions=true has them for one who asks.",
        )
    )
