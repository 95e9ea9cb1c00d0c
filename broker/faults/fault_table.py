"""The faults of one target: the active ones, those that match a request, and the counts of their matches.

Runs in targets of a broker started for tests. `follow` costs a comparison while nothing has changed. A fault with a
limit matches exactly that many times over all targets. To count, a target holds a file lock, which the system releases
if the process is killed, and adds up the counts of all targets. Counts are final: a target killed between the count and
the response leaves a request that its replacement reads again, and that is matched, and counted, like any other.
"""

from __future__ import annotations

import fcntl
import logging
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from rotunda.broker.faults.fault import ANY_API, LOCK_NAME, NO_LIMIT, Fault, FaultKind, FaultsInForce, read_faults

if TYPE_CHECKING:
    from pathlib import Path

    from rotunda.broker.faults.request_names import RequestNames
    from rotunda.shm.faults import FaultWords

logger = logging.getLogger(__name__)

_NONE = FaultsInForce(0, (), ())


class FaultTable:
    """The faults known to one target."""

    def __init__(self, words: FaultWords, target: int, run_dir: Path) -> None:
        self._words = words
        self._target = target
        self._run_dir = run_dir
        self._lock_fd = -1
        self._version = 0
        self._published = _NONE

    def follow(self) -> None:
        """Load the active faults. HOT: a comparison while nothing has changed."""
        version = self._words.version
        if version == self._version:
            return
        try:
            self._published = read_faults(self._run_dir)
        except (OSError, ValueError):
            # The broker's directory is being removed, or another program has written there.
            logger.exception("cannot read the faults of a test; none is active")
            self._published = _NONE
        self._version = version

    def concern(self, api: int) -> bool:
        """Return whether any fault may match requests of an API."""
        return any(fault.api in (ANY_API, api) for fault in self._published.faults)

    def strike(self, api: int, client: str, names: Callable[[], RequestNames]) -> dict[FaultKind, Fault]:
        """Return the faults that match a request, by their kind, and count them.

        ``names`` returns the topics and groups of the request; it is called if a fault needs them. Of one kind the
        first fault applies; a request whose connection is closed matches no other fault.
        """
        published = self._published
        if client.startswith(published.spared):
            return {}
        struck: dict[FaultKind, Fault] = {}
        for fault in sorted(published.faults, key=lambda each: each.kind is not FaultKind.DISCONNECT):
            if fault.api not in (ANY_API, api) or fault.kind in struck or fault.client not in (None, client):
                continue
            if fault.looks_into_requests and not _is_named(fault, names()):
                continue
            if self._counts(fault):
                struck[fault.kind] = fault
                if fault.kind is FaultKind.DISCONNECT:
                    break
        return struck

    def _counts(self, fault: Fault) -> bool:
        """Count one more match, if the limit allows it."""
        if fault.limit == NO_LIMIT:
            self._words.add(self._target, fault.place)
            return True
        if self._words.count(fault.place) >= fault.limit:
            return False
        with self._locked():
            is_left = self._words.count(fault.place) < fault.limit
            if is_left:
                self._words.add(self._target, fault.place)
        return is_left

    @contextmanager
    def _locked(self) -> Iterator[None]:
        if self._lock_fd < 0:
            self._lock_fd = os.open(self._run_dir / LOCK_NAME, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        fcntl.lockf(self._lock_fd, fcntl.LOCK_EX)
        try:
            yield
        finally:
            fcntl.lockf(self._lock_fd, fcntl.LOCK_UN)


def _is_named(fault: Fault, names: RequestNames) -> bool:
    return (fault.topic is None or fault.topic in names.topics) and (fault.group is None or fault.group in names.groups)
