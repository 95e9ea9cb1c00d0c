"""Small files in the file system of an output: local, HDFS or an object store, through Hadoop's own client.

Runs in the driver. Data is read and written by Spark; this is for manifests, summaries, charts and lists of files.
"""

from __future__ import annotations

import os
from contextlib import suppress
from fnmatch import fnmatch
from pathlib import Path
from typing import Any, NamedTuple
from uuid import uuid4

from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the field's name for it

from rotunda.spark.bounded import rows_of
from rotunda.spark.failures import JobFailed

#: Name prefixes of files and directories that are not data.
_HIDDEN = (".", "_")
_OBJECT_STORES = ("s3", "s3a", "s3n", "gs", "oss", "wasb", "wasbs")
#: Most files that the driver lists: two years of a dataset, a file a minute.
_MOST_FILES = 1_000_000
#: Attempts to list a directory whose files are deleted meanwhile.
_ATTEMPTS = 100


class Found(NamedTuple):
    """A file that matches a pattern; `content` is empty unless it was requested."""

    path: str
    size_bytes: int
    content: bytes = b""


class FileSystem:
    """A directory of small text files."""

    def __init__(self, spark: SparkSession, root: str) -> None:
        """Find the file system of a path or URI. Raises JobFailed for an unknown one."""
        # PySpark's access to Hadoop's file systems.
        context: Any = spark.sparkContext
        self._jvm = context._jvm
        self._spark = spark
        self.root = root.rstrip("/")
        try:
            self._root = self._jvm.org.apache.hadoop.fs.Path(root)
            self._files = self._root.getFileSystem(context._jsc.hadoopConfiguration())
        except Py4JJavaError as error:
            cause = error.java_exception.getMessage()
            raise JobFailed(f"{root} cannot be used: {cause}; Spark needs the jar of its file system") from None

    @property
    def local_path(self) -> Path | None:
        """The directory as a path of this machine, None for another file system."""
        uri = self._files.makeQualified(self._root).toUri()
        return Path(uri.getPath()) if uri.getScheme() == "file" else None

    def exists(self, name: str = ".") -> bool:
        """Return whether a file or directory exists."""
        return bool(self._files.exists(self._path(name)))

    def names(self, name: str = ".") -> list[str]:
        """Return the names in a directory, sorted; empty if it does not exist."""
        if not self.exists(name):
            return []
        return sorted(each.getPath().getName() for each in self._files.listStatus(self._path(name)))

    def find(self, pattern: str, dates: tuple[str, str] | None = None, *, contents: bool = False) -> list[Found]:
        """Return the files whose paths match a pattern `…/date=*/…`, or those of some dates, the last included.

        Spark lists and reads files that are not on this machine: with many parallel requests, which an object store
        needs.
        """
        local = self.local_path
        if local is not None:
            return _find(local, pattern.split("/"), dates, contents=contents)
        base, _, last = pattern.partition("/date=*/")
        files = self._spark.read.format("binaryFile").option("pathGlobFilter", last.rpartition("/")[2])
        found = files.option("ignoreMissingFiles", "true").load(f"{self.root}/{base}")
        if "date" not in found.columns:
            return []
        if dates is not None:
            found = found.where(F.col("date").cast("string").between(*dates))
        columns = ["path", "length", *(["content"] if contents else [])]
        return [Found(row[0], row[1], *map(bytes, row[2:])) for row in rows_of(found.select(*columns), _MOST_FILES)]

    def read(self, name: str) -> str:
        """Return the text of a file. Raises Py4JJavaError when it does not exist."""
        stream = self._files.open(self._path(name))
        try:
            return bytes(stream.readAllBytes()).decode()
        finally:
            stream.close()

    def write(self, name: str, text: str) -> None:
        """Write a text file under a hidden name and rename it: a reader gets the old one or the new one."""
        path = self._path(name)
        hidden = self._jvm.org.apache.hadoop.fs.Path(path.getParent(), f".{path.getName()}.{uuid4().hex}")
        self._put(hidden, text, overwrite=True)
        # Renaming replaces local files; HDFS requires deleting the old one first.
        if not self._files.rename(hidden, path):
            self._files.delete(path, False)
            self._files.rename(hidden, path)

    def create(self, name: str, text: str) -> bool:
        """Write a text file unless it exists; return whether it was created."""
        try:
            self._put(self._path(name), text, overwrite=False)
        except Py4JJavaError as error:
            if self.exists(name):
                return False
            raise error from None
        return True

    @property
    def renames_at_once(self) -> bool:
        """Whether renaming a directory is one step; in an object store it copies each file."""
        return self._files.makeQualified(self._root).toUri().getScheme() not in _OBJECT_STORES

    def make_directory(self, name: str) -> None:
        """Create a directory and its parents, if missing. Raises JobFailed."""
        path = self._path(name)
        try:
            is_made = self._files.mkdirs(path)
        except Py4JJavaError as error:
            raise JobFailed(f"directory {path} cannot be created: {error.java_exception.getMessage()}") from None
        if not is_made:
            raise JobFailed(f"directory {path} cannot be created: no right to do so, or a read-only file system")

    def rename(self, name: str, to: str) -> bool:
        """Rename a file or directory to a name that does not exist; return whether it was renamed."""
        return bool(self._files.rename(self._path(name), self._path(to)))

    def remove(self, name: str) -> None:
        """Remove a file or a directory with its content, if it exists."""
        self._files.delete(self._path(name), True)

    def _put(self, path: Any, text: str, *, overwrite: bool) -> None:
        stream = self._files.create(path, overwrite)
        try:
            stream.write(bytearray(text.encode()))
        finally:
            stream.close()

    def _path(self, name: str) -> Any:
        return self._root if name == "." else self._jvm.org.apache.hadoop.fs.Path(self._root, name)


def _find(directory: Path, patterns: list[str], dates: tuple[str, str] | None, *, contents: bool) -> list[Found]:
    """Return this machine's files that match the patterns, one for each step of their path."""
    pattern, *rest = patterns
    for _ in range(_ATTEMPTS):
        try:
            names = [name for name in os.listdir(directory) if fnmatch(name, pattern) and not name.startswith(_HIDDEN)]
        except FileNotFoundError:
            return []
        if pattern == "date=*" and dates is not None:
            names = [name for name in names if dates[0] <= name.removeprefix("date=") <= dates[1]]
        paths = [directory / name for name in names]
        if rest:
            return [each for path in paths for each in _find(path, rest, dates, contents=contents)]
        # A deleted file may have been replaced by others, under new names.
        with suppress(FileNotFoundError):
            return [Found(str(each), each.stat().st_size, each.read_bytes() if contents else b"") for each in paths]
    raise JobFailed(f"files of {directory} go as fast as they are listed, or are links to nothing; look there")
