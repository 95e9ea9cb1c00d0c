"""The tasks of groups: registers the requests for several groups that handlers forward to each other."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from rotunda.broker.apis.groups.delete_groups import DELETE_GROUPS
from rotunda.broker.apis.groups.describe_groups import DESCRIBE_GROUPS
from rotunda.broker.apis.groups.describe_share_group_offsets import DESCRIBE_SHARE_GROUP_OFFSETS
from rotunda.broker.apis.groups.group_calls import MultiGroupApi, register_group_calls
from rotunda.broker.apis.groups.list_groups import register_list_groups
from rotunda.broker.apis.groups.modern_group_describe import CONSUMER_GROUP_DESCRIBE, SHARE_GROUP_DESCRIBE
from rotunda.broker.apis.groups.offset_fetch import OFFSET_FETCH
from rotunda.broker.protocol.api_keys import ApiKey

if TYPE_CHECKING:
    from rotunda.broker.apis.context import BrokerContext

MULTI_GROUP_APIS: Final[Mapping[int, MultiGroupApi]] = MappingProxyType(
    {
        int(ApiKey.DESCRIBE_GROUPS): DESCRIBE_GROUPS,
        int(ApiKey.DELETE_GROUPS): DELETE_GROUPS,
        int(ApiKey.OFFSET_FETCH): OFFSET_FETCH,
        int(ApiKey.CONSUMER_GROUP_DESCRIBE): CONSUMER_GROUP_DESCRIBE,
        int(ApiKey.SHARE_GROUP_DESCRIBE): SHARE_GROUP_DESCRIBE,
        int(ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS): DESCRIBE_SHARE_GROUP_OFFSETS,
    }
)


def register_group_tasks(broker: BrokerContext) -> None:
    """Register the tasks by which other handlers read this one's groups, with addresses of the first listener."""
    register_group_calls(broker, MULTI_GROUP_APIS)
    register_list_groups(broker)
