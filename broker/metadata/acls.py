"""The changes of access control lists. Part of the controller, the one writer of the metadata.

A change is on disk before it is answered. Making ACLs twice leaves what making them once leaves; which ACLs a request
has deleted is on record with the change, so that a replacement answers with them too.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager

from broker.errors import ApiError
from broker.metadata.entity_store import EntityKind
from broker.metadata.metadata_cache import MetadataCache
from broker.metadata.request_dedup import TopicOutcome
from broker.metadata.store import Transaction
from broker.protocol.error_codes import ErrorCode
from broker.security.acl.acls import Acl, AclFilter, acl_of, stored_name
from broker.security.acl.authorizer import Authorizer

log = logging.getLogger(__name__)

#: An ACL has nothing but its name.
_THERE = {"": 1}

#: ACLs that one request may make or delete, as in Kafka.
MOST_CHANGES = 10_000


class AclChanges:
    """Makes and deletes ACLs."""

    def __init__(
        self,
        metadata: MetadataCache,
        change: Callable[[str | None, Sequence[TopicOutcome]], AbstractContextManager[Transaction]],
        outcomes_of: Callable[[str], list[TopicOutcome] | None],
    ) -> None:
        """``change`` begins a change of a request, with what is to be on record of it."""
        self._metadata = metadata
        self._change = change
        self._outcomes_of = outcomes_of

    @property
    def _authorizer(self) -> Authorizer:
        authorizer = self._metadata.authorizer
        if authorizer is None:
            raise ApiError(ErrorCode.SECURITY_DISABLED, "No Authorizer is configured.")
        return authorizer

    def create(self, acls: Sequence[Acl]) -> None:
        """Put ACLs in force, all in one change; those that there are stay. Raises ApiError: none is made then."""
        new = [acl for acl in dict.fromkeys(acls) if acl not in self._authorizer]
        if not new:
            return
        with self._change(None, ()) as transaction:
            for acl in new:
                transaction.set_entity(EntityKind.ACL, stored_name(acl), _THERE)
        self._metadata.refresh()
        log.info("ACLs were added: %s", new)

    def delete(self, filters: Sequence[AclFilter], request: str) -> list[list[Acl]]:
        """Delete what filters describe, all in one change; return for each filter what it has described.

        Raises ApiError: none is deleted then.
        """
        made = self._outcomes_of(request)
        if made is not None:
            gone = [acl_of(outcome.name) for outcome in made]
        else:
            gone = [acl for acl in self._authorizer if any(each.matches(acl) for each in filters)]
            self._delete(gone, request)
        return [[acl for acl in gone if each.matches(acl)] for each in filters]

    def _delete(self, acls: Sequence[Acl], request: str) -> None:
        if not acls:
            return
        if len(acls) > MOST_CHANGES:
            message = f"Cannot remove more than {MOST_CHANGES} acls in a single delete operation."
            raise ApiError(ErrorCode.POLICY_VIOLATION, message)
        names = [stored_name(acl) for acl in acls]
        with self._change(request, [TopicOutcome(name) for name in names]) as transaction:
            for name in names:
                transaction.set_entity(EntityKind.ACL, name, {})
        self._metadata.refresh()
        log.info("ACLs were deleted: %s", list(acls))
