"""Small files in whatever file system an output lies: local, HDFS or an object store, through Hadoop's own client.

Runs in the driver. Data goes through Spark; this is for manifests, summaries and charts.
"""

from __future__ import annotations

from typing import Any
from uuid import uuid4

from pyspark.sql import SparkSession


class Storage:
    """A directory of small text files."""

    def __init__(self, spark: SparkSession, root: str) -> None:
        # The way that PySpark has to Hadoop's file systems.
        context: Any = spark.sparkContext
        self._jvm = context._jvm
        self._root = self._jvm.org.apache.hadoop.fs.Path(root)
        self._files = self._root.getFileSystem(context._jsc.hadoopConfiguration())

    def exists(self, name: str = ".") -> bool:
        """Return whether a file or directory is there."""
        return bool(self._files.exists(self._path(name)))

    def names(self, name: str = ".") -> list[str]:
        """Return the names in a directory, sorted; none if it is not there."""
        if not self.exists(name):
            return []
        return sorted(each.getPath().getName() for each in self._files.listStatus(self._path(name)))

    def read(self, name: str) -> str:
        """Return the text of a file. Raises Py4JError when it is not there."""
        stream = self._files.open(self._path(name))
        try:
            return bytes(stream.readAllBytes()).decode()
        finally:
            stream.close()

    def write(self, name: str, text: str) -> None:
        """Write a text file under a hidden name and rename it: a reader meets the old one or the new one."""
        path = self._path(name)
        hidden = self._jvm.org.apache.hadoop.fs.Path(path.getParent(), f".{path.getName()}.{uuid4().hex}")
        stream = self._files.create(hidden, True)
        try:
            stream.write(bytearray(text.encode()))
        finally:
            stream.close()
        # Local files are replaced by the renaming itself; HDFS wants the old one out of the way.
        if not self._files.rename(hidden, path):
            self._files.delete(path, False)
            self._files.rename(hidden, path)

    def remove(self, name: str) -> None:
        """Remove a file or a directory with all that is in it, if it is there."""
        self._files.delete(self._path(name), True)

    def _path(self, name: str) -> Any:
        return self._root if name == "." else self._jvm.org.apache.hadoop.fs.Path(self._root, name)
