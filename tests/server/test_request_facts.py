"""What the request log is told of an answer: the first error in it, wherever a response has one."""

from __future__ import annotations

from typing import Any, NamedTuple

import pytest

from broker.server.request_facts import first_error


class Part(NamedTuple):
    """One partition of a response."""

    partition: int
    error_code: int


class Topic(NamedTuple):
    """One topic of a response."""

    name: str
    parts: list[Part]


@pytest.mark.parametrize(
    ("response", "error"),
    [
        ({"error_code": 0, "api_keys": [(18, 0, 4), (3, 0, 13)]}, 0),
        ({"error_code": 35, "topics": [{"error_code": 3}]}, 35),
        ({"topics": []}, 0),
        ({"topics": [{"name": "a", "parts": []}, {"name": "b", "parts": [{"error_code": 0}, {"error_code": 6}]}]}, 6),
        ({"topics": [Topic("a", [Part(0, 0)]), Topic("b", [Part(0, 0), Part(1, 25)])]}, 25),
        ([Topic("a", [Part(0, 0), Part(1, 16)])], 16),
        ({"groups": ({"error_code": 0}, {"error_code": 69})}, 69),
        ({"pair": ("name", [Part(0, 7)])}, 7),
        ({"offsets": [1, 2, 3], "names": ["a"], "error_code": 0}, 0),
        (Part(0, 9), 9),
    ],
)
def test_the_first_error_is_found_wherever_it_is(response: Any, error: int) -> None:
    assert first_error(response) == error
