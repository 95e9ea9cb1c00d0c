"""The classes of messages and of the structures in them: one class for all versions, with slots.

Fields have Kafka's names in snake case. Times and error codes are plain numbers, ids 16 bytes, arrays tuples where they
were read and any sequence where they are to be written. A field that the version lacks has its default. Values must not
be changed once they are made: messages share the defaults.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar


class Structure:
    """A message or a structure in one. The arguments are its fields, each with its default."""

    __slots__ = ()
    __hash__ = None  # type: ignore[assignment]

    DEFAULTS: ClassVar[Mapping[str, Any]]

    def replaced(self, **changes: Any) -> Any:
        """Return a copy in which some fields have other values."""
        return self.__class__(**{name: getattr(self, name) for name in self.DEFAULTS} | changes)

    def __eq__(self, other: object) -> bool:
        if self.__class__ is not other.__class__:
            return NotImplemented
        return all(getattr(self, name) == getattr(other, name) for name in self.DEFAULTS)

    def __repr__(self) -> str:
        fields = ", ".join([f"{name}={getattr(self, name)!r}" for name in self.DEFAULTS])
        return f"{self.__class__.__name__}({fields})"

    def __getattr__(self, name: str) -> Any:
        """Raise AttributeError: for type checkers, which do not know the fields."""
        raise AttributeError(f"{self.__class__.__name__} has no field {name!r}")


def structure_class(name: str, defaults: Mapping[str, Any]) -> type[Structure]:
    """Return a new class for a structure with these fields."""
    parameters = ", ".join([f"{field}=defaults[{field!r}]" for field in defaults])
    lines = [f"def __init__(self, *, {parameters}):" if parameters else "def __init__(self):"]
    lines += [f"    self.{field} = {field}" for field in defaults] or ["    pass"]
    namespace: dict[str, Any] = {"defaults": defaults}
    exec("\n".join(lines), namespace)  # noqa: S102 - of names in the generated table
    body = {"__slots__": tuple(defaults), "__init__": namespace["__init__"], "DEFAULTS": defaults}
    return type(name, (Structure,), body)
