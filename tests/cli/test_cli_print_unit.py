"""The unit that `rotunda print-unit` prints and those of docs/operations.md for reports, as systemd reads them."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from rotunda.broker.cli.main import main


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
    # Of 0 to 10 in tenths: the most that systemd calls "OK".
    exposed = ["systemd-analyze", "security", "--offline=true", "--threshold=40", unit]
    assert subprocess.run(exposed, capture_output=True, check=False).returncode == 0


@pytest.mark.parametrize(
    ("program", "base", "protected"),
    [
        ("/opt/rotunda/bin/python", "/usr", "yes"),
        ("/home/kim/env/bin/python", "/usr", "read-only"),
        ("/opt/rotunda/bin/python", "/root/.pyenv/versions/3.11", "read-only"),
    ],
)
def test_what_the_broker_is_run_by_is_not_hidden_from_it(
    program: str, base: str, protected: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Whichever user prints the unit: it may be root, with a home of its own."""
    monkeypatch.setattr(sys, "executable", program)
    monkeypatch.setattr(sys, "base_prefix", base)
    assert main(["print-unit"]) == 0
    assert f"ProtectHome={protected}\n" in capsys.readouterr().out


def test_a_configuration_that_is_not_there_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["print-unit", "--config", str(tmp_path / "none")]) == 2
    assert f"no such file: {tmp_path / 'none'}" in capsys.readouterr().err


def test_systemd_finds_nothing_wrong_with_the_units_for_reports(tmp_path: Path) -> None:
    text = (Path(__file__).parents[2] / "docs" / "operations.md").read_text()
    units = re.findall(r"```ini\n# /etc/systemd/system/(\S+)\n(.*?)```", text, re.DOTALL)
    assert [name for name, _ in units] == ["rotunda-reports.service", "rotunda-reports.timer"]
    installed = str(Path(sys.executable).parent / "rotunda")
    for name, unit in units:
        (tmp_path / name).write_text(unit.replace("/usr/local/bin/rotunda", installed))
    paths = [tmp_path / name for name, _ in units]
    found = subprocess.run(["systemd-analyze", "verify", *paths], capture_output=True, text=True, check=False)
    assert (found.returncode, found.stdout + found.stderr) == (0, "")
