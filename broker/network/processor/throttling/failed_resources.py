"""The failed resources of a response that contains only failures: partitions, topics, groups, transactional ids.

Pure. For the APIs that clients repeat until they succeed, those of AutoMQ's RetryStormBackoffPolicy (`D22`). An error
of a leader or coordinator makes a client refresh its metadata and retry, without delay if it likes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from rotunda.broker.errors import InvalidReceive
from rotunda.broker.protocol import codec
from rotunda.broker.protocol.api_keys import ApiKey
from rotunda.broker.protocol.error_codes import ErrorCode
from rotunda.broker.protocol.headers import parse_header
from rotunda.broker.protocol.primitives import ZERO_TOPIC_ID
from rotunda.broker.protocol.routing import coordinated_id
from rotunda.broker.protocol.schema.marks import error_paths

_OF_LEADERS: Final = frozenset(
    {ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.LEADER_NOT_AVAILABLE, ErrorCode.FENCED_LEADER_EPOCH}
)
_OF_COORDINATORS: Final = frozenset(
    {ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.NOT_COORDINATOR}
)

#: Versions of OffsetFetch and of FindCoordinator.
_GROUP_ERROR_FROM: Final = 2
_SEVERAL_GROUPS_FROM: Final = 8
_SEVERAL_COORDINATORS_FROM: Final = 4

#: The subject of a result, such as a topic and a partition. Two of one API are the same if these are equal.
Resource = tuple[object, ...]

#: One result in a response: its resource, its error code or 0, and whether it is of use to the client.
Result = tuple[Resource, int, bool]


class SentRequest(NamedTuple):
    """A request: its bytes from the api key on."""

    api_key: int
    version: int
    frame: bytes

    @property
    def request(self) -> Any:
        """The decoded request. Raises InvalidReceive."""
        return codec.decode(self.api_key, self.version, self.frame, self._body, len(self.frame))

    @property
    def coordinated_id(self) -> bytes | None:
        """The group or transactional id that the request names, if it names one."""
        try:
            return coordinated_id(self.frame, self.api_key, self.version)
        except InvalidReceive:
            return None

    @property
    def _body(self) -> int:
        return parse_header(self.frame, 0, len(self.frame)).body_offset


Results = Callable[[Any, SentRequest], Iterator[Result]]


class _Api(NamedTuple):
    """The results in an API's responses; ``needs_request``: finding them needs the request too."""

    results: Results
    transient: frozenset[ErrorCode]
    needs_request: bool


def failed_resources(sent: SentRequest, response: memoryview) -> dict[Resource, bool] | None:
    """Return the failed resources, each with whether the error was one of its leader or coordinator.

    None if anything else is in the response, which begins with its size, and for an API without entry here, or whose
    request is needed and missing. Raises InvalidReceive.
    """
    api = _APIS.get(sent.api_key)
    if api is None or (api.needs_request and not sent.frame):
        return None
    entity = codec.decode_response(sent.api_key, sent.version, response, 4, len(response))
    failed: dict[Resource, bool] = {}
    for resource, error, is_worth_something in api.results(entity, sent):
        if is_worth_something:
            return None
        if error:
            failed[resource] = failed.get(resource, False) or error in api.transient
    return failed


def _topic_of(structure: Any) -> object:
    """Return the name of a topic, or its id if it has no name."""
    for field in ("name", "topic", "topic_id"):
        found = getattr(structure, field, None)
        if found and found != ZERO_TOPIC_ID:
            return found
    return None


def _partitions(api_key: int, response: Any) -> Iterator[tuple[Any, Any]]:
    """Yield the partitions in a response, each with its topic."""
    topics, partitions, _ = error_paths(api_key)[-1]
    for topic in getattr(response, topics):
        for each in getattr(topic, partitions):
            yield topic, each


def _of_partitions(index: str, worth: str = "") -> Results:
    """Return a function that finds the results of partitions; ``worth``: a field that is -1 in one without content."""

    def results(response: Any, sent: SentRequest) -> Iterator[Result]:
        # A Fetch may also have a top-level error.
        yield (), getattr(response, "error_code", 0), False
        for topic, each in _partitions(sent.api_key, response):
            is_worth_something = not each.error_code and (not worth or getattr(each, worth) >= 0)
            yield (_topic_of(topic), getattr(each, index)), each.error_code, is_worth_something

    return results


def _of_topics(response: Any, sent: SentRequest) -> Iterator[Result]:
    if sent.api_key == ApiKey.METADATA and not sent.request.topics:
        # The brokers are worth something.
        yield (), 0, True
    for topic in response.topics:
        name = _topic_of(topic)
        for each in topic.partitions:
            yield (name, each.partition_index), each.error_code, not each.error_code and each.leader_id >= 0
        yield (name,), topic.error_code, False


def _of_one_id(response: Any, sent: SentRequest) -> Iterator[Result]:
    """Find the one result, about the group or transactional id that was named."""
    yield (sent.coordinated_id,), response.error_code, not response.error_code


def _of_commits(response: Any, sent: SentRequest) -> Iterator[Result]:
    """Find the results of partitions as those of the group: they are about its coordinator."""
    group = (sent.coordinated_id,)
    for _, each in _partitions(sent.api_key, response):
        yield group, each.error_code, not each.error_code


def _of_groups(response: Any, sent: SentRequest) -> Iterator[Result]:
    if sent.version >= _SEVERAL_GROUPS_FROM:
        for group in response.groups:
            yield (group.group_id,), group.error_code, not group.error_code
    elif sent.version >= _GROUP_ERROR_FROM:
        yield from _of_one_id(response, sent)
    else:
        # Versions this old have no error of the group.
        yield (), 0, True


def _of_coordinators(response: Any, sent: SentRequest) -> Iterator[Result]:
    """Find the results of keys: of two of different types those are two, be they alike."""
    request = sent.request
    if sent.version < _SEVERAL_COORDINATORS_FROM:
        yield (request.key_type, request.key), response.error_code, not response.error_code
        return
    for each in response.coordinators:
        yield (request.key_type, each.key), each.error_code, not each.error_code


def _by_leader(results: Results, *, needs_request: bool = False) -> _Api:
    return _Api(results, _OF_LEADERS, needs_request)


def _by_coordinator(results: Results) -> _Api:
    return _Api(results, _OF_COORDINATORS, needs_request=True)


_APIS: Final[Mapping[int, _Api]] = MappingProxyType(
    {
        ApiKey.PRODUCE: _by_leader(_of_partitions("index")),
        ApiKey.FETCH: _by_leader(_of_partitions("partition_index")),
        ApiKey.LIST_OFFSETS: _by_leader(_of_partitions("partition_index", "offset")),
        ApiKey.OFFSET_FOR_LEADER_EPOCH: _by_leader(_of_partitions("partition", "end_offset")),
        ApiKey.METADATA: _by_leader(_of_topics, needs_request=True),
        ApiKey.DESCRIBE_TOPIC_PARTITIONS: _by_leader(_of_topics),
        ApiKey.FIND_COORDINATOR: _by_coordinator(_of_coordinators),
        ApiKey.JOIN_GROUP: _by_coordinator(_of_one_id),
        ApiKey.SYNC_GROUP: _by_coordinator(_of_one_id),
        ApiKey.LEAVE_GROUP: _by_coordinator(_of_one_id),
        ApiKey.OFFSET_COMMIT: _by_coordinator(_of_commits),
        ApiKey.OFFSET_FETCH: _by_coordinator(_of_groups),
        ApiKey.TXN_OFFSET_COMMIT: _by_coordinator(_of_commits),
        ApiKey.ADD_OFFSETS_TO_TXN: _by_coordinator(_of_one_id),
        ApiKey.INIT_PRODUCER_ID: _by_coordinator(_of_one_id),
        ApiKey.END_TXN: _by_coordinator(_of_one_id),
    }
)

WATCHED: Final = frozenset(_APIS)
"""The APIs with examined responses."""
