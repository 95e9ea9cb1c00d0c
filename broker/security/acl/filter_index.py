"""An index of many ACL filters: finds the filters that match an ACL without testing each of them.

Pure values; runs in the controller, for requests with thousands of filters against tens of thousands of ACLs.
Independent of the use of the matched ACLs.
"""

from __future__ import annotations

from rotunda.broker.security.acl.acls import Acl, AclFilter, Operation, PatternType, Permission, ResourceType

#: For each field of a filter, the values that match everything.
_OPEN = (
    (ResourceType.ANY,),
    (None,),
    (PatternType.ANY, PatternType.MATCH),
    (None,),
    (None,),
    (Operation.ANY,),
    (Permission.ANY,),
)
_NAME = 1


class FilterIndex:
    """Filters by the values of the fields in which they must equal an ACL."""

    def __init__(self) -> None:
        #: By the fields of a shape, and by their values in a filter.
        self._shapes: dict[tuple[int, ...], dict[tuple[object, ...], dict[AclFilter, None]]] = {}

    def add(self, new: AclFilter) -> None:
        """Add a filter, unless it is in the index already."""
        shape = tuple(
            field
            for field, value in enumerate(new)
            if value not in _OPEN[field] and not (field == _NAME and new.pattern_type == PatternType.MATCH)
        )
        self._shapes.setdefault(shape, {}).setdefault(tuple(new[field] for field in shape), {})[new] = None

    def candidates(self, acl: Acl) -> list[AclFilter]:
        """Return the filters that may match an ACL, including all that do."""
        found: list[AclFilter] = []
        for shape, filters in self._shapes.items():
            found += filters.get(tuple([acl[field] for field in shape]), ())
        return found
