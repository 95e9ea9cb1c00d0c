"""Payloads of messages between targets: short ones ride along, long ones travel as files.

Runs in handler processes and the controller. A peer ring holds 64 KiB, questions a quarter of that; the description of
a large group is more. A file in the run directory then carries it, as with large answers to clients. A question may be
read twice, so its file stays until the answer is there; the file of an answer goes when it is read.
"""

from __future__ import annotations

import os
from itertools import count
from pathlib import Path

#: What a payload's place says: in the message itself, or in the file that the message names.
IN_MESSAGE, IN_FILE = 0, 1

MOST_IN_MESSAGE_BYTES = 4 * 1024


class PeerPayloads:
    """Packs and unpacks payloads for one target."""

    def __init__(self, run_dir: Path, index: int) -> None:
        self._names = (run_dir / f"peer-{index}-{os.getpid()}-{n}" for n in count())

    def pack(self, payload: bytes) -> tuple[int, bytes]:
        """Return (place, what stands in the message)."""
        if len(payload) <= MOST_IN_MESSAGE_BYTES:
            return IN_MESSAGE, payload
        path = next(self._names)
        path.write_bytes(payload)
        return IN_FILE, os.fsencode(path)

    def remove(self, packed: bytes) -> None:
        """Remove the file that a message names."""
        Path(os.fsdecode(packed)).unlink(missing_ok=True)

    def unpack(self, place: int, packed: bytes, *, last_use: bool) -> bytes:
        """Return the payload; its file is removed after its last use. Raises OSError when it is gone."""
        if place == IN_MESSAGE:
            return packed
        path = Path(os.fsdecode(packed))
        payload = path.read_bytes()
        if last_use:
            path.unlink(missing_ok=True)
        return payload
