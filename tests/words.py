"""Counts the words that make the project's English hard to read, per room: ``python -m tests.words [--lower]``.

The words are in `WORDS`. They are counted in docstrings, comments and string literals of three words or more, in the
comments of other languages and in the pages of ``docs``. Code in backticks and fences is not counted. The row "names"
counts Python names with a part of `NAME_PARTS` among 1,000 names. A room is a package of ``broker`` or ``tests``, or
another directory of the top level.

``words.toml`` has the rooms above a word's target with their ceilings, as words in 1,000. ``--lower`` writes today's
numbers where they are lower. ``tests/architecture/test_words.py`` fails above a ceiling.
"""

from __future__ import annotations

import argparse
import ast
import math
import re
import subprocess
import sys
import tomllib
from collections import Counter
from collections.abc import Iterator
from functools import cache, lru_cache
from pathlib import Path
from typing import Final, NamedTuple

ROOT: Final = Path(__file__).resolve().parents[1]
CEILINGS: Final = Path(__file__).with_suffix(".toml")
TOPS: Final = ("broker", "shm", "web", "spark", "ops", "tests", "docs", "README.md")
#: The files that have these words as data.
_EXAMPLES: Final = ("tests/words.py", "tests/words.toml", "tests/architecture/test_words.py")


class Word(NamedTuple):
    """A row of the table: a pattern, and the most of it in 1,000 words that needs no ceiling."""

    pattern: re.Pattern[str]
    target: float


def _word(pattern: str, target: float = 2.0, flags: re.RegexFlag = re.IGNORECASE) -> Word:
    return Word(re.compile(rf"\b(?:{pattern})\b", flags), target)


WORDS: Final = {
    "what": _word("what", 4.0),
    "who": _word("who|whoever|whom|whose"),
    "take": _word("takes?|taken"),
    # The language is Go.
    "go": _word("go|goes|gone", flags=re.NOFLAG),
    "say": _word("says?|said|tells?|told"),
    "stand": _word("stands?"),
    "come": _word("comes?"),
    "beside": _word("beside|behind|anew"),
    "answer": _word("answers?|answered|answering"),
}
#: The row of names, and its most in 1,000 names.
NAMES: Final = "names"
TARGETS: Final = {name: word.target for name, word in WORDS.items()} | {NAMES: 2.0}
#: Parts of names that are not Kafka's words.
NAME_PARTS: Final = frozenset(
    [
        "turn",
        "turns",
        "answer",
        "answers",
        "answered",
        "answering",
        "refuse",
        "refuses",
        "refused",
        "refusing",
        "refusal",
        "refusals",
        "judge",
        "judges",
        "judged",
        "what",
        "who",
        "whoever",
        "whom",
        "whose",
        "take",
        "takes",
        "taken",
        "taking",
        "took",
        "go",
        "goes",
        "gone",
        "say",
        "says",
        "said",
        "tell",
        "tells",
        "told",
        "stand",
        "stands",
        "come",
        "comes",
        "came",
        "beside",
        "behind",
        "anew",
    ]
)
#: A room with fewer words counts as one with so many.
LEAST_WORDS: Final = 1000
#: Fewer words are a name or a format.
_LEAST_LITERAL: Final = 3
_NAME_PART: Final = re.compile(r"[a-z]+|[A-Z][a-z]*")
_ANY_WORD: Final = re.compile(r"[A-Za-z][A-Za-z'-]*")
_CODE: Final = re.compile(r"```.*?```|``.*?``|`[^`\n]*`", re.DOTALL)
_C_COMMENT: Final = r"/\*(.*?)\*/|(?<!:)//([^\n]*)"
_HASH_COMMENT: Final = r"(?:^|\s)#([^\n]*)"
#: A string of Python, or else a comment as the group: much faster than its tokenizer.
_STRING_OR_COMMENT: Final = re.compile(
    r"""\"{3}(?:\\.|.)*?\"{3}|'{3}(?:\\.|.)*?'{3}|"(?:\\.|[^"\\])*"|'(?:\\.|[^'\\])*'|(\#[^\n]*)""", re.DOTALL
)
_COMMENTS: Final = {
    **dict.fromkeys((".js", ".mjs", ".css", ".java", ".go", ".c", ".h"), re.compile(_C_COMMENT, re.DOTALL)),
    **dict.fromkeys((".sh", ".toml", ".yml", ".properties", ""), re.compile(_HASH_COMMENT, re.MULTILINE)),
    ".html": re.compile(r"<!--(.*?)-->|>([^<>{}]+)<", re.DOTALL),
}


class Rate(NamedTuple):
    """The words of one row in one room, in 1,000 words."""

    room: str
    word: str
    rate: float


def room(path: str) -> str:
    """Return the room of a file of the repository."""
    top, *rest = path.split("/")
    if top == "README.md":
        return "docs"
    return f"{top}/{rest[0]}" if top in {"broker", "tests", "docs"} and len(rest) > 1 else top


@cache
def rates() -> tuple[Rate, ...]:
    """Return the rate of every word, and of names, in every room."""
    words, found, names = Counter[str](), Counter[tuple[str, str]](), dict[str, list[str]]()
    for path in _files():
        source, of = (ROOT / path).read_text(encoding="utf-8"), room(path)
        for text in texts(path, source):
            words[of] += len(_ANY_WORD.findall(text))
            for name, word in WORDS.items():
                found[of, name] += len(word.pattern.findall(text))
        if path.endswith(".py"):
            names.setdefault(of, []).extend({*names_of(source), Path(path).stem})
    return tuple(
        Rate(each, name, 1000 * found[each, name] / max(words[each], LEAST_WORDS))
        if name != NAMES
        else Rate(each, name, _rate_of_names(names.get(each, [])))
        for each in sorted(words)
        for name in TARGETS
    )


def _rate_of_names(names: list[str]) -> float:
    return 1000 * sum(has_such_part(name) for name in names) / max(len(names), LEAST_WORDS)


def has_such_part(name: str) -> bool:
    """Return whether a part of a name is one of `NAME_PARTS`."""
    return any(part.lower() in NAME_PARTS for part in _NAME_PART.findall(name))


def names_of(source: str) -> set[str]:
    """Return the names that a module defines: functions, classes, parameters, variables and attributes."""
    names = set[str]()
    for node in ast.walk(_parsed(source)):
        match node:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                names.add(name)
            case ast.arg(arg=name) | ast.Name(id=name, ctx=ast.Store()) | ast.Attribute(attr=name, ctx=ast.Store()):
                names.add(name)
            case _:
                pass
    return names


def texts(path: str, source: str) -> Iterator[str]:
    """Return the prose of one file, without code in backticks and fences."""
    suffix = Path(path).suffix
    if suffix == ".py":
        found = _python(source)
    elif suffix == ".md":
        found = iter([source])
    else:
        comments = _COMMENTS.get(suffix)
        found = ("".join(each.groups("")) for each in comments.finditer(source)) if comments else iter(())
    return (_CODE.sub(" ", text) for text in found)


def _python(source: str) -> Iterator[str]:
    yield from filter(None, _STRING_OR_COMMENT.findall(source))
    nodes: list[ast.AST] = [_parsed(source)]
    while nodes:
        for node in ast.iter_child_nodes(nodes.pop()):
            text = _literal(node)
            if text is None:
                nodes.append(node)
            elif len(_ANY_WORD.findall(_CODE.sub(" ", text))) >= _LEAST_LITERAL:
                yield text


@lru_cache(maxsize=1)
def _parsed(source: str) -> ast.Module:
    return ast.parse(source)


def _literal(node: ast.AST) -> str | None:
    """Return the text of a string, with nothing in the place of an f-string's values; None for other nodes."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    if isinstance(node, ast.JoinedStr):
        return "".join(str(part.value) if isinstance(part, ast.Constant) else "{}" for part in node.values)
    return None


def _files() -> list[str]:
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", *TOPS]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.splitlines()
    known = {".py", ".md", *_COMMENTS}
    return [
        path
        for path in listed
        if Path(path).suffix in known and path not in _EXAMPLES and (ROOT / path).is_file() and not _is_binary(path)
    ]


def _is_binary(path: str) -> bool:
    return b"\0" in (ROOT / path).read_bytes()[:1024]


@cache
def ceilings() -> dict[str, dict[str, float]]:
    """Return the ceilings of the rooms that are above a target: room -> word -> words in 1,000."""
    return tomllib.loads(CEILINGS.read_text(encoding="utf-8"))


def ceiling(room: str, word: str) -> float:
    """Return the most words in 1,000 that a room may have."""
    return ceilings().get(room, {}).get(word, TARGETS[word])


def lowered() -> str:
    """Return the text of the ceilings, each lowered to today's number or deleted at its word's target."""
    lines = [
        "# Rooms above a target of tests/words.py, in words of 1,000. `python -m tests.words --lower` lowers them."
    ]
    by_room: dict[str, list[str]] = {}
    for each in rates():
        most = min(math.ceil(each.rate * 10) / 10, ceiling(each.room, each.word))
        if most > TARGETS[each.word]:
            by_room.setdefault(each.room, []).append(f"{each.word} = {most}")
    for name, entries in by_room.items():
        lines += ["", f'["{name}"]', *entries]
    return "\n".join(lines) + "\n"


def table() -> str:
    """Return the rates, one room a line; a star marks a number above its target."""
    lines = [f"{'':20}" + "".join(f"{name:>9}" for name in TARGETS)]
    by_room: dict[str, list[str]] = {}
    for each in rates():
        mark = "*" if each.rate > TARGETS[each.word] else " "
        by_room.setdefault(each.room, []).append(f"{each.rate:8.1f}{mark}")
    return "\n".join([*lines, *(f"{name:20}" + "".join(cells) for name, cells in by_room.items())])


def main() -> int:
    """Print the rates; with --lower write the ceilings."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--lower", action="store_true", help="write today's numbers where they are lower")
    arguments = parser.parse_args()
    print(table())
    if arguments.lower:
        CEILINGS.write_text(lowered(), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
