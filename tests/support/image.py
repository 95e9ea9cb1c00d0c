"""Follows a Dockerfile on a machine without Docker: runs its steps and its command in roots of their own.

A stage starts with this machine's own programs, read-only, instead of the image that it names; its installations are
written to directories of its own. The container of the last stage has a read-only root, 64 MiB of shared memory, its
volumes, its user, and its first process as process 1. It needs root, and mount namespaces.
"""

import json
import os
import re
import shlex
import shutil
import signal
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from tests.support.deadline import deadline_s

SHARED_MEMORY_BYTES = 64 << 20
STEP_SECONDS = 280
#: Of this machine, in every root.
_SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/lib64")
_WRITABLE = ("opt", "source", "data", "tmp")
_MOUNTS = """\
set -eu
cd "$ROOT"
for each in {system}; do
    if [ -L "$each" ]; then [ -e ".$each" ] || ln -s "$(readlink "$each")" ".$each"
    elif [ -d "$each" ]; then mkdir -p ".$each"; mount --rbind "$each" ".$each"; mount -o remount,bind,ro ".$each"; fi
done
mkdir -p proc dev/shm
mount -t proc proc proc
for each in null zero random urandom; do
    [ -e "dev/$each" ] || touch "dev/$each"
    mount --bind "/dev/$each" "dev/$each"
done
mount -t tmpfs -o mode=1777,size={shared} tmpfs dev/shm
"""
_READ_ONLY = """\
mount --bind "$ROOT" "$ROOT"
for each in {volumes}; do mount --bind "$ROOT$each" "$ROOT$each"; done
mount -o remount,bind,ro "$ROOT"
"""


def may_run() -> bool:
    """Return whether this machine allows mount and process namespaces as root."""
    if os.geteuid() or not all(map(shutil.which, ("unshare", "setpriv", "chroot", "mount"))):
        return False
    command = ("unshare", "--mount", "--pid", "--fork", "mount", "-t", "tmpfs", "tmpfs", "/mnt")
    return subprocess.run(command, capture_output=True, check=False).returncode == 0


@dataclass
class Stage:
    """The result of a Dockerfile stage: its root, and its container settings."""

    name: str
    root: Path
    directory: str = "/"
    user: str = ""
    environment: dict[str, str] = field(default_factory=dict)
    volumes: list[str] = field(default_factory=list)
    ports: list[str] = field(default_factory=list)
    health: list[str] = field(default_factory=list)
    entrypoint: list[str] = field(default_factory=list)
    command: list[str] = field(default_factory=list)

    def line(self, command: list[str], *, in_container: bool = False) -> list[str]:
        """Return how a command is run in this root: as a step, or as a container's, by its user."""
        script = _MOUNTS.format(system=" ".join(_SYSTEM), shared=SHARED_MEMORY_BYTES)
        inside = ["sh", "-c", f"cd {shlex.quote(self.directory)} && exec {shlex.join(command)}"]
        if in_container:
            script = _READ_ONLY.format(volumes=" ".join(map(shlex.quote, self.volumes))) + script
            inside = [*self.lowered, *inside]
        script += f'exec /usr/sbin/chroot "$ROOT" {shlex.join(inside)}\n'
        return ["unshare", "--mount", "--pid", "--fork", "--kill-child", "sh", "-c", script]

    @property
    def lowered(self) -> list[str]:
        """Return the command prefix that drops to a user without any rights; users are those of the root, by number."""
        passwd = (line.split(":") for line in (self.root / "etc/passwd").read_text().splitlines())
        number = next(each[2] for each in passwd if each[0] == self.user)
        return ["setpriv", "--reuid", number, "--regid", number, "--clear-groups", "--no-new-privs"]


def instructions(file: Path) -> Iterator[tuple[str, str]]:
    """Yield the instructions of a Dockerfile with their arguments."""
    for line in file.read_text().replace("\\\n", " ").splitlines():
        if line.strip() and not line.lstrip().startswith("#"):
            word, _, rest = line.strip().partition(" ")
            yield word.upper(), rest.strip()


def build(file: Path, context: Path, directory: Path) -> Stage:
    """Follow a Dockerfile and return its last stage."""
    stages: list[Stage] = []
    for word, rest in instructions(file):
        if word == "FROM":
            name = rest.split(" AS ")[-1] if " AS " in rest else str(len(stages))
            stages.append(Stage(name, _new_root(directory / name)))
        else:
            _STEPS[word](stages, rest, context)
    return stages[-1]


def _new_root(root: Path) -> Path:
    """Return a root that has the users, the certificates and the package index of this machine."""
    for each in (*_WRITABLE, "etc", "root", "usr", "proc", "dev/shm"):
        (root / each).mkdir(parents=True)
    for name in ("passwd", "group", "shadow", "hosts", "resolv.conf", "nsswitch.conf", "login.defs", "pip.conf"):
        if Path("/etc", name).exists():
            shutil.copy(Path("/etc", name), root / "etc" / name)
    for name in ("ssl", "ld.so.cache", "ld.so.conf", "ld.so.conf.d", "alternatives", "mime.types"):
        found, copy = Path("/etc", name), root / "etc" / name
        if found.is_dir():
            shutil.copytree(found, copy, symlinks=True, ignore_dangling_symlinks=True)
        elif found.exists():
            shutil.copy(found, copy)
    return root


def _run(stages: list[Stage], rest: str, _context: Path) -> None:
    stage = stages[-1]
    command = shlex.split(rest)
    if command[0] == "python":
        command[0] = "/usr/bin/python3"
    environment = {**os.environ, **stage.environment, "ROOT": str(stage.root), "HOME": "/root", "TMPDIR": "/root"}
    done = subprocess.run(
        stage.line(command), env=environment, capture_output=True, text=True, timeout=STEP_SECONDS, check=False
    )
    assert done.returncode == 0, f"RUN {rest}\n{done.stdout}{done.stderr}"


def _copy(stages: list[Stage], rest: str, context: Path) -> None:
    words = rest.split()
    if words[0].startswith("--from="):
        other = next(each for each in stages if each.name == words[0].removeprefix("--from="))
        shutil.copytree(other.root / words[1].lstrip("/"), stages[-1].root / words[2].lstrip("/"), symlinks=True)
        return
    target = stages[-1].root / stages[-1].directory.lstrip("/") / words[1].lstrip("/")
    shutil.copytree(context / words[0], target, symlinks=True, dirs_exist_ok=True)


def _environment(stages: list[Stage], rest: str, _context: Path) -> None:
    name, _, value = rest.partition("=")
    stages[-1].environment[name] = value


def _health(stages: list[Stage], rest: str, _context: Path) -> None:
    stages[-1].health = json.loads(rest.partition("CMD ")[2])


_STEPS = {
    "RUN": _run,
    "COPY": _copy,
    "ENV": _environment,
    "HEALTHCHECK": _health,
    "WORKDIR": lambda stages, rest, _: setattr(stages[-1], "directory", rest),
    "USER": lambda stages, rest, _: setattr(stages[-1], "user", rest),
    "VOLUME": lambda stages, rest, _: stages[-1].volumes.append(rest),
    "EXPOSE": lambda stages, rest, _: stages[-1].ports.append(rest),
    "ENTRYPOINT": lambda stages, rest, _: setattr(stages[-1], "entrypoint", json.loads(rest)),
    "CMD": lambda stages, rest, _: setattr(stages[-1], "command", json.loads(rest)),
}


class Container:
    """A container of an image's last stage, with `arguments` after its entry point, or its own command."""

    def __init__(self, stage: Stage, arguments: tuple[str, ...] = (), **environment: str) -> None:
        command = [*stage.entrypoint, *(arguments or stage.command)]
        self._environment = {**stage.environment, **environment}
        self.stage = stage
        self.process = subprocess.Popen(
            stage.line(command, in_container=True),
            env={**self._environment, "ROOT": str(stage.root)},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def close(self) -> None:
        """Kill the processes of the container: they end with the first. unshare's --kill-child ends at setpriv."""
        with suppress(ProcessLookupError):
            for first in self._first():
                os.kill(first, signal.SIGKILL)
        self.process.kill()
        self.process.wait()
        if self.process.stdout is not None:
            self.process.stdout.close()

    def _first(self) -> list[int]:
        """Return the container's process 1, by its number outside; nothing if it has ended."""
        children = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children")
        return [int(each) for each in children.read_text().split()] if children.exists() else []

    def wait_for(self, pattern: str) -> re.Match[str]:
        """Return the match in the first line of its output that has one."""
        assert self.process.stdout is not None
        seen = []
        for line in self.process.stdout:
            seen.append(line)
            if found := re.search(pattern, line):
                return found
        raise AssertionError(f"no {pattern} in:\n{''.join(seen)}")

    def inside(self, *command: str) -> subprocess.CompletedProcess[str]:
        """Run a command where the container's processes are, by its user, as its health is checked."""
        [first] = self._first()
        enter = [
            "nsenter",
            f"--target={first}",
            "--mount",
            "--pid",
            f"--root=/proc/{first}/root",
            f"--wd=/proc/{first}/root",
        ]
        return subprocess.run(
            [*enter, *self.stage.lowered, *command],
            env=self._environment,
            capture_output=True,
            text=True,
            timeout=deadline_s(),
            check=False,
        )
