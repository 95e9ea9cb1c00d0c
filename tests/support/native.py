"""The compiled module as tests have it: built from the sources as they are, and modules with it or with their twins."""

from __future__ import annotations

import ctypes
import functools
import importlib.util
import shutil
import subprocess
import sysconfig
import tempfile
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from rotunda.broker import native
from rotunda.shm.rings.ring import RingConsumer, RingCorrupt, RingProducer

_SOURCES = sorted((Path(__file__).parents[2] / "broker/native").glob("*.c"))
_BUILD_S = 120
_STRICT = ("-std=c11", "-Wall", "-Wextra", "-Werror")
SANITIZED = ("-O1", "-g", "-fsanitize=address,undefined", "-fno-sanitize-recover=all")

#: Where the twin is tested, and where the compiled module.
IMPLEMENTATIONS = ("python", "native")


def build(directory: Path, *options: str) -> Path:
    """Compile the module into a directory and return its path; without a compiler the test is skipped."""
    if shutil.which("cc") is None:
        pytest.skip("no C compiler")
    library = directory / "compiled.abi3.so"
    headers = sysconfig.get_path("include")
    command = ["cc", *_STRICT, "-shared", "-fPIC", f"-I{headers}", *options, "-o", library, *_SOURCES]
    subprocess.run(command, check=True, timeout=_BUILD_S)
    return library


def load(library: Path) -> ModuleType:
    """Return the module of a library."""
    return module_of("compiled", library)


def exactly(data: bytes | memoryview) -> memoryview:
    """Return a buffer of exactly these bytes, without the zero byte after a bytes object."""
    return memoryview((ctypes.c_ubyte * len(data)).from_buffer_copy(data)).cast("B")


def implementation(name: str, kind: str) -> ModuleType:
    """Return a separate copy of a module of the broker, with the Python twins or with C."""
    chosen = native.compiled
    native.compiled = _built() if kind == "native" else None
    try:
        origin = importlib.util.find_spec(name)
        assert origin is not None
        assert origin.origin is not None
        return module_of(f"{name}.{kind}", Path(origin.origin))
    finally:
        native.compiled = chosen


def ring_ends(kind: str) -> tuple[Any, Any]:
    """Return the producer's and the consumer's end of rings."""
    if kind == "python":
        return RingProducer, RingConsumer
    ends = _built().RingProducer, _built().RingConsumer
    return tuple(functools.partial(end, corrupt=RingCorrupt) for end in ends)


@functools.cache
def _built() -> ModuleType:
    with tempfile.TemporaryDirectory() as directory:
        return load(build(Path(directory), "-O2"))


def module_of(name: str, path: Path) -> ModuleType:
    """Return a separate copy of a module."""
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
