"""The values of a column: an array, a list, or one of the forms here.

Pure; `broker.request_log.tables` converts them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    import numpy
    from numpy.typing import NDArray


class Coded(NamedTuple):
    """A column of strings: `values[codes[i]]`; the values may be None."""

    codes: NDArray[numpy.int64]
    values: Sequence[str | None]


class Nullable(NamedTuple):
    """A column of numbers, null where `missing` is true."""

    values: NDArray[Any]
    missing: NDArray[numpy.bool_]


Values = Coded | Nullable | Any
