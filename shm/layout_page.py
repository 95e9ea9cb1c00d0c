"""Prints the map of `shm.layout`: docs/layout.md, and by `python -m rotunda.shm.layout_page` every field."""

from __future__ import annotations

import struct
import sys
from collections.abc import Collection, Iterable

from rotunda.shm.layout import LAYOUT_VERSION, RECORDS
from rotunda.shm.record import Record

_PREAMBLE = f"""# The map of shared memory

Print the fields of all records, or of one:

```
python -m rotunda.shm.layout_page
python -m rotunda.shm.layout_page PARTITION_ROW
```

`shm/layout.py` is the only place that defines offsets. Layout version {LAYOUT_VERSION}. Numbers are native-order and
naturally aligned; a word is 8 bytes. Every field has one writing role. Fields of an envelope are written before its
frame is published; then the frame belongs to its reader until it is released.

| segment | contents |
|---|---|
| `/rotunda-<instance>-control` | BROKER_WORDS, PROCESS_SLOTs, CURRENT_REQUESTs, the partition table |
| the partition table | PARTITION_ROWs, WAITERs, FETCHEDs, MOVED_ROWS |
| `/rotunda-<instance>-rings` | request, response and peer rings: RING_HEADER, then frames |
| `/rotunda-<instance>-arena` | payloads too large for a ring, without a header |
| `/rotunda-<instance>-metrics` | one METRICS_PAGE per process |
| `/rotunda-<instance>-snapshots` | SNAPSHOTS_HEADER, SNAPSHOTs (processors, handlers, listeners), CLIENT_HOSTs |
| `/rotunda-<instance>-quotas` | one QUOTA_TABLE per target, then one per processor |
| `/rotunda-<instance>-recorder` | RECORDER_SETTINGS, RECORDER_SOURCEs, then one ring for each source |
| `/rotunda-<instance>-recent` | two RECENT_BUFFERs |
| `/rotunda-<instance>-faults` | FAULT_TABLE, FAULT_COUNTs; only of brokers started for tests |
"""


def describe_markdown() -> str:
    """Return the text of docs/layout.md: segments and records."""
    lines = ["| record | bytes | writers | contents |", "|---|---|---|---|"]
    for record in RECORDS:
        writers = ", ".join(dict.fromkeys(field.writer for field in record.fields))
        lines.append(_row((record.name, record.size, writers, record.text)))
    return "\n".join([_PREAMBLE, *lines])


def describe(record: Record) -> str:
    """Return the fields of a record, one per line."""
    lines = [f"{record.name} ({record.size} bytes): {record.text}"]
    for field in record.fields:
        size, unit = struct.calcsize("@" + field.kind), "" if field.unit == "-" else f", {field.unit}"
        place = f"{record.offset(field.name):4} {field.name} ({size} bytes{unit}; {field.writer})"
        lines.append(f"{place}: {field.text}")
    return "\n".join(lines) + "\n"


def main(names: Collection[str]) -> int:
    """Print the fields of the named records, all by default; return the exit code."""
    if unknown := set(names) - {record.name for record in RECORDS}:
        print(f"unknown record: {', '.join(sorted(unknown))}", file=sys.stderr)
        return 2
    print("\n".join(describe(record) for record in RECORDS if not names or record.name in names))
    return 0


def _row(cells: Iterable[object]) -> str:
    return "| " + " | ".join(map(str, cells)) + " |"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
