"""Standard input and output as bytes, for the commands that copy records. A stream may have been closed (`<&-`)."""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from typing import BinaryIO, TextIO

from rotunda.broker.errors import RotundaError


def standard_input() -> BinaryIO:
    """Return standard input. Raises RotundaError when it is closed."""
    return _bytes_of(sys.stdin, "input", "redirect it, for example from </dev/null, or name files")


def standard_output() -> BinaryIO:
    """Return standard output. Raises RotundaError when it is closed."""
    return _bytes_of(sys.stdout, "output", "redirect it, for example to >/dev/null")


def _bytes_of(stream: TextIO | None, name: str, hint: str) -> BinaryIO:
    if stream is None:
        raise RotundaError(f"standard {name} is closed, and {hint}")
    with suppress(OSError):
        # Another process that shares it may have made it non-blocking: reading would end at the first pause, as at the
        # end.
        os.set_blocking(stream.fileno(), True)
    return stream.buffer
