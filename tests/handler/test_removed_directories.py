"""The directories of deleted topics are removed, despite deaths and initial disk errors."""

from __future__ import annotations

import errno
import os
import shutil
from pathlib import Path
from unittest import mock

import pytest

from rotunda.broker.log import log_manager
from rotunda.broker.log.segments import segment_files
from rotunda.shm.tables.partitions import STATE_CLOSED
from tests.support.record_batches import record_batch
from tests.support.stepped_broker import Killed, SteppedBroker, died_at_line

OWNER = 0
DELETING = ("broker/log/segments/segment_files.py", "broker/log/log_manager.py", "broker/log/committed_log.py")


def left(broker: SteppedBroker, topic: str) -> list[str]:
    return sorted(path.name for path in broker.config.data_dir.iterdir() if path.name.startswith(topic))


def deleted(broker: SteppedBroker, topic: str) -> list[int]:
    """Create a topic with some records, delete it, and return the rows of its partitions."""
    broker.create(topic, 4)
    rows = [broker.partition(topic, index).row for index in range(4)]
    for index in range(4):
        broker.client().produce([(topic, index, record_batch([b"x"]))])
    broker.settle()
    broker.delete(topic)
    return rows


def finish(broker: SteppedBroker) -> None:
    for _ in range(3):
        broker.clock.advance_ms(1_100)
        broker.settle(10)


def test_a_death_at_any_line_of_a_deletion_leaves_no_directory(stepped: SteppedBroker) -> None:
    line, died = 1, True
    while died:
        topic = f"doomed{line}"
        deleted(stepped, topic)
        died = died_at_line(line, lambda: [stepped.run_once(OWNER) for _ in range(6)], DELETING)
        stepped.replace(OWNER)
        finish(stepped)
        assert left(stepped, topic) == [], f"line {line}"
        line += 3
    assert line > 30


def test_a_death_while_files_are_removed_leaves_no_directory(stepped: SteppedBroker) -> None:
    deleted(stepped, "doomed")

    def dies(directory: Path) -> None:
        next(directory.iterdir()).unlink()
        raise Killed

    def run_once() -> None:
        for _ in range(6):
            stepped.run_once(OWNER)

    with mock.patch.object(segment_files.shutil, "rmtree", dies), pytest.raises(Killed):
        run_once()
    stepped.replace(OWNER)
    finish(stepped)
    assert left(stepped, "doomed") == []


@pytest.mark.parametrize("step", ["rename", "rmtree"])
def test_a_directory_that_cannot_be_removed_is_tried_again_and_keeps_its_row(stepped: SteppedBroker, step: str) -> None:
    rows = deleted(stepped, "doomed")

    def fails(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    where = {"rename": (log_manager.Path, "rename"), "rmtree": (shutil, "rmtree")}[step]
    with mock.patch.object(*where, fails):
        finish(stepped)
        assert len(left(stepped, "doomed")) == len(rows)
        assert not any(stepped.context.partitions.state(row) == STATE_CLOSED for row in rows)
    finish(stepped)
    assert left(stepped, "doomed") == []
    # A new topic of the same name keeps its directories.
    stepped.create("doomed", 4)
    assert len(left(stepped, "doomed")) == 4
