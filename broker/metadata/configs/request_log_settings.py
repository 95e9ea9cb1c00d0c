"""The settings of the request log, published to the recorder and the processes that feed it.

Called by the supervisor before it starts any of them, and by the controller with every announced change.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rotunda.broker.config.keys import MAX_LONG
from rotunda.shm.rings.recorder_rings import Retention

if TYPE_CHECKING:
    from rotunda.broker.config.broker_config import BrokerConfig
    from rotunda.shm.rings.recorder_rings import RecorderRings

_NS_PER_MS = 1_000_000


def store_settings(rings: RecorderRings, config: BrokerConfig, processors: int, *, has_room: bool = True) -> None:
    """Publish the request log settings for this number of processors; recording is off while the disk is full."""
    rows_per_second = config.request_log_rows_per_second
    rings.settings().store(
        enabled=config.request_log_enable and has_room,
        sample_interval=config.request_log_sample_interval,
        slow_ns=min(config.request_log_slow_threshold_ms * _NS_PER_MS, MAX_LONG),
        rows_per_second=max(1, rows_per_second // processors) if rows_per_second else 0,
        retention=Retention(
            config.request_log_retention_ms, config.request_log_retention_bytes, config.history_retention_ms
        ),
        roles_interval_ms=config.request_log_roles_interval_ms,
    )
