"""The unit that `rotunda print-unit` prints, as systemd reads it."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from broker.cli.main import main


@pytest.mark.parametrize("with_config", [True, False])
def test_systemd_finds_nothing_wrong_with_it(
    with_config: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    properties = tmp_path / "server.properties"
    properties.write_text("num.partitions=3\n")
    assert main(["print-unit", *(["--config", str(properties), "--user", "daemon"] if with_config else [])]) == 0
    text = capsys.readouterr().out
    unit = tmp_path / "rotunda.service"
    unit.write_text(text)
    found = subprocess.run(["systemd-analyze", "verify", unit], capture_output=True, text=True, check=False)
    assert (found.returncode, found.stdout + found.stderr) == (0, "")
    assert ("User=daemon" in text, f"--config {properties}" in text) == (with_config, with_config)
    assert ("DynamicUser=yes" in text) != with_config


def test_a_configuration_that_is_not_there_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["print-unit", "--config", str(tmp_path / "none")]) == 2
    assert f"there is no file {tmp_path / 'none'}" in capsys.readouterr().err
