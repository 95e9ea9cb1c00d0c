"""Profiles as the bench reads them, and its error messages."""

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from rotunda.broker.bench.profile import KNOWN_VERSION, partitions_needed, read
from rotunda.broker.errors import RotundaError

ROW = {
    "profileVersion": KNOWN_VERSION, "atUs": 0, "event": "request", "connection": 0, "clientId": "app",
    "requestApiKey": 0, "requestApiKeyName": "PRODUCE", "topic": "orders", "partition": 1, "repeat": 1,
}  # fmt: skip


def write(path: Path, rows: list[dict[str, object]]) -> Path:
    pq.write_table(pa.Table.from_pylist(rows), path)
    return path


def test_a_profile_is_read_in_order_and_what_it_lacks_is_not_known(tmp_path: Path) -> None:
    path = write(tmp_path / "profile.parquet", [ROW | {"atUs": 20, "partitionCount": 5}, ROW | {"topic": "other"}])
    events = read(path)
    assert [event.atUs for event in events] == [0, 20]
    assert events[0].codec is None
    assert partitions_needed(events) == {"orders": 5, "other": 2}


def test_what_a_job_has_left_is_found_below_its_directory(tmp_path: Path) -> None:
    (tmp_path / "profile").mkdir()
    write(tmp_path / "profile" / "part-0.parquet", [ROW])
    assert read(tmp_path) == read(tmp_path / "profile") == read(tmp_path / "profile" / "part-0.parquet")


@pytest.mark.parametrize(
    ("row", "complaint"),
    [
        (ROW | {"profileVersion": KNOWN_VERSION + 1}, f"version {KNOWN_VERSION + 1}; .*knows version"),
        ({"a": 1}, "no rows of a profile"),
    ],
)
def test_other_files_are_rejected(tmp_path: Path, row: dict[str, object], complaint: str) -> None:
    with pytest.raises(RotundaError, match=complaint):
        read(write(tmp_path / "profile.parquet", [row]))


def test_no_file_and_no_parquet(tmp_path: Path) -> None:
    with pytest.raises(RotundaError, match="make one with: rotunda report replay"):
        read(tmp_path)
    (tmp_path / "profile.parquet").write_bytes(b"no parquet")
    with pytest.raises(RotundaError, match="cannot be read"):
        read(tmp_path)
