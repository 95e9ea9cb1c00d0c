"""Reads fields of a certificate: its expiration, its host names, and its subject in Java's form.

Runs in processors, for certificates that OpenSSL has accepted. Only a few DER elements are parsed, which costs no
memory; a subject must keep its written form (RFC 2253 requires it), which the standard library's parser does not.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator, Set
from datetime import UTC, datetime

#: Attributes that Java's X500Principal writes by a keyword; others are written by number, their values as DER.
_KEYWORDS = {
    "2.5.4.3": "CN",
    "2.5.4.6": "C",
    "2.5.4.7": "L",
    "2.5.4.8": "ST",
    "2.5.4.9": "STREET",
    "2.5.4.10": "O",
    "2.5.4.11": "OU",
    "0.9.2342.19200300.100.1.1": "UID",
    "0.9.2342.19200300.100.1.25": "DC",
}

#: Types of strings, and their character encodings.
_ENCODINGS = {12: "utf-8", 19: "ascii", 20: "latin-1", 22: "ascii", 27: "latin-1", 30: "utf-16-be"}

_VERSION_TAG, _UTC_TIME_TAG = 0xA0, 23
_EXTENSIONS_TAG, _HOST_NAME_TAG, _ADDRESS_TAG = 0xA3, 0x82, 0x87
_ALTERNATIVE_NAMES = "2.5.29.17"
_TIME_FORMAT = "%Y%m%d%H%M%SZ"
_ESCAPED = frozenset(',=+<>#;"\\')
_LONG_FORM = 0x80
_WHITESPACE = (" ", "\r")

#: Tag, start and end of the content.
_Element = tuple[int, int, int]


def not_after(der: bytes) -> int:
    """Return the expiration of a certificate, in seconds since 1970.

    Raises ValueError or IndexError if it is malformed.
    """
    validity = _fields(der)[1]
    tag, start, end = list(_elements(der, validity[1], validity[2]))[1]
    text = der[start:end].decode("ascii")
    if tag == _UTC_TIME_TAG:
        # Two-digit years from 50 to 99 belong to the last century (RFC 5280).
        text = ("19" if text[0] >= "5" else "20") + text
    return int(datetime.strptime(text, _TIME_FORMAT).replace(tzinfo=UTC).timestamp())


def subject(der: bytes) -> str:
    """Return the subject of a certificate as Java's ``X500Principal.getName`` does, most specific part first.

    Empty if it has none. Raises ValueError or IndexError if it is malformed.
    """
    _, start, end = _fields(der)[2]
    parts = [_relative_name(der, part) for part in _elements(der, start, end)]
    return ",".join(reversed(parts))


def names(der: bytes) -> frozenset[str]:
    """Return the host names and addresses in a certificate's extension of alternative names.

    Raises ValueError or IndexError if it is malformed.
    """
    found = set()
    for tag, start, end in _extension(der, _ALTERNATIVE_NAMES):
        if tag == _HOST_NAME_TAG:
            found.add(der[start:end].decode("ascii", errors="replace").lower())
        elif tag == _ADDRESS_TAG:
            found.add(str(ipaddress.ip_address(der[start:end])))
    return frozenset(found)


def covers(names: Set[str], name: str) -> bool:
    """Return whether a certificate for these names covers a name: `*` matches the first label of a host name."""
    return name in names or f"*.{name.partition('.')[2]}" in names


def _extension(der: bytes, number: str) -> Iterator[_Element]:
    """Yield the elements of an extension with a sequence as its value; none if the extension is missing."""
    _, start, end = _element(der, _element(der, 0)[1])
    for tag, extensions, _ in _elements(der, start, end):
        if tag != _EXTENSIONS_TAG:
            continue
        _, first, last = _element(der, extensions)
        for _, at, until in _elements(der, first, last):
            # Its number, its optional critical flag, and its value as a string of bytes.
            (_, id_start, id_end), *_, (_, value, _) = _elements(der, at, until)
            if _object_id(der[id_start:id_end]) == number:
                _, at_first, rest = _element(der, value)
                yield from _elements(der, at_first, rest)


def _fields(der: bytes) -> list[_Element]:
    """Return issuer, validity and subject."""
    certificate = _element(der, 0)
    to_be_signed = _element(der, certificate[1])
    fields = list(_elements(der, to_be_signed[1], to_be_signed[2]))
    # They follow the serial number and the algorithm, and in newer certificates the version.
    first = 3 if fields[0][0] == _VERSION_TAG else 2
    return fields[first : first + 3]


def _relative_name(der: bytes, part: _Element) -> str:
    return "+".join(_attribute(der, each) for each in _elements(der, part[1], part[2]))


def _attribute(der: bytes, attribute: _Element) -> str:
    (_, id_start, id_end), (tag, start, end) = _elements(der, attribute[1], attribute[2])
    number = _object_id(der[id_start:id_end])
    keyword = _KEYWORDS.get(number)
    encoding = _ENCODINGS.get(tag)
    if keyword is None or encoding is None:
        # The value with its own tag and length, which begin at the end of the number.
        return f"{keyword or number}=#{der[id_end:end].hex()}"
    return f"{keyword}={_escape(der[start:end].decode(encoding, errors='replace'))}"


def _escape(text: str) -> str:
    escaped = "".join("\\00" if each == "\0" else f"\\{each}" if each in _ESCAPED else each for each in text)
    lead = len(escaped) - len(escaped.lstrip("".join(_WHITESPACE)))
    body = escaped[lead:].rstrip("".join(_WHITESPACE))
    trail = escaped[lead + len(body) :]
    return "".join(f"\\{each}" for each in escaped[:lead]) + body + "".join(f"\\{each}" for each in trail)


def _object_id(content: bytes) -> str:
    numbers, value = [], 0
    for byte in content:
        value = value << 7 | byte & 0x7F
        if byte < _LONG_FORM:
            numbers.append(value)
            value = 0
    first = min(numbers[0] // 40, 2)
    return ".".join(map(str, (first, numbers[0] - 40 * first, *numbers[1:])))


def _elements(der: bytes, at: int, end: int) -> Iterator[_Element]:
    while at < end:
        element = _element(der, at)
        yield element
        at = element[2]


def _element(der: bytes, at: int) -> _Element:
    tag, length, start = der[at], der[at + 1], at + 2
    if length >= _LONG_FORM:
        count = length - _LONG_FORM
        length = int.from_bytes(der[start : start + count], "big")
        start += count
    if start + length > len(der):
        raise ValueError("a certificate ends before its content does")
    return tag, start, start + length
