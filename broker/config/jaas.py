"""JAAS lines as in Kafka's files: a login module of Java, a flag, and options that the broker reads.

    org.apache.kafka.common.security.plain.PlainLoginModule required user_alice="secret";

Pure. One module per line, as Kafka requires. The options are secrets: no error shows them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

_TOKEN = re.compile(
    r"""(?P<space>\s+|//[^\n]*|/\*.*?\*/)|"(?P<quoted>(?:[^"\\\n]|\\.)*)"|'(?P<single>(?:[^'\\\n]|\\.)*)'"""
    r"""|(?P<sign>[=;])|(?P<word>[^\s"'=;]+)""",
    re.DOTALL,
)
_FLAGS = ("required", "requisite", "sufficient", "optional")
_ESCAPES = {"n": "\n", "r": "\r", "t": "\t", "b": "\b", "f": "\f"}
_USER = "user_"

_FORM = 'a line is: LoginModule required option="value" ... ;'


class JaasLine(NamedTuple):
    """A line: the class of the login module, and its options."""

    module: str
    options: dict[str, str]

    @property
    def users(self) -> dict[str, str]:
        """The passwords by user, of PlainLoginModule's options user_NAME."""
        return {name.removeprefix(_USER): value for name, value in self.options.items() if name.startswith(_USER)}


def parse(text: str) -> JaasLine:
    """Parse a line. Raises ValueError, which shows nothing of the options' values."""
    tokens = list(_tokens(text))
    if len(tokens) < 3 or tokens[-1] != (";", True):
        raise ValueError(f"it does not end with ; ({_FORM})")
    (module, _), (flag, _), *rest = tokens[:-1]
    if flag.lower() not in _FLAGS:
        raise ValueError(f"after the login module: expected {', '.join(_FLAGS[:-1])} or {_FLAGS[-1]} ({_FORM})")
    options: dict[str, str] = {}
    for at in range(0, len(rest), 3):
        option = rest[at : at + 3]
        if len(option) < 3 or option[1] != ("=", True) or option[0][1] or option[2][1]:
            if ("" if not option else option[0]) == (";", True):
                raise ValueError("it has a second login module; only one is supported, as in Kafka")
            raise ValueError(f'invalid option number {at // 3 + 1}: expected name="value" ({_FORM})')
        options[option[0][0]] = option[2][0]
    return JaasLine(module, options)


def complaint(text: str) -> str | None:
    """Return the error in a line, if any."""
    try:
        parse(text)
    except ValueError as error:
        return str(error)
    return None


def _tokens(text: str) -> Iterator[tuple[str, bool]]:
    """Yield each token, and whether it is a sign."""
    at = 0
    while at < len(text):
        match = _TOKEN.match(text, at)
        if match is None:
            raise ValueError(f"unbalanced quotation mark at character {at + 1} ({_FORM})")
        at = match.end()
        if match["sign"]:
            yield match["sign"], True
        elif match["word"]:
            yield match["word"], False
        elif match["space"] is None:
            yield re.sub(r"\\(.)", _unescaped, match["quoted"] or match["single"] or "", flags=re.DOTALL), False


def _unescaped(match: re.Match[str]) -> str:
    return _ESCAPES.get(match[1], match[1])
