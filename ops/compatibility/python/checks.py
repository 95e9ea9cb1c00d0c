"""The runner of the Python programs of this folder: named features, one after the other, each with a verdict.

Each prints one line: passed or failed, a tab, its name, a tab, the error. Command line: bootstrap address, then the
features (none: all). Runs in a process of its own; knows nothing of the broker but its address.
"""

import faulthandler
import sys
import time
import traceback
import uuid
from collections.abc import Callable

LIMIT_SECONDS = 30.0

#: A returned text is printed with the verdict of a passed feature.
Feature = Callable[[str], str | None]


def unique(prefix: str) -> str:
    return f"{prefix}-{uuid.uuid4().hex[:8]}"


def require(holds: object, otherwise: object) -> None:
    """Raise AssertionError if `holds` is false."""
    if not holds:
        raise AssertionError(otherwise)


def equal(found: object, wanted: object) -> None:
    """Raise AssertionError with both values if they differ."""
    require(found == wanted, f"{found!r} instead of {wanted!r}")


def until(what: str, condition: Callable[[], object]) -> None:
    """Wait for the condition; AssertionError naming it after 30 s."""
    end = time.monotonic() + LIMIT_SECONDS
    while not condition():
        require(time.monotonic() < end, f"not within {LIMIT_SECONDS:.0f} s: {what}")
        time.sleep(0.01)


def run(features: dict[str, Feature]) -> None:
    bootstrap, *wanted = sys.argv[1:]
    faulthandler.enable()
    chosen = {name: feature for name, feature in features.items() if not wanted or name in wanted}
    for name in chosen:
        print(f"planned\t{name}\t", flush=True)
    for name, feature in chosen.items():
        faulthandler.dump_traceback_later(4 * LIMIT_SECONDS, exit=True)
        print(verdict(name, feature, bootstrap), flush=True)
        faulthandler.cancel_dump_traceback_later()


def verdict(name: str, feature: Feature, bootstrap: str) -> str:
    try:
        said = feature(bootstrap)
    except Exception as fault:  # any exception of a client is the verdict
        lines = [frame.lineno for frame in traceback.extract_tb(fault.__traceback__) if frame.filename == sys.argv[0]]
        text = " ".join(f"{type(fault).__name__}: {fault} at lines {lines}".split())
        return f"failed\t{name}\t{text}"
    return f"passed\t{name}\t{said or ''}"
