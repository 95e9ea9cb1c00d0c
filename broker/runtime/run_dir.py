"""The run directory: a running broker registers there, so that `status` and `stop` find it.

Written by the supervisor, read by the command line. It contains one JSON file that names the instance, and a lock that
is held as long as any process of the broker runs. The directory is private to its owner (0700), because the file's
writer decides which process `stop` signals. Nothing else in the broker depends on it.
"""

from __future__ import annotations

import fcntl
import json
import os
import select
import stat
import tempfile
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import MISSING, asdict, dataclass, fields, replace
from pathlib import Path

from rotunda.broker.clock import SystemClock
from rotunda.broker.errors import BootFailed, UsageError
from rotunda.shm.layout import LAYOUT_VERSION
from rotunda.shm.segment import start_ticks

RECORD_NAME = "broker.json"
LOG_NAME = "broker.log"
_LOCK_NAME = "lock"
NOT_RUNNING_EXIT_CODE = 3
_IN_USE_EXIT_CODE = 4
_MODE = 0o700
#: How long the lock of a broker with a dead supervisor may still be held by its dying children.
_DYING_MS = 3000
_LOOK_AGAIN_S = 0.01

STARTING, READY, STOPPING, FAILED = "starting", "ready", "stopping", "failed"


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRecord:
    """The file's contents. `bootstrap` is host:port, comma-separated; `reason` is why a broker `failed`.

    It started with `processors` and `handlers`; shared memory is laid out for the maximum of both.

    `status_url` is empty without a status page, and `control_plane` (host:port) without a control plane; it is not
    among the addresses of `bootstrap`. `local` are the addresses by which commands on this machine reach the listeners:
    the addresses advertised to clients may not lead here. With `is_native` the compiled module is in use. Commands
    authenticate by `client_properties`, a file; empty: they do not.

    Fields are only added, each with a default that is right for a broker of an earlier version.
    """

    instance: str
    pid: int
    start_ticks: int
    state: str
    bootstrap: str
    data_dir: str
    run_dir: str
    processors: int
    most_processors: int
    handlers: int
    most_handlers: int
    max_partitions: int
    started_ms: int
    layout_version: int = LAYOUT_VERSION
    reason: str = ""
    status_url: str = ""
    control_plane: str = ""
    local: str = ""
    is_native: bool = False
    client_properties: str = ""

    @property
    def is_alive(self) -> bool:
        """Whether the supervisor that wrote the record still runs."""
        return is_running(self.pid, self.start_ticks)

    def with_state(self, state: str, reason: str = "") -> RunRecord:
        """Return the record in another state."""
        return replace(self, state=state, reason=reason)


def default_path(environment: Mapping[str, str]) -> Path:
    """Return the default directory: ROTUNDA_RUN_DIR, or one for this user."""
    named = environment.get("ROTUNDA_RUN_DIR")
    if named:
        return Path(named)
    runtime = environment.get("XDG_RUNTIME_DIR")
    return Path(runtime) / "rotunda" if runtime else Path(tempfile.gettempdir()) / f"rotunda-{os.getuid()}"


def make(path: Path) -> None:
    """Create the directory with mode 0700. Raises UsageError if it exists and belongs to another user; OSError."""
    try:
        path.mkdir(mode=_MODE, parents=True, exist_ok=True)
        found = path.lstat()
    except FileExistsError:
        raise UsageError(f"run directory {path} is not a directory; set another one with --run-dir") from None
    except OSError as failure:
        raise UsageError(f"run directory {path}: {failure.strerror}") from failure
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid():
        raise UsageError(f"run directory {path} does not belong to this user")
    if stat.S_IMODE(found.st_mode) != _MODE:
        path.chmod(_MODE)


def lock(path: Path) -> int:
    """Acquire the lock and return its descriptor; it is held until every process that inherits it has ended.

    Raises BootFailed with exit code 4 if a broker runs there.
    """
    fd = os.open(path / _LOCK_NAME, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)

    def is_dying() -> bool:
        record = read(path)
        return record is not None and not record.is_alive

    if _flock(fd, is_dying):
        return fd
    os.close(fd)
    record = read(path)
    owner = f"pid {record.pid}, {record.bootstrap}" if record else "starting"
    raise BootFailed(
        f"a broker with run directory {path} is already running ({owner}); stop it or use --run-dir", _IN_USE_EXIT_CODE
    )


def outlast_children(data_dir: Path) -> int:
    """Lock the data directory itself, and return the descriptor; every child inherits the lock.

    The caller is the only supervisor there. Children of a killed one may still be dying, and nothing may be read while
    they could still write. Raises BootFailed with exit code 4 if they stay.
    """
    fd = os.open(data_dir, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    if _flock(fd, lambda: True):
        return fd
    os.close(fd)
    raise BootFailed(f"data directory {data_dir} is still in use by processes of an earlier broker", _IN_USE_EXIT_CODE)


def _flock(fd: int, may_wait: Callable[[], bool]) -> bool:
    """Acquire the lock, waiting for dying holders while `may_wait` returns True; return whether it was acquired."""
    clock = SystemClock()
    deadline_ns = clock.monotonic_ns() + _DYING_MS * 1_000_000
    while True:
        with suppress(BlockingIOError):
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        if not may_wait() or clock.monotonic_ns() >= deadline_ns:
            return False
        select.select((), (), (), _LOOK_AGAIN_S)


def write(path: Path, record: RunRecord) -> None:
    """Replace the file in one step: a reader sees the old record or the new one."""
    partial = path / f".{RECORD_NAME}.{record.pid}"
    partial.write_text(json.dumps(asdict(record), indent=1) + "\n", encoding="utf-8")
    partial.replace(path / RECORD_NAME)


def read(path: Path) -> RunRecord | None:
    """Return the record, or None if there is none (or none that this version can read)."""
    try:
        defaults = {field.name: field.default for field in fields(RunRecord) if field.default is not MISSING}
        found = {**defaults, **json.loads((path / RECORD_NAME).read_text(encoding="utf-8"))}
        if any(type(found[field.name]).__name__ != field.type for field in fields(RunRecord)):
            return None
        return RunRecord(**{field.name: found[field.name] for field in fields(RunRecord)}) if found["pid"] > 0 else None
    except (OSError, ValueError, KeyError, TypeError):
        return None


def not_running(path: str | Path, otherwise: str = "") -> BootFailed:
    """Return the error with exit code 3 of a command that needs a running broker; `otherwise` is another way."""
    advice = f"start one with `rotunda start`{f', {otherwise}' if otherwise else ''}"
    return BootFailed(f"no broker runs with run directory {path}: {advice}", NOT_RUNNING_EXIT_CODE)


def check_readable(path: Path) -> None:
    """Check that no broker with a damaged record runs there. Raises BootFailed if one does.

    Called after `read` has returned None: reporting that no broker runs would then be wrong.
    """
    if not (path / RECORD_NAME).exists() or read(path) is not None:
        return
    pid = _holder(path / _LOCK_NAME)
    if pid:
        raise BootFailed(
            f"{path / RECORD_NAME} cannot be read: it is damaged, or of another version. Its broker still runs as "
            f"pid {pid}. To repair it, stop that broker (kill -TERM {pid}) and start it again"
        )


def _holder(path: Path) -> int:
    """Return the process that holds a `flock` lock; 0 if it is free."""
    try:
        found = path.stat()
        locks = Path("/proc/locks").read_text(encoding="ascii").splitlines()
    except OSError:
        return 0
    place = f"{os.major(found.st_dev):02x}:{os.minor(found.st_dev):02x}:{found.st_ino}"
    held = (line.split() for line in locks)
    return next((int(each[4]) for each in held if len(each) > 5 and each[1] == "FLOCK" and each[5] == place), 0)


def is_running(pid: int, ticks: int) -> bool:
    """Whether the process with this pid and start time runs: pids are reused, start ticks distinguish them.

    A dead process that waits to be reaped does not run.
    """
    try:
        stat = Path(f"/proc/{pid}/stat").read_bytes()
    except OSError:
        return False
    return start_ticks(pid) == ticks and not stat[stat.rindex(b")") + 2 :].startswith(b"Z")


def remove(path: Path) -> None:
    """Remove the file; the directory stays, since another program may have created it."""
    (path / RECORD_NAME).unlink(missing_ok=True)
