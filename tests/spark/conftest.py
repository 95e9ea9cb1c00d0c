"""Fixtures of the tests of the Spark jobs: one session for all, because it needs seconds to start."""

import os
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from pyspark.sql import SparkSession

from rotunda.spark.session import session
from tests.spark import class_archive

#: Of few rows each part is a task. Code compiled for a query, a new plan after each stage (which would join the two
#: parts), and Spark's check of each plan take longer than the query. Jobs that tests start as processes have all three.
FEW_ROWS = {
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.lightweightPlanChangeValidation": "false",
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


@pytest.fixture
def mounted(spark: SparkSession, tmp_path: Path) -> str:
    """Return the URI of the temporary directory in a file system of its own."""
    table = f"m{uuid4().hex}"
    context: Any = spark.sparkContext
    context._jsc.hadoopConfiguration().set(f"fs.viewfs.mounttable.{table}.link./data", f"file://{tmp_path}")
    return f"viewfs://{table}/data"
