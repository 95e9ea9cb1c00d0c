"""``ssl.principal.mapping.rules``: maps the subject of a client's certificate to a user (Kafka's SslPrincipalMapper).

Pure. Rules are tried in order. ``DEFAULT`` maps to the whole name; ``RULE:pattern/replacement/`` applies if the pattern
matches the whole name, and a trailing L or U converts the result to lower or upper case. Patterns have Java's syntax,
translated to Python's where they differ: names of groups, ``$1`` in replacements; ``w``, ``d`` and ``s`` are ASCII
only.
"""

from __future__ import annotations

import re
from typing import NamedTuple

_RULE = re.compile(r"(DEFAULT)|RULE:((?:\\.|[^\\/])*)/((?:\\.|[^\\/])*)/([LU]?)", re.DOTALL)
_BETWEEN = re.compile(r"\s*(?:,\s*|$)")
_NAMED_GROUP = re.compile(r"\(\?<([A-Za-z][A-Za-z0-9]*)>")
_REFERENCE = re.compile(r"\\(.)|\$(\d)|\$\{([A-Za-z][A-Za-z0-9]*)\}", re.DOTALL)


class _Rule(NamedTuple):
    """One rule. ``pattern`` is None for DEFAULT."""

    pattern: re.Pattern[str] | None
    replacement: str
    case: str


class PrincipalMapping:
    """The rules of a listener."""

    def __init__(self, text: str) -> None:
        """Parse the rules. Raises ValueError, worded for the user, if they are invalid."""
        self._text = text
        self._rules: list[_Rule] = []
        at, text = 0, text.strip()
        while at < len(text):
            match = _RULE.match(text, at)
            separator = _BETWEEN.match(text, match.end()) if match else None
            if match is None or separator is None:
                raise ValueError(f"invalid rule at {text[at:]!r}: write DEFAULT or RULE:pattern/replacement/[LU]")
            self._rules.append(_read(match))
            at = separator.end()

    def user_of(self, name: str) -> str | None:
        """Return the user of a certificate's subject; None if no rule matches."""
        for pattern, replacement, case in self._rules:
            if pattern is None:
                return name
            match = pattern.fullmatch(name)
            if match is not None:
                user = pattern.sub(lambda each, text=replacement: _filled(text, each), name)  # type: ignore[misc]
                return user.lower() if case == "L" else user.upper() if case == "U" else user
        return None


def _read(match: re.Match[str]) -> _Rule:
    is_default, pattern, replacement, case = match.groups()
    if is_default:
        return _Rule(None, "", "")
    try:
        return _Rule(re.compile(_NAMED_GROUP.sub(r"(?P<\1>", pattern), re.ASCII), replacement, case)
    except (re.error, ValueError) as error:
        raise ValueError(f"invalid pattern {pattern!r}: {error}") from None


def _filled(replacement: str, match: re.Match[str]) -> str:
    """Return a replacement with its references resolved; a reference to an unknown group stays as written."""

    def value(reference: re.Match[str]) -> str:
        escaped, number, group = reference.groups()
        if escaped is not None:
            return escaped
        if number is not None:
            return match[int(number)] or "" if int(number) <= match.re.groups else reference[0]
        return match[group] or "" if group in match.re.groupindex else reference[0]

    return _REFERENCE.sub(value, replacement)
