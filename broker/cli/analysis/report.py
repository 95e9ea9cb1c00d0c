"""`rotunda report NAME`: runs a Spark job over the request log of this broker, on this machine by default.

Adds the paths of the log and of the result; all other options are the job's. Needs no running broker, and PySpark only
here.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

from rotunda.broker.errors import RotundaError
from rotunda.broker.request_log.part_files import DIRECTORY
from rotunda.broker.runtime import run_dir
from rotunda.broker.text_table import aligned

#: Below the data directory: results of jobs, each in a directory of its own, and the hourly tables.
REPORTS, ROLLUPS = "reports", "rollups"


def run(parsed: argparse.Namespace, environment: Mapping[str, str]) -> int:
    """Run a job and return its exit code; without a name list the jobs.

    Raises RotundaError when PySpark or the log is missing.
    """
    if parsed.name is None:
        jobs = import_module("rotunda.spark.jobs")
        rows = [(name, jobs.question_of(jobs.source_of(name))) for name in (*jobs.JOBS, jobs.EXPORT)]
        rows.append((jobs.ALL, f"Runs {', '.join(jobs.OF_ALL)} in one Spark session."))
        print("\n".join(aligned(("REPORT", "QUESTION"), rows)))
        return 0
    if find_spec("pyspark") is None:
        raise RotundaError("PySpark is not installed; install it with: pip install 'pyspark>=4,<5'")
    where = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    where.add_argument("--run-dir", type=Path, default=parsed.run_dir)
    where.add_argument("--data-dir", default=parsed.data_dir)
    where.add_argument("--input")
    where.add_argument("--output")
    where.add_argument("--rollups")
    where.add_argument("--master", default="local[*]")
    given, rest = where.parse_known_args(parsed.arguments)
    if "--help" in rest or "-h" in rest:
        return _job(parsed.name, ["--help"])
    if parsed.name == import_module("rotunda.spark.jobs").EXPORT:
        return _export(given, rest, environment)
    if given.input is None or given.output is None:
        data_dir = _data_dir(given, environment)
        given.input = given.input or str(data_dir / DIRECTORY)
        is_all = parsed.name == import_module("rotunda.spark.jobs").ALL
        given.output = given.output or str(data_dir / REPORTS / ("" if is_all else parsed.name))
        given.rollups = given.rollups or str(data_dir / ROLLUPS)
    if given.rollups is not None:
        rest += ["--rollups", given.rollups]
    return _job(parsed.name, ["--input", given.input, "--output", given.output, "--master", given.master, *rest])


def _export(given: argparse.Namespace, rest: list[str], environment: Mapping[str, str]) -> int:
    """Export a topic of a data directory, up to the current offsets of the broker that runs there, if one does."""
    offsets = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    offsets.add_argument("--offsets")
    offsets.add_argument("--command-config")
    named, rest = offsets.parse_known_args(rest)
    data_dir = Path(given.input) if given.input is not None else _data_dir(given, environment)
    topic = next((each for each in rest if not each.startswith("-")), None)
    record = run_dir.read(given.run_dir or run_dir.default_path(environment))
    if named.offsets is None and topic and record and record.is_alive and _is_same(Path(record.data_dir), data_dir):
        given.command_config = named.command_config
        named.offsets = _current_offsets(topic, given, environment)
    where = ["--input", str(data_dir), "--master", given.master]
    where += ["--output", given.output] if given.output is not None else []
    where += ["--offsets", named.offsets] if named.offsets else []
    return _job("export", [*where, *rest])


def _is_same(one: Path, other: Path) -> bool:
    return one.exists() and other.exists() and one.samefile(other)


def _current_offsets(topic: str, given: argparse.Namespace, environment: Mapping[str, str]) -> str:
    """Return log start offset and high watermark of each partition, as the running broker has them."""
    from rotunda.broker.cli.cluster.cluster_client import connected  # noqa: PLC0415 - only an export needs a broker
    from rotunda.broker.client.admin import offsets, topics  # noqa: PLC0415
    from rotunda.broker.client.topic_partition import TopicPartition  # noqa: PLC0415

    with connected(given, environment) as client:
        partitions = [TopicPartition(topic, each.partition) for each in topics.describe(client, topic).partitions]
        found = offsets.bounds(client, partitions)
    return ",".join(f"{each.partition}:{bounds.start}:{bounds.end}" for each, bounds in found.items())


def _job(name: str, arguments: list[str]) -> int:
    code: int = import_module("rotunda.spark.__main__").main([name, *arguments])
    return code


def _data_dir(given: argparse.Namespace, environment: Mapping[str, str]) -> Path:
    if given.data_dir is not None:
        return Path(given.data_dir)
    path = given.run_dir or run_dir.default_path(environment)
    record = run_dir.read(path)
    if record is None:
        raise run_dir.not_running(
            path,
            "or name a data directory with --data-dir, or a log with --input and a directory for the result with "
            "--output",
        )
    return Path(record.data_dir)
