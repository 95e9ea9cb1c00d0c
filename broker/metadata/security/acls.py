"""The changes of access control lists. Part of the controller, the one writer of the metadata.

A change is on disk before it is answered. Making ACLs twice leaves what making them once leaves; which ACLs a request
has deleted is on record with the change, so that a replacement answers with them too. What leads to a change is done in
slices, and so is what follows it; the change itself is one, of as many ACLs as Kafka lets through, whose names have
been staged before: 10,000 take about 15 ms. A death before it leaves nothing done, a death after it everything.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager

from rotunda.broker.errors import ApiError
from rotunda.broker.metadata.metadata_cache import MetadataCache
from rotunda.broker.metadata.storage.request_dedup import TopicOutcome
from rotunda.broker.metadata.storage.store import Transaction
from rotunda.broker.protocol.error_codes import ErrorCode
from rotunda.broker.protocol.steps import ELEMENTS_AT_ONCE, Steps
from rotunda.broker.security.acl.acls import Acl, AclFilter, acls_of, stored_name
from rotunda.broker.security.acl.authorizer import Authorizer
from rotunda.broker.security.acl.filter_index import FilterIndex

log = logging.getLogger(__name__)

#: ACLs that one request may make or delete, as in Kafka.
MOST_CHANGES = 10_000


class AclChanges:
    """Makes and deletes ACLs."""

    def __init__(
        self,
        metadata: MetadataCache,
        stage: Callable[[Sequence[str]], Steps[None]],
        change: Callable[[str | None, Sequence[TopicOutcome]], AbstractContextManager[Transaction]],
        outcomes_of: Callable[[str], list[TopicOutcome] | None],
    ) -> None:
        """``stage`` hands over names of ACLs; ``change`` begins a change of a request, with what is to be on record."""
        self._metadata = metadata
        self._stage = stage
        self._change = change
        self._outcomes_of = outcomes_of

    @property
    def _authorizer(self) -> Authorizer:
        authorizer = self._metadata.authorizer
        if authorizer is None:
            raise ApiError(ErrorCode.SECURITY_DISABLED, "No Authorizer is configured.")
        return authorizer

    def create(self, acls: Iterable[Acl]) -> Steps[None]:
        """Put ACLs in force, all in one change; those that there are stay. Raises ApiError: none is made then."""
        new: dict[str, Acl] = {}
        for number, acl in enumerate(acls):
            if acl not in self._authorizer:
                new[stored_name(acl)] = acl
            if not number % ELEMENTS_AT_ONCE:
                yield
        if new:
            yield from self._stage(list(new))
            with self._change(None, ()) as transaction:
                transaction.add_staged_acls()
            yield
            self._metadata.take_acls(transaction.change, list(new.values()), ())
            yield
            log.info("ACLs were added: %s", list(new.values()))

    def delete(self, filters: Sequence[AclFilter], request: str) -> Steps[list[list[Acl]]]:
        """Delete what filters describe, all in one change; return for each filter what it has described.

        Raises ApiError: none is deleted then.
        """
        made = self._outcomes_of(request)
        there = self._authorizer if made is None else acls_of([made[0].name])
        meant: dict[AclFilter, list[Acl]] = {each: [] for each in filters}
        index = FilterIndex()
        for number, each in enumerate(meant):
            index.add(each)
            if not number % ELEMENTS_AT_ONCE:
                yield
        gone = yield from _meant_by(index, there, meant)
        if made is None:
            yield from self._delete(gone, request)
        return [meant[each] for each in filters]

    def _delete(self, acls: Sequence[Acl], request: str) -> Steps[None]:
        if not acls:
            return
        if len(acls) > MOST_CHANGES:
            message = f"Cannot remove more than {MOST_CHANGES} acls in a single delete operation."
            raise ApiError(ErrorCode.POLICY_VIOLATION, message)
        names: list[str] = []
        for number, acl in enumerate(acls):
            names.append(stored_name(acl))
            if not number % ELEMENTS_AT_ONCE:
                yield
        yield from self._stage(names)
        with self._change(request, [TopicOutcome(",".join(names))]) as transaction:
            transaction.remove_staged_acls()
        yield
        self._metadata.take_acls(transaction.change, (), acls)
        yield
        log.info("ACLs were deleted: %s", list(acls))


def _meant_by(index: FilterIndex, there: Iterable[Acl], meant: dict[AclFilter, list[Acl]]) -> Steps[list[Acl]]:
    """Add to each filter the ACLs that it means; return those that any of them means."""
    gone: list[Acl] = []
    looked_at = 0
    for acl in there:
        candidates = index.candidates(acl)
        by = [each for each in candidates if each.matches(acl)]
        for each in by:
            meant[each].append(acl)
        if by:
            gone.append(acl)
        looked_at += 1 + len(candidates)
        if looked_at > ELEMENTS_AT_ONCE:
            looked_at = 0
            yield
    return gone
