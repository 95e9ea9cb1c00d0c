"""Access control lists in Kafka's model: fields, validation of new ACLs, and filters.

Pure values and rules; used wherever ACLs are read, changed or checked. Independent of their storage.
"""

from __future__ import annotations

import enum
import json
from collections.abc import Iterable
from typing import Final, NamedTuple

from rotunda.broker.errors import ApiError
from rotunda.broker.protocol.error_codes import ErrorCode


class ResourceType(enum.IntEnum):
    """Resource type of an ACL, numbered as in the protocol."""

    UNKNOWN = 0
    ANY = 1
    TOPIC = 2
    GROUP = 3
    CLUSTER = 4
    TRANSACTIONAL_ID = 5
    DELEGATION_TOKEN = 6
    USER = 7

    @property
    def title(self) -> str:
        """The name in Kafka's audit log: "Topic", "TransactionalId"."""
        return "".join(word.capitalize() for word in self.name.split("_"))


class PatternType(enum.IntEnum):
    """The comparison of an ACL's name with a resource's; ANY and MATCH are for filters."""

    UNKNOWN = 0
    ANY = 1
    MATCH = 2
    LITERAL = 3
    PREFIXED = 4


class Operation(enum.IntEnum):
    """An operation on a resource, numbered as in the protocol."""

    UNKNOWN = 0
    ANY = 1
    ALL = 2
    READ = 3
    WRITE = 4
    CREATE = 5
    DELETE = 6
    ALTER = 7
    DESCRIBE = 8
    CLUSTER_ACTION = 9
    DESCRIBE_CONFIGS = 10
    ALTER_CONFIGS = 11
    IDEMPOTENT_WRITE = 12
    CREATE_TOKENS = 13
    DESCRIBE_TOKENS = 14
    TWO_PHASE_COMMIT = 15


class Permission(enum.IntEnum):
    """Whether an ACL allows or denies."""

    UNKNOWN = 0
    ANY = 1
    DENY = 2
    ALLOW = 3


#: Matches any resource name, and any host.
WILDCARD: Final = "*"
EVERY_PRINCIPAL: Final = "User:*"

#: The only name of a cluster resource.
CLUSTER_NAME: Final = "kafka-cluster"


class Acl(NamedTuple):
    """One ACL, with the protocol's values."""

    resource_type: int
    name: str
    pattern_type: int
    principal: str
    host: str
    operation: int
    permission: int


class AclFilter(NamedTuple):
    """A filter of ACLs; None and ANY match everything."""

    resource_type: int
    name: str | None
    pattern_type: int
    principal: str | None
    host: str | None
    operation: int
    permission: int

    def matches(self, acl: Acl) -> bool:
        """Return whether this ACL matches, as in Kafka's AclBindingFilter."""
        return (
            self.resource_type in (ResourceType.ANY, acl.resource_type)
            and self._matches_name(acl)
            and self.principal in (None, acl.principal)
            and self.host in (None, acl.host)
            and self.operation in (Operation.ANY, acl.operation)
            and self.permission in (Permission.ANY, acl.permission)
        )

    def _matches_name(self, acl: Acl) -> bool:
        if self.pattern_type not in (PatternType.ANY, PatternType.MATCH, acl.pattern_type):
            return False
        if self.name is None:
            return True
        if self.pattern_type in (PatternType.ANY, acl.pattern_type):
            return self.name == acl.name
        if acl.pattern_type == PatternType.LITERAL:
            return acl.name in (self.name, WILDCARD)
        return self.name.startswith(acl.name)


def is_known(kind: type[enum.IntEnum], value: int) -> bool:
    """Return whether a number is a defined value; 0 is an unknown one."""
    return value in frozenset(kind) and value != 0


def name_of(kind: type[enum.IntEnum], value: int) -> str:
    """Return the name of a number, UNKNOWN for one without."""
    return kind(value).name if is_known(kind, value) else "UNKNOWN"


def check_new(acl: Acl) -> None:
    """Raise ApiError INVALID_REQUEST for an invalid ACL, with the messages of Kafka's AclControlManager."""
    if acl.resource_type == ResourceType.CLUSTER and acl.name != CLUSTER_NAME:
        raise _invalid(f"The only valid name for the CLUSTER resource is {CLUSTER_NAME}")
    if not acl.name:
        raise _invalid("Invalid empty resource name")
    if acl.resource_type == ResourceType.ANY or not is_known(ResourceType, acl.resource_type):
        raise _invalid(f"Invalid resourceType {name_of(ResourceType, acl.resource_type)}")
    if acl.pattern_type not in (PatternType.LITERAL, PatternType.PREFIXED):
        raise _invalid(f"Invalid patternType {name_of(PatternType, acl.pattern_type)}")
    if acl.operation == Operation.ANY or not is_known(Operation, acl.operation):
        raise _invalid(f"Invalid operation {name_of(Operation, acl.operation)}")
    if acl.permission not in (Permission.ALLOW, Permission.DENY):
        raise _invalid(f"Invalid permissionType {name_of(Permission, acl.permission)}")
    if ":" not in acl.principal:
        raise _invalid(
            f"Could not parse principal from `{acl.principal}` (no colon is present separating the "
            "principal type from the principal name)"
        )


def stored_name(acl: Acl) -> str:
    """Return the name under which an ACL is stored: one text for one ACL."""
    return json.dumps(acl, separators=(",", ":"), ensure_ascii=False)


def acls_of(stored: Iterable[str]) -> list[Acl]:
    """Decode ACLs from their stored names; they may be many."""
    return list(map(Acl._make, json.loads(f"[{','.join(stored)}]")))


def _invalid(message: str) -> ApiError:
    return ApiError(ErrorCode.INVALID_REQUEST, message)
