"""Log lines: one line per event on stderr, UTC, tagged with the process that wrote it. Used in every process.

    2026-03-01T12:00:00.123Z INFO handler-4711 broker.log.log_manager: opened 12 partitions in 3 ms

The meaning of each level:

- DEBUG: the course of a single connection or request; off except for debugging.
- INFO: the broker's own life and an admin's changes: started, topic created, process replaced, stopped.
- WARNING: something outside is wrong and the broker continues: an invalid request, a full disk.
- ERROR: something of ours is wrong and one request, connection or process paid for it; carries the traceback.
- CRITICAL: the broker stops.

Every line passes the limit of `rate_limit`, so that no client can fill a disk; `RepeatedWarnings` tracks the kinds of
one line separately, so that one client's repetitions do not use up the budget of others. Record contents are never
logged. Nothing is logged on the path of a successful request.
"""

from __future__ import annotations

import json
import logging
import sys
import threading
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, TextIO

from rotunda.broker.clock import SystemClock
from rotunda.broker.server_log import log_levels
from rotunda.broker.server_log.rate_limit import LineLimit

TEXT, JSON = "text", "json"
FORMATS = (TEXT, JSON)

#: Maximum length of a client's text or a traceback in a line.
MOST_CHARACTERS = 8000

#: Interval at which loops with client-caused lines check for suppressed ones.
REPORT_INTERVAL_NS = 1_000_000_000

#: More keys than this are not distinguished; the oldest is forgotten.
MOST_KEYS = 256

#: The rest of a key is ignored, so that no client can fill memory with long ones; longer than a topic's name.
MOST_KEY_CHARACTERS = 300

_log = logging.getLogger(__name__)

# A newline or escape sequence in a client's name must not forge a line or drive a terminal.
_CONTROLS = {code: f"\\x{code:02x}" for code in (*range(32), *range(127, 160))} | {0x0A: "\\n", 0x09: "\\t"}


class ProcessFormatter(logging.Formatter):
    """Writes one line for each event, tagged ``role-pid``."""

    def __init__(self, role: str, index: int) -> None:
        super().__init__()
        self.role = role
        self.index = index

    def format(self, record: logging.LogRecord) -> str:
        """Return the event as one line of text."""
        trace = self._trace(record)
        text = record.getMessage() + (" | " + " | ".join(trace.splitlines()) if trace else "")
        tag = tag_of(self.role, record.process)
        line = f"{_timestamp(record)} {record.levelname} {tag} {record.name}: {_cut(text)}"
        return line.translate(_CONTROLS)

    def _trace(self, record: logging.LogRecord) -> str:
        return self.formatException(record.exc_info) if record.exc_info else ""


class JsonFormatter(ProcessFormatter):
    """Writes one JSON object for each event."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the event as one line of JSON."""
        event: dict[str, Any] = {
            "time": _timestamp(record),
            "level": record.levelname,
            "role": self.role,
            "index": self.index,
            "pid": record.process,
            "logger": record.name,
            "message": _cut(record.getMessage()),
        }
        trace = self._trace(record)
        if trace:
            event["traceback"] = _cut(trace)
        return json.dumps(event)


_FORMATTERS: dict[str, type[ProcessFormatter]] = {TEXT: ProcessFormatter, JSON: JsonFormatter}


def configure(
    role: str,
    index: int = 0,
    log_format: str = TEXT,
    level: int = logging.INFO,
    stream: TextIO | None = None,
    after_line: Callable[[], None] | None = None,
    now_ns: Callable[[], int] = SystemClock.monotonic_ns,
) -> None:
    """Send this process's log lines to ``stream`` (stderr) in one of ``FORMATS``; a child calls it again.

    ``after_line`` is called after each. Uncaught exceptions, which the interpreter would print, are logged.
    """
    handler = _LineHandler(stream or sys.stderr, after_line, LineLimit(now_ns))
    handler.setFormatter(_FORMATTERS[log_format](role, index))
    root = logging.getLogger()
    root.handlers[:] = [handler]
    if root.level != level:
        # It clears a cache of every logger, whose pages a child shares until then.
        root.setLevel(level)
    log_levels.apply({})
    logging.captureWarnings(True)
    sys.unraisablehook = _log_unraisable
    threading.excepthook = _log_thread_fault


def report_held_back(*, at_last: bool = False) -> None:
    """Log how many lines were held back, where no line has reported it for a while; ``at_last`` in any case.

    Processes with client-caused lines call it periodically, every process at its end.
    """
    for handler in logging.getLogger().handlers:
        if isinstance(handler, _LineHandler):
            handler.report(at_last=at_last)


class _LineHandler(logging.Handler):
    """Writes each line that the limit allows in a single whole write, then calls `after_line`."""

    def __init__(self, stream: TextIO, after_line: Callable[[], None] | None, limit: LineLimit) -> None:
        super().__init__()
        self._stream = stream
        self._after_line = after_line
        self._limit = limit

    def emit(self, record: logging.LogRecord) -> None:
        if self._limit.allows(record):
            self._write(record)

    def report(self, *, at_last: bool) -> None:
        for record in self._limit.overdue(at_last=at_last):
            self._write(record)

    def _write(self, record: logging.LogRecord) -> None:
        try:
            line = self.format(record) + "\n"
            self._stream.write(line)
            self._stream.flush()
        except Exception:
            self.handleError(record)
            return
        self._limit.spend(record, len(line))
        if self._after_line is not None:
            self._after_line()


def _log_unraisable(unraisable: sys.UnraisableHookArgs) -> None:
    fault = unraisable.exc_value
    if isinstance(fault, UnicodeDecodeError) and isinstance(unraisable.object, bytes):
        # The server name in a TLS client's handshake: the handshake fails, and that is logged.
        return
    trace = None if fault is None else (type(fault), fault, unraisable.exc_traceback)
    _log.error("%s %r", unraisable.err_msg or "uncaught exception in", unraisable.object, exc_info=trace)


def _log_thread_fault(fault: threading.ExceptHookArgs) -> None:
    if fault.exc_value is not None:
        trace = type(fault.exc_value), fault.exc_value, fault.exc_traceback
        _log.error("a thread ended with an error", exc_info=trace)


class RepeatedWarnings:
    """Logs the first warning of a kind at once, then at most one in ``interval_ms``, with a count.

    A kind is named by a key that the caller chooses, such as the reason and the address.
    """

    def __init__(self, logger: logging.Logger, now_ns: Callable[[], int], interval_ms: int = 10_000) -> None:
        self._logger = logger
        self._now_ns = now_ns
        self._interval_ns = interval_ms * 1_000_000
        self._quiet_until_ns: dict[str, int] = {}
        self._held_back: dict[str, int] = {}

    def warning(self, key: str, message: str, *values: object) -> bool:
        """Log the message, or count it; return whether it was logged."""
        key = key[:MOST_KEY_CHARACTERS]
        now_ns = self._now_ns()
        if now_ns < self._quiet_until_ns.get(key, now_ns):
            self._held_back[key] += 1
            return False
        if key not in self._quiet_until_ns and len(self._quiet_until_ns) >= MOST_KEYS:
            self._forget(next(iter(self._quiet_until_ns)))
        held_back = self._held_back.get(key, 0)
        self._quiet_until_ns[key] = now_ns + self._interval_ns
        self._held_back[key] = 0
        more = f" ({held_back} more like it since the last such line)" if held_back else ""
        self._logger.warning("%s%s", message % values if values else message, more, stacklevel=2)
        return True

    def _forget(self, key: str) -> None:
        del self._quiet_until_ns[key]
        del self._held_back[key]


def _cut(text: str) -> str:
    more = len(text) - MOST_CHARACTERS
    return text if more <= 0 else f"{text[:MOST_CHARACTERS]}... ({more} more characters)"


def tag_of(role: str, pid: int | None) -> str:
    """Return the tag of a process's lines."""
    return f"{role}-{pid}"


def _timestamp(record: logging.LogRecord) -> str:
    moment = datetime.fromtimestamp(record.created, UTC)
    return f"{moment:%Y-%m-%dT%H:%M:%S}.{moment.microsecond // 1000:03d}Z"
