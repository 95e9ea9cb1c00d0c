"""The data directory as a whole: its owner, its lock, its clean-shutdown mark.

The supervisor calls this before it forks and after all processes have stopped. File names and formats are Kafka's, so
that each program recognises the other's directories and neither opens a directory that is in use.
"""

import base64
import fcntl
import json
import logging
import os
import re
import shlex
import shutil
import stat
import uuid
from pathlib import Path

from rotunda.broker.errors import BootFailed
from rotunda.broker.log.checkpoints import replace_file, set_aside
from rotunda.broker.log.segments.segment_files import DELETE_SUFFIX, read_file, remove_if_there

META_PROPERTIES_FILE = "meta.properties"
CLEAN_SHUTDOWN_FILE = ".kafka_cleanshutdown"
LOCK_FILE = ".lock"

#: Newest supported version of meta.properties: cluster.id, node.id, directory.id (KIP-631, KIP-858).
META_PROPERTIES_VERSION = 1

#: Kafka's ids have 22 characters; other lengths were written by hand.
_ID = re.compile(r"[A-Za-z0-9_-]+")

EXIT_IN_USE = 4
EXIT_NEWER_VERSION = 5

_log = logging.getLogger(__name__)


class DataDirInUse(BootFailed):
    """Another broker uses the data directory."""

    def __init__(self, path: Path) -> None:
        super().__init__(f"data directory {path} is in use by another broker", EXIT_IN_USE)


class DataFromNewerVersion(BootFailed):
    """The data directory was written by a newer version, in an unsupported format."""

    def __init__(self, path: Path, version: str) -> None:
        super().__init__(
            f"{path} has version {version}; this version understands up to {META_PROPERTIES_VERSION}",
            EXIT_NEWER_VERSION,
        )


class DirectoryIdentity:
    """The directory at a path when this object was created, to detect that it was removed or replaced."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._found = self._look()

    def is_present(self) -> bool:
        """Return whether the path still refers to that directory."""
        return self._look() == self._found

    def _look(self) -> tuple[int, int] | None:
        try:
            found = self._path.stat()
        except OSError:
            return None
        return found.st_dev, found.st_ino


def random_uuid() -> str:
    """Return a random id in Kafka's text form: 22 characters, never beginning with a dash."""
    while True:
        text = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
        if not text.startswith("-"):
            return text


def prepare_data_dir(path: Path, node_id: int) -> str:
    """Prepare the data directory and return its cluster id; a new directory is assigned a new one.

    Raises DataFromNewerVersion, BootFailed when it belongs to another node, OSError when it cannot be written.
    """
    path.mkdir(parents=True, exist_ok=True)
    properties = _read_properties(path / META_PROPERTIES_FILE)
    _check(path, properties, node_id)
    complete = {
        "cluster.id": properties.get("cluster.id") or random_uuid(),
        "directory.id": properties.get("directory.id") or random_uuid(),
        "node.id": str(node_id),
        "version": str(META_PROPERTIES_VERSION),
    }
    if complete != properties:
        lines = "".join(f"{name}={value}\n" for name, value in complete.items())
        replace_file(path / META_PROPERTIES_FILE, lines)
    _remove_doomed(path)
    return complete["cluster.id"]


def _read_properties(path: Path) -> dict[str, str]:
    """Return the properties in the file; none if it is missing or unusable. An unusable file is renamed.

    Raises OSError when it cannot be renamed.
    """
    try:
        lines = read_file(path).decode().splitlines()
    except FileNotFoundError:
        return {}
    except (IsADirectoryError, UnicodeDecodeError) as error:
        complaint = str(error)
        lines = []
    else:
        complaint = "" if any(line.strip() for line in lines) else "empty file"
    pairs = (line.split("=", 1) for line in lines if "=" in line and not line.startswith("#"))
    properties = {name.strip(): value.strip() for name, value in pairs}
    if not complaint and not properties.keys() & {"node.id", "broker.id"}:
        complaint = "no node.id"
    if not complaint and not _ID.fullmatch(properties.get("cluster.id", "")):
        complaint = f"cluster.id is {properties.get('cluster.id', '')!r}"
    if complaint:
        _log.warning(
            "cannot use %s: %s. Creating a new one, with a new cluster id and this node's id; the data stays. To keep "
            "the old cluster id, stop the broker and write it into the file",
            path,
            complaint,
        )
        set_aside(path)
        return {}
    return properties


def _check(path: Path, properties: dict[str, str], node_id: int) -> None:
    version = properties.get("version", str(META_PROPERTIES_VERSION))
    if not version.isdecimal() or int(version) > META_PROPERTIES_VERSION:
        raise DataFromNewerVersion(path / META_PROPERTIES_FILE, version)
    stored = properties.get("node.id", properties.get("broker.id", str(node_id)))
    if stored != str(node_id):
        raise BootFailed(
            f"data directory {path} belongs to node {stored}; this broker is node {node_id}. Set node.id={stored} to "
            f"use it, or correct {path / META_PROPERTIES_FILE}"
        )


def _remove_doomed(path: Path) -> None:
    """Finish interrupted deletions of partitions."""
    for entry in path.iterdir():
        if entry.name.endswith(DELETE_SUFFIX) and entry.is_dir():
            _log.info("Removing %s, left over from a deletion", entry)
            shutil.rmtree(entry)


def want_of_privacy(path: Path) -> str | None:
    """Return a warning if users outside the directory's group can read or enter it. Raises OSError."""
    directory = path.resolve()
    can_reach = all(parent.stat().st_mode & stat.S_IXOTH for parent in directory.parents)
    mode = stat.S_IMODE(directory.stat().st_mode)
    if not (can_reach and mode & (stat.S_IROTH | stat.S_IXOTH)):
        return None
    return (
        f"data directory {path} has mode {mode:04o}: every user of this machine can read its records and request log. "
        f"Run: chmod o-rwx {shlex.quote(str(directory))}"
    )


def lock_data_dir(path: Path) -> int:
    """Lock the directory for this process and return the descriptor; closing it releases the lock.

    Children do not inherit the lock: a POSIX lock belongs to one process. Raises DataDirInUse, OSError.
    """
    fd = os.open(path / LOCK_FILE, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o644)
    try:
        fcntl.lockf(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except (BlockingIOError, PermissionError) as error:
        os.close(fd)
        raise DataDirInUse(path) from error
    return fd


def remove_clean_shutdown_mark(path: Path) -> bool:
    """Return whether the last run was shut down cleanly, and remove the mark, so that a crash leaves none."""
    mark = path / CLEAN_SHUTDOWN_FILE
    was_clean = mark.exists()
    remove_if_there(mark)
    return was_clean


def write_clean_shutdown_mark(path: Path) -> None:
    """Record that every log was closed cleanly. Without the mark the next start checks the logs."""
    try:
        replace_file(path / CLEAN_SHUTDOWN_FILE, json.dumps({"version": 0, "brokerEpoch": -1}))
    except OSError as error:
        _log.warning("cannot mark the data directory as cleanly closed: %s", error)
