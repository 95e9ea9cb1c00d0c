"""`rotunda completion SHELL`: prints the code for a shell's start-up file, by argcomplete."""

from __future__ import annotations

import argparse
from collections.abc import Mapping

from argcomplete.shell_integration import shellcode


def run(parsed: argparse.Namespace, _: Mapping[str, str]) -> int:
    """Print the code."""
    print(shellcode(["rotunda"], shell=parsed.shell))
    return 0
