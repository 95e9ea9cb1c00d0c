"""Signals at every point of `rotunda consume`: written records are committed, half-written ones are not."""

from __future__ import annotations

import io
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from rotunda.broker.cli.records.consume import _copy


class Signals:
    """A signal on command; as a real one it raises outside of `held`, and a second one within."""

    has_come = False
    exit_code = 130

    @contextmanager
    def held(self) -> Iterator[None]:
        yield

    def come(self) -> None:
        self.has_come = True
        raise SystemExit(self.exit_code)


class Reader:
    """Hands out a fetch of one record, and notes how it is left."""

    def __init__(self, signals: Signals, place: str) -> None:
        self.calls: list[str] = []
        self._signals = signals
        self._place = place

    def fetches(self) -> Iterator[Iterator[bytes]]:
        yield self._fetch()
        if self._place == "between":
            self._signals.come()

    def _fetch(self) -> Iterator[bytes]:
        yield b"record\n"
        if self._place == "within":
            self._signals.come()

    def written(self) -> None:
        self.calls.append("written")
        if self._place == "commit":
            self._signals.come()

    def close(self) -> None:
        self.calls.append("close")

    def interrupted(self) -> None:
        self.calls.append("interrupted")

    def abandon(self) -> None:
        self.calls.append("abandon")


@pytest.mark.parametrize(
    ("place", "calls", "printed"),
    [
        ("between", ["written", "interrupted"], b"record\n"),
        ("commit", ["written", "interrupted"], b"record\n"),
        ("within", ["abandon"], b""),
    ],
)
def test_what_was_written_is_committed_wherever_a_signal_comes(place: str, calls: list[str], printed: bytes) -> None:
    signals, out = Signals(), io.BytesIO()
    reader = Reader(signals, place)
    with pytest.raises(SystemExit):
        _copy(reader, bytes, out, None, signals)
    assert (reader.calls, out.getvalue()) == (calls, printed)


def test_without_a_signal_it_is_closed() -> None:
    signals, out = Signals(), io.BytesIO()
    reader = Reader(signals, "nowhere")
    _copy(reader, bytes, out, None, signals)
    assert (reader.calls, out.getvalue()) == (["written", "close"], b"record\n")
