"""Loads and stores of shared 64-bit words: the memory-order assumption, stated once. Any process runs it.

A shared word is an element of `memoryview.cast('q')`: CPython copies it with one aligned 8-byte move, which
never tears, and the interpreter neither merges nor reorders two such accesses. Between them stands the
machine:

- x86-64 keeps stores in order and loads in order. So "write the frame, then the tail" is seen in that order
  by a reader that loads the tail, then the frame. Places that rely on it carry paired `# SYNC:` comments.
- A store followed by a load of ANOTHER word may be swapped. Where that matters (I raise my flag, then look at
  yours) both sides call `fence` between the two.
- On weaker machines the bell that follows every publication (a semaphore or eventfd operation) orders memory.

Hot modules subscript the words themselves; they get them from `words_of`.
"""

from __future__ import annotations

import threading

from rotunda.shm.record import WORD_BYTES

# Private to this process and never contended: it is here for what its operations do to the memory bus.
_FENCE_LOCK = threading.Lock()


def words_of(view: memoryview, base: int, size_bytes: int) -> memoryview:
    """Return the words of view[base : base + size_bytes]; ValueError if not aligned or not all there.

    The caller releases the view it gets, or drops it, before the mapping can end.
    """
    if base % WORD_BYTES or size_bytes % WORD_BYTES:
        raise ValueError(f"words at {base}, {size_bytes} bytes: not multiples of {WORD_BYTES}")
    if base < 0 or base + size_bytes > view.nbytes:
        raise ValueError(f"words at {base}, {size_bytes} bytes: outside a view of {view.nbytes} bytes")
    return view[base : base + size_bytes].cast("q")


def fence() -> None:
    """Order every store before it ahead of every load after it.

    Taking and giving back an uncontended lock is two lock-prefixed instructions, each a full barrier; Python
    offers no cheaper one.
    """
    _FENCE_LOCK.acquire()
    _FENCE_LOCK.release()
