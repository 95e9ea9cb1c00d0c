"""Malformed input that every request parser must survive."""

from collections.abc import Callable

import pytest

from rotunda.broker.errors import InvalidReceive
from tests.support.feeds import mutations, random_seed, with_trailing_bytes

_BEFORE = b"\xff" * 13
_BEHIND = b"\x01" * 40


def placed(body: bytes) -> tuple[memoryview, int, int]:
    """Return a larger buffer that contains `body`, its offset and its end, as in shared memory."""
    return memoryview(_BEFORE + body + _BEHIND), len(_BEFORE), len(_BEFORE) + len(body)


def check_hostile(parse: Callable[[bytes, int, int], object], body: bytes) -> None:
    """Cut, extend and damage a valid request: the parser accepts it or raises InvalidReceive, no other error."""
    parse(body, 0, len(body))
    for size in range(len(body)):
        with pytest.raises(InvalidReceive):
            parse(body[:size], 0, size)
        with pytest.raises(InvalidReceive):
            parse(body, 0, size)
    seed = random_seed()
    for _, longer in with_trailing_bytes(body, seed):
        parse(longer, 0, len(body))
        parse(longer, 0, len(longer))
    for damaged in mutations(body, seed, 400):
        try:
            parse(damaged, 0, len(damaged))
        except InvalidReceive:
            continue
        except Exception as error:
            raise AssertionError(f"seed {seed}: {damaged.hex()}") from error
