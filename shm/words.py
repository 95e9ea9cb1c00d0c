"""Loads and stores of shared 64-bit words: the memory-order assumption, stated once. Any process runs it.

A shared word is an element of `memoryview.cast('q')`: CPython copies it with one aligned 8-byte move, which never
tears, and the interpreter neither merges nor reorders two such accesses. The machine may reorder them:

- x86-64 executes stores in order and loads in order. So "write the frame, then the tail" is seen in that order by a
  reader that loads the tail, then the frame. Places that rely on it have paired `# SYNC:` comments.
- A store followed by a load of ANOTHER word may be swapped. Where that matters (I raise my flag, then look at yours)
  both sides call `fence` between the two.
- Compiled code stores a word with release and loads it with acquire, which is the same order (`broker/native/ring.c`).
- On weaker machines the bell that follows every publication (a semaphore or eventfd operation) orders memory.

Hot modules subscript the words themselves; they get them from `words_of`.
"""

from __future__ import annotations

import threading

from rotunda.shm.record import WORD_BYTES

# Private to this process and never contended: only the effect of its operations on the memory bus is needed.
_FENCE_LOCK = threading.Lock()


def words_of(view: memoryview, base: int, size_bytes: int) -> memoryview:
    """Return the words of view[base : base + size_bytes]; ValueError if not aligned or out of bounds.

    The caller releases or drops the returned view before the mapping ends.
    """
    if base % WORD_BYTES or size_bytes % WORD_BYTES:
        raise ValueError(f"words at {base}, {size_bytes} bytes: not multiples of {WORD_BYTES}")
    if base < 0 or base + size_bytes > view.nbytes:
        raise ValueError(f"words at {base}, {size_bytes} bytes: outside a view of {view.nbytes} bytes")
    return view[base : base + size_bytes].cast("q")


def fence() -> None:
    """Order every store before it ahead of every load after it.

    Acquiring and releasing an uncontended lock is two lock-prefixed instructions, each a full barrier; Python has no
    cheaper one.
    """
    _FENCE_LOCK.acquire()
    _FENCE_LOCK.release()
