"""The newest offset of every key: built first in compaction, then used to select records (Kafka's OffsetMap).

Runs in the cleaner process. The map holds as many keys as fit into its memory; when it is full, the rest of the
partition waits for the next round. Long keys are stored as digests.
"""

from __future__ import annotations

from hashlib import blake2b

#: Memory of one key: its slot in the table, the key and the offset.
ENTRY_BYTES = 192

_DIGEST_BYTES = 16
_MARK = b"#"


class KeyMap:
    """Offsets by key, at most as many as fit into `memory_bytes`."""

    __slots__ = ("_offsets", "_room")

    def __init__(self, memory_bytes: int) -> None:
        self._room = max(1, memory_bytes // ENTRY_BYTES)
        self._offsets: dict[bytes, int] = {}

    def put(self, key: bytes, offset: int) -> bool:
        """Map a key to `offset`, which is larger than all before; False if the map is full."""
        offsets = self._offsets
        short = key if len(key) <= _DIGEST_BYTES else _digest(key)
        if short not in offsets and len(offsets) >= self._room:
            return False
        offsets[short] = offset
        return True

    def newest(self, key: bytes) -> int:
        """Return the newest offset of a key, or -1 if it is not in the map."""
        return self._offsets.get(key if len(key) <= _DIGEST_BYTES else _digest(key), -1)

    def __len__(self) -> int:
        return len(self._offsets)


def _digest(key: bytes) -> bytes:
    """Return the digest of a long key: longer than any key that is stored itself."""
    return _MARK + blake2b(key, digest_size=_DIGEST_BYTES).digest()
