"""Client quotas: valid entities, quota keys and filters (KIP-546).

Pure functions over plain values: the controller validates with them before it stores, and every process decodes the
stored quotas with them. Independent of the enforcement of quotas.
"""

from __future__ import annotations

import ipaddress
import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

from rotunda.broker.errors import ApiError
from rotunda.broker.metadata.store.entity_store import Entities
from rotunda.broker.protocol.error_codes import ErrorCode

USER, CLIENT_ID, IP = "user", "client-id", "ip"
ENTITY_TYPES = (USER, CLIENT_ID, IP)

#: (entity type, name or None for the type's default), in order of the types: equal for equal entities.
QuotaEntity = tuple[tuple[str, str | None], ...]

#: By entity: quota key -> value.
ClientQuotas = Mapping[QuotaEntity, Mapping[str, float]]

_MAX_INT, _MAX_LONG = 2**31 - 1, 2**63 - 1

#: By key: the largest value of an integer quota, None for a quota that may be fractional.
_USER_AND_CLIENT_KEYS: Mapping[str, int | None] = {
    "producer_byte_rate": _MAX_LONG,
    "consumer_byte_rate": _MAX_LONG,
    "request_percentage": None,
    "controller_mutation_rate": None,
}
_IP_KEYS: Mapping[str, int | None] = {"connection_creation_rate": _MAX_INT}

#: A host name: labels of letters, digits and hyphens (RFC 1123), also with underscores, as in Docker.
_LABEL = r"[A-Za-z0-9_]([A-Za-z0-9_-]{0,61}[A-Za-z0-9_])?"
_HOST_NAME = re.compile(rf"(?=.{{1,253}}$){_LABEL}(\.{_LABEL})*\.?")


class QuotaOp(NamedTuple):
    """One change to an entity's quotas; ``value`` is None to remove it."""

    key: str
    value: float | None


class Match(NamedTuple):
    """One component of a filter, for one entity type; ``kind`` is EXACT, DEFAULT or SPECIFIED."""

    entity_type: str
    kind: int
    name: str | None


EXACT, DEFAULT, SPECIFIED = 0, 1, 2


def entity_of(parts: Sequence[tuple[str, str | None]]) -> QuotaEntity:
    """Return the entity with these components. Raises ApiError INVALID_REQUEST for an invalid quota entity."""
    if not parts:
        raise _invalid("Invalid empty client quota entity: name a user, a client-id or an ip")
    types = [entity_type for entity_type, _ in parts]
    for entity_type, name in parts:
        if entity_type not in ENTITY_TYPES:
            raise _invalid(f"Unhandled client quota entity type: {entity_type}; there are {', '.join(ENTITY_TYPES)}")
        if types.count(entity_type) > 1:
            raise _invalid(f"Invalid client quota entity, duplicate entity entry {entity_type}")
        if name == "":
            raise _invalid(f"Empty {entity_type} not supported; leave the name null for the default of all")
    if IP in types:
        if len(types) > 1:
            raise _invalid("Invalid quota entity combination, IP entity should not be combined with User or ClientId")
        _check_ip(parts[0][1])
    return tuple(sorted(parts))


def altered_quotas(
    entity: QuotaEntity, current: Mapping[str, float], operations: Sequence[QuotaOp]
) -> dict[str, float]:
    """Return the entity's quotas after the operations. Raises ApiError INVALID_REQUEST for an invalid one."""
    times = Counter(operation.key for operation in operations)
    known = _IP_KEYS if entity[0][0] == IP else _USER_AND_CLIENT_KEYS
    quotas = dict(current)
    for key, value in operations:
        if times[key] > 1:
            raise _invalid(f"Duplicate quota key {key}: no quota of this entity was changed")
        if value is None:
            quotas.pop(key, None)
        else:
            _check_value(key, value, known)
            quotas[key] = value
    return quotas


def filter_of(matches: Sequence[Match], *, strict: bool) -> Callable[[QuotaEntity], bool]:
    """Return a predicate for the entities that match a filter; ``strict``: without further entity types.

    Raises ApiError for an invalid filter: UNSUPPORTED_VERSION for an unknown type, as Kafka does, else INVALID_REQUEST.
    """
    _check_matches(matches)
    return lambda entity: (not strict or len(entity) == len(matches)) and _matches_all(dict(entity), matches)


def stored_name(entity: QuotaEntity) -> str:
    """Return the name under which an entity is stored: one text for one entity."""
    return json.dumps(entity, separators=(",", ":"))


def quotas_of(stored: Entities) -> ClientQuotas:
    """Decode the stored quotas."""
    return MappingProxyType(
        {_read_name(text): {key: float(value) for key, value in values.items()} for text, values in stored.items()}
    )


def is_entity(text: str) -> bool:
    """Return whether the stored name of an entity can be decoded."""
    try:
        _read_name(text)
    except (ValueError, TypeError):
        return False
    return True


def entity_text(name: str) -> str:
    """Return the stored name of an entity as `user alice, client-id (default)`; as it is if it cannot be decoded."""
    if not is_entity(name):
        return name
    return ", ".join(f"{kind} {'(default)' if each is None else each}" for kind, each in _read_name(name))


def _read_name(text: str) -> QuotaEntity:
    entity = tuple((entity_type, name) for entity_type, name in json.loads(text))
    if not all(isinstance(entity_type, str) and isinstance(name, str | None) for entity_type, name in entity):
        raise ValueError("invalid entity: types and names are texts")
    return entity


def _matches_all(entity: Mapping[str, str | None], matches: Iterable[Match]) -> bool:
    return all(
        match.entity_type in entity and (match.kind == SPECIFIED or entity[match.entity_type] == match.name)
        for match in matches
    )


def _check_matches(matches: Sequence[Match]) -> None:
    seen: set[str] = set()
    for entity_type, kind, name in matches:
        if not entity_type:
            raise _invalid("Invalid empty entity type.")
        if entity_type in seen:
            raise _invalid(f"Entity type {entity_type} cannot appear more than once in the filter.")
        if entity_type not in ENTITY_TYPES:
            raise ApiError(
                ErrorCode.UNSUPPORTED_VERSION,
                f"Unsupported entity type {entity_type}; there are {', '.join(ENTITY_TYPES)}",
            )
        complaint = _MATCH_COMPLAINTS.get(kind, _unknown_kind)(kind, name)
        if complaint is not None:
            raise _invalid(complaint)
        seen.add(entity_type)
    if IP in seen and len(seen) > 1:
        raise _invalid(
            "Invalid entity filter component combination. IP filter component should not be used with user or "
            "clientId filter component.",
        )


def _exact(_kind: int, name: str | None) -> str | None:
    return "Request specified MATCH_TYPE_EXACT, but set match string to null." if name is None else None


def _default(_kind: int, name: str | None) -> str | None:
    return _needless("MATCH_TYPE_DEFAULT", name)


def _specified(_kind: int, name: str | None) -> str | None:
    return _needless("MATCH_TYPE_SPECIFIED", name)


def _needless(kind: str, name: str | None) -> str | None:
    return None if name is None else f"Request specified {kind}, but also specified a match string: {name}"


def _unknown_kind(kind: int, _name: str | None) -> str:
    return f"Unknown match type {kind}; 0 is exact, 1 default, 2 any that is specified"


_MATCH_COMPLAINTS: Mapping[int, Callable[[int, str | None], str | None]] = {
    EXACT: _exact,
    DEFAULT: _default,
    SPECIFIED: _specified,
}


def _check_ip(name: str | None) -> None:
    """Reject a name that is neither an address nor a possible host name.

    Kafka resolves it with DNS, which would block the controller: names are resolved where the quota is applied.
    """
    try:
        if name is not None and not (_HOST_NAME.fullmatch(name) and any(letter.isalpha() for letter in name)):
            ipaddress.ip_address(name)
    except ValueError:
        raise _invalid(f"{name} is not a valid IP or resolvable host.") from None


def _check_value(key: str, value: float, known: Mapping[str, int | None]) -> None:
    if key not in known:
        raise _invalid(f"Invalid configuration key {key}; this entity may have {', '.join(known)}")
    if not value > 0:
        raise _invalid(f"Quota {key} must be greater than 0, but it is {value}")
    largest = known[key]
    if largest is None:
        return
    if value > float(largest):  # as Kafka compares: 2^63 passes for its LONG
        name = "an INT" if largest == _MAX_INT else "a LONG"
        raise _invalid(f"Proposed value for {key} is too large for {name}: {value}")
    if value % 1.0 > 1e-6:
        raise _invalid(f"{key} cannot be a fractional value: {value}")


def _invalid(message: str) -> ApiError:
    return ApiError(ErrorCode.INVALID_REQUEST, message)
