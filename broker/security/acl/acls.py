"""Access control lists in Kafka's model: fields, validation of new ACLs, and filters.

Pure values and rules; used wherever ACLs are read, changed or checked. Independent of their storage.
"""

from __future__ import annotations

import enum
import json
from collections.abc import Iterable
from functools import lru_cache
from ipaddress import IPv4Network, IPv6Network, ip_address, ip_network
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

#: In a host that is a range of addresses (CIDR, KIP-1276).
_RANGE_SIGN: Final = "/"

#: Limit of parsed ranges that are cached.
_MOST_RANGES: Final = 4096


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


def check_new(acl: Acl, *, allows_ranges: bool = True) -> None:
    """Raise ApiError for an invalid ACL, with the messages of Kafka's AclControlManager.

    INVALID_REQUEST, or UNSUPPORTED_VERSION for a range of addresses unless the cluster ``allows_ranges``.
    """
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
    _check_host(acl.host, allows_ranges=allows_ranges)


def _check_host(host: str, *, allows_ranges: bool) -> None:
    if not host:
        raise _invalid("Host pattern cannot be null or empty")
    if _RANGE_SIGN not in host:
        return
    if not allows_ranges:
        raise ApiError(
            ErrorCode.UNSUPPORTED_VERSION,
            "CIDR-based ACL host patterns require metadata version 4.4-IV1 or higher.",
        )
    try:
        address_range(host)
    except ValueError as error:
        raise _invalid(f"Invalid CIDR notation '{host}': {error}") from error


@lru_cache(_MOST_RANGES)
def address_range(host: str) -> IPv4Network | IPv6Network:
    """Return the addresses of a range such as 10.0.0.0/8; bits after the prefix are ignored.

    Raises ValueError.
    """
    _, _, prefix = host.partition(_RANGE_SIGN)
    if not (prefix.isascii() and prefix.isdigit()):
        raise ValueError(f"invalid prefix length {prefix!r}")
    return ip_network(host, strict=False)


def is_from(host: str, address: str) -> bool:
    """Return whether an ACL's host includes a client's address: any, that one, or a range of the same IP version."""
    if host in (address, WILDCARD):
        return True
    if _RANGE_SIGN not in host or not address:
        return False
    try:
        return ip_address(address) in address_range(host)
    except ValueError:
        # Stored while any text was valid.
        return False


def stored_name(acl: Acl) -> str:
    """Return the name under which an ACL is stored: one text for one ACL."""
    return json.dumps(acl, separators=(",", ":"), ensure_ascii=False)


def acls_of(stored: Iterable[str]) -> list[Acl]:
    """Decode ACLs from their stored names; they may be many."""
    return list(map(Acl._make, json.loads(f"[{','.join(stored)}]")))


def _invalid(message: str) -> ApiError:
    return ApiError(ErrorCode.INVALID_REQUEST, message)
