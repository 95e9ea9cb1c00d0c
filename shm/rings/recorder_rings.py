"""The recorder's segment: the settings of its sources, the account of each source's rows, and a ring from each.

The supervisor creates it. Sources are numbered: the processors, then the targets. A source pushes frames and never
waits: frames that do not fit are dropped and counted. The recorder settles frames once they are durable, so that a
successor knows exactly how many were lost with a killed recorder (layout.RECORDER_SOURCE).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from rotunda.shm.recorder_layout import RECORDER_FRAME, RECORDER_SETTINGS, RECORDER_SOURCE, RECORDER_TEXT
from rotunda.shm.rings.ring import RingConsumer, RingProducer, initialise, ring_bytes
from rotunda.shm.words import words_of

#: All rings of processors together, and the smallest ring of one.
PROCESSOR_RINGS_BYTES = 4 * 1024 * 1024
SMALLEST_RING_BYTES = 512 * 1024

#: Rings of targets: groups change seldom.
TARGET_RING_BYTES = 64 * 1024

_ENABLED = RECORDER_SETTINGS.word("enabled")
_SAMPLE_INTERVAL = RECORDER_SETTINGS.word("sample_interval")
_ROWS_PER_SECOND = RECORDER_SETTINGS.word("rows_per_second")
_SLOW_NS = RECORDER_SETTINGS.word("slow_ns")
_RETENTION_MS = RECORDER_SETTINGS.word("retention_ms")
_RETENTION_BYTES = RECORDER_SETTINGS.word("retention_bytes")
_ROLES_INTERVAL_MS = RECORDER_SETTINGS.word("roles_interval_ms")
_HISTORY_RETENTION_MS = RECORDER_SETTINGS.word("history_retention_ms")
_WORDS = {field.name: RECORDER_SOURCE.word(field.name) for field in RECORDER_SOURCE.fields}


class Retention(NamedTuple):
    """Age at which files of the request log and of its history are deleted, and most bytes of the former; -1: none."""

    age_ms: int = -1
    size_bytes: int = -1
    history_age_ms: int = -1


class RecorderSettings:
    """The settings of the recorder and its sources (layout.RECORDER_SETTINGS). Zeroed memory disables recording."""

    __slots__ = ("_words",)

    def __init__(self, view: memoryview) -> None:
        self._words = words_of(view, 0, RECORDER_SETTINGS.size)

    @property
    def enabled(self) -> bool:
        """Whether requests are to be recorded."""
        return bool(self._words[_ENABLED])

    @property
    def sample_interval(self) -> int:
        """One in this many requests that are neither slow nor failed is recorded; at least 1."""
        return max(1, self._words[_SAMPLE_INTERVAL])

    @property
    def slow_ns(self) -> int:
        """Shortest duration of a slow request."""
        slow_ns: int = self._words[_SLOW_NS]
        return slow_ns

    @property
    def rows_per_second(self) -> int:
        """Most rows per second from one processor, except for short bursts; 0 is no limit."""
        rows_per_second: int = self._words[_ROWS_PER_SECOND]
        return rows_per_second

    @property
    def retention(self) -> Retention:
        """Limits of the files of the request log and its history."""
        words = self._words
        return Retention(words[_RETENTION_MS], words[_RETENTION_BYTES], words[_HISTORY_RETENTION_MS])

    @property
    def roles_interval_ns(self) -> int:
        """Interval of recorded process usage and group lags; 0 is never."""
        interval_ms: int = self._words[_ROLES_INTERVAL_MS]
        return interval_ms * 1_000_000 if self.enabled else 0

    def store(
        self,
        *,
        enabled: bool,
        sample_interval: int,
        slow_ns: int,
        rows_per_second: int,
        retention: Retention,
        roles_interval_ms: int = 0,
    ) -> None:
        """Store the settings. By the supervisor before it starts any process, and then by the controller."""
        self._words[_RETENTION_MS] = retention.age_ms
        self._words[_RETENTION_BYTES] = retention.size_bytes
        self._words[_HISTORY_RETENTION_MS] = retention.history_age_ms
        self._words[_ROLES_INTERVAL_MS] = roles_interval_ms
        self._words[_SAMPLE_INTERVAL] = sample_interval
        self._words[_ROWS_PER_SECOND] = rows_per_second
        self._words[_SLOW_NS] = slow_ns
        self._words[_ENABLED] = 1 if enabled else 0


class SourceAccount:
    """The counters of one source (layout.RECORDER_SOURCE); each has one writing process."""

    __slots__ = ("_words",)

    def __init__(self, view: memoryview, base: int) -> None:
        self._words = words_of(view, base, RECORDER_SOURCE.size)

    def get(self, name: str) -> int:
        """Return a counter by the name of its field."""
        value: int = self._words[_WORDS[name]]
        return value

    def add(self, name: str, n: int) -> None:
        """Increment a counter."""
        self._words[_WORDS[name]] += n

    def set(self, name: str, value: int) -> None:
        """Store a counter."""
        self._words[_WORDS[name]] = value


class RecorderRings:
    """The parts of the segment; zeroed memory and `initialise` make them valid."""

    def __init__(
        self,
        view: memoryview,
        processors: int,
        targets: int,
        started: int = 0,
        made: Callable[[], int] | None = None,
    ) -> None:
        """Map the maximum number of processors, with the number at the start and that of allocated memory.

        Without the last two, all processors have memory.
        """
        self.view = view
        self.processors = processors
        self._processor_ring = _processor_ring(started or processors)
        self._made = made
        self.sources = processors + targets
        #: The number of the recorder itself, which has an account and no ring.
        self.recorder = self.sources
        self._rings = RECORDER_SETTINGS.size + (self.sources + 1) * RECORDER_SOURCE.size

    @staticmethod
    def bytes_needed(processors: int, targets: int, started: int = 0) -> int:
        """Return the usable bytes the segment needs."""
        accounts = (processors + targets + 1) * RECORDER_SOURCE.size
        ring = ring_bytes(_processor_ring(started or processors))
        return RECORDER_SETTINGS.size + accounts + processors * ring + targets * ring_bytes(TARGET_RING_BYTES)

    def initialise(self) -> None:
        """Write the header of every ring with allocated memory. Called once, by the segment's creator."""
        for source in self.ring_sources():
            self.initialise_ring(source)

    def initialise_ring(self, source: int) -> None:
        """Write a ring's header. Called once, by the segment's creator."""
        capacity = self._processor_ring if source < self.processors else TARGET_RING_BYTES
        initialise(self.view, self._ring(source), capacity)

    def ring_sources(self) -> list[int]:
        """Return the sources whose rings have memory."""
        made = self.processors if self._made is None else self._made()
        return [*range(made), *range(self.processors, self.sources)]

    def place(self, processor: int) -> tuple[int, int]:
        """Return the start of a processor's ring, and its bytes."""
        return self._ring(processor), ring_bytes(self._processor_ring)

    def settings(self) -> RecorderSettings:
        """Return the recorder's settings."""
        return RecorderSettings(self.view)

    def account(self, source: int) -> SourceAccount:
        """Return the counters of a source, or of the recorder itself."""
        return SourceAccount(self.view, RECORDER_SETTINGS.size + source * RECORDER_SOURCE.size)

    def producer(self, source: int) -> RingProducer:
        """Return the source's end of its ring."""
        return RingProducer(self.view, self._ring(source))

    def consumer(self, source: int) -> RingConsumer:
        """Return the recorder's end of the same ring."""
        return RingConsumer(self.view, self._ring(source))

    def of_target(self, target: int) -> int:
        """Return a target's number as a source."""
        return self.processors + target

    def describe(self, source: int) -> tuple[str, int]:
        """Return ("processor", "target" or "recorder", its index)."""
        if source == self.recorder:
            return "recorder", 0
        if source < self.processors:
            return "processor", source
        return "target", source - self.processors

    def ring_bases(self) -> dict[int, int]:
        """Return the start of each source's ring, for readers of their fill."""
        return {source: self._ring(source) for source in self.ring_sources()}

    def _ring(self, source: int) -> int:
        before = min(source, self.processors) * ring_bytes(self._processor_ring)
        return self._rings + before + max(0, source - self.processors) * ring_bytes(TARGET_RING_BYTES)


def _processor_ring(processors: int) -> int:
    """Return the capacity of a processor's ring: a power of two."""
    return max(SMALLEST_RING_BYTES, 1 << ((PROCESSOR_RINGS_BYTES // processors).bit_length() - 1))


def pack_text(client: int, text: bytes) -> bytes:
    """Return a text of a frame with its header and padding."""
    return RECORDER_TEXT.struct.pack(client, len(text)) + text + bytes(-len(text) % 8)


class RecorderFeed:
    """The writing end of one source: frames, and their counts."""

    def __init__(self, rings: RecorderRings, source: int) -> None:
        self.settings = rings.settings()
        self.account = rings.account(source)
        self._view = rings.view
        self._ring = rings.producer(source)
        self._rows_pushed = self.account.get("rows_pushed")
        self._events_pushed = self.account.get("events_pushed")

    @property
    def largest_bytes(self) -> int:
        """Most bytes of rows, events and texts of one frame together."""
        return self._ring.max_payload - RECORDER_FRAME.size

    @property
    def fill(self) -> float:
        """The fill of the ring, from 0 to 1."""
        return (self._ring.position - self._ring.consumed()) / self._ring.capacity

    def try_push(self, rows: tuple[int, bytes], events: tuple[int, bytes], texts: tuple[int, bytes]) -> bool:
        """Put a frame of (count, bytes) into the ring; False when it is full. Invisible until `publish`.

        Events without bytes are among the texts.
        """
        size = len(rows[1]) + len(events[1]) + len(texts[1])
        at = self._ring.claim(RECORDER_FRAME.size + size)
        if at < 0:
            return False
        connection_events = events[0] if events[1] else 0
        RECORDER_FRAME.struct.pack_into(
            self._view, at, self._rows_pushed, self._events_pushed, rows[0], events[0], texts[0], connection_events
        )
        at += RECORDER_FRAME.size
        for part in (rows[1], events[1], texts[1]):
            self._view[at : at + len(part)] = part
            at += len(part)
        self._rows_pushed += rows[0]
        self._events_pushed += events[0]
        return True

    def publish(self) -> None:
        """Make every frame visible to the recorder; the caller then rings its bell."""
        self._ring.publish()
        # A source that dies between these lines leaves rows that are counted as lost, and then found after all.
        self.account.set("rows_pushed", self._rows_pushed)
        self.account.set("events_pushed", self._events_pushed)
