"""A whole broker on a disk that fails on command: system calls are replaced in all its processes."""

import errno
import subprocess
from collections.abc import Mapping
from pathlib import Path

from tests.support.broker_process import BrokerProcess
from tests.support.deadline import deadline_s

SOURCE = Path(__file__).with_name("failing_disk.c")


class FailingDisk:
    """The rules in force; `environment` is for the broker's processes."""

    def __init__(self, directory: Path) -> None:
        library = directory / "failing_disk.so"
        subprocess.run(
            ["cc", "-shared", "-fPIC", "-O1", "-o", library, SOURCE, "-ldl"], check=True, timeout=deadline_s()
        )
        self._rules = directory / "failing_disk.rules"
        self.environment = {"LD_PRELOAD": str(library), "FAILING_DISK": str(self._rules)}
        self.mend()

    def fail(self, operation: str, error: int, path: object) -> None:
        """Fail an operation (write, sync, read) on every file whose path has this text; earlier rules stay."""
        self._put(self._rules.read_text() + f"{operation} {error} {path}\n")

    def slow(self, path: object, delay_us: int) -> None:
        """Delay every write to a file whose path has this text by so much; earlier rules stay."""
        self.fail("slow", delay_us, path)

    def fill(self, path: object, error: int = errno.ENOSPC) -> None:
        """Fail every write to a file with this text in its path for lack of space."""
        self.fail("write", error, path)

    def mend(self) -> None:
        """Remove all rules: everything succeeds again."""
        self._put("")

    def _put(self, rules: str) -> None:
        beside = self._rules.with_suffix(".tmp")
        beside.write_text(rules)
        beside.replace(self._rules)

    def broker(self, directory: Path, settings: Mapping[str, object] | None = None) -> BrokerProcess:
        """Return a broker on this disk that is not started yet."""
        return BrokerProcess(directory, settings, ephemeral=False, environment=self.environment)
