"""Fixtures of the tests of the Spark jobs: one session for all, because it needs seconds to start."""

import os
import warnings
from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from rotunda.spark.session import session
from tests.spark import class_archive

#: Of few rows each part is a task, and code that is compiled for a query takes longer than it runs.
FEW_ROWS = {
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
}


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """Yield a session on this machine."""
    os.environ["JAVA_TOOL_OPTIONS"] = class_archive.JAVA_OPTIONS
    with warnings.catch_warnings():
        # Caused by PySpark itself: its pandas warnings, and sockets that it leaves to the garbage collector.
        warnings.simplefilter("ignore")
        with session("tests", "local[2]") as running:
            for key, value in FEW_ROWS.items():
                running.conf.set(key, value)
            yield running
