"""Tests of the cache of open segment files by path and inode: never the wrong file, and no stale descriptors."""

import os
from pathlib import Path

import pytest

from rotunda.broker.ipc import segment_file_cache
from rotunda.broker.ipc.segment_file_cache import DELETED_SUFFIX, ONE_RESPONSE, OpenFile, SegmentFiles


def make(path: Path, content: bytes = b"content") -> int:
    path.write_bytes(content)
    return path.stat().st_ino


def content_of(file: OpenFile) -> bytes:
    return os.pread(file.fd, 100, 0)


def is_open(fd: int) -> bool:
    return Path(f"/proc/self/fd/{fd}").exists()


def test_a_file_is_opened_once(tmp_path: Path) -> None:
    files = SegmentFiles()
    inode = make(tmp_path / "a")
    assert files.open(str(tmp_path / "a"), inode) is files.open(str(tmp_path / "a"), inode)


def test_a_segment_about_to_be_removed_is_found_under_its_new_name(tmp_path: Path) -> None:
    inode = make(tmp_path / "a", b"old")
    (tmp_path / "a").rename(tmp_path / ("a" + DELETED_SUFFIX))
    make(tmp_path / "a", b"new")
    assert content_of(SegmentFiles().open(str(tmp_path / "a"), inode)) == b"old"


def test_another_file_of_the_same_name_is_not_taken_for_it(tmp_path: Path) -> None:
    inode = make(tmp_path / "a")
    (tmp_path / "a").rename(tmp_path / "elsewhere")
    make(tmp_path / "a", b"new")
    with pytest.raises(FileNotFoundError, match=f"inode {inode}"):
        SegmentFiles().open(str(tmp_path / "a"), inode)


def test_a_file_that_is_gone_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        SegmentFiles().open(str(tmp_path / "a"), 12345)


def test_a_file_for_one_response_is_unlinked_when_it_is_opened(tmp_path: Path) -> None:
    path = tmp_path / "answer"
    make(path, b"large")
    files = SegmentFiles()
    file = files.open(str(path), ONE_RESPONSE)
    assert not path.exists()
    assert content_of(file) == b"large"
    make(path, b"next")
    assert content_of(files.open(str(path), ONE_RESPONSE)) == b"next"


def test_only_what_was_made_for_one_response_is_discarded(tmp_path: Path) -> None:
    path = tmp_path / "a"
    inode = make(path)
    SegmentFiles.discard(str(path), inode)
    assert path.exists()
    SegmentFiles.discard(str(path), ONE_RESPONSE)
    assert not path.exists()
    SegmentFiles.discard(str(path), ONE_RESPONSE)


def test_a_file_that_falls_out_stays_open_while_something_refers_to_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(segment_file_cache, "MAX_OPEN_FILES", 2)
    files = SegmentFiles()
    names = ("a", "b", "c", "d")
    opened = {name: files.open(str(tmp_path / name), make(tmp_path / name, name.encode())) for name in names}
    fds = {name: file.fd for name, file in opened.items()}
    assert content_of(opened["a"]) == b"a"
    del opened
    assert [is_open(fds[name]) for name in names] == [False, False, True, True]


def test_the_most_recently_used_files_stay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(segment_file_cache, "MAX_OPEN_FILES", 2)
    files = SegmentFiles()
    inodes = {name: make(tmp_path / name) for name in "abc"}
    first = files.open(str(tmp_path / "a"), inodes["a"])
    files.open(str(tmp_path / "b"), inodes["b"])
    files.open(str(tmp_path / "a"), inodes["a"])
    files.open(str(tmp_path / "c"), inodes["c"])
    assert files.open(str(tmp_path / "a"), inodes["a"]) is first


def test_deleted_files_are_let_go_of(tmp_path: Path) -> None:
    """The disk frees the space of a deleted file only after its last descriptor is closed."""
    files = SegmentFiles()
    inodes = {name: make(tmp_path / name) for name in "ab"}
    fds = {name: files.open(str(tmp_path / name), inode).fd for name, inode in inodes.items()}
    (tmp_path / "a").unlink()
    files.forget_removed()
    assert not is_open(fds["a"])
    assert files.open(str(tmp_path / "b"), inodes["b"]).fd == fds["b"]
