"""A reader in one process while another appends, rolls, compacts and removes: no gap, no repeat, no error."""

import mmap
import os
import random
import subprocess
import sys
import time
from pathlib import Path

from rotunda.broker.ipc.segment_file_cache import SegmentFiles
from rotunda.broker.log.log_reader import FileSlice, LogReader
from rotunda.broker.protocol.record_reader import iterate_records
from rotunda.broker.protocol.records import batch_headers
from rotunda.shm.tables.partitions import STATE_CLOSED, STATE_OPEN, PartitionTable
from tests.support.deadline import deadline_s, wait_until

KEYS = 7
#: How long the files of a removed segment stay for readers that have their names.
LEAST_DELAY_S = 0.3
TABLE_BYTES = 4096

OWNER = """
import mmap, os, sys
from pathlib import Path
from rotunda.broker.cleaner import deleted_files
from rotunda.broker.clock import SystemClock
from rotunda.broker.config.topic_config import LogConfig
from rotunda.shm.tables.partitions import STATE_CLOSED, STATE_OPEN, PartitionTable
from tests.cleaner.keyed_log import KeyedLog
from tests.cleaner.test_reader_through_compaction import KEYS, LEAST_DELAY_S
deleted_files.LEAST_DELAY_MS = int(1000 * LEAST_DELAY_S)
clock = SystemClock()
log = KeyedLog(Path(sys.argv[1]), LogConfig(cleanup_policy=("compact",), internal_segment_bytes=3000,
                                            index_interval_bytes=150), clock)
table = PartitionTable(memoryview(mmap.mmap(os.open(sys.argv[2], os.O_RDWR), 4096)), 0, 1, 1)
writer = table.row_writer(0)
def publish():
    log_ = log.log
    writer.publish(log_.log_end_offset, log_.segment_base, log_.position, 0, log_.last_stable_offset, log_.size_bytes)
def swap(swap_):
    done = log.log.swap_segments(swap_)
    publish()
    writer.note_removal()
    return done
publish()
table.set_state(0, STATE_OPEN)
while not Path(sys.argv[3]).exists():
    for _ in range(20):
        end = log.log.log_end_offset
        log.append([(b"%d" % ((end + i) % KEYS), b"%d" % (end + i)) for i in range(5)])
        publish()
    log.roll()
    publish()
    log.clean(swap=swap)
    deleted_files.remove_doomed(Path(sys.argv[1]), 0, clock.wall_ms())
table.set_state(0, STATE_CLOSED)
"""


def test_reading_goes_on_while_segments_are_swapped(tmp_path: Path) -> None:
    """Every pass ends with the newest record of each key as of the pass's end."""
    directory = tmp_path / "t-0"
    shared = tmp_path / "table"
    shared.write_bytes(bytes(TABLE_BYTES))
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    rng = random.Random(seed)
    stop = tmp_path / "stop"
    command = [sys.executable, "-c", OWNER, str(directory), str(shared), str(stop)]
    fd = os.open(shared, os.O_RDWR)
    table = PartitionTable(memoryview(mmap.mmap(fd, TABLE_BYTES)), 0, 1, 1)
    os.close(fd)
    with subprocess.Popen(command, cwd=Path(__file__).parents[2], stderr=subprocess.PIPE) as owner:
        wait_until(lambda: table.state(0) == STATE_OPEN or owner.poll() is not None, "the owner publishes")
        reader, files = PublishedReader(directory, table), SegmentFiles()
        passes, begin = 0, time.monotonic()
        try:
            while owner.poll() is None and (time.monotonic() - begin < 2.5 or passes <= 20 or table.removals(0) <= 20):
                read_all(reader, files, rng.choice([300, 1000, 100_000]))
                files.forget_removed()
                passes += 1
        finally:
            stop.touch()
        while table.state(0) == STATE_OPEN and owner.poll() is None:
            read_all(reader, files, rng.choice([300, 1000, 100_000]))
            files.forget_removed()
        assert owner.stderr is not None
        assert table.state(0) == STATE_CLOSED, owner.stderr.read().decode()
        assert owner.wait(deadline_s()) == 0
    assert passes > 20
    assert table.removals(0) > 20


class PublishedReader:
    """A reader as a handler has it: it forgets when the owner has published a removal, and uses no stale end."""

    def __init__(self, directory: Path, table: PartitionTable) -> None:
        self.reader = LogReader(directory)
        self.table = table

    def locate(self, offset: int, max_bytes: int) -> tuple[FileSlice | None, int]:
        while True:
            end = self.table.read_position(0)
            removals = self.table.removals(0)
            if removals != self.reader.removals_seen:
                self.reader.forget()
                self.reader.removals_seen = removals
            found = self.reader.locate(offset, end, max_bytes)
            if self.table.read_position(0)[1] == end[1]:
                return found, end[0]


def read_all(reader: PublishedReader, files: SegmentFiles, max_bytes: int) -> None:
    """Read from the start to the end as a consumer does, and check the records."""
    offset = 0
    newest: dict[int, int] = {}
    while True:
        begin = time.monotonic()
        found, end = reader.locate(offset, max_bytes)
        if offset == end:
            break
        assert found is not None, f"out of range at {offset}, end {end}"
        assert found.length, f"nothing at {offset}, end {end}"
        try:
            file = files.open(os.fsdecode(found.path), found.inode)
        except FileNotFoundError:
            # A reader whose names are this old has to request them again.
            assert time.monotonic() - begin > LEAST_DELAY_S, "removed too early"
            continue
        data = os.pread(file.fd, found.length, found.position)
        for at, header in batch_headers(data):
            for record in iterate_records(data[at : at + header.size_bytes]):
                if record.offset < offset:
                    continue
                assert record.value == b"%d" % record.offset
                newest[record.offset % KEYS] = record.offset
            assert header.last_offset >= offset
            offset = header.last_offset + 1
    expected = {key: max(range(key, end, KEYS)) for key in range(min(KEYS, end))}
    assert newest == expected
