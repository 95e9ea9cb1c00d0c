"""Prints docs/layout.md from `shm.layout`. Runs when the page is made or checked."""

from __future__ import annotations

import struct
from collections.abc import Iterable

from shm.layout import LAYOUT_VERSION, RECORDS, RESPONSE_ENVELOPE
from shm.record import Record
from shm.recorder_layout import FACTS, REQUEST_ROW

_PREAMBLE = f"""# The map of shared memory

Printed from `shm/layout.py`, the only place that defines offsets. Layout version {LAYOUT_VERSION}.

Numbers are native-order and naturally aligned. A word is 8 bytes. Every field has one writing role. Fields of an
envelope are written before its frame is published; then the frame belongs to its reader until release.

| segment | contents |
|---|---|
| `/rotunda-<instance>-control` | BROKER_WORDS, PROCESS_SLOTs, CURRENT_REQUESTs, the partition table |
| the partition table | PARTITION_ROWs, WAITERs, FETCHEDs, MOVED_ROWS |
| `/rotunda-<instance>-rings` | request, response and peer rings: RING_HEADER, then frames |
| `/rotunda-<instance>-arena` | payloads too large for a ring; no words of its own |
| `/rotunda-<instance>-metrics` | one METRICS_PAGE per process |
| `/rotunda-<instance>-snapshots` | SNAPSHOTS_HEADER, SNAPSHOTs (processors, handlers, listeners), CLIENT_HOSTs |
| `/rotunda-<instance>-quotas` | one QUOTA_TABLE per target, then one per processor |
| `/rotunda-<instance>-recorder` | RECORDER_SETTINGS, RECORDER_SOURCEs, then one ring for each source |
| `/rotunda-<instance>-recent` | two RECENT_BUFFERs |
| `/rotunda-<instance>-faults` | FAULT_TABLE, FAULT_COUNTs; only of a broker that was started for tests |
"""


def describe_markdown() -> str:
    """Return the text of docs/layout.md."""
    return "\n".join([_PREAMBLE, *(_describe(record) for record in RECORDS)])


def _describe(record: Record) -> str:
    writers = sorted({field.writer for field in record.fields})
    written = f" Writer: {writers[0]}." if len(writers) == 1 else ""
    lines = [f"## {record.name} ({record.size} bytes)\n", f"{record.text}{written}\n"]
    columns = ["offset", "field", "size", "unit", *([] if written else ["writer"]), "meaning"]
    lines += [_row(columns), "|" + "---|" * len(columns)]
    fields = record.fields
    if record is REQUEST_ROW:
        first, last = (RESPONSE_ENVELOPE.offset(field.name) for field in (FACTS[0], FACTS[-1]))
        cells = (0, f"{FACTS[0].name} to {FACTS[-1].name}", "", "", FACTS[0].writer)
        lines.append(_row((*cells, f"as in RESPONSE_ENVELOPE, offsets {first} to {last} there")))
        fields = fields[len(FACTS) :]
    for field in fields:
        unit = "" if field.unit == "-" else field.unit
        writer = [] if written else [field.writer]
        size = struct.calcsize("@" + field.kind)
        lines.append(_row((record.offset(field.name), field.name, size, unit, *writer, field.text)))
    return "\n".join(lines) + "\n"


def _row(cells: Iterable[object]) -> str:
    return "| " + " | ".join(map(str, cells)) + " |"
