"""Each row of Kafka 4.4 is cited by a test, or listed here: share groups (S), other news (V), client telemetry (T).

A citation is ``S46``, a range ``S96-S98``, or ``test_t01_...`` as a test's name.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

_TESTS: Final = Path(__file__).parents[1]
#: In the order of the specification.
ROWS: Final = (
    *(f"S{number:02}" for first, last in ((1, 37), (40, 48), (50, 59)) for number in range(first, last + 1)),
    *("S5A", "S5B", "S5C", "S5D"),
    *(f"S{number}" for number in range(60, 80)),
    *("S7A", "S7B", "S7C"),
    *(f"S{number}" for number in range(80, 90)),
    *("S8A", "S8B"),
    *(
        f"S{number}"
        for first, last in ((90, 107), (110, 117), (120, 124), (130, 132))
        for number in range(first, last + 1)
    ),
    *(f"{group}{number:02}" for group, last in (("V", 21), ("T", 20)) for number in range(1, last + 1)),
)
#: Shown by no test that cites them. Some are shown by ``ops/compat`` (S116, V20, T19, T20), some are of clients alone.
NOT_CITED: Final = {
    *("S02", "S09", "S13", "S29", "S52", "S55", "S5A", "S5D", "S60", "S69", "S71", "S88", "S8A", "S116", "S131"),
    *("V03", "V07", "V16", "V17", "V18", "V19", "V20", "V21", "T11", "T14", "T15", "T19", "T20"),
}
_ROW: Final = "|".join(ROWS)
_CITATION: Final = re.compile(rf"\b({_ROW})\b(?:-({_ROW})\b)?")
_NAME: Final = re.compile(rf"def test((?:_(?:{_ROW.lower()}))+)_")


def cited() -> set[str]:
    """Return the rows that tests cite."""
    found: set[str] = set()
    for path in _TESTS.rglob("test_*.py"):
        text = path.read_text(encoding="utf-8")
        if path == Path(__file__):
            continue
        for first, last in _CITATION.findall(text):
            found.update(ROWS[ROWS.index(first) : ROWS.index(last or first) + 1])
        for names in _NAME.findall(text):
            found.update(names.upper().strip("_").split("_"))
    return found


def test_every_row_is_cited_by_a_test_or_listed() -> None:
    assert set(ROWS) - cited() == NOT_CITED
