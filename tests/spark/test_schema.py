"""The schemas that the jobs read with against those that the recorder writes with."""

import pytest
from pyspark.sql.types import StructField

from rotunda.broker.request_log.columns import DATASETS, FORMAT_VERSION, TIMESTAMP
from rotunda.spark.log import schema

NAMES = {"bool": "boolean", "int16": "smallint", "int32": "int", "int64": "bigint", TIMESTAMP: "timestamp"}


@pytest.mark.parametrize("name", DATASETS)
def test_a_schema_is_that_of_the_recorder(name: str) -> None:
    fields: list[StructField] = schema.SCHEMAS[name].fields
    declared = {column.name: NAMES.get(column.kind, column.kind) for column in DATASETS[name].columns}
    read = {field.name: field.dataType.simpleString() for field in fields if field.name not in schema.PARTITION_COLUMNS}
    assert declared.items() <= read.items()


def test_the_format_is_that_of_the_recorder() -> None:
    assert schema.FORMAT_VERSION == FORMAT_VERSION
