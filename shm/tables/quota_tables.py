"""Quota tables: each client's quota usage, one table per owner, readable by all others.

A client's connections are spread over processors and handlers, so its rate is the sum over all tables. Each table has
one writer: a target, or a processor. A reader finds an entity by its hash, caches its position until the table's change
count is raised, and accepts a reading if the hash is the same afterwards. Knows nothing of how rates are computed
(`shm.tables.quota_rates`).

A killed process leaves its table unchanged, and its replacement continues with it. A slot in the middle of reassignment
has no hash yet and is free; a sample that was just begun has the value 0: at most one amount being recorded is lost,
and never more than one window.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

from rotunda.shm.quota_layout import QUOTA_SAMPLE, QUOTA_SLOT, QUOTA_TABLE
from rotunda.shm.words import words_of

#: The quotas of clients, by Kafka's names, and one shared by all clients.
PRODUCE, FETCH = "producer_byte_rate", "consumer_byte_rate"
REQUEST, MUTATION = "request_percentage", "controller_mutation_rate"
REQUEST_RATE = "request_rate"
#: QUOTA_SLOT.quota is an index into this.
QUOTAS = (PRODUCE, FETCH, REQUEST, MUTATION, REQUEST_RATE)

#: Most entities of an owner at a time. One more replaces the idlest.
SLOTS = 512

#: Words of a QUOTA_SAMPLE.
START, LAST, USED = (QUOTA_SAMPLE.word(name) for name in ("start_ms", "last_ms", "used"))
SAMPLE_WORDS = QUOTA_SAMPLE.size // 8

#: Words of a QUOTA_SLOT.
CURRENT = QUOTA_SLOT.word("current")
USED_MS = QUOTA_SLOT.word("used_ms")
THROTTLED, THROTTLE_MS = QUOTA_SLOT.word("throttled"), QUOTA_SLOT.word("throttle_ms")
THROTTLED_UNTIL_MS = QUOTA_SLOT.word("throttled_until_ms")
FIRST_SAMPLE = QUOTA_SLOT.size // 8
_LIMIT, _QUOTA = QUOTA_SLOT.word("limit"), QUOTA_SLOT.word("quota")
_NAME_BYTES, _NAME = QUOTA_SLOT.word("name_bytes"), QUOTA_SLOT.offset("name")
_NAME_ROOM = QUOTA_SLOT.size - _NAME
_CHANGES = QUOTA_TABLE.word("changes")
_WINDOWS, _WINDOW_MS = QUOTA_TABLE.word("windows"), QUOTA_TABLE.word("window_ms")
_FIRST_SLOT = QUOTA_TABLE.size // 8
_SEPARATOR = b"\0"


class QuotaUse(NamedTuple):
    """One owner's record of one entity. Times are monotonic, in ms; ``limit`` is in thousandths per second."""

    entity: int
    quota: str
    user: str
    client_id: str
    limit: int
    used_ms: int
    throttled: int
    throttle_ms: int
    throttled_until_ms: int
    samples: list[tuple[int, int, int]]


class QuotaTables:
    """The tables of all owners over `view`. Zeroed memory is valid: no usage."""

    __slots__ = ("_head", "_tables", "windows")

    def __init__(self, view: memoryview, windows: int, owners: int) -> None:
        """``windows``: the number of windows of a rate (quota.window.num)."""
        self.windows = windows
        self._head = words_of(view, 0, QUOTA_TABLE.size)
        size = _table_bytes(windows)
        self._tables = [QuotaTable(view, owner * size, windows) for owner in range(owners)]

    @classmethod
    def attached(cls, view: memoryview) -> QuotaTables:
        """Return the tables over a segment of a running broker, whatever its settings."""
        windows = words_of(view, 0, QUOTA_TABLE.size)[_WINDOWS]
        return cls(view, windows, view.nbytes // _table_bytes(windows))

    @property
    def window_ms(self) -> int:
        """The length of a window."""
        return int(self._head[_WINDOW_MS])

    @staticmethod
    def initialise(view: memoryview, windows: int, window_ms: int) -> None:
        """Store the number and length of windows. The supervisor does it once, on zeroed memory."""
        words = words_of(view, 0, QUOTA_TABLE.size)
        words[_WINDOWS], words[_WINDOW_MS] = windows, window_ms

    @staticmethod
    def bytes_needed(windows: int, owners: int) -> int:
        """Return the bytes of shared memory for the tables of all owners."""
        return owners * _table_bytes(windows)

    def of(self, owner: int) -> QuotaTable:
        """Return the table of one owner."""
        return self._tables[owner]

    def but(self, owner: int) -> list[QuotaTable]:
        """Return the tables of all other owners."""
        return [table for index, table in enumerate(self._tables) if index != owner]

    def uses(self) -> Iterator[QuotaUse]:
        """Yield every owner's records."""
        for table in self._tables:
            yield from table.uses()


class QuotaTable:
    """One owner's table, for readers."""

    __slots__ = ("_changes", "_places", "_stride", "_view", "samples", "samples_words", "words")

    def __init__(self, view: memoryview, base: int, windows: int) -> None:
        #: Samples in a slot; as in Kafka one more than windows: the oldest may extend into the measured time.
        self.samples = windows + 1
        self.samples_words = self.samples * SAMPLE_WORDS
        self._stride = FIRST_SAMPLE + self.samples_words
        size = _table_bytes(windows)
        self._view = view[base : base + size]
        self.words = words_of(view, base, size)
        self._places: dict[int, int] = {}
        self._changes = -1

    def place(self, entity: int) -> int:
        """Return the word at which an entity's slot begins, or -1 without one. HOT."""
        # SYNC: the changes before the hashes; pairs with the stores in QuotaTableWriter.take.
        changes = self.words[_CHANGES]
        if changes != self._changes:
            self._changes = changes
            self._places = self._read_places()
        return self._places.get(entity, -1)

    def read(self, entity: int) -> list[int] | None:
        """Return the words of an entity's samples, concatenated, or None without a slot. HOT."""
        at = self.place(entity)
        if at < 0:
            return None
        first = at + FIRST_SAMPLE
        found: list[int] = self.words[first : first + self.samples_words].tolist()
        # SYNC: the samples before the hash; pairs with the stores in QuotaTableWriter.take.
        return found if self.words[at] == entity else None

    def uses(self) -> Iterator[QuotaUse]:
        """Yield this owner's records, except those that changed while they were read."""
        for at in self._read_places().values():
            words = self.words[at : at + self._stride].tolist()
            raw = bytes(self._view[at * 8 + _NAME : at * 8 + _NAME + _NAME_ROOM])[: words[_NAME_BYTES]]
            if self.words[at] != words[0]:
                continue
            user, _, client_id = raw.decode(errors="replace").partition(_SEPARATOR.decode())
            flat = words[FIRST_SAMPLE:]
            samples = [(flat[n], flat[n + 1], flat[n + 2]) for n in range(0, len(flat), SAMPLE_WORDS)]
            yield QuotaUse(
                words[0], QUOTAS[words[_QUOTA]], user, client_id, words[_LIMIT], words[USED_MS], words[THROTTLED],
                words[THROTTLE_MS], words[THROTTLED_UNTIL_MS], samples,
            )  # fmt: skip

    def _read_places(self) -> dict[int, int]:
        hashes = self.words[_FIRST_SLOT :: self._stride].tolist()
        return {entity: _FIRST_SLOT + number * self._stride for number, entity in enumerate(hashes) if entity}


class QuotaTableWriter:
    """The one writer of a table: it assigns slots to entities, and continues a predecessor's table."""

    __slots__ = ("_free", "_own", "_table", "_view", "table", "words")

    def __init__(self, table: QuotaTable) -> None:
        self.table = table
        self.words = table.words
        self._view = table._view
        self._own = table._read_places()
        # A killed predecessor may have reassigned a slot without raising the count.
        self.words[_CHANGES] += 1
        used = set(self._own.values())
        places = range(_FIRST_SLOT, _FIRST_SLOT + SLOTS * table._stride, table._stride)
        self._free = [at for at in reversed(places) if at not in used]

    def take(self, entity: int, quota: int, scope: tuple[str, str], limit: int, now_ms: int) -> int:
        """Return the start of an entity's slot, which may replace that of the idlest entity.

        ``scope`` are user and client id; ``limit`` is in thousandths per second.
        """
        at = self._own.get(entity, -1)
        if at < 0:
            at = self._free.pop() if self._free else self._idlest()
            self._own[entity] = at
            self._begin(at, quota, scope)
            # SYNC: all else before the hash, and that before the changes; pairs with the loads in QuotaTable.place.
            self.words[at] = entity
            self.words[_CHANGES] += 1
        self.words[at + _LIMIT] = limit
        self.words[at + USED_MS] = now_ms
        return at

    def keep(self, is_wanted: Callable[[QuotaUse], bool]) -> None:
        """Free the slots of entities that are no longer wanted, except those with truncated names."""
        for use in list(self.table.uses()):
            whole = len(f"{use.user}{use.client_id}".encode(errors="replace")) + len(_SEPARATOR) < _NAME_ROOM
            at = self._own.get(use.entity, -1)
            if at >= 0 and whole and not is_wanted(use):
                del self._own[use.entity]
                self._free.append(at)
                # SYNC: the hash before the changes; pairs with the loads in QuotaTable.place.
                self.words[at] = 0
                self.words[_CHANGES] += 1

    def _idlest(self) -> int:
        entity, at = min(self._own.items(), key=lambda each: self.words[each[1] + USED_MS])
        del self._own[entity]
        return at

    def _begin(self, at: int, quota: int, scope: tuple[str, str]) -> None:
        words = self.words
        words[at] = 0
        for word in range(at + 1, at + FIRST_SAMPLE + self.table.samples_words):
            words[word] = 0
        name = _SEPARATOR.join(text.encode(errors="replace") for text in scope)[:_NAME_ROOM]
        self._view[at * 8 + _NAME : at * 8 + _NAME + len(name)] = name
        words[at + _NAME_BYTES] = len(name)
        words[at + _QUOTA] = quota


def _table_bytes(windows: int) -> int:
    return QUOTA_TABLE.size + SLOTS * (QUOTA_SLOT.size + (windows + 1) * QUOTA_SAMPLE.size)
