"""One reading a second for all viewers, and none without viewers."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from rotunda.web import watch as module
from rotunda.web.watch import TooManyStreams, Watch


class Places:
    """Replaces a Room: so many streams and no more."""

    def __init__(self, free: int = 100) -> None:
        self.free = free

    def open_stream(self) -> bool:
        if not self.free:
            return False
        self.free -= 1
        return True

    def close_stream(self) -> None:
        self.free += 1


class CountingReader:
    """Replaces a Reader; each reading is its number."""

    def __init__(self) -> None:
        self.readings = 0

    def read(self) -> "CountedReading":
        self.readings += 1
        return CountedReading(self.readings)


class CountedReading:
    """A reading that has nothing but a time, a second after the one before."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.time_ns = 0


@pytest.fixture
def reader(monkeypatch: pytest.MonkeyPatch) -> CountingReader:
    """Return a reader that counts; snapshots are the numbers of their readings, a second is a few turns of the loop."""
    sleep = asyncio.sleep

    async def pass_turns(_seconds: float) -> None:
        # No clock decides whether all followers have run in between.
        for _ in range(50):
            await sleep(0)

    monkeypatch.setattr(module, "snapshot", lambda _earlier, now, _sources: now.number)
    monkeypatch.setattr(module.asyncio, "sleep", pass_turns)
    monkeypatch.setattr(module, "FRESH_NS", 10**18)
    view.calls = 0  # type: ignore[attr-defined]
    return CountingReader()


def view(snapshot: Any, _reading: Any) -> dict[str, Any]:
    view.calls += 1  # type: ignore[attr-defined]
    return {"number": snapshot}


async def take(stream: AsyncIterator[str], count: int) -> list[str]:
    return [await anext(stream) for _ in range(count)]


def test_twenty_streams_share_every_reading(reader: CountingReader):
    """Twenty browsers cost as much as one: each reading is made and encoded once."""

    async def look() -> list[list[str]]:
        watch = Watch(None, reader, Places())  # type: ignore[arg-type]
        streams = [watch.follow(view) for _ in range(20)]
        found = await asyncio.gather(*(take(stream, 4) for stream in streams))
        for stream in streams:
            await stream.aclose()  # type: ignore[attr-defined]
        return found

    found = asyncio.run(look())
    assert all(each == found[0] for each in found)
    assert len(set(found[0])) == 4
    assert reader.readings in {4, 5}
    assert view.calls in {4, 5}  # type: ignore[attr-defined]


def test_nothing_is_read_when_nobody_looks(reader: CountingReader):
    async def look() -> int:
        watch = Watch(None, reader, Places())  # type: ignore[arg-type]
        stream = watch.follow(view)
        await take(stream, 2)
        await stream.aclose()  # type: ignore[attr-defined]
        assert watch._ticking is not None
        # Ends by itself; nothing else makes readings.
        await watch._ticking
        return reader.readings

    assert 2 <= asyncio.run(look()) <= 4


def test_too_many_streams_are_rejected(reader: CountingReader):
    async def look() -> None:
        watch = Watch(None, reader, Places(1))  # type: ignore[arg-type]
        first, second = watch.follow(view), watch.follow(view)
        await anext(first)
        with pytest.raises(TooManyStreams):
            await anext(second)
        await first.aclose()  # type: ignore[attr-defined]
        assert await anext(watch.follow(view))

    asyncio.run(look())


def test_closing_ends_every_stream(reader: CountingReader):
    async def look() -> int:
        watch = Watch(None, reader, Places())  # type: ignore[arg-type]
        stream = watch.follow(view)
        await anext(stream)
        watch.close()
        return len([each async for each in stream])

    assert asyncio.run(look()) == 0
