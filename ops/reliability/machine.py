"""Faults of the machine: its disk fills up and is freed again, the whole broker ends and is started again."""

from __future__ import annotations

import errno
import os
import random
import shutil
import subprocess
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from ops.reliability.attacks import Battlefield

CHUNK_BYTES = 16 << 20
SMALLEST_CHUNK_BYTES = 4096
LONGEST_FULL_SECONDS = 4.0
LONGEST_DOWN_SECONDS = 1.0


class Disk:
    """A file system of its own for the data: a small one in memory, which needs the right to mount it."""

    def __init__(self, directory: Path, megabytes: int) -> None:
        self.directory, self._megabytes = directory, megabytes
        self.is_mounted = False
        self._balloon = directory / "balloon"

    def mount(self) -> str:
        """Mount it; return the reason if that failed, or nothing."""
        self.directory.mkdir(parents=True, exist_ok=True)
        command = ["mount", "-t", "tmpfs", "-o", f"size={self._megabytes}m", "tmpfs", str(self.directory)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        self.is_mounted = done.returncode == 0
        return done.stderr.strip()

    def unmount(self, *, keeps_data: bool) -> None:
        """Unmount it with all its content, or leave a copy in its place."""
        if not self.is_mounted:
            return
        copy = self.directory.with_name("copy")
        if keeps_data:
            shutil.copytree(self.directory, copy)
        subprocess.run(["umount", "--lazy", str(self.directory)], check=False)
        self.is_mounted = False
        if keeps_data:
            self.directory.rmdir()
            copy.rename(self.directory)

    def fill(self) -> None:
        """Fill the free space with a file that nothing else uses."""
        with self._balloon.open("wb") as balloon:
            chunk, size = CHUNK_BYTES, 0
            while chunk >= SMALLEST_CHUNK_BYTES:
                try:
                    os.posix_fallocate(balloon.fileno(), size, chunk)
                    size += chunk
                except OSError as failure:
                    if failure.errno != errno.ENOSPC:
                        raise
                    chunk //= 2

    def free(self) -> None:
        with suppress(FileNotFoundError):
            self._balloon.unlink()


class Filling:
    """Leaves the broker no room for some seconds."""

    def __init__(self, field: Battlefield, chance: random.Random, disk: Disk) -> None:
        self._field, self._chance, self._disk = field, chance, disk

    def __call__(self) -> None:
        with self._field.journal.window("disk full"):
            try:
                self._disk.fill()
                self._field.ended.wait(self._chance.uniform(0.5, LONGEST_FULL_SECONDS))
            finally:
                self._disk.free()


class Restarting:
    """Ends the whole broker, in order or not, and starts it again on the same data."""

    def __init__(self, field: Battlefield, chance: random.Random, changed: Callable[[], None]) -> None:
        self._field, self._chance, self._changed = field, chance, changed

    def __call__(self) -> None:
        broker = self._field.broker
        is_crash = self._chance.random() < 1 / 2
        with self._field.journal.window("crash of all" if is_crash else "restart"):
            if is_crash:
                broker.kill()
            else:
                broker.terminate()
            time.sleep(self._chance.uniform(0, LONGEST_DOWN_SECONDS))
            broker.start()
            self._changed()
