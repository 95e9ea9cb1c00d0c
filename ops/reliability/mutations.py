"""Mutations of a frame, by operations on bytes alone: a hundred thousand a second and more."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

from ops.reliability.frames import Template

#: Size, API key, version and correlation id: the fields before the frame's content.
HEADER_BYTES = 12
LENGTHS = (
    b"\0\0",
    b"\xff\xff",
    b"\x7f\xff",
    b"\xff",
    b"\x7f",
    b"\xff\xff\xff\xff\x0f",
    b"\x7f\xff\xff\xff",
    b"\x80\0\0\0",
)
#: Most mutations change values alone. A malformed frame costs its connection, and the frames after it.
VALUES_SHARE = 63 / 64
#: A frame with a wrong size makes the following frames part of it.
LYING_SIZE_SHARE = 1 / 2000
HEADER_SHARE = 1 / 1000
MOST_VALUES = 4


class Mutator:
    """Changes frames; `templates` is the source of fragments to splice in."""

    def __init__(self, chance: random.Random, templates: Sequence[Template]) -> None:
        self._random, self._templates = chance.random, templates
        self._kinds: tuple[Callable[[bytearray, int], None], ...] = (
            self._flip,
            self._overwrite,
            self._flip_several,
            self._length,
            self._truncate,
            self._splice,
            self._repeat,
        )

    def mutated(self, template: Template) -> bytes:
        """Return a frame with other values, or of another structure, with a size that is right or, seldom, wrong."""
        draw = self._random()
        if draw < VALUES_SHARE and template.values:
            return self._with_other_values(template)
        changed = bytearray(template.frame)
        draw = self._random()
        first = 4 if draw < HEADER_SHARE / (1 - VALUES_SHARE) else min(HEADER_BYTES, len(changed) - 1)
        self._kinds[int(self._random() * len(self._kinds))](changed, first)
        size = len(changed) - 4
        if self._random() < LYING_SIZE_SHARE / (1 - VALUES_SHARE):
            size = int(size * 2 * self._random())
        changed[:4] = size.to_bytes(4, "big")
        return bytes(changed)

    def of_bytes(self, data: bytes) -> bytes:
        """Return bytes that were changed anywhere; never the same, and never none of several."""
        while True:
            changed = bytearray(data)
            self._kinds[int(self._random() * len(self._kinds))](changed, 0)
            if changed and changed != data:
                return bytes(changed)

    def _with_other_values(self, template: Template) -> bytes:
        changed = bytearray(template.frame)
        values, draw = template.values, self._random
        for _ in range(1 + int(draw() * MOST_VALUES)):
            place, bits = values[int(draw() * len(values))]
            changed[place] ^= bits
        return bytes(changed)

    def _at(self, changed: bytearray, first: int) -> int:
        return first + int(self._random() * (len(changed) - first))

    def _flip(self, changed: bytearray, first: int) -> None:
        changed[self._at(changed, first)] ^= 1 << int(self._random() * 8)

    def _overwrite(self, changed: bytearray, first: int) -> None:
        changed[self._at(changed, first)] = int(self._random() * 256)

    def _flip_several(self, changed: bytearray, first: int) -> None:
        for _ in range(4):
            self._flip(changed, first)

    def _length(self, changed: bytearray, first: int) -> None:
        length = LENGTHS[int(self._random() * len(LENGTHS))]
        at = self._at(changed, first)
        changed[at : at + len(length)] = length

    def _truncate(self, changed: bytearray, first: int) -> None:
        del changed[self._at(changed, first) :]

    def _splice(self, changed: bytearray, first: int) -> None:
        other = self._templates[int(self._random() * len(self._templates))].frame
        at = self._at(changed, first)
        changed[at:] = other[HEADER_BYTES + int(self._random() * len(other)) :]

    def _repeat(self, changed: bytearray, first: int) -> None:
        begin = self._at(changed, first)
        piece = changed[begin : begin + 1 + int(self._random() * 16)]
        changed[begin:begin] = piece * (1 + int(self._random() * 8))
