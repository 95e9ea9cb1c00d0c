"""Metrics pages: one per process, written by it alone without locks, read by any process without disturbing it.

A page is layout.METRICS_PAGE, the api slots, one word for each counter and gauge, the tables of metrics with keys, the
texts of keys, and the histograms, in the order of the catalogue. Every value is exact by itself; a reading of several
is not of one instant. A replacement continues its predecessor's counters, and a dead process's page retains its values.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from rotunda.shm.layout import METRICS_PAGE
from rotunda.shm.metrics.catalogue import CATALOGUE, PHASES
from rotunda.shm.metrics.histogram import BUCKETS, HistogramReading, bucket_of, buckets_of
from rotunda.shm.metrics.metric import HISTOGRAM
from rotunda.shm.metrics.metric_tables import (
    SLOT_WORDS,
    TEXT_SLOTS,
    TEXT_WORDS,
    TableWriter,
    TextWriter,
    read_table,
    read_texts,
)
from rotunda.shm.tables.process_slots import ACCEPTOR, CLEANER, CONTROLLER, HANDLER, PROCESSOR, RECORDER, ROLES, WEB
from rotunda.shm.words import words_of

if TYPE_CHECKING:
    import numpy
    from numpy.typing import NDArray

OTHER_API_KEY = -1  # key of the slot for all api keys without one
_PHASES = "phase_ns"
_API_SLOTS = 32
_HEADER = METRICS_PAGE.size // 8
_ROLE = METRICS_PAGE.word("role")
_INDEX = METRICS_PAGE.word("index")
_GENERATION = METRICS_PAGE.word("generation")
_STARTED = METRICS_PAGE.word("started_ns")
# A histogram: sum, maximum, counts. A slot: one histogram for each value of each histogram metric.
_COUNTS = 2
_HISTOGRAM = _COUNTS + BUCKETS


class _PageMap:
    """The positions of the values in a role's page, in words from its start."""

    __slots__ = ("histograms", "indexes", "offsets", "slot_words", "slots", "tables", "texts", "words")

    def __init__(self, role: int) -> None:
        metrics = CATALOGUE[ROLES[role]]
        histograms = [(m.name, value) for m in metrics if m.kind == HISTOGRAM for value in m.values]
        self.slots = _API_SLOTS if histograms else 0
        keys = [(m.name, value) for m in metrics if m.kind != HISTOGRAM and not m.keys for value in m.values]
        first = _HEADER + self.slots
        self.indexes = {key: first + number for number, key in enumerate(keys)}
        end = first + len(keys)
        #: (first word, slots, parts of a key)
        self.tables: dict[str, tuple[int, int, int]] = {}
        for metric in metrics:
            if metric.keys:
                self.tables[metric.name] = (end, metric.slots, len(metric.keys))
                end += metric.slots * SLOT_WORDS
        self.texts = end
        end += TEXT_SLOTS * TEXT_WORDS if self.tables else 0
        self.histograms = -(-end // 8) * 8
        self.offsets = {key: number * _HISTOGRAM for number, key in enumerate(histograms)}
        self.slot_words = _HISTOGRAM * len(histograms)
        self.words = -(-(self.histograms + self.slots * self.slot_words) // 8) * 8  # whole cache lines


class MetricsSegment:
    """The pages at the start of `view`: acceptor, processors, handlers, controller, cleaner, recorder, web."""

    def __init__(self, view: memoryview, processors: int, handlers: int) -> None:
        self._view = view
        self._places: dict[tuple[int, int], tuple[int, int]] = {}
        start = 0
        for role, index, size in _pages(processors, handlers):
            self._places[role, index] = (start, size)
            start += size

    @staticmethod
    def bytes_needed(processors: int, handlers: int) -> int:
        """Return the bytes of shared memory for all pages."""
        return sum(size for _, _, size in _pages(processors, handlers))

    def initialise(self, made: int | None = None) -> None:
        """Write every page's owner, except for processors from number `made` on; once, on zeroed memory."""
        for role, index in self._places:
            if made is None or role != PROCESSOR or index < made:
                self.initialise_page(role, index)

    def initialise_page(self, role: int, index: int) -> None:
        """Write a page's owner. The supervisor does it once, on zeroed memory."""
        words = words_of(self.page(role, index), 0, METRICS_PAGE.size)
        words[_ROLE] = role
        words[_INDEX] = index

    def place(self, role: int, index: int) -> tuple[int, int]:
        """Return the start of a process's page, and its bytes."""
        return self._places[role, index]

    def page(self, role: int, index: int) -> memoryview:
        """Return the page of a process; the index is 0 for a role with one process. KeyError if none."""
        start, size = self._places[role, index]
        return self._view[start : start + size]

    def readers(self, made: int | None = None, handlers: int | None = None) -> list[MetricsReader]:
        """Return a reader for each page, of processors and handlers only for those below these numbers."""
        return list(self.readers_by_process(made, handlers).values())

    def readers_by_process(
        self, made: int | None = None, handlers: int | None = None
    ) -> dict[tuple[str, int], MetricsReader]:
        """Return the same by name of the role and index."""
        least = {PROCESSOR: made, HANDLER: handlers}
        found = [(role, i) for role, i in self._places if (most := least.get(role)) is None or i < most]
        return {(ROLES[role], index): MetricsReader(self.page(role, index)) for role, index in found}


def _pages(processors: int, handlers: int) -> list[tuple[int, int, int]]:
    others = ((CONTROLLER, 1), (CLEANER, 1), (RECORDER, 1), (WEB, 1))
    counts = ((ACCEPTOR, 1), (PROCESSOR, processors), (HANDLER, handlers), *others)
    return [(role, index, _PageMap(role).words * 8) for role, count in counts for index in range(count)]


class MetricsWriter:
    """The one writer of `page`. Look indexes up once, at start; `add` is `words[index] += n`."""

    __slots__ = ("_api_slots", "_array", "_map", "_page", "_tables", "texts", "words")

    def __init__(self, page: memoryview) -> None:
        self._page = page
        self.words = words_of(page, 0, page.nbytes)
        self._map = _PageMap(self.words[_ROLE])
        self._api_slots = _read_api_slots(self.words, self._map)
        self._array: NDArray[numpy.int64] | None = None
        self._tables: dict[str, TableWriter] = {}
        if self._map.tables:
            #: The texts that keys refer to.
            self.texts = TextWriter(self.words, self._map.texts)

    def start(self, generation: int, now_ns: int) -> None:
        """Write the generation that uses the page from now on, and its start time."""
        self.words[_GENERATION] = generation
        self.words[_STARTED] = now_ns

    def index(self, name: str, value: str = "") -> int:
        """Return the index of a counter or gauge, by its label's value if it has one, or KeyError."""
        return self._map.indexes[name, value]

    def table(self, name: str) -> TableWriter:
        """Return the one writer of a metric with keys, or KeyError."""
        if name not in self._tables:
            self._tables[name] = TableWriter(self.words, *self._map.tables[name])
        return self._tables[name]

    def add(self, index: int, n: int) -> None:
        """Increment a counter by `n`. HOT."""
        self.words[index] += n

    def set(self, index: int, value: int) -> None:
        """Store a gauge. HOT."""
        self.words[index] = value

    def phase(self, api_key: int, phase: str) -> int:
        """Return the index of an api key's histogram of one of PHASES, for `record`."""
        return self.histogram(_PHASES, api_key, phase)

    def histogram(self, name: str, api_key: int, value: str = "") -> int:
        """Return the index of an api key's histogram, by its label's value if it has one, or KeyError."""
        offset = self._map.offsets[name, value]
        return self._slot(api_key) + offset

    def record(self, histogram: int, value: int) -> None:
        """Record one value."""
        value = max(value, 0)
        words = self.words
        words[histogram + _COUNTS + bucket_of(value)] += 1
        words[histogram] += value
        if value > words[histogram + 1]:
            words[histogram + 1] = value

    def slots(self, api_keys: NDArray[numpy.int64]) -> NDArray[numpy.int64]:
        """Return the start of each api key's histograms, for `record_many`."""
        import numpy  # noqa: PLC0415  numpy takes 45 ms to import and the start-up path does without it

        keys, places = numpy.unique(api_keys, return_inverse=True)
        starts: NDArray[numpy.int64] = numpy.array([self._slot(key) for key in keys.tolist()], numpy.int64)[places]
        return starts

    def record_many(self, slots: NDArray[numpy.int64], name: str, value: str, values: NDArray[numpy.int64]) -> None:
        """Record many values of one metric, each for the api key of its slot; a negative one counts as 0."""
        import numpy  # noqa: PLC0415

        if self._array is None:
            self._array = numpy.frombuffer(self._page, dtype=numpy.int64)
        histograms = slots + self._map.offsets[name, value]
        values = numpy.maximum(values, 0)
        numpy.add.at(self._array, histograms + _COUNTS + buckets_of(values), 1)
        numpy.add.at(self._array, histograms, values)
        numpy.maximum.at(self._array, histograms + 1, values)

    def _slot(self, api_key: int) -> int:
        """Return the start of an api key's histograms."""
        slot = self._api_slots.get(api_key)
        if slot is None:
            slot = self._new_api_slot(api_key)
        return self._map.histograms + slot * self._map.slot_words

    def _new_api_slot(self, api_key: int) -> int:
        """Allocate the next slot for the key; the last one is shared by all later keys."""
        slot = len(set(self._api_slots.values()) - {_API_SLOTS - 1})
        last = slot >= _API_SLOTS - 1
        self.words[_HEADER + slot] = OTHER_API_KEY if last else api_key + 1
        self._api_slots[api_key] = slot
        return slot


def _read_api_slots(words: memoryview, page: _PageMap) -> dict[int, int]:
    """Return slot by api key. A slot's word is the key plus one, OTHER_API_KEY, or 0 when it is unused."""
    slots = {}
    for slot in range(page.slots):
        word = words[_HEADER + slot]
        if word:
            slots[word if word == OTHER_API_KEY else word - 1] = slot
    return slots


@dataclass(frozen=True, slots=True)
class MetricsReading:
    """A copy of one page: `values` by (name, label value), `phases` in ns by (api key, phase).

    `histograms` has all of them by (name, api key, label value), `tables` the metrics with keys by name and key, and
    `texts` the texts for numbers in keys.
    """

    role: str
    index: int
    generation: int
    started_ns: int
    values: dict[tuple[str, str], int]
    phases: dict[tuple[int, str], HistogramReading]
    histograms: dict[tuple[str, int, str], HistogramReading] = field(default_factory=dict)
    tables: dict[str, dict[tuple[int, ...], int]] = field(default_factory=dict)
    texts: dict[int, str] = field(default_factory=dict)


class MetricsReader:
    """A reader of one page; the map may be read-only."""

    __slots__ = ("_map", "_page")

    def __init__(self, page: memoryview) -> None:
        self._page = page
        self._map = _PageMap(words_of(page, 0, METRICS_PAGE.size)[_ROLE])

    def values(self) -> dict[tuple[str, str], int]:
        """Return the counters and gauges by name and label's value, without the other parts of the page."""
        words = words_of(self._page, 0, self._page.nbytes)
        return {key: words[index] for key, index in self._map.indexes.items()}

    def read(self) -> MetricsReading:
        """Return a copy of the page."""
        live = words_of(self._page, 0, self._page.nbytes)
        # Keys and texts are read before the copy is made, while their order in memory still counts. A number may be
        # reused for another text between the two reads: then it is dropped.
        before = list(read_texts(live, self._map.texts)) if self._map.tables else []
        tables = {name: read_table(live, *table) for name, table in self._map.tables.items()}
        after = dict(read_texts(live, self._map.texts)) if self._map.tables else {}
        texts = {index: text for index, text in before if after.get(index) == text}
        slots = _read_api_slots(live, self._map)
        # Only as far as it is used: reading an unused page of memory allocates it.
        used = self._map.histograms + self._map.slot_words * (max(slots.values(), default=-1) + 1)
        words = memoryview(bytes(self._page[: used * 8])).cast("q")
        histograms = {
            (name, api_key, value): _read_histogram(words, self._map.histograms + slot * self._map.slot_words + offset)
            for api_key, slot in slots.items()
            for (name, value), offset in self._map.offsets.items()
        }
        return MetricsReading(
            role=ROLES[words[_ROLE]],
            index=words[_INDEX],
            generation=words[_GENERATION],
            started_ns=words[_STARTED],
            values={key: words[index] for key, index in self._map.indexes.items()},
            phases={(key, phase): histograms[_PHASES, key, phase] for key in slots for phase in PHASES},
            histograms=histograms,
            tables=tables,
            texts=texts,
        )


def _read_histogram(words: memoryview, first: int) -> HistogramReading:
    counts = words[first + _COUNTS : first + _HISTOGRAM].tolist()
    return HistogramReading(counts, words[first], words[first + 1])
