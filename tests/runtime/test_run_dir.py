"""The run directory: private, locked, and correct about the running broker."""

import json
import os
import stat
from pathlib import Path

import pytest

from rotunda.broker.errors import BootFailed, UsageError
from rotunda.broker.runtime import run_dir

RECORD = run_dir.RunRecord(
    instance="i",
    pid=7,
    start_ticks=1,
    state=run_dir.READY,
    bootstrap="",
    data_dir="",
    run_dir="",
    processors=1,
    most_processors=8,
    handlers=1,
    most_handlers=4,
    max_partitions=1,
    started_ms=1,
)


def test_it_is_private_even_if_it_was_not(tmp_path: Path) -> None:
    path = tmp_path / "a" / "run"
    path.mkdir(parents=True, mode=0o755)
    run_dir.make(path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o700


def test_a_link_or_a_file_in_its_place_is_rejected(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "link").symlink_to(tmp_path)
    for name in ("file", "link"):
        with pytest.raises(UsageError):
            run_dir.make(tmp_path / name)


def test_the_lock_is_held_once(tmp_path: Path) -> None:
    fd = run_dir.lock(tmp_path)
    with pytest.raises(BootFailed) as failure:
        run_dir.lock(tmp_path)
    assert failure.value.exit_code == 4
    os.close(fd)
    os.close(run_dir.lock(tmp_path))


def test_an_unreadable_record_is_none(tmp_path: Path) -> None:
    assert run_dir.read(tmp_path) is None
    for text in ("", "{}", "[]", '{"pid": 1}', "\x00"):
        (tmp_path / run_dir.RECORD_NAME).write_text(text)
        assert run_dir.read(tmp_path) is None


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({"ROTUNDA_RUN_DIR": "/x/y", "XDG_RUNTIME_DIR": "/run/user/7"}, "/x/y"),
        ({"XDG_RUNTIME_DIR": "/run/user/7"}, "/run/user/7/rotunda"),
    ],
)
def test_the_default_place(environment: dict[str, str], expected: str) -> None:
    assert run_dir.default_path(environment) == Path(expected)


def test_without_any_hint_each_user_has_one() -> None:
    assert run_dir.default_path({}).name == f"rotunda-{os.getuid()}"


@pytest.mark.parametrize("content", ["", "{}", '{"pid": 1', "\x00\x00"])
def test_a_damaged_record_of_a_broker_that_runs_is_named(tmp_path: Path, content: str) -> None:
    record = tmp_path / run_dir.RECORD_NAME
    record.write_text(content)
    run_dir.check_readable(tmp_path)
    fd = run_dir.lock(tmp_path)
    with pytest.raises(BootFailed) as refused:
        run_dir.check_readable(tmp_path)
    assert str(record) in refused.value.reason
    assert f"kill -TERM {os.getpid()}) and start it again" in refused.value.reason
    os.close(fd)
    run_dir.check_readable(tmp_path)


def test_a_record_of_a_version_without_a_compiled_module_is_read(tmp_path: Path) -> None:
    run_dir.write(tmp_path, RECORD)
    text = json.loads((tmp_path / run_dir.RECORD_NAME).read_text())
    del text["is_native"]
    (tmp_path / run_dir.RECORD_NAME).write_text(json.dumps(text))
    assert run_dir.read(tmp_path) == RECORD


@pytest.mark.parametrize("pid", ["7", -1.5, None, [7], -1, 0])
def test_a_record_with_a_field_of_another_kind_is_none(tmp_path: Path, pid: object) -> None:
    run_dir.write(tmp_path, RECORD)
    assert run_dir.read(tmp_path) == RECORD
    text = json.loads((tmp_path / run_dir.RECORD_NAME).read_text())
    (tmp_path / run_dir.RECORD_NAME).write_text(json.dumps({**text, "pid": pid}))
    assert run_dir.read(tmp_path) is None
