"""The behaviours that code and tests cite by number: their page, and the evidence for a row.

``python -m tests.behaviours B07`` prints the code and the tests of a row. ``behaviours.toml`` has each row's number and
text. A citation is ``B07`` or a range ``C08``-``C10`` in a module of the product or in a test, or ``test_b07_...`` as a
test's name. A row that is not kept has a reason. No module of the product imports this module.
"""

from __future__ import annotations

import ast
import re
import sys
import tomllib
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Final, NamedTuple

ROOT: Final = Path(__file__).resolve().parents[1]
ROWS: Final = Path(__file__).with_suffix(".toml")
#: The parts of the product, besides the tests.
PRODUCT: Final = ("broker", "shm", "web", "spark")
#: Files with numbers as examples.
_EXAMPLES: Final = ("tests/behaviours.py", "tests/architecture/test_behaviours.py")
#: A number, or a range of them: C08-C10.
_CITATION: Final = re.compile(r"\b([A-I]\d\d)\b(?:`*-`*([A-I]\d\d)\b)?")
_NAME: Final = re.compile(r"test((?:_[a-i]\d\d)+)(?=_)")

INTRODUCTION: Final = """# Behaviours

What Kafka's network layer, request channel, handlers and producer do, one row each. To see the code and the tests of a
row:

```
python -m tests.behaviours B07 C08
```

Rotunda does what a row says, and a test shows it. Rows marked **not kept** say what it does instead.

Code and tests cite rows by number (`A33`). `tests/architecture/test_behaviours.py` fails when a cited row is missing
here, or when no code or no test cites a row that is kept. `python ops/pages.py` prints this page from
`tests/behaviours.toml`. Related: [APIs and versions](api-versions.md), [metrics](metrics.md)."""


class Row(NamedTuple):
    """A behaviour. `reason` is empty for a row that is kept, else it starts with "not kept"."""

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
    """Return the citations of one module. In a test module they belong to the test that contains them."""
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
    """Return the page: a line for each row."""
    lines = [INTRODUCTION]
    for title, section in sections().items():
        lines += ["", f"## {title}", "", "| row | behaviour |", "|---|---|"]
        for row in section:
            reason = row.reason.removeprefix("not kept").lstrip(": ")
            mark = "**Not kept.** " if row.reason else ""
            what = f"{row.what} *{reason[0].upper()}{reason[1:]}*" if reason else row.what
            lines.append(f"| {row.number} | {mark}{what} |")
    return "\n".join(lines)


def evidence(number: str) -> str:
    """Return a row with the modules and tests that cite it, one a line."""
    row = next(each for each in rows() if each.number == number)
    cited = [each for each in citations() if each.number == number]
    modules = [each.path for each in cited if not each.path.startswith("tests/")]
    tests = [f"{each.path}::{each.test}" if each.test else each.path for each in cited if "/test_" in each.path]
    text = [f"{number}  {row.what}", *([f"     {row.reason}"] if row.reason else [])]
    return "\n".join(
        [*text, "  code", *(f"    {each}" for each in modules), "  tests", *(f"    {each}" for each in tests)]
    )


def main(arguments: Sequence[str]) -> int:
    """Print the evidence of the rows named; return the exit code."""
    known = [row.number for row in rows()]
    unknown = [number for number in arguments if number.upper() not in known]
    if unknown or not arguments:
        print(f"unknown row: {', '.join(unknown)}" if unknown else "usage: python -m tests.behaviours ROW...")
        return 2
    print("\n\n".join(evidence(number.upper()) for number in arguments))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
