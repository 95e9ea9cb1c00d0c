"""The broker's disk, which can be filled up: a small file system in memory, which needs the right to mount it."""

import errno
import os
import shutil
import subprocess
from contextlib import suppress
from pathlib import Path

CHUNK_BYTES = 16 << 20
SMALLEST_CHUNK_BYTES = 4096


class Disk:
    """The file system of the data, mounted on a directory."""

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
