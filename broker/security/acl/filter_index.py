"""Many filters of ACLs at once: which of them mean an ACL is found without asking each.

Pure values; runs in the controller, for requests that name thousands of filters while there are tens of thousands of
ACLs. Says nothing of what is done with what they mean.
"""

from __future__ import annotations

from rotunda.broker.security.acl.acls import Acl, AclFilter, Operation, PatternType, Permission, ResourceType

#: For each field of a filter, the values with which it says nothing.
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
        #: By which fields those are, and by what they have there.
        self._shapes: dict[tuple[int, ...], dict[tuple[object, ...], dict[AclFilter, None]]] = {}

    def add(self, new: AclFilter) -> None:
        """Add a filter; one that is there already stays."""
        shape = tuple(
            field
            for field, value in enumerate(new)
            if value not in _OPEN[field] and not (field == _NAME and new.pattern_type == PatternType.MATCH)
        )
        self._shapes.setdefault(shape, {}).setdefault(tuple(new[field] for field in shape), {})[new] = None

    def candidates(self, acl: Acl) -> list[AclFilter]:
        """Return the filters that may mean an ACL, those that do among them."""
        found: list[AclFilter] = []
        for shape, filters in self._shapes.items():
            found += filters.get(tuple([acl[field] for field in shape]), ())
        return found
