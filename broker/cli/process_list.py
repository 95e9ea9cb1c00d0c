"""Secrets in process lists: what a command was given as arguments or variables, overwritten in its own memory.

The system shows both as they stand in the first bytes of a process's stack, also those of children that it forks. So
they are overwritten before anything is forked. Until then, some milliseconds, they are to be seen by those who may see
them: arguments by everybody, variables by the same user. A file (KEY=@FILE) is never to be seen.
"""

from __future__ import annotations

import ctypes
import re
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

#: Places in /proc/self/stat, counted from the one after the command's name: begin and end of arguments and variables.
_ARGUMENTS, _VARIABLES = slice(45, 47), slice(47, 49)
_FLAG = re.compile(rb"^--(?:set|property)=")


def hide(is_secret: Callable[[str], bool]) -> None:
    """Overwrite the value of each argument `NAME=VALUE`, and of each variable, whose name is of a secret."""
    with suppress(OSError, ValueError):
        fields = Path("/proc/self/stat").read_text(encoding="utf-8", errors="replace").rpartition(") ")[2].split()
        for begin, end in (map(int, fields[_ARGUMENTS]), map(int, fields[_VARIABLES])):
            _overwrite(begin, ctypes.string_at(begin, end - begin), is_secret)


def _overwrite(begin: int, entries: bytes, is_secret: Callable[[str], bool]) -> None:
    address = begin
    for entry in entries.split(b"\0"):
        name, separator, value = _FLAG.sub(b"", entry).partition(b"=")
        if separator and is_secret(name.decode(errors="replace").strip()):
            ctypes.memset(address + len(entry) - len(value), ord("x"), len(value))
        address += len(entry) + 1
