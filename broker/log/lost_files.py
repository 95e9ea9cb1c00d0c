"""Reports lost records when a start of the broker finds fewer files than the last run left. Runs in the owner.

Nothing is deleted, so that an operator can restore the files from a copy.
"""

import logging
from pathlib import Path

from rotunda.broker.log.segments.segment_files import LOG_SUFFIX, TIME_INDEX_SUFFIX, segment_file

_log = logging.getLogger(__name__)


def report_emptied(directory: Path, rolled: list[int]) -> None:
    """Log the segments that have lost all their records: a segment is never rolled empty.

    A segment that compaction has emptied has no timestamps in its index either.
    """
    for base_offset in rolled:
        path = segment_file(directory, base_offset, LOG_SUFFIX)
        times = segment_file(directory, base_offset, TIME_INDEX_SUFFIX)
        if not path.stat().st_size and times.is_file() and times.stat().st_size:
            _log.error("%s is empty: its records are lost. Put a copy of it in its place if there is one", path)


def report_lost(directory: Path, first: int, end: int) -> None:
    """Log that the records from `first` up to `end` are missing, if there are any in between."""
    if first < end:
        _log.error(
            "%s: offsets %d to %d are lost, their files are missing or damaged. The other records are served, and no "
            "offset is used twice. If there is a copy of the files, stop the broker, put them back and start it again",
            directory,
            first,
            end - 1,
        )


def report_set_aside(directory: Path, end_offset: int, log_start_offset: int, next_offset: int) -> None:
    """Log that a log ended below its start, and its files were renamed: deleted records must not reappear."""
    _log.error(
        "%s: the log ends at offset %d, below its start at %d in the checkpoint. Renamed its log files to "
        "*.damaged-*; the log continues at offset %d. To serve them again, see docs/internals/storage.md",
        directory,
        end_offset,
        log_start_offset,
        next_offset,
    )
