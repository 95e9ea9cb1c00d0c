"""Converts columns to Parquet: pyarrow's types, and one open file.

Runs in the recorder, and imports pyarrow, which is large: load it when there are rows to write. Strings are passed by
code, as indexes into a short list, and stored as plain strings.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from rotunda.broker.request_log.columns import BOOL, CHOSEN_BY, DOUBLE, INT16, INT32, INT64, STRING, TIMESTAMP, Dataset
from rotunda.broker.request_log.part_files import HIDDEN, UNFINISHED
from rotunda.broker.request_log.values import Coded, Nullable, Values

_TYPES: dict[str, Any] = {
    TIMESTAMP: pa.timestamp("us", tz="UTC"),
    STRING: pa.string(),
    BOOL: pa.bool_(),
    INT16: pa.int16(),
    INT32: pa.int32(),
    INT64: pa.int64(),
    DOUBLE: pa.float64(),
}
#: Input types for Parquet; dictionaries are stored as plain strings.
_GIVEN = {**_TYPES, STRING: pa.dictionary(pa.int32(), pa.string())}

#: Times and durations are smallest as differences. Other numbers are nearly always the same, or as good as random: zstd
#: compresses them, and a dictionary first costs more than it saves.
_DIFFERING = (TIMESTAMP, INT64)

_NUMPY = {TIMESTAMP: "M8[us]", BOOL: "?", INT16: "i2", INT32: "i4", INT64: "i8", DOUBLE: "f8"}


def schema_of(dataset: Dataset) -> Any:
    """Return a dataset's schema as readers see it."""
    return _schema(dataset, _TYPES)


def table_of(dataset: Dataset, values: Mapping[str, Values]) -> Any:
    """Return a table of a dataset from its columns' values. KeyError when one is missing."""
    arrays = [_array(values[column.name], column.kind) for column in dataset.columns]
    return pa.Table.from_arrays(arrays, schema=_schema(dataset, _GIVEN))


def _schema(dataset: Dataset, types: Mapping[str, Any]) -> Any:
    return pa.schema([pa.field(column.name, types[column.kind], column.nullable) for column in dataset.columns])


def _array(values: Values, kind: str) -> Any:
    """Return values as an array. Arrow's compute functions, which are large, are not needed for it."""
    if isinstance(values, Coded):
        # Parquet accepts a dictionary unchanged only if its texts are unique.
        texts = [text for text in dict.fromkeys(values.values) if text is not None]
        place_of: dict[str | None, int] = {text: place for place, text in enumerate(texts)}
        place_of[None] = -1
        places = np.array([place_of[text] for text in values.values], np.int32)[values.codes]
        indexes = pa.array(places, mask=places < 0 if None in values.values else None)
        return pa.DictionaryArray.from_arrays(indexes, pa.array(texts, pa.string()))
    if isinstance(values, Nullable):
        return pa.array(values.values.astype(_NUMPY[kind]), _GIVEN[kind], mask=values.missing)
    if isinstance(values, list):
        return pa.array(values, _GIVEN[kind])
    return pa.array(values.astype(_NUMPY[kind]), _GIVEN[kind])


class OpenPart:
    """A file in progress, under a hidden name."""

    def __init__(self, directory: Path, name: str, dataset: Dataset) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self._path = directory / name
        self._hidden = directory / f"{HIDDEN}{name}{UNFINISHED}"
        self._file = self._hidden.open("wb")
        # Readers get plain types from the file's own schema; Arrow's would only repeat it.
        repeated = [column.name for column in dataset.columns if column.kind == STRING]
        differing = [column.name for column in dataset.columns if column.kind in _DIFFERING]
        self._writer = pq.ParquetWriter(
            self._file, _schema(dataset, _GIVEN), compression="zstd", compression_level=1, store_schema=False,
            use_dictionary=repeated, column_encoding=dict.fromkeys(differing, "DELTA_BINARY_PACKED"), version="2.6",
            write_statistics=[column.name for column in dataset.columns if column.name in CHOSEN_BY],
        )  # fmt: skip

    @property
    def size_bytes(self) -> int:
        """Bytes written so far."""
        return self._file.tell()

    def write(self, table: Any) -> None:
        """Write a table as one row group. Raises OSError."""
        self._writer.write_table(table, row_group_size=max(1, table.num_rows))

    def finish(self) -> None:
        """Complete the file, make it durable and visible. Raises OSError; then it does not exist."""
        self._writer.close()
        self._file.flush()
        os.fsync(self._file.fileno())
        self._file.close()
        self._hidden.rename(self._path)

    def discard(self) -> None:
        """Delete the written data, in any state."""
        with suppress(OSError):
            # Flushes the buffer, for which there may be no space.
            self._file.close()
        with suppress(OSError):
            self._hidden.unlink(missing_ok=True)
