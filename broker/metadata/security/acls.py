"""The changes of access control lists. Part of the controller, the one writer of the metadata.

A change is on disk before the response is sent. Creating ACLs is idempotent; the deleted ACLs of a request are recorded
with the change, so that a replacement returns them too. Preparation and cache update run in slices; the change itself
is one transaction, of as many ACLs as Kafka allows, with names staged before: 10,000 need about 15 ms. After a death
before the change nothing is done, after a later one everything.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager

from rotunda.broker.errors import ApiError
from rotunda.broker.metadata.metadata_cache import MetadataCache
from rotunda.broker.metadata.store.metadata_store import Transaction
from rotunda.broker.metadata.store.request_dedup import TopicOutcome
from rotunda.broker.protocol.error_codes import ErrorCode
from rotunda.broker.security.acl.acls import Acl, AclFilter, acls_of, stored_name
from rotunda.broker.security.acl.authorizer import Authorizer
from rotunda.broker.security.acl.filter_index import FilterIndex
from rotunda.broker.steps import ELEMENTS_AT_ONCE, Steps

log = logging.getLogger(__name__)

#: Limit of ACLs that one request may create or delete, as in Kafka.
MOST_CHANGES = 10_000


class AclChanges:
    """Creates and deletes ACLs."""

    def __init__(
        self,
        metadata: MetadataCache,
        stage: Callable[[Sequence[str]], Steps[None]],
        change: Callable[[str | None, Sequence[TopicOutcome]], AbstractContextManager[Transaction]],
        outcomes_of: Callable[[str], list[TopicOutcome] | None],
    ) -> None:
        """Store the collaborators. ``stage`` stages names of ACLs; ``change`` begins the change of a request."""
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
        """Add ACLs, all in one change; existing ones are skipped. Raises ApiError: none is added then."""
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
            self._metadata.apply_acls(transaction.change, list(new.values()), ())
            yield
            log.info("ACLs were added: %s", list(new.values()))

    def delete(self, filters: Sequence[AclFilter], request: str) -> Steps[list[list[Acl]]]:
        """Delete the ACLs that match filters, all in one change; return the matched ACLs of each filter.

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
        deleted = yield from _meant_by(index, there, meant)
        if made is None:
            yield from self._delete(deleted, request)
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
        self._metadata.apply_acls(transaction.change, (), acls)
        yield
        log.info("ACLs were deleted: %s", list(acls))


def _meant_by(index: FilterIndex, there: Iterable[Acl], meant: dict[AclFilter, list[Acl]]) -> Steps[list[Acl]]:
    """Add to each filter the ACLs that it matches; return those that any filter matches."""
    deleted: list[Acl] = []
    looked_at = 0
    for acl in there:
        candidates = index.candidates(acl)
        by = [each for each in candidates if each.matches(acl)]
        for each in by:
            meant[each].append(acl)
        if by:
            deleted.append(acl)
        looked_at += 1 + len(candidates)
        if looked_at > ELEMENTS_AT_ONCE:
            looked_at = 0
            yield
    return deleted
