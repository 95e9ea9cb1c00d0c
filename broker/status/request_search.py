"""The search in the request log for the status page, by the command `rotunda requests`.

Runs in a thread of the web process, one search at a time. A process of its own reads the files: they have no checksum,
and a damaged one must not end the page.
"""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
import threading
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from rotunda.broker.protocol.api_keys import text_of
from rotunda.web.sources import RequestsFound, RequestsWanted

#: Most requests of a search, the time for reading the log, and for the process.
MOST_REQUESTS: Final = 100
SEARCH_S: Final = 5
_PROCESS_S: Final = 30
#: How long a search waits for another one: it occupies a thread of the page.
_WAIT_S: Final = 2.0

_PREFIX: Final = "rotunda: "


class RequestSearch:
    """Searches the request log of a data directory."""

    def __init__(self, data_dir: Path) -> None:
        self._data_dir = data_dir
        self._one = threading.Lock()

    def search(self, wanted: RequestsWanted) -> RequestsFound:
        """Return the requests, with the notes of the command. Raises OSError."""
        arguments = ["requests", "--data-dir", str(self._data_dir), *_options(wanted)]
        limits = ["--json", f"--timeout={SEARCH_S}", f"--limit={MOST_REQUESTS}"]
        if not self._one.acquire(timeout=_WAIT_S):
            raise OSError("another viewer searches the request log: try again")
        try:
            done = subprocess.run(
                [sys.executable, "-m", "rotunda", *arguments, *limits],
                capture_output=True,
                text=True,
                timeout=_PROCESS_S,
                check=False,
            )
        except subprocess.TimeoutExpired:
            raise OSError(f"the search needs more than {_PROCESS_S} s") from None
        finally:
            self._one.release()
        notes = [line.removeprefix(_PREFIX) for line in done.stderr.splitlines()]
        if done.returncode:
            raise OSError("; ".join(notes) or f"the search ended with {done.returncode}")
        rows = json.loads(done.stdout)
        for row in rows:
            row["requestApiKeyName"] = text_of(row["requestApiKeyName"])
        return RequestsFound(rows, notes, shlex.join(["rotunda", *arguments]))


def _options(wanted: RequestsWanted) -> list[str]:
    options = [f"--since={_iso(wanted.since_ms)}"]
    if wanted.until_ms is not None:
        options.append(f"--until={_iso(wanted.until_ms)}")
    if wanted.slow:
        options.append("--slow")
    if wanted.slower_than_ms:
        options.append(f"--slower-than={wanted.slower_than_ms:g}")
    return options + [f"--{name}={pattern}" for name, pattern in wanted.patterns.items()]


def _iso(time_ms: int) -> str:
    return datetime.fromtimestamp(time_ms / 1000, UTC).isoformat(timespec="milliseconds").removesuffix("+00:00")
