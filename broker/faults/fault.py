"""A fault: which requests it strikes, and what becomes of them. How it travels from the tests to the targets.

Pure. The tests write all faults in force into one file of the run directory, replace it as a whole, and then raise a
word in shared memory. Targets read the file when that word has moved, after they have looked into their rings: so
whatever a client sends once the test goes on meets the fault, in every target.
"""

from __future__ import annotations

import enum
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Final, NamedTuple

FILE_NAME: Final = "faults.json"
LOCK_NAME: Final = "faults.lock"

#: Stands for an API that is any.
ANY_API: Final = -1
#: Stands for a count that has no end.
NO_LIMIT: Final = -1


class FaultKind(enum.StrEnum):
    """What is done to a request."""

    FAIL = "fail"
    DELAY = "delay"
    DISCONNECT = "disconnect"
    LOSE_ANSWER = "lose-answer"
    THROTTLE = "throttle"


class Fault(NamedTuple):
    """A fault in force. ``place``: of its counts; it has struck enough when those of all targets are at ``limit``.

    ``topic``, ``group`` and ``client`` (a client id) narrow it down; None: any. ``error`` is of a FAIL, ``ms`` of a
    DELAY or a THROTTLE.
    """

    place: int
    kind: FaultKind
    api: int
    error: int = 0
    ms: int = 0
    topic: str | None = None
    group: str | None = None
    client: str | None = None
    limit: int = NO_LIMIT

    @property
    def looks_into_requests(self) -> bool:
        """Whether the body of a request says if it is struck."""
        return self.topic is not None or self.group is not None


class FaultsInForce(NamedTuple):
    """What the file says; requests of ``spared`` client ids, and of those that begin so, are never struck."""

    version: int
    spared: tuple[str, ...]
    faults: tuple[Fault, ...]


def write_faults(run_dir: Path, version: int, spared: Sequence[str], faults: Sequence[Fault]) -> None:
    """Replace the file: a reader finds the one before, or this one, whole."""
    text = json.dumps({"version": version, "spared": list(spared), "faults": faults})
    new = run_dir / f"{FILE_NAME}.new"
    new.write_text(text, encoding="utf-8")
    new.replace(run_dir / FILE_NAME)


def read_faults(run_dir: Path) -> FaultsInForce:
    """Return what the file says. Raises OSError, ValueError."""
    said = json.loads((run_dir / FILE_NAME).read_text(encoding="utf-8"))
    faults = (Fault(each[0], FaultKind(each[1]), *each[2:]) for each in said["faults"])
    return FaultsInForce(said["version"], tuple(said["spared"]), tuple(faults))
