"""Writes the records of a topic, or the new ones since the last export, as Parquet, each exactly once.

Reads the broker's segment files, beside a running broker or without one, and prints the exported offsets.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from rotunda.broker.text_table import counted
from rotunda.spark.failures import JobFailed
from rotunda.spark.file_system import FileSystem
from rotunda.spark.hourly.lock import exclusive
from rotunda.spark.job import reported
from rotunda.spark.progress import progress
from rotunda.spark.results.text_table import lines
from rotunda.spark.session import configured, session
from rotunda.spark.topics.exports import Exported, Exports
from rotunda.spark.topics.topic_log import Bounds, Span, TopicLog, directories_of, open_topic

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import SparkSession

#: Attempts of a run whose segments are deleted or replaced meanwhile.
_ATTEMPTS = 3
_CHANGED = "RecordsChanged"
_UNREADABLE = re.compile(r"RecordsUnreadable: (.*)")
_MISSING = re.compile(r"ModuleNotFoundError: No module named '(\w+)")
#: Files of a partition are written one after the other, without sorting the records by partition.
_WRITTEN_WITH = {"spark.sql.maxConcurrentOutputFileWriters": "2", "spark.sql.optimizer.plannedWrite.enabled": "false"}


@dataclass(frozen=True, slots=True)
class _Plan:
    """The new records of a topic, and for each partition the offset where they begin."""

    log: TopicLog
    start: Mapping[int, int]
    spans: list[Span]

    @property
    def end(self) -> dict[int, int]:
        """The offset after the new records, by partition."""
        return {each.partition: max(self.start[each.partition], each.stable) for each in self.log.partitions}


def bounds_of(text: str) -> dict[int, Bounds]:
    """Return the offsets of an option `PARTITION:START:END,…`. Raises JobFailed."""
    try:
        rows = [tuple(map(int, part.split(":"))) for part in text.split(",")]
        return {partition: Bounds(start, end) for partition, start, end in rows}
    except ValueError:
        raise JobFailed(f"{text[:40]!r} are not offsets; write PARTITION:START:END,…") from None


def export(
    spark: SparkSession, topic: str, data_dir: Path, output: str, given: Mapping[int, Bounds], columns: str = ""
) -> list[str]:
    """Export the new records of a topic and return lines about them; `columns` are fields of JSON values.

    Raises JobFailed.
    """
    _check_columns(spark, columns)
    # An unknown topic, or a name such as `..`, must not change the output.
    directories_of(data_dir, topic)
    file_system = FileSystem(spark, output)
    if not file_system.renames_at_once:
        raise JobFailed(
            f"{output} is in an object store, which cannot rename a directory at once; use another --output"
        )
    file_system.make_directory(".")
    with exclusive(file_system, "export"):
        exports = Exports(file_system)
        last = exports.last()
        if last.run and columns not in ("", last.columns):
            raise JobFailed(f"{output} has the columns {last.columns or '(none)'}; use another --output for others")
        columns = last.columns or columns
        for attempt in range(_ATTEMPTS):
            exports.begin()
            try:
                plan = _plan(open_topic(data_dir, topic, given), last, output)
                records = _write(spark, plan.spans, columns, exports.staged) if plan.spans else 0
            except Exception as error:
                unreadable = _UNREADABLE.search(str(error))
                if unreadable is not None:
                    raise JobFailed(f"{unreadable[1]}; nothing was exported") from error
                changed = isinstance(error, FileNotFoundError) or _CHANGED in str(error)
                if isinstance(error, JobFailed):
                    raise
                if not changed or attempt == _ATTEMPTS - 1:
                    raise _failed(topic, output, error) from error
            else:
                break
        if not plan.spans:
            return [f"no new records of {topic} since run {last.run} in {exports.records}"]
        epochs = {each.partition: each.epochs.latest for each in plan.log.partitions}
        run = Exported(last.run + 1, plan.log.topic_id, plan.end, columns, epochs)
        exports.commit(run.run, run.to_json(topic, plan.start, records))
    return _report(plan, run.run, records, exports.records)


def _failed(topic: str, output: str, error: Exception) -> JobFailed:
    """Return the failure to raise for an error of Spark or of a file system: its innermost cause in one line."""
    if missing := _MISSING.search(str(error)):
        return JobFailed(
            f"the executors' Python has no {missing[1]}: install 'rotunda-broker[spark]' for it, or name another one "
            "in PYSPARK_PYTHON; nothing was exported"
        )
    causes = re.findall(r"Caused by: (.*)", str(error)) or [str(error).strip().partition("\n")[0]]
    return JobFailed(
        f"{topic} cannot be exported to {output}: {causes[-1]}; run it again when that is repaired, or use another "
        "--output: records are exported once"
    )


def _check_offsets(log: TopicLog, last: Exported, output: str) -> None:
    """Raise JobFailed when offsets of exported records were used again: a crash had removed them from the log."""
    for each in log.partitions:
        exported_epoch, end = last.leader_epochs.get(each.partition), last.offsets.get(each.partition, 0)
        for epoch, start in each.epochs.entries:
            if exported_epoch is not None and epoch > exported_epoch and start < end:
                raise JobFailed(
                    f"{log.topic}-{each.partition} lost records in a crash and used offsets from {start} on again: "
                    f"{output} has the lost ones, up to offset {end - 1}; export into another --output"
                )


def _plan(log: TopicLog, last: Exported, output: str) -> _Plan:
    if last.run and last.topic_id != log.topic_id:
        raise JobFailed(
            f"topic {log.topic} was deleted and created again: {output} has records of topic id {last.topic_id}, "
            f"the broker those of {log.topic_id}; use another --output"
        )
    _check_offsets(log, last, output)
    start = {each.partition: max(each.start, last.offsets.get(each.partition, 0)) for each in log.partitions}
    return _Plan(log, start, [span for each in log.partitions for span in each.spans(start[each.partition])])


def _check_columns(spark: SparkSession, columns: str) -> None:
    """Raise JobFailed for an invalid schema, or one with names of a record's own columns."""
    from pyspark.errors import PySparkException  # noqa: PLC0415 - complaints need not wait for pyspark

    from rotunda.spark.topics.record_batches import SCHEMA  # noqa: PLC0415

    try:
        names = spark.createDataFrame([], columns).columns if columns else []
    except PySparkException as error:
        raise JobFailed(f"invalid --columns {columns!r}: write NAME TYPE, …, such as id bigint, name string") from error
    own = {*spark.createDataFrame([], SCHEMA).columns, "run"}
    if taken := [name for name in names if name.lower() in own]:
        raise JobFailed(f"invalid --columns {columns!r}: {taken[0]} is a column of every record")


def _write(spark: SparkSession, spans: Sequence[Span], columns: str, staged: str) -> int:
    """Write the records of spans, one task for each, and return their number."""
    from pyspark.sql import Observation  # noqa: PLC0415 - complaints need not wait for pyspark
    from pyspark.sql import functions as F  # noqa: N812, PLC0415

    from rotunda.spark.topics.record_batches import SCHEMA, read_spans  # noqa: PLC0415

    numbers = spark.range(0, len(spans), 1, len(spans))
    observed = Observation()
    records = numbers.mapInArrow(partial(read_spans, spans), SCHEMA).observe(observed, F.count("*").alias("records"))
    if columns:
        fields = F.from_json(F.col("value").cast("string"), columns)
        records = records.select("*", fields.alias("_fields")).select(*records.columns, "_fields.*")
    with configured(spark, _WRITTEN_WITH):
        records.write.mode("overwrite").option("compression", "zstd").partitionBy("partition").parquet(staged)
    return int(observed.get["records"])


def _report(plan: _Plan, run: int, records: int, where: str) -> list[str]:
    ends = plan.end
    rows = [
        (each.partition, plan.start[each.partition], ends[each.partition], each.high_watermark - ends[each.partition])
        for each in plan.log.partitions
    ]
    said = f"{counted(records, 'record')} of {plan.log.topic}: run {run} in {where}"
    return [said, "", *lines(("partition", "from", "to", "undecided"), rows)]


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="rotunda report export", description=__doc__)
    parser.add_argument("topic", metavar="TOPIC", help="the topic to export")
    parser.add_argument("--input", required=True, metavar="DIR", help="the broker's data directory")
    parser.add_argument("--output", metavar="DIR", help="output directory (default: exports/TOPIC in the input)")
    parser.add_argument(
        "--offsets",
        type=bounds_of,
        default={},
        metavar="PARTITION:START:END,...",
        help="log start offset and high watermark of partitions (default: the broker's, or of its last checkpoint)",
    )
    parser.add_argument(
        "--columns", default="", metavar="NAME TYPE,...", help="fields of JSON values as columns (default: none)"
    )
    parser.add_argument("--master", metavar="URL", help="Spark master (default: that of spark-submit)")
    return parser


def _run(arguments: Sequence[str]) -> None:
    options = _parser().parse_args(arguments)
    if find_spec("pyarrow") is None or find_spec("pandas") is None:
        raise JobFailed("PyArrow and pandas are not installed; install them with: pip install 'rotunda-broker[spark]'")
    output = options.output or f"{options.input.rstrip('/')}/exports/{options.topic}"
    with session("export", options.master) as spark, progress(spark, "export"):
        said = export(spark, options.topic, Path(options.input), output, options.offsets, options.columns)
    print("\n".join(said))


def main(arguments: Sequence[str]) -> int:
    """Run the export from a command line and return its exit code."""
    return reported("export", lambda: _run(arguments))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
