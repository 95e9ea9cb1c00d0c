"""Segments: created completely or not at all, attached only when ready, and cleaned up after a crash."""

import mmap
import os
import secrets
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import posix_ipc
import pytest

from rotunda.shm import segment
from rotunda.shm.layout import LAYOUT_VERSION, SEGMENT_HEADER
from rotunda.shm.segment import Segment, attach, create, new_instance, remove_stale, start_ticks

SHM = Path("/dev/shm")  # noqa: S108  where POSIX shared memory is


@pytest.fixture
def prefix() -> Iterator[str]:
    """Yield a unique prefix for names; remove its remaining files at the end."""
    made = f"rotundatest{secrets.token_hex(6)}-"
    yield made
    for path in (*SHM.glob(f"{made}*"), *SHM.glob(f"sem.{made}*")):
        path.unlink()


@pytest.fixture
def name(prefix: str) -> str:
    """Return the name of a segment of this process."""
    return f"/{prefix}{new_instance()}-x"


def header_word(path: str, field: str, value: int) -> None:
    with open(SHM / path.lstrip("/"), "r+b") as file:
        file.seek(SEGMENT_HEADER.offset(field))
        file.write(value.to_bytes(8, "little", signed=True))


def test_what_one_writes_another_reads(name: str) -> None:
    made = create(name, 128)
    assert (made.name, made.size, made.view.nbytes, len(made.words)) == (name, 128, 128, 16)
    assert bytes(made.view) == bytes(128)
    other = attach(name)
    made.words[15] = -5
    assert other.words[15] == -5
    assert other.view.readonly
    with pytest.raises(TypeError):
        other.words[0] = 1
    writable = attach(name, writable=True)
    writable.view[0:3] = b"abc"
    assert bytes(made.view[0:3]) == b"abc"
    for each in (made, other, writable):
        each.close()


def test_contents_are_there_before_anyone_can_attach(name: str) -> None:
    seen: list[type[BaseException]] = []

    def initialise(view: memoryview) -> None:
        with pytest.raises(segment.SegmentNotReady) as caught:
            attach(name)
        seen.append(caught.type)
        view[0] = 7

    create(name, 8, initialise)
    assert seen == [segment.SegmentNotReady]
    assert attach(name).view[0] == 7


def test_a_failed_initialisation_leaves_nothing(name: str) -> None:
    def initialise(_: memoryview) -> None:
        raise RuntimeError("no")

    with pytest.raises(RuntimeError, match="no"):
        create(name, 8, initialise)
    with pytest.raises(segment.SegmentAbsent):
        attach(name)


def test_unlink_removes_the_name_and_may_be_repeated(name: str) -> None:
    made = create(name, 64)
    made.unlink()
    made.unlink()
    with pytest.raises(segment.SegmentAbsent, match=name):
        attach(name)
    made.words[0] = 1
    made.close()


def test_close_with_views_still_held_is_no_error(name: str) -> None:
    made = create(name, 64)
    held = made.view[0:8]
    made.close()
    held[0] = 1
    held.release()


def test_a_name_that_exists_is_rejected(name: str) -> None:
    create(name, 64)
    with pytest.raises(segment.SegmentExists, match=name):
        create(name, 64)
    assert attach(name).size == 64


@pytest.mark.parametrize("size", [0, -8, 12])
def test_bad_sizes_are_rejected(name: str, size: int) -> None:
    with pytest.raises(ValueError, match=str(size)):
        create(name, size)


@pytest.mark.parametrize("excess", ["a page more than there is", "more than any machine has"])
def test_too_small_shared_memory_is_a_clear_error(name: str, excess: str) -> None:
    """No page is touched and no file remains: neither a SIGBUS nor a full /dev/shm."""
    space = os.statvfs(SHM)
    total = space.f_blocks * space.f_frsize
    size = total + 4096 if excess.startswith("a page") else 1 << 60
    with pytest.raises(segment.SharedMemoryTooSmall, match="--shm-size") as caught:
        create(name, size)
    assert caught.value.needed >= size
    assert 0 < caught.value.available <= total
    assert "queued.max.request.bytes" in caught.value.hint
    assert not (SHM / name[1:]).exists()


@pytest.mark.parametrize("code", ["ENOSPC", "EFBIG", "ENOMEM"])
def test_no_room_found_while_allocating_is_the_same_error(
    name: str, code: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fallocate(*_: int) -> None:
        raise OSError(getattr(segment.errno, code), code)

    monkeypatch.setattr(os, "posix_fallocate", fallocate)
    with pytest.raises(segment.SharedMemoryTooSmall):
        create(name, 4096)
    assert not (SHM / name[1:]).exists()


def test_every_page_is_allocated_at_once(name: str) -> None:
    create(name, 1 << 20)
    assert (SHM / name[1:]).stat().st_blocks * 512 >= 1 << 20


def test_another_layout_version_is_rejected(name: str) -> None:
    create(name, 64)
    header_word(name, "layout_version", LAYOUT_VERSION + 1)
    with pytest.raises(segment.SegmentWrongVersion, match=f"layout {LAYOUT_VERSION + 1}"):
        attach(name)


def test_what_is_not_ours_is_rejected(name: str) -> None:
    create(name, 64)
    header_word(name, "magic", 1)
    with pytest.raises(segment.SegmentWrongVersion, match="not one of our segments"):
        attach(name)


@pytest.mark.parametrize("size", [0, 10, 64, 4096])
def test_a_segment_in_the_making_is_not_ready(name: str, size: int) -> None:
    (SHM / name[1:]).write_bytes(bytes(size))
    with pytest.raises(segment.SegmentNotReady):
        attach(name)


def test_start_ticks_tell_processes_apart() -> None:
    assert start_ticks(os.getpid()) == start_ticks(os.getpid())
    child = os.fork()
    if child == 0:
        os._exit(0)
    os.waitpid(child, 0)
    assert start_ticks(child) is None


CRASHING_RUN = """
import os, sys, posix_ipc
from rotunda.shm.segment import create, new_instance
prefix, instance = sys.argv[1], sys.argv[2] or new_instance()
create(f"/{prefix}{instance}-control", 4096)
create(f"/{prefix}{instance}-rings-and-more", 4096)
posix_ipc.Semaphore(f"/{prefix}{instance}-target-0", posix_ipc.O_CREX)
print("made", flush=True)
sys.stdin.read()
"""


@pytest.mark.parametrize("instance", ["", "named"])
def test_leftovers_of_a_killed_run_are_removed_and_a_living_one_is_not(prefix: str, instance: str) -> None:
    run = subprocess.Popen(
        [sys.executable, "-c", CRASHING_RUN, prefix, instance],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        cwd=Path(__file__).parents[2],
    )
    assert run.stdin is not None
    assert run.stdout is not None
    with run.stdin, run.stdout:
        assert run.stdout.readline() == b"made\n"
        mine = create(f"/{prefix}{new_instance()}-control", 64)
        semaphore = posix_ipc.Semaphore(f"/{prefix}{new_instance()}-target-0", posix_ipc.O_CREX)
        assert remove_stale(prefix) == []
        run.send_signal(signal.SIGKILL)
        run.wait()
        removed = remove_stale(prefix)
        assert sorted(name.rpartition("-")[2] for name in removed) == ["0", "control", "more"]
        assert len(list(SHM.glob(f"*{prefix}*"))) == 2
    assert remove_stale(prefix) == []
    assert attach(mine.name).size == 64
    semaphore.close()


def test_a_pid_that_came_again_does_not_keep_a_segment(prefix: str) -> None:
    named = create(f"/{prefix}{os.getpid()}.1-control", 64)
    by_header = create(f"/{prefix}other-control", 64)
    header_word(by_header.name, "owner_start_ticks", 1)
    assert sorted(remove_stale(prefix)) == sorted([named.name[1:], by_header.name[1:]])


def test_files_that_are_not_ours_are_left_alone(prefix: str) -> None:
    (SHM / f"{prefix}foreign-x").write_bytes(b"x" * 100)
    (SHM / f"{prefix}starting-x").write_bytes(b"")
    assert remove_stale(prefix) == []


def test_segments_of_the_same_instance_keep_its_semaphores(prefix: str) -> None:
    kept: Segment = create(f"/{prefix}run-control", 64)
    posix_ipc.Semaphore(f"/{prefix}run-bell", posix_ipc.O_CREX).close()
    assert remove_stale(prefix) == []
    kept.unlink()
    assert remove_stale(prefix) == [f"sem.{prefix}run-bell"]


def test_a_hole_takes_no_room_until_it_is_filled(name: str) -> None:
    """Memory around the hole is allocated immediately; a filled hole reads as zeros."""
    page = mmap.PAGESIZE
    made = create(name, 64 * page, holes=[(8 * page, 16 * page), (32 * page, 32 * page)])
    file = SHM / name[1:]
    before = file.stat().st_blocks * 512
    # The header precedes the first page, so both edges of a hole are within allocated pages.
    assert 16 * page <= before <= 20 * page
    made.allocate(8 * page, 16 * page)
    assert file.stat().st_blocks * 512 >= before + 15 * page
    assert bytes(made.view[8 * page : 24 * page]) == bytes(16 * page)
    with pytest.raises(segment.SharedMemoryTooSmall):
        made.allocate(32 * page, 1 << 60)
