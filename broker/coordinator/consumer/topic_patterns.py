"""The topics that match the members' patterns: one evaluation for each pattern and metadata version.

Runs in handler processes, for all their groups. A pattern is matched only against topics that its client may describe,
and after a change only against new ones. An evaluation advances in the heartbeats that wait for it, which share it; a
heartbeat waits for a second at most and continues with the known topics, and the next one resumes the evaluation.
"""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterable, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, NamedTuple, TypeVar

from rotunda.broker.metadata.topics.topic_regex import InvalidPatternError, compiled
from rotunda.broker.scheduling.long_responses import each_of
from rotunda.broker.security.acl.acls import Operation, ResourceType

if TYPE_CHECKING:
    from rotunda.broker.coordinator.consumer.target_assignment import Topics
    from rotunda.broker.security.acl.authorizer import Authorizer
    from rotunda.broker.security.session import Session
    from rotunda.broker.steps import Steps

logger = logging.getLogger(__name__)

#: The longest wait of a heartbeat. Sessions last longer, and the client's request timeout is longer.
MOST_WAIT_NS: Final = 1_000_000_000

_MOST_EVALUATIONS: Final = 1024
_MOST_VIEWS: Final = 64
_DONE: Final = object()

_Key = TypeVar("_Key", bound=Hashable)
_Value = TypeVar("_Value")


class Matches(NamedTuple):
    """The matching topics by pattern, at a metadata version; patterns still being evaluated are missing."""

    version: int
    names: Mapping[str, frozenset[str]]


NO_MATCHES: Final = Matches(-1, MappingProxyType({}))


class _View(NamedTuple):
    """The topics that a client may describe, at a metadata version."""

    version: int
    names: frozenset[str]


class _Evaluation:
    """The last result for one pattern and client, and the steps of the next."""

    __slots__ = ("names", "steps", "view")

    def __init__(self) -> None:
        self.view = _View(-1, frozenset())
        self.names: frozenset[str] = frozenset()
        self.steps: Steps[None] | None = None


class TopicPatterns:
    """The evaluations of one handler."""

    def __init__(self, topics: Topics, authorizer: Authorizer | None, now_ns: Callable[[], int]) -> None:
        self._topics = topics
        self._authorizer = authorizer
        self._now_ns = now_ns
        self._evaluations: OrderedDict[tuple[Session | None, str], _Evaluation] = OrderedDict()
        self._views: OrderedDict[Session | None, _View] = OrderedDict()

    def resolve(self, client: Session | None, patterns: Iterable[str]) -> Steps[Matches]:
        """Return the topics that match each pattern, of those that a client may describe."""
        version, until_ns = self._topics.version, self._now_ns() + MOST_WAIT_NS
        names = {}
        for pattern in sorted(patterns):
            evaluation = _kept(self._evaluations, (client, pattern), _Evaluation, _MOST_EVALUATIONS)
            while evaluation.view.version < version and self._now_ns() < until_ns:
                if evaluation.steps is None:
                    evaluation.steps = self._evaluate(evaluation, client, pattern)
                if next(evaluation.steps, _DONE) is _DONE:
                    evaluation.steps = None
                yield
            if evaluation.view.version >= version:
                names[pattern] = evaluation.names
        return Matches(version, names)

    def _evaluate(self, evaluation: _Evaluation, client: Session | None, pattern: str) -> Steps[None]:
        view = yield from self._view_of(client)
        known = evaluation.names & view.names
        try:
            found = yield from compiled(pattern).matching(view.names - evaluation.view.names, str)
        except InvalidPatternError as error:
            # Loaded from the log of a version that accepted it.
            logger.warning("the pattern %.255s no longer matches any topic: %s", pattern, error)
            known, found = frozenset(), []
        evaluation.view = view
        if found or known != evaluation.names:
            evaluation.names = known.union(found)

    def _view_of(self, client: Session | None) -> Steps[_View]:
        """Return the topics that a client may describe; until a change, the same set for all patterns."""
        version = self._topics.version
        view = _kept(self._views, client, lambda: _View(-1, frozenset()), _MOST_VIEWS)
        if view.version == version:
            return view
        names: frozenset[str] = self._topics.topic_names()
        authorizer = self._authorizer
        if authorizer is not None and client is not None:
            seen: list[str] = []

            def look(name: str) -> None:
                if authorizer.allows(client, Operation.DESCRIBE, ResourceType.TOPIC, name, is_asked_for=False):
                    seen.append(name)

            yield from each_of(names, look)
            names = frozenset(seen)
        view = self._views[client] = _View(version, names)
        return view


def _kept(cache: OrderedDict[_Key, _Value], key: _Key, make: Callable[[], _Value], most: int) -> _Value:
    """Return a cached value, or create it; drops the least recently used one above the limit."""
    value = cache.get(key)
    if value is None:
        value = cache[key] = make()
        if len(cache) > most:
            cache.popitem(last=False)
    else:
        cache.move_to_end(key)
    return value
