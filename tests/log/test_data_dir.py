"""The data directory: ownership, lock and marker files."""

import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from rotunda.broker.errors import BootFailed
from rotunda.broker.log.data_dir import (
    DataDirInUse,
    DataFromNewerVersion,
    lock_data_dir,
    prepare_data_dir,
    remove_clean_shutdown_mark,
    want_of_privacy,
    write_clean_shutdown_mark,
)

LOCKER = """
import sys
from pathlib import Path
from rotunda.broker.log.data_dir import lock_data_dir
lock_data_dir(Path(sys.argv[1]))
print("locked", flush=True)
sys.stdin.read()
"""


def test_a_new_directory_gets_a_cluster_id_and_keeps_it(tmp_path: Path) -> None:
    path = tmp_path / "a" / "b"
    cluster_id = prepare_data_dir(path, 1)
    assert len(cluster_id) == 22
    lines = (path / "meta.properties").read_text().splitlines()
    assert [line.split("=")[0] for line in lines] == ["cluster.id", "directory.id", "node.id", "version"]
    assert prepare_data_dir(path, 1) == cluster_id


def test_a_directory_of_kafkas(tmp_path: Path) -> None:
    text = "#\n#Mon Jan 01 00:00:00 UTC 2024\nversion=1\ncluster.id=4L6g3nShT-eMCtK--X86sw\nnode.id=3\n"
    (tmp_path / "meta.properties").write_text(text)
    assert prepare_data_dir(tmp_path, 3) == "4L6g3nShT-eMCtK--X86sw"
    with pytest.raises(BootFailed, match="belongs to node 3"):
        prepare_data_dir(tmp_path, 1)


def test_a_directory_of_a_newer_version(tmp_path: Path) -> None:
    (tmp_path / "meta.properties").write_text("version=2\ncluster.id=x\nnode.id=1\n")
    with pytest.raises(DataFromNewerVersion) as failed:
        prepare_data_dir(tmp_path, 1)
    assert failed.value.exit_code == 5
    assert (tmp_path / "meta.properties").read_text() == "version=2\ncluster.id=x\nnode.id=1\n"


@pytest.mark.parametrize(
    ("parent", "mode", "is_exposed"),
    [
        (0o755, 0o755, True),
        (0o711, 0o704, True),
        (0o755, 0o701, True),
        (0o755, 0o750, False),
        (0o755, 0o700, False),
        (0o700, 0o777, False),
    ],
)
def test_a_directory_that_other_users_can_read_is_a_warning(parent: int, mode: int, is_exposed: bool) -> None:
    """Also by its parents: a closed parent directory blocks all other users. Access by a group is deliberate."""
    # Outside the directories of the tests, which other users cannot reach.
    with TemporaryDirectory(dir="/tmp") as outer:
        Path(outer).chmod(parent)
        directory = Path(outer) / "data"
        directory.mkdir()
        directory.chmod(mode)
        warning = want_of_privacy(directory)
    assert (warning is not None) == is_exposed
    assert not is_exposed or f"{directory} has mode {mode:04o}: every user of this machine can" in str(warning)


def test_deletions_that_were_cut_short_are_finished(tmp_path: Path) -> None:
    doomed = tmp_path / "topic-0.0123456789abcdef-delete"
    doomed.mkdir()
    (doomed / "00000000000000000000.log").write_bytes(b"x")
    (tmp_path / "topic-1").mkdir()
    prepare_data_dir(tmp_path, 1)
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["meta.properties", "topic-1"]


def test_one_broker_at_a_time(tmp_path: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", LOCKER, str(tmp_path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        cwd=Path(__file__).parents[2],
    ) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == b"locked\n"
        with pytest.raises(DataDirInUse) as failed:
            lock_data_dir(tmp_path)
        assert failed.value.exit_code == 4
        other.kill()
    assert lock_data_dir(tmp_path) >= 0


def test_the_clean_shutdown_mark_holds_for_one_start(tmp_path: Path) -> None:
    assert remove_clean_shutdown_mark(tmp_path) is False
    write_clean_shutdown_mark(tmp_path)
    assert (tmp_path / ".kafka_cleanshutdown").read_text() == '{"version": 0, "brokerEpoch": -1}'
    assert remove_clean_shutdown_mark(tmp_path) is True
    assert remove_clean_shutdown_mark(tmp_path) is False


@pytest.mark.parametrize(
    "content",
    [b"", b"\xff\xfe\x00", b"cluster.id=abc\n", b"node.id=3\nversion=1\n", b"node.id=3\ncluster.id=a b\n", None],
)
def test_a_file_that_cannot_be_used_is_set_aside_and_made_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, content: bytes | None
) -> None:
    path = tmp_path / "meta.properties"
    path.mkdir() if content is None else path.write_bytes(content)
    cluster_id = prepare_data_dir(tmp_path, 3)
    assert len(cluster_id) == 22
    assert str(path) in caplog.text
    assert (tmp_path / "meta.properties.damaged-1").exists()
    caplog.clear()
    assert prepare_data_dir(tmp_path, 3) == cluster_id
    assert not caplog.text
