"""Source text of a generated function: lines, their indentation, and the objects that they refer to."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

#: A longer string is rejected by readers, as in Kafka.
LONGEST_STRING_BYTES: Final = 0x7FFF

#: Kafka's types of a fixed size -> their codes in `struct`.
FIXED: Final = {
    "bool": "?",
    "int8": "b",
    "int16": "h",
    "uint16": "H",
    "int32": "i",
    "uint32": "I",
    "int64": "q",
    "float64": "d",
    "uuid": "16s",
}


class Source:
    """The text of one or more functions, and their global names."""

    def __init__(self, names: dict[str, Any]) -> None:
        self.names = names
        self._lines: list[str] = []
        self._depth = 0
        self._structs: dict[tuple[str, str], str] = {}
        self._numbers = 0

    def add(self, line: str) -> None:
        self._lines.append(" " * self._depth + line)

    @contextmanager
    def block(self, head: str) -> Iterator[None]:
        """Append the head of a block, and indent the lines that are appended inside."""
        self.add(head)
        self._depth += 1
        yield
        self._depth -= 1

    def name(self, prefix: str) -> str:
        self._numbers += 1
        return f"{prefix}{self._numbers}"

    def refer(self, prefix: str, value: Any) -> str:
        """Return a name for an object."""
        name = self.name(prefix)
        self.names[name] = value
        return name

    def constant(self, value: Any) -> str:
        if value is None or isinstance(value, (bool, int, float, str, bytes)) or value == ():
            return repr(value)
        return self.refer("default", value)

    def method(self, name: str, layout: str) -> str:
        """Return a name for a method of a `struct`, as `unpack_from` or `pack`."""
        found = self._structs.get((name, layout))
        if found is None:
            found = self.refer(name, getattr(struct.Struct(f">{layout}"), name))
            self._structs[name, layout] = found
        return found

    def compile(self, title: str) -> dict[str, Any]:
        """Return the names that the text defines, and those that it uses."""
        text = "\n".join(self._lines)
        exec(compile(text, f"<{title}>", "exec"), self.names)  # noqa: S102 - of names in the generated table
        return self.names
