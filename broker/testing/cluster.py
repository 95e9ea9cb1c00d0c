"""What tests ask of any broker: topics made and deleted, groups deleted. One connection for each call."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from broker.client import groups, topics
from broker.client.connection import Connection
from broker.errors import ApiError
from broker.protocol.error_codes import ErrorCode

#: Topics that a broker keeps for itself.
_INTERNAL = ("__consumer_offsets", "__transaction_state", "__share_group_state")


def create_topic(bootstrap: str, name: str, partitions: int, settings: Mapping[str, object]) -> None:
    """Make a topic with one replica. Raises ApiError."""
    with Connection(bootstrap) as connection:
        topics.create(connection, name, partitions, 1, {key: str(value) for key, value in settings.items()})


def delete_topics(bootstrap: str, names: Iterable[str]) -> None:
    """Delete topics; one that is not there is passed over. Raises ApiError."""
    with Connection(bootstrap) as connection:
        for name in names:
            _delete(connection, name)


def reset(bootstrap: str) -> list[str]:
    """Delete all topics but the broker's own, and all groups. Return the groups that have members: those stay."""
    left = []
    with Connection(bootstrap) as connection:
        for name in topics.names(connection):
            if name not in _INTERNAL:
                _delete(connection, name)
        for group in groups.list_groups(connection):
            try:
                groups.delete(connection, group.name)
            except ApiError as error:
                if error.code == ErrorCode.NON_EMPTY_GROUP:
                    left.append(group.name)
                elif error.code != ErrorCode.GROUP_ID_NOT_FOUND:
                    raise
    return left


def _delete(connection: Connection, name: str) -> None:
    try:
        topics.delete(connection, name)
    except ApiError as error:
        if error.code != ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            raise
