"""Test operations that any broker supports: create and delete topics, delete groups. One connection per call."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rotunda.broker.client.admin import groups, topics
from rotunda.broker.client.network.blocking_client import BlockingClient
from rotunda.broker.errors import ApiError, UsageError
from rotunda.broker.protocol.error_codes import ErrorCode
from rotunda.broker.text_table import did_you_mean

#: Internal topics of a broker.
_INTERNAL = ("__consumer_offsets", "__transaction_state", "__share_group_state")


def create_topic(bootstrap: str, name: str, partitions: int, settings: Mapping[str, object]) -> None:
    """Create a topic with one replica. Raises ApiError."""
    with BlockingClient(bootstrap) as client:
        topics.create(client, name, partitions, 1, {key: setting_text(value) for key, value in settings.items()})


def delete_topics(bootstrap: str, names: Sequence[str]) -> None:
    """Delete topics; nonexistent ones are ignored. Raises ApiError."""
    with BlockingClient(bootstrap) as client:
        _delete(client, names)


def reset(bootstrap: str) -> list[str]:
    """Delete all topics except internal ones, and all groups. Return the groups with members, which are not deleted."""
    left = []
    with BlockingClient(bootstrap) as client:
        _delete(client, [name for name in topics.names(client) if name not in _INTERNAL])
        for group in groups.list_groups(client):
            try:
                groups.delete(client, group.name)
            except ApiError as error:
                if error.code == ErrorCode.NON_EMPTY_GROUP:
                    left.append(group.name)
                elif error.code != ErrorCode.GROUP_ID_NOT_FOUND:
                    raise
    return left


def check_share_group(bootstrap: str, name: str) -> None:
    """Raise UsageError if there is no share group of this name."""
    with BlockingClient(bootstrap) as client:
        known = [each.name for each in groups.list_groups(client, kinds=[groups.SHARE])]
    if name not in known:
        raise UsageError(f"unknown share group {name!r}{did_you_mean(name, known)}; a consumer's first poll creates it")


def setting_text(value: object) -> str:
    """Return a Python value in the format of Kafka's settings: True as true, lists with commas."""
    if isinstance(value, bool):
        return str(value).lower()
    return ",".join(map(str, value)) if isinstance(value, (list, tuple)) else str(value)


def _delete(client: BlockingClient, names: Sequence[str]) -> None:
    if not names:
        return
    try:
        topics.delete(client, *names)
    except ApiError as error:
        if error.code != ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            raise
        if len(names) > 1:
            # After a topic that no longer exists, further topics may not have been deleted.
            for name in names:
                _delete(client, [name])
