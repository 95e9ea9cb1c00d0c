"""Converts columns to Arrow and writes them as Parquet files, by arro3.

Runs in the recorder; readers use the schemas. Strings are passed by code, as indexes into a short list.
"""

from __future__ import annotations

import io
import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

import numpy as np
from arro3.core import Array, ChunkedArray, DataType, Field, RecordBatch, Schema, Table
from arro3.io import read_parquet, write_parquet
from numpy.typing import NDArray

from rotunda.broker.request_log.columns import BOOL, DOUBLE, INT16, INT32, INT64, STRING, TIMESTAMP, Dataset
from rotunda.broker.request_log.part_files import HIDDEN, UNFINISHED
from rotunda.broker.request_log.values import Coded, Nullable, Values

_TYPES = {
    TIMESTAMP: DataType.timestamp("us", tz="UTC"),
    STRING: DataType.string(),
    BOOL: DataType.bool(),
    INT16: DataType.int16(),
    INT32: DataType.int32(),
    INT64: DataType.int64(),
    DOUBLE: DataType.float64(),
}
_NUMPY = {TIMESTAMP: "i8", BOOL: "?", INT16: "i2", INT32: "i4", INT64: "i8", DOUBLE: "f8"}

#: Times and durations are smallest as differences. Other numbers are nearly always the same, or as good as random: zstd
#: compresses them, and a dictionary first costs more than it saves.
_DIFFERING = (TIMESTAMP, INT64)


def schema_of(dataset: Dataset) -> Schema:
    """Return a dataset's schema."""
    return Schema([Field(column.name, _TYPES[column.kind], nullable=column.nullable) for column in dataset.columns])


def batch_of(dataset: Dataset, values: Mapping[str, Values]) -> RecordBatch:
    """Return a batch of a dataset from its columns' values. KeyError when one is missing."""
    arrays = [_array(values[column.name], column.kind) for column in dataset.columns]
    return RecordBatch.from_arrays(arrays, schema=schema_of(dataset))


def _array(values: Values, kind: str) -> Array:
    if isinstance(values, Coded):
        return Array(values.values, _TYPES[kind]).take(_numbers(values.codes, "u4"))
    if isinstance(values, Nullable):
        given = values.values
        with_null = ChunkedArray([_numbers(given, _NUMPY[kind]), Array([None], _stored(kind))]).combine_chunks()
        places = np.where(values.missing, len(given), np.arange(len(given)))
        return with_null.take(_numbers(places, "u4")).cast(_TYPES[kind])
    if isinstance(values, list):
        return Array(values, _stored(kind)).cast(_TYPES[kind])
    return _numbers(values, _NUMPY[kind]).cast(_TYPES[kind])


def _stored(kind: str) -> DataType:
    return DataType.int64() if kind == TIMESTAMP else _TYPES[kind]


def _numbers(values: NDArray[np.generic], kind: str) -> Array:
    return Array.from_numpy(np.ascontiguousarray(values.astype(kind, copy=False)))


class OpenPart:
    """A file in progress. Its rows are in memory until it is finished."""

    def __init__(self, directory: Path, name: str, dataset: Dataset) -> None:
        self._directory = directory
        self._name = name
        self._dataset = dataset
        self._batches: list[RecordBatch] = []

    @property
    def size_bytes(self) -> int:
        """Bytes of memory that the rows occupy."""
        return sum(batch.nbytes for batch in self._batches)

    @property
    def rows(self) -> int:
        """Number of rows."""
        return sum(batch.num_rows for batch in self._batches)

    def add(self, batch: RecordBatch) -> None:
        """Add rows."""
        self._batches.append(batch)

    def finish(self) -> None:
        """Write the file, make it durable and visible. Raises OSError; then it does not exist."""
        publish(self._directory, self._name, encoded(self._dataset, self._batches))


def encoded(dataset: Dataset, batches: Sequence[RecordBatch]) -> memoryview:
    """Return the bytes of a file. arro3 panics when a write fails, so that it writes to memory."""
    columns = dataset.columns
    content = io.BytesIO()
    write_parquet(
        Table.from_batches(batches, schema=schema_of(dataset)),
        content,
        compression="zstd(1)",
        # Readers get the types from the file's own schema; Arrow's would only repeat it.
        skip_arrow_metadata=True,
        column_dictionary_enabled={column.name: column.kind == STRING for column in columns},
        column_encoding={column.name: "delta_binary_packed" for column in columns if column.kind in _DIFFERING},
        writer_version="parquet_2_0",
    )
    return content.getbuffer()


def decoded(dataset: Dataset, content: bytes) -> list[RecordBatch]:
    """Return the batches of a file's bytes, which must be undamaged. Columns that an older file lacks are null."""
    schema = schema_of(dataset)
    return [
        RecordBatch.from_arrays(
            [
                batch[column.name].cast(_TYPES[column.kind])
                if column.name in batch.column_names
                else Array([None] * batch.num_rows, _TYPES[column.kind])
                for column in dataset.columns
            ],
            schema=schema,
        )
        for batch in read_parquet(io.BytesIO(content))
    ]


def publish(directory: Path, name: str, content: memoryview) -> None:
    """Write a file, make it durable and visible. Raises OSError; then it does not exist."""
    directory.mkdir(parents=True, exist_ok=True)
    hidden = directory / f"{HIDDEN}{name}{UNFINISHED}"
    try:
        with hidden.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        hidden.rename(directory / name)
    except OSError:
        with suppress(OSError):
            hidden.unlink(missing_ok=True)
        raise
