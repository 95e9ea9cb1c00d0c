"""Frames to be mutated: valid requests of every API in every version that a broker serves, with random content.

They name only topics, groups and producers of the fuzzer, so that nothing it does can harm the clients' records: not
even __consumer_offsets, which every client with the right to delete topics may delete. Their wait times are short, so
that few are parked.
"""

from __future__ import annotations

import contextlib
import random
import struct
import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from ops.reliability import batches
from rotunda.broker.errors import InvalidReceive
from rotunda.broker.protocol.api_keys import request_header_version
from rotunda.broker.protocol.codec import read, write
from rotunda.broker.protocol.schema.definitions import Field, MessageDefinition, StructureDefinition, request

#: Names of the fuzzer's topics, groups, members and transactional ids.
NAMES = tuple(f"fuzz-{number}" for number in range(24))
ODD_TEXTS = ("", "é\N{SNOWMAN}", "fuzz-0/../x", "a" * 300, "fuzz*", "\0", "__fuzz")
NUMBERS = (-2, -1, 0, 0, 0, 1, 1, 2, 3, 5, 100)
ODD_NUMBERS = (2**7 - 1, 2**15 - 1, 2**31 - 1, 2**63 - 1, -(2**31), -(2**63))
MOST_ELEMENTS = 3
LONGEST_WAIT_MS = 5
ODD_SHARE = 1 / 16
NULL_SHARE = 1 / 8
#: Number of bytes of each frame that are tried out.
MOST_TRIED = 60
#: The client id, after its length.
_CLIENT_ID = slice(14, 14 + len("fuzz-0"))
_BITS = {"int8": 8, "int16": 16, "int32": 32, "int64": 64, "uint16": 16}


class Template(NamedTuple):
    """A valid frame, and the places where it can change without harm to its structure, each with bits to flip."""

    frame: bytes
    values: tuple[tuple[int, int], ...]


class FrameMaker:
    """Makes valid requests; `topic_ids` are the ids of topics that exist."""

    def __init__(self, chance: random.Random, topic_ids: tuple[bytes, ...] = ()) -> None:
        self._chance, self._topic_ids = chance, topic_ids
        self._makers: dict[str, Callable[[], Any]] = {
            "string": self._text,
            "bytes": lambda: chance.randbytes(chance.randrange(40)),
            "records": self._records,
            "bool": lambda: chance.random() < 1 / 2,
            "float64": chance.random,
            "uuid": self._uuid,
        }

    def template(self, api_key: int, version: int) -> Template:
        """Return a frame, its size in front. The body of a version that has no schema is that of a later one."""
        client_id = self._chance.choice(NAMES).encode()
        head = struct.pack(">hhih", api_key, version, self._chance.randrange(2**31), len(client_id)) + client_id
        if request_header_version(api_key, version) > 1:
            head += b"\0"
        message = request(api_key)
        known = max(version, message.versions.lowest)
        frame = head + write(message.name, known, self._structure(message.structure, known))
        frame = len(frame).to_bytes(4, "big") + frame
        values = tuple(self._values(message, known, bytearray(frame), 4 + len(head)))
        return Template(frame, values or tuple((place, 3) for place in range(len(frame))[_CLIENT_ID]))

    def _values(
        self, message: MessageDefinition, version: int, frame: bytearray, first: int
    ) -> Iterator[tuple[int, int]]:
        """Yield those places from `first` on that can change, as far as they are tried out."""
        places = range(first, len(frame))
        for place in self._chance.sample(places, min(MOST_TRIED, len(places))):
            bits = self._chance.randrange(1, 32)
            frame[place] ^= bits
            with contextlib.suppress(InvalidReceive):
                read(message.name, version, frame, first, len(frame))
                yield place, bits
            frame[place] ^= bits

    def _structure(self, structure: StructureDefinition, version: int) -> Any:
        present = [each for each in structure.fields if version in each.versions]
        return structure.value_class(**{each.name: self._value(each, version) for each in present})

    def _value(self, field: Field, version: int) -> Any:
        if field.tag is not None and self._chance.random() < 1 / 2:
            return field.default
        if version in field.nullable and field.tag is None and self._chance.random() < NULL_SHARE:
            return None
        if field.is_array:
            return tuple(self._element(field, version) for _ in range(self._chance.randrange(MOST_ELEMENTS + 1)))
        return self._element(field, version)

    def _element(self, field: Field, version: int) -> Any:
        if field.structure is not None:
            return self._structure(field.structure, version)
        if field.kind in _BITS and field.name.endswith("_ms"):
            return self._wait()
        if field.kind in _BITS:
            return self._number(_BITS[field.kind], field.kind.startswith("u"))
        return self._makers[field.kind]()

    def _number(self, bits: int, is_unsigned: bool) -> int:
        number = self._chance.choice(ODD_NUMBERS if self._chance.random() < ODD_SHARE else NUMBERS)
        return abs(number) % 2**bits if is_unsigned else max(-(2 ** (bits - 1)), min(number, 2 ** (bits - 1) - 1))

    def _text(self) -> str:
        return self._chance.choice(ODD_TEXTS if self._chance.random() < ODD_SHARE else NAMES)

    def _uuid(self) -> bytes:
        if self._topic_ids and self._chance.random() < 3 / 4:
            return self._chance.choice(self._topic_ids)
        return self._chance.randbytes(16)

    def _wait(self) -> int:
        return self._chance.randrange(LONGEST_WAIT_MS + 1)

    def _records(self) -> bytes:
        """Return a batch; one in four has false header fields, with a right checksum."""
        values = [self._chance.randbytes(self._chance.randrange(30)) for _ in range(self._chance.randint(1, 3))]
        codec = self._chance.choice(batches.CODECS)
        payload = bytearray(batches.compressed(batches.records(values, self._chance.choice((None, b"key"))), codec))
        now_ms = int(time.time() * 1000)
        if self._chance.random() < 3 / 4:
            return batches.batch(bytes(payload), len(values), now_ms, attributes=codec)
        payload[self._chance.randrange(len(payload))] = self._chance.randrange(256)
        return batches.batch(
            bytes(payload),
            self._number(32, False),
            now_ms + self._chance.choice((0, batches.NOW_SHIFT_MS)),
            attributes=self._chance.choice((codec, self._number(16, False))),
            last_offset_delta=self._number(32, False),
            producer_id=self._number(64, False),
            producer_epoch=self._number(16, False),
            base_sequence=self._number(32, False),
        )
