"""Rates, throttle times and buckets of tokens: the arithmetic of Kafka's Rate, QuotaUtils and TokenBucket.

Pure functions over the words of a `shm.tables.quota_tables` slot, for those who charge and those who look; a rate is
the sum over the tables of all owners. Times are monotonic, in ms.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

from rotunda.shm.tables.quota_tables import CURRENT, FIRST_SAMPLE, LAST, SAMPLE_WORDS, START, USED

#: Tokens are kept in thousandths.
TOKEN: Final = 1000
#: More are not kept: they are in a word.
_MOST_TOKENS: Final = 9e15

#: Longer times are cut: an answer has 31 bits for one.
MOST_THROTTLE_MS: Final = 2**31 - 1


class Windows(NamedTuple):
    """Over how many windows of which length a rate is measured (quota.window.num, quota.window.size.seconds)."""

    number: int
    size_ms: int


def record(words: memoryview, slot: int, windows: Windows, used: int, now_ms: int) -> None:
    """Add to what an entity has used in the window that is under way, or begin the next one. HOT."""
    current = words[slot + CURRENT]
    at = slot + FIRST_SAMPLE + current * SAMPLE_WORDS
    start_ms = words[at + START]
    if now_ms - start_ms >= windows.size_ms:
        if start_ms:
            current = (current + 1) % (windows.number + 1)
            at = slot + FIRST_SAMPLE + current * SAMPLE_WORDS
        # SYNC: nothing used, then the times, so that what was used long ago does not count as new.
        words[at + USED] = 0
        words[at + LAST] = now_ms
        words[at + START] = now_ms
        words[slot + CURRENT] = current
    words[at + USED] += used
    words[at + LAST] = now_ms


def measure(tables: Iterable[list[int]], windows: Windows, now_ms: int) -> tuple[int, int]:
    """Return what was used within the windows, and the time in ms that it is divided by. HOT.

    ``tables`` are the samples of an entity, owner by owner. As in Kafka a window in which nothing was recorded for as
    long as all windows last is forgotten, and windows before the first count as full and empty.
    """
    number, size_ms = windows
    after_ms = now_ms - number * size_ms
    total, oldest_ms = 0, now_ms
    for samples in tables:
        for at in range(0, len(samples), SAMPLE_WORDS):
            if samples[at + LAST] > after_ms and samples[at + START]:
                total += samples[at + USED]
                oldest_ms = min(oldest_ms, samples[at + START])
    elapsed_ms = now_ms - oldest_ms
    missing = number - 1 - elapsed_ms // size_ms
    if missing > 0:
        elapsed_ms += missing * size_ms
    return total, max(1, elapsed_ms)


def throttle_ms(total: int, elapsed_ms: int, limit: float) -> int:
    """Return how long nothing may be used until a rate is down to its limit (`E11`): (rate - limit) / limit x time."""
    rate = total * 1000 / elapsed_ms
    return round(min((rate - limit) / limit * elapsed_ms, MOST_THROTTLE_MS)) if rate > limit else 0


def tokens(words: memoryview, slot: int, windows: Windows, limit: float, now_ms: int) -> float:
    """Return how many tokens a bucket has, which may be fewer than none; a new one is full (`E15`)."""
    at = slot + FIRST_SAMPLE
    most = limit * windows.number * windows.size_ms / 1000
    if not words[at + START]:
        return most
    return min(most, words[at + USED] / TOKEN + limit * (now_ms - words[at + LAST]) / 1000)


def take_tokens(words: memoryview, slot: int, left: float, now_ms: int) -> None:
    """Store how many tokens a bucket has."""
    at = slot + FIRST_SAMPLE
    # SYNC: the time first: if this process is killed in between, some tokens are missing and none come twice.
    words[at + LAST] = now_ms
    words[at + USED] = round(min(left, _MOST_TOKENS) * TOKEN)
    words[at + START] = now_ms
