"""Small files in whatever file system an output lies: local, HDFS or an object store, through Hadoop's own client.

Runs in the driver. Data goes through Spark; this is for manifests, summaries, charts and lists of files.
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

#: How names of files and directories begin that are not data.
_HIDDEN = (".", "_")
#: How many files the driver lists: of a dataset those of two years, a file a minute.
_MOST_FILES = 1_000_000
#: How often a directory is listed that files go from.
_ATTEMPTS = 100


class Found(NamedTuple):
    """A file that a pattern names; `content` is empty unless it was asked for."""

    path: str
    size_bytes: int
    content: bytes = b""


class Storage:
    """A directory of small text files."""

    def __init__(self, spark: SparkSession, root: str) -> None:
        # The way that PySpark has to Hadoop's file systems.
        context: Any = spark.sparkContext
        self._jvm = context._jvm
        self._spark = spark
        self.root = root.rstrip("/")
        self._root = self._jvm.org.apache.hadoop.fs.Path(root)
        self._files = self._root.getFileSystem(context._jsc.hadoopConfiguration())

    @property
    def local_path(self) -> Path | None:
        """The directory as a path of this machine, None when it is elsewhere."""
        uri = self._files.makeQualified(self._root).toUri()
        return Path(uri.getPath()) if uri.getScheme() == "file" else None

    def exists(self, name: str = ".") -> bool:
        """Return whether a file or directory is there."""
        return bool(self._files.exists(self._path(name)))

    def names(self, name: str = ".") -> list[str]:
        """Return the names in a directory, sorted; none if it is not there."""
        if not self.exists(name):
            return []
        return sorted(each.getPath().getName() for each in self._files.listStatus(self._path(name)))

    def find(self, pattern: str, dates: tuple[str, str] | None = None, *, contents: bool = False) -> list[Found]:
        """Return the files whose paths have a pattern `…/date=*/…`, or those of some dates, the last included.

        Spark lists and reads what is not on this machine: with many requests at once, which an object store wants.
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
        """Return the text of a file. Raises Py4JJavaError when it is not there."""
        stream = self._files.open(self._path(name))
        try:
            return bytes(stream.readAllBytes()).decode()
        finally:
            stream.close()

    def write(self, name: str, text: str) -> None:
        """Write a text file under a hidden name and rename it: a reader meets the old one or the new one."""
        path = self._path(name)
        hidden = self._jvm.org.apache.hadoop.fs.Path(path.getParent(), f".{path.getName()}.{uuid4().hex}")
        self._put(hidden, text, overwrite=True)
        # Local files are replaced by the renaming itself; HDFS wants the old one out of the way.
        if not self._files.rename(hidden, path):
            self._files.delete(path, False)
            self._files.rename(hidden, path)

    def create(self, name: str, text: str) -> bool:
        """Write a text file unless there is one of that name; return whether there was none."""
        try:
            self._put(self._path(name), text, overwrite=False)
        except Py4JJavaError as error:
            if self.exists(name):
                return False
            raise error from None
        return True

    def remove(self, name: str) -> None:
        """Remove a file or a directory with all that is in it, if it is there."""
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
    """Return the files of this machine that one pattern for each step of their path names."""
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
        # A file that has gone may have others in its place, by names that were not there.
        with suppress(FileNotFoundError):
            return [Found(str(each), each.stat().st_size, each.read_bytes() if contents else b"") for each in paths]
    raise JobFailed(f"files of {directory} go as fast as they are listed, or are links to nothing; look there")
