"""The broker settings of log maintenance that are not defaults of topic settings: interval, rate and memory.

Declarations only. `broker_config` joins them with the others into the one BrokerConfig. Names and defaults are Kafka's.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass

from rotunda.broker.config.keys import Kind, setting


@dataclass(frozen=True, kw_only=True, init=False, repr=False, eq=False)
class CleanerSettings:
    """Settings of the cleaner. A part of BrokerConfig."""

    log_retention_check_interval_ms: int = setting(
        Kind.LONG, 300000, least=1, doc="Interval of the check for expired segments."
    )
    log_cleaner_enable: bool = setting(
        Kind.BOOLEAN, True, doc="Whether topics with the policy compact are compacted. Retention does not depend on it."
    )
    log_cleaner_backoff_ms: int = setting(
        Kind.LONG, 15000, least=0, dynamic=True, doc="Pause of compaction when there was nothing to compact."
    )
    log_cleaner_dedupe_buffer_size: int = setting(
        Kind.LONG,
        134217728,
        unit="bytes",
        least=1024,
        dynamic=True,
        doc="Memory for the keys of one round of compaction; a log with more keys needs several rounds.",
    )
    log_cleaner_io_max_bytes_per_second: float = setting(
        Kind.DOUBLE,
        sys.float_info.max,
        unit="bytes",
        least=1,
        dynamic=True,
        doc="Maximum rate of compaction, reads and writes together.",
    )
