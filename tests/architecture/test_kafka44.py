"""Each row of Kafka 4.4 is cited by a check, or listed here: share groups (S), other news (V), client telemetry (T).

A citation is ``S46``, a range ``S96-S98``, or ``test_t01_...`` as a test's name, in a test or in a program of
``ops/compatibility``.
"""

from __future__ import annotations

import re
from itertools import chain
from pathlib import Path
from typing import Final

_ROOT: Final = Path(__file__).parents[2]
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
#: Rows that no check can cite, since they are no behaviour of a broker.
OF_CLIENTS: Final = {
    "S131": "settings of share consumers; the fields that they fill in have rows of their own",
    "V18": "settings of clients, which need nothing from a broker",
    "V21": "the packages of Kafka 4.4; the checks use them",
}
_ROW: Final = "|".join(ROWS)
_CITATION: Final = re.compile(rf"\b({_ROW})\b(?:-({_ROW})\b)?")
_NAME: Final = re.compile(rf"def test((?:_(?:{_ROW.lower()}))+)_")
#: The linter's rules have such names too.
_RULES: Final = re.compile(r"noqa: \w+(?:, \w+)*")


def cited() -> set[str]:
    """Return the rows that checks cite."""
    found: set[str] = set()
    for path in chain((_ROOT / "tests").rglob("test_*.py"), (_ROOT / "ops" / "compatibility").rglob("*.java")):
        if path == Path(__file__):
            continue
        text = _RULES.sub("", path.read_text(encoding="utf-8"))
        for first, last in _CITATION.findall(text):
            found.update(ROWS[ROWS.index(first) : ROWS.index(last or first) + 1])
        for names in _NAME.findall(text):
            found.update(names.upper().strip("_").split("_"))
    return found


def test_every_row_is_cited_by_a_check_or_is_of_clients_alone() -> None:
    assert set(ROWS) - cited() == OF_CLIENTS.keys()
