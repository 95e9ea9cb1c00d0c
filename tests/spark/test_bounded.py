"""Rows that reach the driver: a bound in every call that collects them, and no Python between Spark and rows.

The export of topics alone reads its input, segment files, in Python.
"""

import ast
import re
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import rotunda.spark as jobs
from rotunda.spark import bounded
from rotunda.spark.bounded import rows_of
from rotunda.spark.failures import JobFailed
from rotunda.spark.jobs import export

#: Calls that collect all rows in the driver, and those for which Spark runs Python, row by row or in batches.
UNBOUNDED = re.compile(
    "collect|toPandas|toArrow|toLocalIterator|rdd|foreach.*|pandas_api|.*udt?f|(?:map|apply|cogroup)(?:In.*)?"
)


def test_no_job_collects_but_by_the_bounded_function_and_none_has_python_on_the_row_path() -> None:
    found = [
        f"{path.name}: {ast.unparse(node)}"
        for path in sorted(Path(jobs.__path__[0]).rglob("*.py"))
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Attribute) and UNBOUNDED.fullmatch(node.attr)
    ]
    assert found == [
        f"{Path(bounded.__file__).name}: frame.limit(most + 1).collect",
        f"{Path(export.__file__).name}: numbers.mapInArrow",
    ]


def test_no_more_rows_are_brought_than_there_can_be(spark: SparkSession) -> None:
    assert [row.id for row in rows_of(spark.range(10), 10)] == list(range(10))
    # Had it no limit, this would have no end.
    with pytest.raises(JobFailed, match="more than 10 rows of id"):
        rows_of(spark.range(10**15), 10)
