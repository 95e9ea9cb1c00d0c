"""The Spark session: the only place that configures Spark.

The caller selects where a job runs: a master given on the command line, or spark-submit's setting. The settings here
hold everywhere: times are UTC, and an output replaces only the partitions that it has rows for.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from rotunda.spark.failures import JobFailed

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

OLDEST_JAVA = 17

#: For an aggregation of many groups by longs alone: its map has columns instead of rows, and room for several hours of
#: histograms in one task. A task reads so little of the input that its rows are sorted in memory.
NARROW_GROUPS = {
    "spark.sql.files.maxPartitionBytes": "64m",
    "spark.sql.codegen.aggregate.map.vectorized.enable": "true",
    "spark.sql.codegen.aggregate.fastHashMap.capacityBit": "20",
}

_JAVA_OPTIONS = "spark.driver.extraJavaOptions"
#: The slower of Java's two compilers is not used.
_QUICK_COMPILER = " -XX:TieredStopAtLevel=1"

_SETTINGS = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.sources.partitionOverwriteMode": "dynamic",
    "spark.ui.showConsoleProgress": "false",
    # The recorder's type: the default is a type of 96 bits that other readers have abandoned.
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    # A report of a range reads many small columns of few files: one task per processor suffices.
    "spark.sql.adaptive.enabled": "true",
    # Keys in an aggregation's generated map, as a power of two: an hour of histograms has more than the default of 16,
    # and each row of a key without a place is looked up twice.
    "spark.sql.codegen.aggregate.fastHashMap.capacityBit": "18",
    # An overflow check for each sum and product of a row is a quarter of the counting time. Both are longs, which hold
    # more bytes and microseconds than a log has, and every division checks its divisor.
    "spark.sql.ansi.enabled": "false",
}
#: Settings for a driver that this module starts, wherever its workers are.
_DRIVER_SETTINGS = {
    "spark.driver.memory": "2g",
    "spark.ui.enabled": "false",
    "spark.log.level": "ERROR",
    # Garbage of rows is short-lived: on two processors the other collectors' threads and barriers cost more.
    _JAVA_OPTIONS: "-XX:+UseSerialGC",
}
#: Settings for workers on this machine.
_LOCAL_SETTINGS = {
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    # Write no checksum files for the outputs.
    "spark.hadoop.fs.file.impl": "org.apache.hadoop.fs.RawLocalFileSystem",
    # The files of a range are named one by one, and looked up without a Spark job.
    "spark.sql.sources.parallelPartitionDiscovery.threshold": "100000",
    # Shuffles have this number of partitions, each written and read separately: the default is for clusters.
    "spark.sql.shuffle.partitions": "16",
}


def check_java() -> None:
    """Raise JobFailed unless a Java that Spark supports is installed: the check starts Java once."""
    home = os.environ.get("JAVA_HOME")
    java = str(Path(home, "bin", "java")) if home else shutil.which("java")
    advice = f"Spark needs Java {OLDEST_JAVA} or later: install a JRE, or set JAVA_HOME"
    if java is None or not Path(java).exists():
        raise JobFailed(f"no Java found{f' in JAVA_HOME={home}' if home else ''}; {advice}")
    said = subprocess.run([java, "-version"], capture_output=True, text=True, check=False).stderr
    version = re.search(r'version "(?:1\.)?(\d+)', said)
    if version is None or int(version[1]) < OLDEST_JAVA:
        raise JobFailed(f"{java} is {said.splitlines()[0] if said else 'no Java'}; {advice}")


@contextmanager
def session(name: str, master: str | None, *, is_brief: bool = False) -> Iterator[SparkSession]:
    """Yield the session of one job and stop it; `master` None uses spark-submit's setting.

    A job that `is_brief` reads so little that compiling code for it would cost more than it saves.
    Java's output on stderr during its start is held back, and shown only when the start fails. Raises JobFailed.
    """
    # PySpark's advice on versions of pandas, which no job calls.
    warnings.filterwarnings("ignore", category=FutureWarning, module="pyspark")
    from pyspark.errors import PySparkException  # noqa: PLC0415 - takes a second, which complaints need not wait for
    from pyspark.sql import SparkSession  # noqa: PLC0415

    builder = SparkSession.builder.appName(f"rotunda {name}")
    settings = _SETTINGS | (_DRIVER_SETTINGS if master else {})
    if master and master.startswith("local"):
        settings |= _LOCAL_SETTINGS
        # Workers in Python have this interpreter's packages.
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
        if is_brief:
            settings[_JAVA_OPTIONS] += _QUICK_COMPILER
    for key, value in settings.items():
        builder = builder.config(key, value)
    if master:
        builder = builder.master(master)
    with _quiet_start() as said:
        try:
            spark = builder.getOrCreate()
        except (PySparkException, OSError) as error:
            check_java()
            raise JobFailed(f"Spark does not start: {error}; {said()}") from error
    try:
        yield spark
    finally:
        with suppress(Exception):
            spark.stop()


@contextmanager
def configured(spark: SparkSession, settings: Mapping[str, str]) -> Iterator[None]:
    """Apply settings to queries started within the block, and restore the old ones."""
    before = {key: spark.conf.get(key) for key in settings}
    for key, value in settings.items():
        spark.conf.set(key, value)
    try:
        yield
    finally:
        for key in settings:
            spark.conf.set(key, str(before[key]))


@contextmanager
def _quiet_start() -> Iterator[Callable[[], str]]:
    """Redirect the stderr that Java inherits into a file; yield a function that returns its content."""
    with tempfile.TemporaryFile("w+", errors="replace") as kept:
        sys.stderr.flush()
        before = os.dup(2)
        os.dup2(kept.fileno(), 2)

        def said() -> str:
            kept.seek(0)
            return " ".join(kept.read().split())[-500:]

        try:
            yield said
        finally:
            os.dup2(before, 2)
            os.close(before)
