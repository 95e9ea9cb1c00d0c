"""Symbolic links in place of a data directory's files: not followed, so that no other file is changed."""

from contextlib import suppress
from pathlib import Path

import pytest

from rotunda.broker.config.broker_config import load
from rotunda.broker.config.topic_config import LogConfig
from rotunda.broker.errors import BootFailed
from rotunda.broker.log.data_dir import lock_data_dir, prepare_data_dir
from rotunda.broker.log.log_manager import LogManager
from rotunda.broker.log.log_reader import LogReader
from rotunda.broker.log.partition_log import LogDamaged, PartitionLog, PartitionName, PublishedEnd
from rotunda.broker.metadata.rebuild import check_or_rebuild
from rotunda.broker.metadata.store.metadata_file import metadata_path
from rotunda.broker.metadata.store.metadata_store import MetadataStore
from tests.log.log_writer import batch, end_of, log_bytes, read_everything, stage
from tests.support.fakes import FakeClock
from tests.support.record_batches import TIMESTAMP_MS

NAME = PartitionName("t", 0, bytes(range(16)))
SMALL = LogConfig(internal_segment_bytes=1000, index_interval_bytes=100)
RECORDS = 30
PATTERNS = (
    "*checkpoint",
    "*-checkpoint.tmp",
    "checkpoint-checksums",
    ".checkpoint-lock",
    "t-0/partition.metadata",
    "t-0/partition.metadata.tmp",
    "t-0/leader-epoch-checkpoint",
    "t-0/*.index",
    "t-0/*.timeindex",
    "t-0/*.snapshot",
)


def append(log: PartitionLog) -> None:
    for _ in range(RECORDS):
        stage(log, batch(1, size=40))
        log.commit()


def fill(data_dir: Path) -> None:
    data_dir.mkdir()
    manager = LogManager(data_dir, FakeClock(wall_ms=TIMESTAMP_MS), 86_400_000)
    append(manager.open(NAME, SMALL, None))
    manager.close()


def replace_by_link(path: Path, decoys: Path) -> Path:
    """Move a file elsewhere, replace it by a link, and return its new path."""
    decoys.mkdir(exist_ok=True)
    decoy = decoys / path.name
    decoy.write_bytes(path.read_bytes() if path.exists() else b"precious")
    path.unlink(missing_ok=True)
    path.symlink_to(decoy)
    return decoy


def paths_of(data_dir: Path, pattern: str) -> list[Path]:
    if not pattern.endswith(".tmp"):
        return sorted(data_dir.glob(pattern))
    return [path.with_name(path.name + ".tmp") for path in data_dir.glob(pattern.removesuffix(".tmp"))]


@pytest.mark.parametrize("pattern", PATTERNS)
def test_no_small_file_is_written_through_a_link(tmp_path: Path, pattern: str) -> None:
    data_dir = tmp_path / "data"
    fill(data_dir)
    content = log_bytes(data_dir / "t-0")
    paths = paths_of(data_dir, pattern)
    assert paths
    decoys = [replace_by_link(path, tmp_path / "decoys") for path in paths]
    before = [decoy.read_bytes() for decoy in decoys]
    manager = LogManager(data_dir, FakeClock(wall_ms=TIMESTAMP_MS), 86_400_000)
    # A link in place of a lock or a temporary file is an error.
    with suppress(OSError):
        log = manager.open(NAME, SMALL, None)
        assert log_bytes(data_dir / "t-0") == content == read_everything(data_dir / "t-0", end_of(log))
        append(log)
        manager.close()
    assert [decoy.read_bytes() for decoy in decoys] == before


@pytest.mark.parametrize("published", [None, PublishedEnd(RECORDS, 0, 100, 0)])
@pytest.mark.parametrize("suffix", [".log", ".log.swap"])
@pytest.mark.parametrize("number", [0, -1])
def test_a_partition_with_a_link_for_a_log_file_stays_offline(
    tmp_path: Path, number: int, suffix: str, published: PublishedEnd | None
) -> None:
    data_dir = tmp_path / "data"
    fill(data_dir)
    path = sorted((data_dir / "t-0").glob("*.log"))[number].with_suffix(suffix)
    decoy = replace_by_link(path, tmp_path / "decoys")
    decoy.write_bytes(decoy.read_bytes() + b"torn")
    before = decoy.read_bytes()
    manager = LogManager(data_dir, FakeClock(wall_ms=TIMESTAMP_MS), 86_400_000)
    with pytest.raises(LogDamaged, match=f"{path} is a symbolic link"):
        manager.open(NAME, SMALL, published)
    assert decoy.read_bytes() == before
    assert path.is_symlink()


def test_readers_do_not_follow_a_link(tmp_path: Path) -> None:
    data_dir = tmp_path / "data"
    data_dir.mkdir()
    manager = LogManager(data_dir, FakeClock(wall_ms=TIMESTAMP_MS), 86_400_000)
    log = manager.open(NAME, SMALL, None)
    append(log)
    replace_by_link(min((data_dir / "t-0").glob("*.log")), tmp_path / "decoys")
    with pytest.raises(OSError, match="symbolic"):
        LogReader(data_dir / "t-0").locate(0, end_of(log), 1000)


def use(data_dir: Path) -> None:
    prepare_data_dir(data_dir, 1)
    lock_data_dir(data_dir)


@pytest.mark.parametrize("name", ["meta.properties", "meta.properties.tmp", ".lock"])
def test_the_data_directorys_own_files_are_no_links(tmp_path: Path, name: str) -> None:
    data_dir = tmp_path / "data"
    data_dir.mkdir()
    decoy = replace_by_link(data_dir / name, tmp_path)
    before = decoy.read_bytes()
    with pytest.raises((OSError, BootFailed), match="symbolic"):
        use(data_dir)
    assert decoy.read_bytes() == before


@pytest.mark.parametrize("suffix", ["", "-wal", "-shm"])
def test_the_metadata_file_is_no_link(tmp_path: Path, suffix: str) -> None:
    """Neither read, nor completed, nor given another mode, at the start of a broker and by commands beside it."""
    data_dir = tmp_path / "data"
    data_dir.mkdir()
    path = metadata_path(data_dir)
    MetadataStore.open(path).close()
    decoy = replace_by_link(path.with_name(path.name + suffix), tmp_path / "decoys")
    decoy.chmod(0o644)
    before = decoy.read_bytes()
    config = load(None, {"log.dirs": str(data_dir), "metadata.rebuild": "true"}, {})
    for use_it in (lambda: check_or_rebuild(config, TIMESTAMP_MS), lambda: MetadataStore.open(path)):
        with pytest.raises(BootFailed, match="symbolic link"):
            use_it()
    assert (decoy.read_bytes(), decoy.stat().st_mode & 0o777) == (before, 0o644)


def test_a_data_directory_that_is_a_link_is_used(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "elsewhere")
    prepare_data_dir(tmp_path / "link", 1)
    manager = LogManager(tmp_path / "link", FakeClock(wall_ms=TIMESTAMP_MS), 86_400_000)
    append(manager.open(NAME, SMALL, None))
    manager.close()
    assert (tmp_path / "elsewhere" / "t-0").is_dir()
