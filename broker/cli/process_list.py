"""Secrets in process lists: overwrites a command's secret arguments and variables in its own memory.

The system shows both from the first bytes of a process's stack, also those of forked children. So they are overwritten
before anything is forked. Until then, some milliseconds, they are visible: arguments to everybody, variables to the
same user. A value in a file (KEY=@FILE) is never visible.
"""

from __future__ import annotations

import ctypes
import re
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

#: Indexes in /proc/self/stat after the command's name: begin and end of arguments and variables.
_ARGUMENTS, _VARIABLES = slice(45, 47), slice(47, 49)
_FLAG = re.compile(rb"^--(?:set|property)=")


def hide(is_secret: Callable[[str], bool]) -> None:
    """Overwrite the value of each argument `NAME=VALUE`, and of each variable, with a secret's name."""
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
