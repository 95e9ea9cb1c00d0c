"""The authorizer: decides by ACLs whether an operation is allowed, as Kafka's StandardAuthorizer does.

Each target has one, in its metadata cache, which applies new ACLs; without ``authorizer.class.name`` there is none.
Independent of requests: the checks of each API are in `broker.apis.authorization`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final

from rotunda.broker.clock import SystemClock
from rotunda.broker.security.acl.acls import (
    EVERY_PRINCIPAL,
    WILDCARD,
    Acl,
    Operation,
    PatternType,
    Permission,
    ResourceType,
    is_from,
)
from rotunda.broker.security.session import Session
from rotunda.broker.server_log.log_setup import RepeatedWarnings
from rotunda.broker.steps import ELEMENTS_AT_ONCE, Steps

logger = logging.getLogger(__name__)

#: Limit of cached decisions; beyond it the cache is cleared.
MOST_KNOWN: Final = 20_000

#: Decisions on longer resource names are not cached, and logs have only this much of a name: clients choose names.
LONGEST_KNOWN: Final = 512

#: By operation: the operations of ACLs that allow it. A denial applies only to the operation it names.
_ALLOWED_BY: Final = {
    Operation.DESCRIBE: frozenset(
        {Operation.ALL, Operation.DESCRIBE, Operation.READ, Operation.WRITE, Operation.DELETE, Operation.ALTER}
    ),
    Operation.DESCRIBE_CONFIGS: frozenset({Operation.ALL, Operation.DESCRIBE_CONFIGS, Operation.ALTER_CONFIGS}),
}

#: The key of a decision: (session, operation, resource type, resource name).
_Question = tuple[Session, int, int, str]


class Authorizer:
    """The effective ACLs, and decisions by them."""

    def __init__(self, super_users: Iterable[str] = (), *, allow_without_acls: bool = False) -> None:
        """Start without ACLs. ``super_users``: principals with all rights."""
        self._super_users = frozenset(super_users)
        self._allow_without_acls = allow_without_acls
        self._acls: dict[Acl, None] = {}
        #: By type of resource and name.
        self._literal: dict[tuple[int, str], dict[Acl, None]] = {}
        self._prefixed: dict[tuple[int, str], dict[Acl, None]] = {}
        #: By type of resource: the lengths of the prefixes.
        self._lengths: dict[int, tuple[int, ...]] = {}
        self._known: dict[_Question, bool] = {}
        #: By session, operation and resource type: whether the operation is allowed on any resource.
        self._known_of_any: dict[tuple[Session, int, int], bool] = {}
        self._warnings = RepeatedWarnings(logger, SystemClock().monotonic_ns)
        #: Number of changes of the ACLs: a waiting request is checked again after a change.
        self.changes = 0
        #: Denied requests since the start.
        self.denied = 0
        #: Records a denial for the request log: operation, resource type, name. Returns its number there.
        self.on_denied: Callable[[int, int, str], int] = _nobody_listens
        #: The number of the last denial.
        self.last_denial = 0

    def __iter__(self) -> Iterator[Acl]:
        return iter(tuple(self._acls))

    def __contains__(self, acl: Acl) -> bool:
        return acl in self._acls

    def __len__(self) -> int:
        return len(self._acls)

    def replace(self, acls: Iterable[Acl]) -> Steps[None]:
        """Replace all ACLs with these; they become effective together in the last step."""
        new = Authorizer()
        for number, acl in enumerate(acls):
            new._add(acl)
            if not number % ELEMENTS_AT_ONCE:
                yield
        self._acls, self._literal, self._prefixed = new._acls, new._literal, new._prefixed
        self._changed()

    def update(self, added: Iterable[Acl], removed: Iterable[Acl]) -> None:
        """Add ACLs and remove others."""
        for acl in removed:
            if self._acls.pop(acl, self) is None:
                index = self._index(acl)
                del index[acl[:2]][acl]
                if not index[acl[:2]]:
                    del index[acl[:2]]
        for acl in added:
            if acl not in self._acls:
                self._add(acl)
        self._changed()

    def allows(
        self, session: Session, operation: int, resource_type: int, name: str, *, is_asked_for: bool = True
    ) -> bool:
        """Return whether an operation is allowed. HOT.

        A denial is counted and logged, except with ``is_asked_for`` False, for checks of visibility only.
        """
        question = session, operation, resource_type, name
        allowed = self._known.get(question)
        if allowed is None:
            allowed = self._decide(*question)
            if len(name) <= LONGEST_KNOWN:
                if len(self._known) >= MOST_KNOWN:
                    self._known.clear()
                self._known[question] = allowed
        if not allowed and is_asked_for:
            self._note_denied(*question)
        return allowed

    def allows_any(self, session: Session, operation: int, resource_type: int) -> bool:
        """Return whether an operation is allowed on any resource of a type (KIP-679)."""
        question = session, operation, resource_type
        known = self._known_of_any.get(question)
        if known is None:
            if len(self._known_of_any) >= MOST_KNOWN:
                self._known_of_any.clear()
            known = self._known_of_any[question] = self._decide_of_any(*question)
        return known

    def _decide_of_any(self, session: Session, operation: int, resource_type: int) -> bool:
        if self.allows(session, operation, resource_type, "hardcode", is_asked_for=False):
            return True
        allowed: dict[tuple[int, str], None] = {}
        denied: set[tuple[int, str]] = set()
        for acl in self._acls:
            if acl.resource_type != resource_type or not _is_about(acl, session):
                continue
            if acl.operation in (operation, Operation.ALL):
                if acl.permission == Permission.ALLOW:
                    allowed[acl.pattern_type, acl.name] = None
                else:
                    denied.add((acl.pattern_type, acl.name))
        everything = (PatternType.LITERAL, WILDCARD)
        if everything in denied:
            return False
        if everything in allowed:
            return True
        return any(not _is_dominated(pattern, denied) for pattern in allowed)

    def _decide(self, session: Session, operation: int, resource_type: int, name: str) -> bool:
        if session.principal in self._super_users:
            return True
        allowing = _ALLOWED_BY.get(Operation(operation), (Operation.ALL, operation))
        found, allowed = False, False
        for acl in self._of(resource_type, name):
            found = True
            if not _is_about(acl, session):
                continue
            if acl.permission == Permission.ALLOW:
                allowed = allowed or acl.operation in allowing
            elif acl.operation in (operation, Operation.ALL):
                return False
        return allowed if found else self._allow_without_acls

    def _of(self, resource_type: int, name: str) -> Iterator[Acl]:
        """Yield the ACLs that apply to a resource."""
        yield from self._literal.get((resource_type, name), ())
        if name != WILDCARD:
            yield from self._literal.get((resource_type, WILDCARD), ())
        for length in self._lengths.get(resource_type, ()):
            if length <= len(name):
                yield from self._prefixed.get((resource_type, name[:length]), ())

    def _add(self, acl: Acl) -> None:
        self._acls[acl] = None
        self._index(acl).setdefault(acl[:2], {})[acl] = None

    def _index(self, acl: Acl) -> dict[tuple[int, str], dict[Acl, None]]:
        return self._literal if acl.pattern_type == PatternType.LITERAL else self._prefixed

    def _changed(self) -> None:
        self.changes += 1
        self._known.clear()
        self._known_of_any.clear()
        lengths: dict[int, set[int]] = {}
        for resource_type, name in self._prefixed:
            lengths.setdefault(resource_type, set()).add(len(name))
        self._lengths = {resource_type: tuple(sorted(each)) for resource_type, each in lengths.items()}

    def _note_denied(self, session: Session, operation: int, resource_type: int, name: str) -> None:
        self.denied += 1
        self.last_denial = self.on_denied(operation, resource_type, name)
        resource = f"{ResourceType(resource_type).title}:LITERAL:{name[:LONGEST_KNOWN]}"
        # One line for repeated denials, with Kafka's words.
        self._warnings.warning(
            f"{session.principal} {operation} {resource}",
            "Principal = %s is Denied operation = %s from host = %s on resource = %s",
            session.principal,
            Operation(operation).name,
            session.host,
            resource,
        )


def _nobody_listens(_operation: int, _resource_type: int, _name: str) -> int:
    return 0


def super_users_of(text: str) -> Sequence[str]:
    """Return the principals in a list separated by semicolons."""
    return [each.strip() for each in text.split(";") if each.strip()]


def _is_about(acl: Acl, session: Session) -> bool:
    return acl.principal in (session.principal, EVERY_PRINCIPAL) and is_from(acl.host, session.host)


def _is_dominated(pattern: tuple[int, str], denied: set[tuple[int, str]]) -> bool:
    """Return whether everything that a pattern allows is denied: by the same pattern, or by a prefix of it."""
    if pattern in denied:
        return True
    _, name = pattern
    return any((PatternType.PREFIXED, name[:length]) in denied for length in range(1, len(name) + 1))
