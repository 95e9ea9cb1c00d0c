"""A fault: the requests that it matches, its effect on them, and the file that carries it from tests to targets.

Pure. The tests write all active faults into one file of the run directory, replace it as a whole, and then increase a
word in shared memory. Targets read the file when that word has changed, after they have read their rings. So every
request that a client sends after the test has set a fault meets that fault, in every target.
"""

from __future__ import annotations

import enum
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Final, NamedTuple

FILE_NAME: Final = "faults.json"
LOCK_NAME: Final = "faults.lock"

#: Matches any API.
ANY_API: Final = -1
#: A count without an end.
NO_LIMIT: Final = -1


class FaultKind(enum.StrEnum):
    """The effect of a fault on a request."""

    FAIL = "fail"
    DELAY = "delay"
    DISCONNECT = "disconnect"
    LOSE_RESPONSE = "lose-answer"
    THROTTLE = "throttle"
    EXPIRE_LOCKS = "expire-locks"
    """All locks of the request's share group run out before it is executed."""


class Fault(NamedTuple):
    """An active fault. ``place``: its counter; it ends when the sum over all targets reaches ``limit``.

    ``topic``, ``group`` and ``client`` (a client id) restrict it; None: any. ``error`` belongs to a FAIL, ``ms`` to a
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
        """Whether matching needs the body of a request."""
        return self.topic is not None or self.group is not None


class FaultsInForce(NamedTuple):
    """The file's contents; requests with a client id that starts with one of ``spared`` never match."""

    version: int
    spared: tuple[str, ...]
    faults: tuple[Fault, ...]


def write_faults(run_dir: Path, version: int, spared: Sequence[str], faults: Sequence[Fault]) -> None:
    """Replace the file: a reader sees the old one or the new one, complete."""
    text = json.dumps({"version": version, "spared": list(spared), "faults": faults})
    new = run_dir / f"{FILE_NAME}.new"
    new.write_text(text, encoding="utf-8")
    new.replace(run_dir / FILE_NAME)


def read_faults(run_dir: Path) -> FaultsInForce:
    """Return the file's contents. Raises OSError, ValueError."""
    stored = json.loads((run_dir / FILE_NAME).read_text(encoding="utf-8"))
    faults = (Fault(each[0], FaultKind(each[1]), *each[2:]) for each in stored["faults"])
    return FaultsInForce(stored["version"], tuple(stored["spared"]), tuple(faults))
