"""Records as text: the format strings of kcat, and JSON lines that `rotunda produce --json` reads again.

Pure: a record in, bytes out. In JSON, bytes that are valid UTF-8 are a string, others {"base64": "..."}; so no bytes
are lost, and a reader can distinguish them.
"""

from __future__ import annotations

import base64
import json
import re
import struct
from collections.abc import Callable
from typing import Any, Final

from rotunda.broker.client.consumer.fetcher import Fetched
from rotunda.broker.errors import UsageError

Formatter = Callable[[Fetched], bytes]

_LENGTH: Final = struct.Struct(">i")
_ESCAPE: Final = re.compile(rb"\\(x[0-9a-fA-F]{1,2}|[0-9]{1,3}|.)", re.DOTALL)
_CONTROL: Final = {b"n": b"\n", b"r": b"\r", b"t": b"\t"}
_LARGEST_BYTE: Final = 255
_TOKENS: Final = "%s %S %R %k %K %T %h %t %p %o %%"


def unescaped(text: str) -> bytes:
    r"""Return the bytes of a delimiter or a format: \n, \r, \t, \xNN and \NNN (octal after a 0) are escapes for bytes.

    Raises UsageError for a number that does not fit a byte.
    """

    def byte(found: re.Match[bytes]) -> bytes:
        escape = found[1]
        if escape in _CONTROL:
            return _CONTROL[escape]
        if escape[:1] == b"x" and len(escape) > 1:
            return bytes((int(escape[1:], 16),))
        if escape.isdigit():
            try:
                number = int(escape, 8 if escape.startswith(b"0") else 10)
            except ValueError:
                number = _LARGEST_BYTE + 1
            if number > _LARGEST_BYTE:
                raise UsageError(f"\\{escape.decode()} in {text!r} is not a byte")
            return bytes((number,))
        return escape

    return _ESCAPE.sub(byte, text.encode("utf-8", "surrogateescape"))


def formatter(text: str, null: bytes) -> Formatter:
    """Return the formatter of a format string. `null` replaces keys and values that are null or empty.

    Raises UsageError for an unknown token.
    """
    tokens = _tokens(null)
    parts: list[bytes | Formatter] = []
    at = 0
    while (found := text.find("%", at)) >= 0:
        parts.append(unescaped(text[at:found]))
        letter = text[found + 1 : found + 2]
        if letter == "%":
            parts.append(b"%")
        elif letter in tokens:
            parts.append(tokens[letter])
        else:
            raise UsageError(f"%{letter} in the format {text!r} is none of {_TOKENS}")
        at = found + 2
    parts.append(unescaped(text[at:]))
    wanted = [part for part in parts if part != b""]
    return lambda fetched: b"".join([part if isinstance(part, bytes) else part(fetched) for part in wanted])


def delimited(delimiter: bytes, key_separator: bytes | None, *, with_offset: bool, null: bytes) -> Formatter:
    """Return a formatter of values, each followed by a delimiter, and preceded by its key with a separator."""
    separator = b"\t" if key_separator is None else key_separator

    def line(fetched: Fetched) -> bytes:
        record = fetched.record
        text = (record.value or null) + delimiter
        if key_separator is not None:
            text = (record.key or null) + separator + text
        return b"%d%b%b" % (record.offset, separator, text) if with_offset else text

    return line


def _tokens(null: bytes) -> dict[str, Formatter]:
    return {
        "s": lambda each: each.record.value or null,
        "S": lambda each: _length(each.record.value),
        "R": lambda each: _LENGTH.pack(-1 if each.record.value is None else len(each.record.value)),
        "k": lambda each: each.record.key or null,
        "K": lambda each: _length(each.record.key),
        "T": lambda each: b"%d" % each.record.timestamp_ms,
        "h": _headers,
        "t": lambda each: each.partition.topic.encode(),
        "p": lambda each: b"%d" % each.partition.partition,
        "o": lambda each: b"%d" % each.record.offset,
    }


def _length(value: bytes | None) -> bytes:
    return b"-1" if value is None else b"%d" % len(value)


def _headers(fetched: Fetched) -> bytes:
    return b",".join(_bytes_of(name) + b"=" + (b"NULL" if v is None else v) for name, v in fetched.record.headers)


def _bytes_of(name: str) -> bytes:
    """Return a header's name as in the record: it need not be UTF-8."""
    return name.encode("utf-8", "surrogateescape")


def json_line(fetched: Fetched, *, always_base64: bool = False) -> bytes:
    """Return a record as one line of JSON."""
    record = fetched.record
    shown: Callable[[bytes | None], Any] = _in_base64 if always_base64 else _as_text
    fields = {
        "topic": fetched.partition.topic,
        "partition": fetched.partition.partition,
        "offset": record.offset,
        "timestamp": record.timestamp_ms,
        "timestamp_type": "log_append" if fetched.is_log_append_time else "create",
        "key": shown(record.key),
        "value": shown(record.value),
        "headers": [[_bytes_of(name).decode("utf-8", "replace"), shown(value)] for name, value in record.headers],
    }
    return json.dumps(fields, ensure_ascii=False, separators=(",", ":")).encode() + b"\n"


def _as_text(value: bytes | None) -> Any:
    if value is None:
        return None
    try:
        return value.decode()
    except UnicodeDecodeError:
        return _in_base64(value)


def _in_base64(value: bytes | None) -> Any:
    return None if value is None else {"base64": base64.b64encode(value).decode()}
