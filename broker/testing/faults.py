"""Fault injection for a test's broker: inject, count and cancel faults.

Runs in the process of the tests, the only writer of the fault file and of the shared words that notify targets
(`rotunda.broker.faults.fault`). A call returns when the fault is in force: all later requests are subject to it.
"""

from __future__ import annotations

import threading
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Self

from rotunda.broker.clock import SystemClock
from rotunda.broker.errors import UsageError
from rotunda.broker.faults.fault import ANY_API, NO_LIMIT, Fault, FaultKind, write_faults
from rotunda.broker.protocol.api_keys import ApiKey
from rotunda.broker.protocol.error_codes import ErrorCode
from rotunda.broker.text_table import did_you_mean
from rotunda.shm.fault_layout import MOST_FAULTS
from rotunda.shm.faults import FaultWords
from rotunda.shm.segment import SegmentAbsent, attach

if TYPE_CHECKING:
    from types import TracebackType

    from rotunda.broker.runtime.run_dir import RunRecord

#: Processed before authentication, by a different process than all other APIs.
_NOT_INJECTED: Final = frozenset({ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE})

#: Client ids of the fixtures: their requests are exempt from faults.
SPARED: Final = ("rotunda-cli", "rotunda-requests-")

_LONGEST_MS: Final = 2**31 - 1


class FaultScope(NamedTuple):
    """The requests that a fault applies to: at most `times`, for a topic, a group, or from a client id."""

    times: int | None = None
    topic: str | None = None
    group: str | None = None
    client: str | None = None


class InjectedFault:
    """A fault in force, until `cancel`, or the end of its `with` block or of the test."""

    def __init__(self, faults: Faults, fault: Fault, before: int, text: str) -> None:
        self._faults = faults
        self._fault = fault
        self._before = before
        self._text = text
        self._count: int | None = None

    @property
    def count(self) -> int:
        """Number of requests that it was applied to."""
        return self._faults.count(self._fault.place) - self._before if self._count is None else self._count

    @property
    def is_in_force(self) -> bool:
        """Whether it was not cancelled."""
        return self._count is None

    def cancel(self) -> None:
        """Cancel the fault, and release responses that it delays. Idempotent."""
        if self._count is None:
            self._faults.remove([self])

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, failure: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.cancel()

    def __str__(self) -> str:
        """Return a report line."""
        state = "" if self.is_in_force else ", cancelled"
        return f"{self._text}: matched {self.count}{state}"

    def __repr__(self) -> str:
        return f"<{self}>"


class Faults:
    """All faults of one broker."""

    def __init__(self, record: RunRecord) -> None:
        """Attach to a running broker. Raises UsageError if it was not started for tests."""
        try:
            segment = attach(f"/rotunda-{record.instance}-faults", writable=True)
        except SegmentAbsent:
            raise UsageError(
                f"the broker at {record.bootstrap} was not started for tests and rejects faults; start it by the "
                "pytest plugin or by rotunda.broker.testing.RotundaBroker"
            ) from None
        self._words = FaultWords(segment.view, record.most_handlers + 1)
        self._run_dir = Path(record.run_dir)
        self._lock = threading.Lock()
        self._in_force: dict[int, InjectedFault] = {}
        self._faults: dict[int, Fault] = {}
        #: All injected faults, including cancelled ones.
        self.injected: list[InjectedFault] = []

    def inject(
        self, kind: FaultKind, api: object, scope: FaultScope, *, error: ErrorCode = ErrorCode.NONE, ms: int = 0
    ) -> InjectedFault:
        """Inject a fault and wait until it is in force. Raises UsageError for invalid arguments."""
        key = api_of(api)
        times, topic, group, client = scope
        if times is not None and (not isinstance(times, int) or times < 1):
            raise UsageError(f"times={times!r}: expected how often it strikes, 1 or more, or None for always")
        _check_names(key, topic, group)
        named = ["any request" if key is None else key.text]
        named += [error.name] if error else [f"{ms} ms"] if ms else []
        named += [f"{name}={value}" for name, value in scope._asdict().items() if value is not None]
        with self._lock:
            place = next((place for place in range(MOST_FAULTS) if place not in self._in_force), -1)
            if place < 0:
                raise UsageError(f"{MOST_FAULTS} faults are in force, and there may be no more: cancel some")
            before = self._words.count(place)
            limit = NO_LIMIT if times is None else before + times
            number = ANY_API if key is None else int(key)
            fault = Fault(place, kind, number, int(error), ms, topic, group, client, limit)
            injected = InjectedFault(self, fault, before, f"{kind} {' '.join(named)}")
            self._faults[place] = fault
            try:
                self._publish()
            except BaseException:
                del self._faults[place]
                raise
            self._in_force[place] = injected
            self.injected.append(injected)
        return injected

    def remove(self, faults: list[InjectedFault] | None = None) -> None:
        """Cancel these faults, or all of them."""
        with self._lock:
            undone = list(self._in_force.values()) if faults is None else [each for each in faults if each.is_in_force]
            if not undone:
                return
            is_delayed = False
            for each in undone:
                place = each._fault.place
                is_delayed |= each._fault.kind is FaultKind.DELAY
                del self._in_force[place], self._faults[place]
            with suppress(FileNotFoundError):
                # The broker may have ended, and its directory with it.
                self._publish()
            if is_delayed:
                self._words.end_delays(SystemClock.monotonic_ns())
            for each in undone:
                each._count = self.count(each._fault.place) - each._before

    def count(self, place: int) -> int:
        """Return how often faults in this place were applied."""
        return self._words.count(place)

    def _publish(self) -> None:
        version = self._words.version + 1
        write_faults(self._run_dir, version, SPARED, list(self._faults.values()))
        self._words.set_version(version)


def api_named(api: object) -> ApiKey:
    """Parse an API: Kafka's name in any case, with or without underscores, or a number. Raises UsageError."""
    wanted = str(api.name if isinstance(api, ApiKey) else api).replace("_", "").lower()
    found = next((key for key in ApiKey if wanted in (key.text.lower(), str(int(key)))), None)
    if found is None:
        raise UsageError(f"unknown API {api!r}{did_you_mean(str(api), [key.text for key in ApiKey])}")
    return found


def api_of(api: object) -> ApiKey | None:
    """Parse the API of a fault; None: any API. Raises UsageError."""
    if api is None:
        return None
    found = api_named(api)
    if found in _NOT_INJECTED:
        raise UsageError(f"{found.text} is answered before a client is known, and nothing can be injected there")
    return found


def error_of(error: object) -> ErrorCode:
    """Parse an error: Kafka's name, a number, or a client library's class for it (with ``errno``)."""
    wanted: Any = getattr(error, "errno", error)
    if isinstance(wanted, int) and not isinstance(wanted, bool):
        found = next((code for code in ErrorCode if code == wanted), None)
    else:
        found = ErrorCode.__members__.get(str(wanted).upper())
    if found is None:
        hint = did_you_mean(str(wanted).upper(), ErrorCode.__members__)
        raise UsageError(
            f"Kafka has no error {wanted!r}{hint}; use its name, such as NOT_LEADER_OR_FOLLOWER, or number"
        )
    if found is ErrorCode.NONE:
        raise UsageError("error NONE (0) is none")
    return found


def milliseconds_of(value: object, name: str) -> int:
    """Parse a time in milliseconds. Raises UsageError unless it is a number above 0."""
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 1 <= value <= _LONGEST_MS:
        raise UsageError(f"{name}={value!r}: expected milliseconds, 1 or more")
    return int(value)


def _check_names(api: ApiKey | None, topic: str | None, group: str | None) -> None:
    """Reject topics or groups for APIs without them: such a fault would never apply."""
    if api is None or (topic is None and group is None):
        return
    from rotunda.broker.faults.request_names import can_name  # noqa: PLC0415 - used by tests alone

    can_topic, can_group = can_name(api)
    for name, value, can in (("topic", topic, can_topic), ("group", group, can_group)):
        if value is not None and not can:
            raise UsageError(f"{name}={value!r}: requests of {api.text} name no {name}, so the fault would never match")
