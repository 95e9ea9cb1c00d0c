"""Records as text for the page: JSON indented, other text as it is, binary as hex, and long values cut. Pure."""

from __future__ import annotations

import json
import re
from dataclasses import asdict, dataclass
from itertools import chain
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from rotunda.web.sources import RecordFacts, RecordsFound

#: Bytes of a key or a value that are shown.
MOST_SHOWN = 16 * 1024
#: Bytes of all keys and values of one response that are shown; of each further one only the first `LEAST_SHOWN`.
MOST_SHOWN_TOGETHER = 1024 * 1024
LEAST_SHOWN = 256
#: Headers of a record that are shown, and of each further record.
MOST_HEADERS, LEAST_HEADERS = 100, 10
#: Characters of indented JSON: deeply nested JSON is shown without indents.
_MOST_INDENTED = 4 * MOST_SHOWN

_CONTROL = re.compile("[\0-\x08\x0b\x0c\x0e-\x1f\x7f]")
_TOKENS = re.compile(r'"(?:[^"\\]|\\.)*"|[\[\]{},:]|[^\s\[\]{},:"]+')
_INDENT = "  "


@dataclass(frozen=True, slots=True, kw_only=True)
class Shown:
    """A key, a value or a header's value as text: of `size` bytes, maybe not all."""

    kind: Literal["null", "json", "text", "hex"]
    text: str
    size: int
    is_cut: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownHeader:
    """A header of a record."""

    key: str
    value: Shown


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownRecord:
    """A record. `timestamp_ms` is the producer's time, or with `is_log_append_time` the broker's."""

    partition: int
    offset: int
    timestamp_ms: int
    is_log_append_time: bool
    key: Shown
    value: Shown
    headers: list[ShownHeader]


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownPartition:
    """A partition's offsets, and the range from `low` to below `high` in which records were searched."""

    partition: int
    start: int
    stable: int
    end: int
    low: int
    high: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownRecords:
    """The records found; `older` and `newer` are parameters of requests that continue."""

    records: list[ShownRecord]
    partitions: list[ShownPartition]
    older: str
    newer: str
    notes: list[str]


def records_shown(found: RecordsFound) -> dict[str, Any]:
    """Return found records as plain values for JSON, as `ShownRecords` has them."""
    left = MOST_SHOWN_TOGETHER
    records = []
    notes = list(found.notes)
    for each in found.records:
        most, most_headers = (MOST_SHOWN, MOST_HEADERS) if left > 0 else (LEAST_SHOWN, LEAST_HEADERS)
        headers = each.headers[:most_headers]
        records.append(_record(each._replace(headers=headers), most))
        left -= sum(min(most, len(part or b"")) for part in (each.key, each.value, *chain(*headers)))
        if len(headers) < len(each.headers):
            notes.append(f"{len(each.headers)} headers at offset {each.offset}, the first {len(headers)} are shown")
    shown = ShownRecords(
        records=records,
        partitions=[ShownPartition(**each._asdict()) for each in found.partitions],
        older=_places(found.older),
        newer=_places(found.newer),
        notes=notes,
    )
    return asdict(shown)


def shown(data: bytes | None, most: int = MOST_SHOWN) -> Shown:
    """Return a value as text, at most `most` of its bytes."""
    if data is None:
        return Shown(kind="null", text="", size=0)
    part = data[:most]
    is_cut = len(part) < len(data)
    try:
        # A cut may be inside a character.
        text = part.decode() if not is_cut else _without_last(part).decode()
    except UnicodeDecodeError:
        return _hex(part, len(data))
    if _CONTROL.search(text):
        return _hex(part, len(data))
    if not is_cut and text.lstrip()[:1] in {"{", "["} and _is_json(text):
        return Shown(kind="json", text=indented(text), size=len(data))
    return Shown(kind="text", text=text, size=len(data), is_cut=is_cut)


def indented(text: str) -> str:
    """Return valid JSON with indents unless they make it too long; numbers, strings and equal names are unchanged."""
    parts: list[str] = []
    left = _MOST_INDENTED
    for part in _indented(_TOKENS.findall(text)):
        parts.append(part)
        left -= len(part)
        if left < 0:
            return text
    return "".join(parts)


def _indented(parts: list[str]) -> Iterator[str]:
    depth = 0
    for index, part in enumerate(parts):
        following = parts[index + 1] if index + 1 < len(parts) else ""
        if part in "{[":
            depth += 1
            yield part if following in ("}", "]") else f"{part}\n{_INDENT * depth}"
        elif part in "}]":
            depth -= 1
            yield part if index and parts[index - 1] in ("{", "[") else f"\n{_INDENT * depth}{part}"
        elif part == ",":
            yield f",\n{_INDENT * depth}"
        else:
            yield ": " if part == ":" else part


def _is_json(text: str) -> bool:
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return False
    return True


def _hex(part: bytes, size: int) -> Shown:
    return Shown(kind="hex", text=part.hex(" "), size=size, is_cut=len(part) < size)


def _without_last(part: bytes) -> bytes:
    """Return UTF-8 without an incomplete last character."""
    for length in range(1, min(4, len(part)) + 1):
        first = part[-length]
        if first & 0xC0 != 0x80:
            return part[:-length] if first >= 0xC0 else part
    return part


def _record(each: RecordFacts, most: int) -> ShownRecord:
    return ShownRecord(
        partition=each.partition,
        offset=each.offset,
        timestamp_ms=each.timestamp_ms,
        is_log_append_time=each.is_log_append_time,
        key=shown(each.key, most),
        value=shown(each.value, most),
        headers=[ShownHeader(key=key[:most], value=shown(value, most)) for key, value in each.headers],
    )


def _places(offsets: Mapping[int, int]) -> str:
    return ",".join(f"{partition}:{offset}" for partition, offset in sorted(offsets.items()))
