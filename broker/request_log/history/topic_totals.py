"""Totals by topic from the partition table, and their growth as rows of the history.

Runs in the recorder, once a minute.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from rotunda.broker.request_log.history.largest import largest, total

if TYPE_CHECKING:
    from rotunda.broker.metadata.metadata_cache import TopicInfo
    from rotunda.shm.tables.partitions import PartitionTable

#: Unused rows after which the rest of the table counts as unused: reading a row for the first time allocates memory.
_UNUSED_ROWS = 256

#: Records and bytes appended, and bytes fetched.
Counters = tuple[int, int, int]
_NOTHING: Counters = (0, 0, 0)
_COMBINE = {"bytesIn": total, "bytesOut": total, "records": total}


class TopicTotals(NamedTuple):
    """Counters by row of the table, for used rows below `rows`. Those of other rows are unknown."""

    counters: Mapping[int, Counters]
    rows: int


class TopicGrowth(NamedTuple):
    """Rows of the history, the size of all topics, and the totals for the next minute."""

    rows: list[dict[str, Any]]
    log_bytes: int
    totals: TopicTotals


def totals_of_table(table: PartitionTable) -> TopicTotals:
    """Return the present totals, without knowing which rows are in use."""
    found: dict[int, Counters] = {}
    row = last = 0
    while row < min(table.rows, last + _UNUSED_ROWS):
        if table.state(row):
            found[row] = _counters(table, row)
            last = row + 1
        row += 1
    return TopicTotals(found, row)


def topic_growth(before: TopicTotals, table: PartitionTable, topics: Iterable[TopicInfo]) -> TopicGrowth:
    """Return the growth of these topics since earlier totals."""
    now: dict[int, Counters] = {}
    rows = []
    log_bytes = 0
    for topic in topics:
        grown = [0, 0, 0]
        for _, row, _ in topic.partitions:
            now[row] = _counters(table, row)
            log_bytes += table.log_bytes(row)
            earlier = before.counters.get(row, _NOTHING if row < before.rows else now[row])
            # Lower counters are those of another partition with the same row.
            was = earlier if all(a >= b for a, b in zip(now[row], earlier, strict=True)) else _NOTHING
            grown = [total + a - b for total, a, b in zip(grown, now[row], was, strict=True)]
        if any(grown):
            records, bytes_in, bytes_out = grown
            rows.append(
                {"kind": "topic", "name": topic.name, "bytesIn": bytes_in, "bytesOut": bytes_out, "records": records}
            )
    return TopicGrowth(largest(rows, _COMBINE), log_bytes, TopicTotals(now, table.rows))


def _counters(table: PartitionTable, row: int) -> Counters:
    return table.records_in(row), table.bytes_in(row), table.bytes_out(row)
