"""Rates, throttle times and token buckets: the arithmetic of Kafka's Rate, QuotaUtils and TokenBucket.

Pure functions over the words of a `shm.tables.quota_tables` slot, for owners and readers; a rate is the sum over the
tables of all owners. Times are monotonic, in ms.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

from rotunda.shm.tables.quota_tables import CURRENT, FIRST_SAMPLE, LAST, SAMPLE_WORDS, START, USED

#: Tokens are stored in thousandths.
TOKEN: Final = 1000
#: Most tokens that fit a word.
_MOST_TOKENS: Final = 9e15

#: Longest throttle: a response has 31 bits for it.
MOST_THROTTLE_MS: Final = 2**31 - 1


class Windows(NamedTuple):
    """Number and length of a rate's windows (quota.window.num, quota.window.size.seconds)."""

    number: int
    size_ms: int


def record(words: memoryview, slot: int, windows: Windows, used: int, now_ms: int) -> None:
    """Add usage to an entity's current window, or begin the next one. HOT."""
    current = words[slot + CURRENT]
    at = slot + FIRST_SAMPLE + current * SAMPLE_WORDS
    start_ms = words[at + START]
    if now_ms - start_ms >= windows.size_ms:
        if start_ms:
            current = (current + 1) % (windows.number + 1)
            at = slot + FIRST_SAMPLE + current * SAMPLE_WORDS
        # SYNC: zero usage, then the times, so that old usage does not count as new.
        words[at + USED] = 0
        words[at + LAST] = now_ms
        words[at + START] = now_ms
        words[slot + CURRENT] = current
    words[at + USED] += used
    words[at + LAST] = now_ms


def measure(tables: Iterable[list[int]], windows: Windows, now_ms: int) -> tuple[int, int]:
    """Return the usage within the windows, and the time in ms that it is divided by. HOT.

    ``tables`` are the samples of an entity, owner by owner. As in Kafka a window without records for as long as all
    windows last is ignored, and windows before the first count as full and empty.
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
    """Return the throttle until a rate is down to its limit (`E11`): (rate - limit) / limit x time."""
    rate = total * 1000 / elapsed_ms
    return round(min((rate - limit) / limit * elapsed_ms, MOST_THROTTLE_MS)) if rate > limit else 0


def tokens(words: memoryview, slot: int, windows: Windows, limit: float, now_ms: int) -> float:
    """Return the tokens in a bucket, which may be negative; a new one is full (`E15`)."""
    at = slot + FIRST_SAMPLE
    most = limit * windows.number * windows.size_ms / 1000
    if not words[at + START]:
        return most
    return min(most, words[at + USED] / TOKEN + limit * (now_ms - words[at + LAST]) / 1000)


def store_tokens(words: memoryview, slot: int, left: float, now_ms: int) -> None:
    """Store the tokens of a bucket."""
    at = slot + FIRST_SAMPLE
    # SYNC: the time first: if this process is killed in between, some tokens are missing and none are added twice.
    words[at + LAST] = now_ms
    words[at + USED] = round(min(left, _MOST_TOKENS) * TOKEN)
    words[at + START] = now_ms
