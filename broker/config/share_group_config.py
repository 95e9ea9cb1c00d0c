"""The effective settings of one share group, resolved once for each change of settings.

Pure; runs in handlers. `MetadataCache.share_group_config` has the one of a group.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from rotunda.broker.config.broker_config import BrokerConfig
from rotunda.broker.config.group_config import GROUP_CONFIGS, group_value
from rotunda.broker.config.offset_reset import OffsetReset, parse_offset_reset


@dataclass(frozen=True, slots=True, kw_only=True)
class ShareGroupConfig:
    """The settings of a share group. Attributes are property names with underscores."""

    share_heartbeat_interval_ms: int
    share_session_timeout_ms: int
    share_assignment_interval_ms: int
    share_record_lock_duration_ms: int
    share_delivery_count_limit: int
    share_partition_max_record_locks: int
    share_auto_offset_reset: str
    share_isolation_level: str
    share_renew_acknowledge_enable: bool
    errors_deadletterqueue_topic_name: str
    errors_deadletterqueue_copy_record_enable: bool

    @property
    def offset_reset(self) -> OffsetReset:
        """The parsed `share.auto.offset.reset`."""
        return parse_offset_reset(self.share_auto_offset_reset)

    @property
    def reads_committed(self) -> bool:
        """Whether records of open and aborted transactions are omitted."""
        return self.share_isolation_level == "read_committed"

    @classmethod
    def resolve(cls, configs: Mapping[str, str], broker: BrokerConfig) -> ShareGroupConfig:
        """Return the settings of a group from its own values, by property name, over the broker's."""
        values: dict[str, Any] = {key.attribute: group_value(key, configs, broker) for key in _KEYS}
        return cls(**values)


_FIELDS: Final = frozenset(field.name for field in dataclasses.fields(ShareGroupConfig))
_KEYS: Final = tuple(key for key in GROUP_CONFIGS.values() if key.attribute in _FIELDS)
