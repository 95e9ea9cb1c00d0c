"""Spark's loaded classes as a Java class archive: a process that maps that file starts in half the CPU time.

`python -m tests.spark.class_archive` makes it, once for each installation; `ops/test` runs that. Java ignores an
archive that is missing, or not of its own version and the same jars.
"""

import hashlib
import os
import shutil
import sys
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path
from tempfile import TemporaryDirectory

import pyspark
from pyspark import SparkContext

from rotunda.spark.__main__ import main
from tests.support.generated_log import random_requests, write

#: Code that runs once on a few rows is not worth the slower of Java's two compilers: it uses half of all the time.
_QUICK = "-XX:TieredStopAtLevel=1 -Xlog:disable"


def _place() -> Path:
    java = Path(shutil.which("java") or "java").resolve()
    made_of = f"{pyspark.__file__} {pyspark.__version__} {java} {java.stat().st_mtime_ns if java.exists() else 0}"
    return Path(sys.prefix, f"spark-{hashlib.sha256(made_of.encode()).hexdigest()[:12]}.jsa")


ARCHIVE = _place()
#: Options of a Java that is to start quickly and run shortly.
JAVA_OPTIONS = f"{_QUICK} -XX:SharedArchiveFile={ARCHIVE}"


def make() -> None:
    """Make the archive, unless it exists, of the classes that a rollup loads: Java writes it at its exit."""
    if ARCHIVE.exists():
        return
    for old in ARCHIVE.parent.glob("spark-*.jsa"):
        old.unlink()
    unfinished = ARCHIVE.with_suffix(".new")
    os.environ["JAVA_TOOL_OPTIONS"] = f"{_QUICK} -XX:ArchiveClassesAtExit={unfinished}"
    with TemporaryDirectory() as directory, redirect_stdout(StringIO()):
        write(Path(directory, "log"), "requests", random_requests(1, 100))
        where = ["--input", f"{directory}/log", "--output", f"{directory}/out", "--master", "local[2]"]
        assert main(["rollup", *where, "--from", "2026-03-01"]) == 0
    gateway = SparkContext._gateway  # type: ignore[attr-defined]
    gateway.shutdown()
    gateway.proc.stdin.close()
    gateway.proc.wait()
    unfinished.rename(ARCHIVE)


if __name__ == "__main__":
    make()
