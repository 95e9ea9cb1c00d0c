"""Standard input and output as bytes, for the commands that copy records. A stream may have been closed (`<&-`)."""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from typing import BinaryIO, TextIO

from broker.errors import RotundaError


def standard_input() -> BinaryIO:
    """Return standard input. Raises RotundaError when this process was given none."""
    return _bytes_of(sys.stdin, "input", "records come from it: give it some, such as </dev/null, or name files")


def standard_output() -> BinaryIO:
    """Return standard output. Raises RotundaError when this process was given none."""
    return _bytes_of(sys.stdout, "output", "records go there: give it somewhere to write to, such as >/dev/null")


def _bytes_of(stream: TextIO | None, name: str, hint: str) -> BinaryIO:
    if stream is None:
        raise RotundaError(f"standard {name} is closed, and {hint}")
    with suppress(OSError):
        # Whoever shares it may have left it otherwise: reading would end at the first pause, as at the end.
        os.set_blocking(stream.fileno(), True)
    return stream.buffer
