"""A record of shared memory: named fields at naturally aligned offsets.

Pure; every process uses it. The records themselves are declared in `shm.layout` and `shm.recorder_layout`.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy

WORD_BYTES = 8

_NUMPY_KINDS = {"q": "i8", "i": "i4", "h": "i2"}


@dataclass(frozen=True, slots=True)
class Field:
    """One field: struct code, unit, the role that writes it, one line of text; `align` in bytes."""

    name: str
    kind: str
    unit: str
    writer: str
    text: str
    align: int = 1


class Record:
    """Fields at naturally aligned offsets, padded at the end to `size` (a multiple of 8).

    Raises ValueError when the fields do not fit the size.
    """

    def __init__(self, name: str, text: str, size: int, fields: tuple[Field, ...]) -> None:
        self.name = name
        self.text = text
        self.size = size
        self.fields = fields
        self._offsets: dict[str, int] = {}
        parts = ["@"]
        end = 0
        for field in fields:
            align = max(field.align, 1 if field.kind.endswith("s") else struct.calcsize("@" + field.kind))
            offset = -(-end // align) * align
            parts += [f"{offset - end}x", field.kind]
            self._offsets[field.name] = offset
            end = offset + struct.calcsize("@" + field.kind)
        if end > size or size % WORD_BYTES:
            raise ValueError(f"{name}: fields end at {end}, size is {size}")
        self.struct = struct.Struct("".join([*parts, f"{size - end}x"]))

    def offset(self, field: str) -> int:
        """Return the byte offset of `field` in the record; KeyError for an unknown name."""
        return self._offsets[field]

    def word(self, field: str) -> int:
        """Return the index of the 64-bit word `field` in the record; ValueError unless it is one."""
        offset = self._offsets[field]
        if offset % WORD_BYTES:
            raise ValueError(f"{self.name}.{field} at {offset} is not a word")
        return offset // WORD_BYTES

    def struct_until(self, field: str) -> struct.Struct:
        """Return a struct of the same size in which everything from `field` on is one value, of type bytes."""
        parts = ["@"]
        end = 0
        for each in self.fields:
            offset = self._offsets[each.name]
            if each.name == field:
                return struct.Struct("".join([*parts, f"{offset - end}x{self.size - offset}s"]))
            parts += [f"{offset - end}x", each.kind]
            end = offset + struct.calcsize("@" + each.kind)
        raise KeyError(field)

    def struct_from(self, field: str) -> struct.Struct:
        """Return a struct of `field` and all that follow it, without the record's padding."""
        names = [each.name for each in self.fields]
        parts, end = ["@"], self._offsets[field]
        for each in self.fields[names.index(field) :]:
            offset = self._offsets[each.name]
            parts += [f"{offset - end}x", each.kind]
            end = offset + struct.calcsize("@" + each.kind)
        return struct.Struct("".join(parts))

    @cached_property
    def dtype(self) -> numpy.dtype[numpy.void]:
        """The record as a numpy structured type with the same offsets; numpy is imported here, not before."""
        import numpy  # noqa: PLC0415  numpy takes 45 ms to import and the start-up path does without it

        return numpy.dtype(
            {
                "names": [field.name for field in self.fields],
                "formats": [_NUMPY_KINDS.get(field.kind, "S" + field.kind[:-1]) for field in self.fields],
                "offsets": list(self._offsets.values()),
                "itemsize": self.size,
            }
        )
