"""The behaviours that code and tests cite by number, and the page that says where each stands and which test shows it.

A row's number and what it says are in ``behaviours.toml``; where it is kept and what shows it is read from the
citations: ``B07`` or a range ``C08``-``C10`` in a module of the product or in a test, or ``test_b07_...`` as a test's
name. A row of which we do something else, or nothing, says why. Nothing of the product imports this module.
"""

from __future__ import annotations

import ast
import re
import tomllib
from collections import defaultdict
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Final, NamedTuple

ROOT: Final = Path(__file__).resolve().parents[1]
ROWS: Final = Path(__file__).with_suffix(".toml")
#: What is part of the product, besides the tests.
PRODUCT: Final = ("broker", "shm", "web", "spark")
#: Where numbers stand as examples.
_EXAMPLES: Final = ("tests/behaviours.py", "tests/architecture/test_behaviours.py")
#: A number, or a range of them: C08-C10.
_CITATION: Final = re.compile(r"\b([A-I]\d\d)\b(?:`*-`*([A-I]\d\d)\b)?")
_NAME: Final = re.compile(r"test((?:_[a-i]\d\d)+)(?=_)")

INTRODUCTION: Final = """# Behaviours

What Kafka's network layer, request channel and handlers do, row by row, and what of it this broker does. Code and
tests cite the rows by number. The table is printed by `python ops/pages.py` from `tests/behaviours.toml` and from the
citations themselves; `tests/architecture/test_behaviours.py` fails when a cited row is not here, and when a row that
is kept has no test. A row that is *not kept* says why; *nothing to keep*: there is nothing here that it is about.
The APIs and their versions stand in [api-versions.md](api-versions.md), the metrics in [metrics.md](metrics.md)."""


class Row(NamedTuple):
    """A behaviour. `reason` is empty for one that is kept, else it begins with what becomes of it."""

    number: str
    what: str
    reason: str = ""


class Citation(NamedTuple):
    """Where a row is cited: a file of the repository, and the test in it if it is in one."""

    number: str
    path: str
    test: str = ""


@cache
def sections() -> dict[str, tuple[Row, ...]]:
    """Return the rows under the titles of their sections."""
    document = tomllib.loads(ROWS.read_text(encoding="utf-8"))
    return {
        section["title"]: tuple(
            Row(number, *([row] if isinstance(row, str) else row)) for number, row in section["rows"].items()
        )
        for section in document.values()
    }


def rows() -> list[Row]:
    """Return all rows."""
    return [row for section in sections().values() for row in section]


@cache
def citations() -> tuple[Citation, ...]:
    """Return every citation in the product and in the tests, in the order of the files."""
    found: list[Citation] = []
    for top in (*PRODUCT, "tests"):
        for path in sorted((ROOT / top).rglob("*.py")):
            name = path.relative_to(ROOT).as_posix()
            if name not in _EXAMPLES:
                found += cited_by(name, path.read_text(encoding="utf-8"))
    return tuple(dict.fromkeys(found))


def cited_by(path: str, text: str) -> Iterator[Citation]:
    """Return the citations of one module. In a test module they belong to the test that they stand in."""
    if not path.startswith("tests/"):
        yield from (Citation(number, path) for number in numbers(text))
        return
    lines = text.splitlines()
    for test in _tests(text) if "/test_" in path else ():
        first = min((each.lineno for each in test.decorator_list), default=test.lineno) - 1
        name = _NAME.match(test.name)
        for number in name[1].upper().split("_")[1:] if name else ():
            yield Citation(number, path, test.name)
        for number in numbers("\n".join(lines[first : test.end_lineno])):
            yield Citation(number, path, test.name)
        lines[first : test.end_lineno] = [""] * ((test.end_lineno or 0) - first)
    yield from (Citation(number, path) for number in numbers("\n".join(lines)))


def numbers(text: str) -> Iterator[str]:
    """Return the numbers that a text cites, those within a range included."""
    for first, last in _CITATION.findall(text):
        if last:
            yield from (f"{first[0]}{number:02}" for number in range(int(first[1:]), int(last[1:]) + 1))
        else:
            yield first


def _tests(text: str) -> list[ast.FunctionDef | ast.AsyncFunctionDef]:
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef)
    return [each for each in ast.walk(ast.parse(text)) if isinstance(each, kinds) and each.name.startswith("test_")]


def describe_markdown() -> str:
    """Return the page."""
    where: defaultdict[str, list[str]] = defaultdict(list)
    shown: defaultdict[str, list[str]] = defaultdict(list)
    for number, path, test in citations():
        if not path.startswith("tests/"):
            where[number].append(f"`{path}`")
        elif "/test_" in path:
            shown[number].append(f"`{path.removeprefix('tests/')}`" + (f" {_spoken(test)}" if test else ""))
    lines = [INTRODUCTION]
    for title, section in sections().items():
        lines += ["", f"## {title}", "", "| row | what | where | test |", "|---|---|---|---|"]
        for row in section:
            what = f"{row.what} *{row.reason[0].upper()}{row.reason[1:]}*" if row.reason else row.what
            cells = (row.number, what, "<br>".join(where[row.number]), "<br>".join(shown[row.number]))
            lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def _spoken(test: str) -> str:
    return _NAME.sub("test", test).removeprefix("test_").replace("_", " ")
