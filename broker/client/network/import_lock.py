"""A lock that keeps forks and imports of the I/O thread apart.

What kio needs is imported when it is needed first, on the I/O thread. In a child that was forked meanwhile nobody would
end that import, and whoever needs the same module there would wait for ever: also a producer that is made in the child.
"""

from __future__ import annotations

import os
import threading
from typing import Final

#: Whoever forks holds it, and the I/O thread where it may import.
IMPORTING: Final = threading.RLock()

os.register_at_fork(before=IMPORTING.acquire, after_in_parent=IMPORTING.release, after_in_child=IMPORTING.release)
