"""Encodes a response a part at a time, so that its task can yield in between.

Used where a response may have any number of elements (`handler.api_calls`). The values are those of `codec`. An array
may be a `Lazily`, whose elements are made one by one as they are written, so that no response is in memory as values
and as bytes. The bytes are appended to a *sink* that can drop the last of them: an element with which the response
would become too long is replaced by the one that its `Lazily` has for that case. `broker.ipc.response_spool` is the
sink for responses of any length.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from functools import cache
from itertools import pairwise
from typing import Any, Final, NamedTuple, Protocol

from rotunda.broker.protocol.headers import response_header
from rotunda.broker.protocol.primitives import INT32
from rotunda.broker.protocol.schema.definitions import response
from rotunda.broker.protocol.schema.writing import WriteSliced, make_sliced_writer
from rotunda.broker.steps import Steps

_SIZE_BYTES: Final = 4

#: The task yields after this many structures, or bytes: half a millisecond.
_STRUCTURES_AT_ONCE: Final = 32
_BYTES_AT_ONCE: Final = 64 * 1024

_DEEPEST: Final = 1 << 30


class AnswerTooLargeError(Exception):
    """A response exceeds the maximum size."""


class Sink(Protocol):
    """The bytes written so far. ``size``: their number."""

    size: int

    def append(self, data: bytes) -> None:
        """Add bytes at the end."""

    def cut(self, size: int) -> None:
        """Truncate the data to the first ``size`` bytes."""

    def put_size(self, size_bytes: bytes) -> None:
        """Overwrite the first bytes."""


class MemorySink:
    """A sink for short data."""

    def __init__(self) -> None:
        self.data = bytearray()
        self.size = 0

    def append(self, data: bytes) -> None:
        self.data += data
        self.size += len(data)

    def cut(self, size: int) -> None:
        """Truncate the data to the first ``size`` bytes."""
        del self.data[size:]
        self.size = size

    def put_size(self, size_bytes: bytes) -> None:
        """Overwrite the first bytes."""
        self.data[: len(size_bytes)] = size_bytes


class Encoded(NamedTuple):
    """An element of a response as it is written, and the error code in it."""

    data: bytes
    error_code: int


class Lazily:
    """An array of a response whose elements are made when they are written.

    ``make(item)`` returns the values of one element. Where the response would become too long with it, it is written as
    ``refuse(item)``, which is short; without that the whole response is too large.
    """

    __slots__ = ("items", "make", "refuse")

    def __init__(
        self, items: Collection[Any], make: Callable[[Any], Any], refuse: Callable[[Any], Any] | None = None
    ) -> None:
        self.items = items
        self.make = make
        self.refuse = refuse

    def __len__(self) -> int:
        return len(self.items)

    def __iter__(self) -> Iterator[Any]:
        return map(self.make, self.items)


class SlicedEncoder:
    """Writes one response to a sink. ``error_code``: the first one, of outer structures before inner ones."""

    def __init__(self, api_key: int, version: int, sink: Sink, most_bytes: int) -> None:
        self._api = api_key, version
        self._sink = sink
        self._most_bytes = most_bytes
        self._structures = 0
        self._yielded_at = 0
        self._error_depth = _DEEPEST
        self.error_code = 0

    def encode(self, correlation_id: int, values: Any) -> Steps[None]:
        """Write the whole response, size and header included. Raises AnswerTooLargeError."""
        self.write(bytes(_SIZE_BYTES) + response_header(*self._api, correlation_id))
        yield from self._element(values, _writer(*self._api), 0)
        self._sink.put_size(INT32.pack(self._sink.size - _SIZE_BYTES))

    def element(self, array: str, element: Lazily) -> Steps[int]:
        """Write one element of an array of the response and nothing else; return its error code."""
        self.error_code, self._error_depth = 0, _DEEPEST
        yield from self.elements(element, _writer(*self._api, array), 0)
        return self.error_code

    def elements(self, items: Any, write: WriteSliced, depth: int) -> Steps[None]:
        """Write the elements of an array."""
        array = items if isinstance(items, Lazily) else Lazily(items, _as_it_is)
        for item in array.items:
            before = self._sink.size
            try:
                yield from self._element(array.make(item), write, depth)
            except AnswerTooLargeError:
                if array.refuse is None:
                    raise
                self._sink.cut(before)
                most_bytes, self._most_bytes = self._most_bytes, sys.maxsize
                yield from self._element(array.refuse(item), write, depth)
                # It is short, and does not count towards the limit of those that follow.
                self._most_bytes = most_bytes + self._sink.size - before
            if self._is_due():
                yield

    def _element(self, values: Any, write: WriteSliced, depth: int) -> Iterable[None]:
        if depth < self._error_depth:
            code = values.get("error_code") if isinstance(values, Mapping) else getattr(values, "error_code", 0)
            if code:
                self.error_code, self._error_depth = int(code), depth
        if not isinstance(values, Encoded):
            return write(values, self)
        self.write(values.data)
        return ()

    def _is_due(self) -> bool:
        """Count a structure; return whether the task should yield."""
        self._structures += 1
        if self._structures < _STRUCTURES_AT_ONCE and self._sink.size - self._yielded_at < _BYTES_AT_ONCE:
            return False
        self._structures, self._yielded_at = 0, self._sink.size
        return True

    def write(self, data: bytes) -> None:
        """Add bytes at the end. Raises AnswerTooLargeError."""
        if self._sink.size + len(data) > self._most_bytes:
            raise AnswerTooLargeError
        self._sink.append(data)


def encoded_elements(place: tuple[int, int, str], values: Lazily, most_bytes: int) -> Steps[list[Encoded]]:
    """Return the encoded elements of one array of a response; ``place``: (API key, version, field).

    Elements beyond a total of ``most_bytes`` are replaced by ``refuse(item)``.
    """
    api_key, version, array = place
    sink = MemorySink()
    encoder = SlicedEncoder(api_key, version, sink, most_bytes)
    codes, ends = [], [0]
    for item in values.items:
        codes.append((yield from encoder.element(array, Lazily((item,), values.make, values.refuse))))
        ends.append(sink.size)
    return [
        Encoded(bytes(sink.data[start:end]), code) for (start, end), code in zip(pairwise(ends), codes, strict=True)
    ]


def _as_it_is(element: Any) -> Any:
    return element


@cache
def _writer(api_key: int, version: int, array: str = "") -> WriteSliced:
    """Return the function that writes a response, or an element of one of its arrays."""
    message = response(api_key)
    of_arrays = {each.name: each.structure for each in message.structure.fields}
    return make_sliced_writer(message, version, of_arrays.get(array) or message.structure)
