"""The broker settings of its text log: the maximum size and age of its file, and the number of old files.

Declarations only. `broker_config` joins them with the others into the one BrokerConfig. Kafka leaves this to Log4j.
"""

from __future__ import annotations

from dataclasses import dataclass

from rotunda.broker.config.keys import Kind, setting

#: A smaller file would be rotated all the time.
SMALLEST_FILE_BYTES = 16 * 1024


def _max_bytes_complaint(size: int) -> str | None:
    allowed = size == -1 or size >= SMALLEST_FILE_BYTES
    return None if allowed else f"Value must be -1 or at least {SMALLEST_FILE_BYTES}"


@dataclass(frozen=True, kw_only=True, init=False, repr=False, eq=False)
class BrokerLogSettings:
    """Settings of the file that a broker in the background writes its log to. A part of BrokerConfig."""

    broker_log_max_bytes: int = setting(
        Kind.LONG,
        64 * 1024 * 1024,
        validator=_max_bytes_complaint,
        doc="Size at which the log file of a broker started with --daemon is renamed to broker.log.1; -1: no limit.",
    )
    broker_log_max_age_ms: int = setting(
        Kind.LONG,
        7 * 24 * 3600 * 1000,
        least=-1,
        doc="Age of its first line at which the log file is renamed too; -1: no limit.",
    )
    broker_log_kept_files: int = setting(
        Kind.INT, 4, least=0, most=1000, doc="Number of renamed log files that are kept; broker.log.1 is the newest."
    )
