"""The record walk: validates every record of a produced batch and finds its smallest and largest timestamp. HOT.

The rules are Kafka's: as many records as the header claims and nothing after them, offset deltas that rise from 0 by 1,
fields that fill their record exactly, a key for each header and, in a compacted topic, for each record. Whatever the
bytes are, the outcome is a verdict and never another exception.

A walk is done in steps of a budget, and `RecordWalk` is all of its state. Records of the usual form are validated in
one loop (`_walk_plain`), all others field by field (`_walk_any`).

This is the reference, and the twin of `broker/native/record_walk.c`, which is called first where it is built, and
leaves an unusual record to this.
"""

from collections.abc import Iterable
from typing import TYPE_CHECKING, Final, NamedTuple

from rotunda.broker.errors import ApiError
from rotunda.broker.native import compiled
from rotunda.broker.protocol.primitives import Buffer
from rotunda.broker.records.record_batch import BATCH_HEADER_BYTES, NO_TIMESTAMP
from rotunda.broker.records.record_reader import read_varlong
from rotunda.broker.records.record_writer import NO_HEADERS, RECORD_START, varint_bytes

PENDING: Final = -1
RIGHT: Final = 0
WRONG: Final = 1
#: Of the compiled walk: it has come to a record that is left to this module.
_LEFT: Final = 2

RECORDS_AT_ONCE: Final = 1024
"""The budget of a step: so many records, or headers of records; a millisecond. In C it is larger."""
#: The same, of a step in which a record was left to this module.
_LEFT_AT_ONCE: Final = RECORDS_AT_ONCE

#: Shorter data is copied: bytes are indexed faster than a view of them.
_COPIED_BYTES: Final = 1024 * 1024

#: A number of at most two bytes that is not negative has none of these bits.
_NOT_SHORT: Final = ~0x3FFE
_NOT_ONE_BYTE: Final = 0x81
_NULL: Final = 1
#: A batch with one record with a length of one byte is smaller than this.
_ONE_BYTE_LENGTH_BELOW: Final = BATCH_HEADER_BYTES + 1 + 64
#: Where the length of its key is: after its own, the attributes and two deltas of a byte each.
_KEY_AT: Final = BATCH_HEADER_BYTES + 1 + len(RECORD_START) + 1
_VARINT_BYTES: Final = 5

#: How many records that are not plain are walked before plain ones are expected again.
_ANY_AT_ONCE: Final = 16

_FAR: Final = 1 << 70

#: By the bytes up to the first one of the key's length: the form of a record that is the only one in its batch.
_lone_forms: dict[bytes, "_LoneForm"] = {}
_MOST_LONE_FORMS: Final = 4096


class RecordWalk:
    """A walk over uncompressed records: how far it is, and the smallest and largest timestamp delta so far, in ms."""

    __slots__ = (
        "at",
        "count",
        "data",
        "index",
        "is_keyed",
        "largest_delta",
        "least_delta",
        "left_headers",
        "stop",
    )

    def __init__(self, data: Buffer, count: int, *, is_keyed: bool = False) -> None:
        self.data = bytes(data) if compiled is None and len(data) <= _COPIED_BYTES else data
        self.count = count
        self.is_keyed = is_keyed
        self.at = 0
        self.index = 0
        self.least_delta = _FAR
        self.largest_delta = -_FAR
        #: Of the record with headers in progress: the number of remaining headers, and its end.
        self.left_headers = 0
        self.stop = 0

    def step(self, budget: int = RECORDS_AT_ONCE) -> int:
        """Continue the walk for a budget. Return RIGHT or WRONG once that is known, else PENDING."""
        if compiled is not None:
            verdict = self._step_natively(budget)
            if verdict != _LEFT:
                return verdict
            budget = min(budget, _LEFT_AT_ONCE)
        try:
            while self.index < self.count:
                if budget <= 0:
                    return PENDING
                index = self.index
                if self.left_headers:
                    budget -= _walk_any(self, budget)
                else:
                    until = min(self.count, index + budget)
                    _walk_plain(self, until)
                    budget -= self.index - index
                    if self.index < until:
                        budget -= _walk_any(self, budget)
        except (IndexError, ApiError):
            return WRONG
        return RIGHT if self.at == len(self.data) else WRONG

    def _step_natively(self, budget: int) -> int:
        walked = compiled.walk_records(  # type: ignore[union-attr]
            self.data, self.count, self.is_keyed, budget, self.at, self.stop, self.index, self.left_headers
        )
        verdict: int
        verdict, self.at, self.stop, self.index, self.left_headers, least, largest = walked
        if least <= largest:
            _note_deltas(self, (least, largest))
        return verdict


def is_as_claimed(batch: Buffer, count: int, base_timestamp: int, max_timestamp: int) -> bool:
    """Return whether one step shows that the records of an uncompressed batch match its header. HOT.

    False if they do not, if that needs more than a step, or if a record is older than the base timestamp.
    """
    if max_timestamp < NO_TIMESTAMP:
        return False
    if count == 1 and max_timestamp == base_timestamp and _is_lone(batch):
        return True
    if count > RECORDS_AT_ONCE:
        return False
    walk = RecordWalk(batch[BATCH_HEADER_BYTES:], count)
    return walk.step() == RIGHT and walk.least_delta >= 0 and base_timestamp + walk.largest_delta == max_timestamp


class _LoneForm(NamedTuple):
    """The size of the batch; the position of the length of the record's value, and that length."""

    size: int
    value_at: int
    value_stop: int
    value_length: bytes


def _is_lone(batch: Buffer) -> bool:
    """Whether the record of a batch has the batch's time, no headers, and a key of less than 64 bytes or none."""
    size = len(batch)
    key_at = _KEY_AT if size < _ONE_BYTE_LENGTH_BELOW else _KEY_AT + 1
    start = bytes(batch[BATCH_HEADER_BYTES : key_at + 1])
    form = _lone_forms.get(start) or _lone_form(size, start)
    if form is None:
        return False
    form_size, value_at, value_stop, value_length = form
    return form_size == size and bytes(batch[value_at:value_stop]) == value_length and not batch[size - 1]


def _lone_form(size: int, start: bytes) -> _LoneForm | None:
    """Return the form of such a record that begins like this; None if it has another."""
    key_at = BATCH_HEADER_BYTES + len(start) - 1
    length = size - BATCH_HEADER_BYTES - (key_at - _KEY_AT + 1)
    key = start[-1] if start else 0
    value_at = key_at + 1 + (key >> 1)
    rest = size - value_at - len(NO_HEADERS)
    lengths = (varint_bytes(rest - taken) for taken in range(1, min(_VARINT_BYTES, rest + 1)))
    value_length = next((code for taken, code in enumerate(lengths, 1) if len(code) == taken), b"")
    has_start = start == varint_bytes(length) + RECORD_START + b"\0" + start[-1:]
    if not has_start or not value_length or (key & _NOT_ONE_BYTE and key != _NULL):
        return None
    if len(_lone_forms) >= _MOST_LONE_FORMS:
        _lone_forms.clear()
    form = _lone_forms[start] = _LoneForm(size, value_at, value_at + len(value_length), value_length)
    return form


def _walk_plain(walk: RecordWalk, until: int) -> None:  # noqa: C901 - one loop: calls would double its time
    """Walk records of the usual form: numbers of two bytes at most, of the key's length one, and no headers.

    Stops at the first one of another form, right or wrong.
    """
    data, at, twice, last, is_keyed = walk.data, walk.at, 2 * walk.index, 2 * until, walk.is_keyed
    # Twice the deltas, as they are coded.
    least, largest = _FAR, 0
    try:
        while twice < last:
            length, place = data[at], at + 1
            if length > 0x7F:
                length += (data[place] << 7) - 0x80
                place += 1
            stop = place + (length >> 1)
            time, place = data[place + 1], place + 2  # after the record's attributes
            if time > 0x7F:
                time += (data[place] << 7) - 0x80
                place += 1
            offset, place = data[place], place + 1
            if offset > 0x7F:
                offset += (data[place] << 7) - 0x80
                place += 1
            key = data[place]
            place += 1 + (key >> 1)
            value, place = data[place], place + 1
            if value > 0x7F:
                value += (data[place] << 7) - 0x80
                place += 1
            place += value >> 1
            if (
                offset != twice
                or place + 1 != stop
                or data[place]
                or (length | time) & _NOT_SHORT
                or (value & _NOT_SHORT and value != _NULL)
                or (key & _NOT_ONE_BYTE and (key != _NULL or is_keyed))
            ):
                break
            if time > largest:
                largest = time
            if time < least:
                least = time
            at = stop
            twice += 2
    except IndexError:
        pass  # the record at the end is cut off: `_walk_any` rejects it
    if at != walk.at:
        walk.at, walk.index = at, twice >> 1
        _note_deltas(walk, (least >> 1, largest >> 1))


def _walk_any(walk: RecordWalk, budget: int) -> int:
    """Walk a few records of any form, within the budget; return the cost.

    Raises ApiError or IndexError at an invalid one.
    """
    data, at, end, cost = walk.data, walk.at, len(walk.data), 0
    for _ in range(min(_ANY_AT_ONCE, walk.count - walk.index)):
        if cost >= budget:
            break
        cost += 1
        stop = walk.stop
        if not walk.left_headers:
            length, at = _varint(data, at)
            stop = walk.stop = at + length
            if length <= 0 or stop > end:
                raise ApiError(WRONG, f"record of {length} bytes")
            delta, at = read_varlong(data, at + 1)
            offset, at = _varint(data, at)
            key_bytes, at = _varint(data, at)
            value_bytes, at = _varint(data, at + max(key_bytes, 0))
            walk.left_headers, at = _varint(data, at + max(value_bytes, 0))
            if offset != walk.index or (key_bytes < 0 and walk.is_keyed) or not 0 <= walk.left_headers <= stop - at:
                raise ApiError(WRONG, f"record {walk.index} with offset delta {offset}, {walk.left_headers} headers")
            _note_deltas(walk, (delta,))
        some = min(walk.left_headers, max(0, budget - cost))
        at = _after_headers(data, at, some)
        cost += some
        walk.left_headers -= some
        if walk.left_headers:
            break
        if at != stop:
            raise ApiError(WRONG, f"record that ends {at - stop} bytes after its end")
        walk.index += 1
    walk.at = at
    return cost


def _after_headers(data: Buffer, at: int, count: int) -> int:
    for _ in range(count):
        size, at = data[at], at + 1
        if size & _NOT_ONE_BYTE:
            size, at = _varint(data, at - 1)
            if size < 0:
                raise ApiError(WRONG, "header without key")
            size *= 2
        at += size >> 1
        size, at = data[at], at + 1
        if size & _NOT_ONE_BYTE:
            size, at = _varint(data, at - 1)
            size = max(2 * size, 0)
        at += size >> 1
    return at


def _varint(data: Buffer, at: int) -> tuple[int, int]:
    value, stop = read_varlong(data, at)
    if stop - at > _VARINT_BYTES:
        raise ApiError(WRONG, "varint of more than 5 bytes")
    return value, stop


def _note_deltas(walk: RecordWalk, deltas: Iterable[int]) -> None:
    walk.least_delta = min(walk.least_delta, *deltas)
    walk.largest_delta = max(walk.largest_delta, *deltas)


if not TYPE_CHECKING and compiled is not None:
    RECORDS_AT_ONCE, is_as_claimed = compiled.RECORDS_AT_ONCE, compiled.is_as_claimed
