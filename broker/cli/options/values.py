"""Values of options: validated while the command line is parsed, so that an error names the option."""

from __future__ import annotations

import argparse
import math

_SHORTEST_INTERVAL_S, _LONGEST_INTERVAL_S = 0.1, 3600.0
_LEAST_FACTOR = 0.001
_LONGEST_WAIT_S = 1e6


def seconds(text: str) -> float:
    """Return a valid length of a wait; argparse names the option in the error."""
    try:
        seconds = float(text)
    except ValueError:
        seconds = -1.0
    if not 0 <= seconds <= _LONGEST_WAIT_S:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of seconds")
    return seconds


def milliseconds(text: str) -> float:
    """Return a valid duration; argparse names the option in the error."""
    try:
        milliseconds = float(text)
    except ValueError:
        milliseconds = -1.0
    if not 0 <= milliseconds < math.inf:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of milliseconds")
    return milliseconds


def count(text: str) -> int:
    """Return a number of things to print; argparse names the option in the error."""
    if not (text.isascii() and text.isdecimal() and int(text)):
        raise argparse.ArgumentTypeError(f"{text!r} is not a number from 1 on")
    return int(text)


def interval_s(text: str) -> float:
    """Return a refresh interval; counters are updated twice a second, so very short ones are rejected."""
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not _SHORTEST_INTERVAL_S <= seconds <= _LONGEST_INTERVAL_S:
        message = f"{text!r} is not a number of seconds from {_SHORTEST_INTERVAL_S:g} to {_LONGEST_INTERVAL_S:g}"
        raise argparse.ArgumentTypeError(message)
    return seconds


def factor(text: str) -> float:
    """Return a speed factor; argparse names the option in the error."""
    try:
        factor = float(text)
    except ValueError:
        factor = 0.0
    if not _LEAST_FACTOR <= factor <= 1 / _LEAST_FACTOR:
        message = f"{text!r} is not a factor from {_LEAST_FACTOR:g} to {1 / _LEAST_FACTOR:g}"
        raise argparse.ArgumentTypeError(message)
    return factor
