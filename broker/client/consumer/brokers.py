"""The brokers of a cluster as a consumer needs them: a connection to each, and which one leads which partition.

A connection is opened when it is first needed and again after it has ended. Blocking; nothing is cached but what the
last look at the cluster found.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Final

from broker.client.access import PLAIN_TEXT, Access
from broker.client.admin.connection import Connection, ConnectionFailed, check
from broker.client.admin.groups import coordinator
from broker.client.topic_partition import TopicPartition
from broker.errors import ApiError, RotundaError, UsageError
from broker.protocol.api_keys import ApiKey
from broker.protocol.error_codes import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Mapping

_METADATA_VERSION: Final = 9
_CLIENT_ID: Final = "rotunda-consume"
_BOOTSTRAP: Final = -1


class Brokers:
    """Connections to the brokers of the cluster that `addresses`, a comma-separated list, leads to."""

    def __init__(self, addresses: str, access: Access = PLAIN_TEXT, timeout_s: float = 30.0) -> None:
        self._bootstrap = [each.strip() for each in addresses.split(",")]
        self._access = access
        self._timeout_s = timeout_s
        #: By node id, and by the name of a group that its coordinator is asked about.
        self._open: dict[int | str, Connection] = {}
        self._nodes: dict[int, str] = {}
        #: The broker that leads each partition of the topics that were looked at last.
        self.leaders: dict[TopicPartition, int] = {}

    def any(self) -> Connection:
        """Return a connection to some broker. Raises ConnectionFailed when none of them can be reached."""
        for each in self._open.values():
            if each.is_open:
                return each
        for address in self._bootstrap:
            try:
                return self._opened(_BOOTSTRAP, address, self._timeout_s)
            except ConnectionFailed as failure:
                last = failure
        raise last

    def leading(self, partition: TopicPartition) -> Connection:
        """Return a connection to the leader of a partition that was looked at. Raises ConnectionFailed."""
        return self._of(self.leaders[partition])

    def coordinator(self, group: str, timeout_s: float) -> Connection:
        """Return a connection of its own to the coordinator of a group. Raises ApiError and ConnectionFailed."""
        known = self._open.get(group)
        if known is not None and known.is_open:
            return known
        found = coordinator(self.any(), group)
        return self._opened(group, f"{found.host}:{found.port}", timeout_s)

    def forget_coordinator(self, group: str) -> None:
        """Look for the coordinator of a group anew at the next call."""
        known = self._open.pop(group, None)
        if known is not None:
            known.close()

    def close(self) -> None:
        """Close all connections."""
        for each in self._open.values():
            each.close()
        self._open.clear()

    def look(self, topics: Iterable[str] | None) -> dict[str, ApiError | None]:
        """Look up who leads the partitions of these topics, or of all; return what is wrong with each, if anything.

        Raises ConnectionFailed and ApiError.
        """
        wanted = None if topics is None else [{"name": name} for name in topics]
        connection = self.any()
        version = connection.highest_version(ApiKey.METADATA, _METADATA_VERSION, oldest=1)
        answer = connection.request(ApiKey.METADATA, version, {"topics": wanted, "allow_auto_topic_creation": False})
        self._nodes = {int(each.node_id): f"{each.host}:{each.port}" for each in answer.brokers}
        self.leaders = {}
        return {str(topic.name): self._take(topic) for topic in answer.topics}

    def _take(self, topic: Any) -> ApiError | None:
        try:
            check(topic)
        except ApiError as error:
            return error
        for each in topic.partitions:
            self.leaders[TopicPartition(str(topic.name), int(each.partition_index))] = int(each.leader_id)
        return None

    def _of(self, node_id: int) -> Connection:
        if node_id not in self._nodes:
            raise ApiError(ErrorCode.LEADER_NOT_AVAILABLE, None)
        return self._opened(node_id, self._nodes[node_id], self._timeout_s)

    def _opened(self, key: int | str, address: str, timeout_s: float) -> Connection:
        known = self._open.get(key)
        if known is None or not known.is_open:
            connection = Connection(address, timeout_s, _CLIENT_ID, self._access)
            self._open[key] = connection.__enter__()
        return self._open[key]


def matching(brokers: Brokers, wanted: Iterable[str]) -> list[str]:
    """Return the topics of these names, and those that an expression matches: one that begins with ^.

    As with librdkafka, an expression matches from a name's beginning. Raises RotundaError when a topic does not exist
    and when no topic matches anything; ApiError when a topic may not be read.
    """
    wanted = list(wanted)
    expressions = [_expression(each) for each in wanted if each.startswith("^")]
    names = [each for each in wanted if not each.startswith("^")]
    problems = brokers.look(None if expressions else names)
    found = {name for name in problems if any(each.match(name) for each in expressions)}
    if expressions and names:
        problems |= brokers.look([*names, *found])
    for name in names:
        _raise_problem(brokers, name, problems.get(name, ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, None)))
    found.update(names)
    if not found:
        raise RotundaError(f"no topic matches {' '.join(wanted)}; `rotunda topic list` prints them all")
    return sorted(found)


def _expression(text: str) -> re.Pattern[str]:
    try:
        return re.compile(text)
    except re.error as failure:
        raise UsageError(f"{text} is no regular expression: {failure}") from failure


def _raise_problem(brokers: Brokers, name: str, problem: ApiError | None) -> None:
    if problem is None:
        return
    if problem.code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
        from difflib import get_close_matches  # noqa: PLC0415 - only for a complaint

        near = get_close_matches(name, list(brokers.look(None)), 1)
        hint = f"; did you mean {near[0]}?" if near else "; `rotunda topic list` prints those that there are"
        raise RotundaError(f"there is no topic {name}{hint}")
    raise ApiError(problem.code, problem.message or f"topic {name}")


def partitions_of(leaders: Mapping[TopicPartition, int], topics: Iterable[str]) -> list[TopicPartition]:
    """Return the partitions of these topics in order."""
    wanted = set(topics)
    return sorted(each for each in leaders if each.topic in wanted)
