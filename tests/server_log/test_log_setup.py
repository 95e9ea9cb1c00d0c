"""Log lines: one line an event with any content, tagged and in UTC; repeated warnings are suppressed."""

from __future__ import annotations

import io
import json
import logging
import os
import re

import pytest

from rotunda.broker.server_log import log_setup


class FakeClock:
    """A clock set by the test."""

    def __init__(self) -> None:
        self.now_ns = 0

    def monotonic_ns(self) -> int:
        """Return the time the test has set, in nanoseconds."""
        return self.now_ns

    def wall_ms(self) -> int:
        """Return the time the test has set, in milliseconds."""
        return self.now_ns // 1_000_000

    def wall_s(self) -> float:
        """Return the same in seconds."""
        return self.now_ns / 1_000_000_000


def configured(**settings: object) -> io.StringIO:
    stream = io.StringIO()
    log_setup.configure("handler", 2, stream=stream, **settings)  # type: ignore[arg-type]
    return stream


def test_a_line_has_time_level_process_and_place() -> None:
    stream = configured()
    logging.getLogger("broker.x").info("opened %d partitions", 3)
    logging.getLogger("broker.x").debug("not shown")
    moment = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z"
    pattern = rf"{moment} INFO handler-{os.getpid()} broker\.x: opened 3 partitions\n"
    assert re.fullmatch(pattern, stream.getvalue())


def test_an_event_is_one_line_whatever_a_client_sends() -> None:
    stream = configured()
    logging.getLogger("broker.x").warning("client %s", "a\nb\x1b[31m\r\tc")
    assert stream.getvalue().endswith("client a\\nb\\x1b[31m\\x0d\\tc\n")
    assert stream.getvalue().count("\n") == 1


@pytest.mark.parametrize("log_format", log_setup.FORMATS)
def test_a_traceback_stays_on_its_line(log_format: str) -> None:
    stream = configured(log_format=log_format)
    try:
        raise ValueError("what went wrong")
    except ValueError:
        logging.getLogger("broker.x").exception("a step failed")
    assert stream.getvalue().count("\n") == 1
    assert "what went wrong" in stream.getvalue()


def test_json_has_the_same_facts() -> None:
    stream = configured(log_format=log_setup.JSON)
    logging.getLogger("broker.x").error("broken %s", "disk")
    event = json.loads(stream.getvalue())
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", event.pop("time"))
    assert event == {
        "level": "ERROR",
        "role": "handler",
        "index": 2,
        "pid": os.getpid(),
        "logger": "broker.x",
        "message": "broken disk",
    }


def test_repeated_warnings_are_held_back_and_counted() -> None:
    stream = configured()
    clock = FakeClock()
    warnings = log_setup.RepeatedWarnings(logging.getLogger("broker.x"), clock.monotonic_ns, interval_ms=1000)
    assert [warnings.warning("tls", "a TLS hello from %s", "10.0.0.1") for _ in range(5)] == [True] + [False] * 4
    assert warnings.warning("http", "an HTTP request")
    clock.now_ns = 1_000_000_000
    assert warnings.warning("tls", "a TLS hello from %s", "10.0.0.2")
    assert not warnings.warning("tls", "a TLS hello from %s", "10.0.0.3")
    assert [line.partition("broker.x: ")[2] for line in stream.getvalue().splitlines()] == [
        "a TLS hello from 10.0.0.1",
        "an HTTP request",
        "a TLS hello from 10.0.0.2 (4 more like it since the last such line)",
    ]


def test_kinds_of_warnings_are_bounded() -> None:
    configured()
    warnings = log_setup.RepeatedWarnings(logging.getLogger("broker.x"), FakeClock().monotonic_ns)
    for number in range(log_setup.MOST_KEYS + 1):
        assert warnings.warning(str(number), "message")
    assert not warnings.warning(str(log_setup.MOST_KEYS), "message")
    assert warnings.warning("0", "message")
    long = "x" * log_setup.MOST_KEY_CHARACTERS
    assert warnings.warning(f"{long}a", "message")
    assert not warnings.warning(f"{long}b", "message"), "no more of a key is kept"
