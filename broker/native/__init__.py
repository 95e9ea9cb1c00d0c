"""Steps of a request in C: the optional module `compiled`, built where a C compiler is there (`pyproject.toml`).

Every function and type of it has a twin in Python, which is the reference. The twin's module puts the compiled one in
its own place at its end, or calls it first for what is usual; users of either import the same names. The compiled code
keeps nothing between calls but its own objects, and checks every read and write against the end of its buffer. A ring
in shared memory keeps its protocol (`shm/rings/ring.py`), and with it the one writer of each word.
`ROTUNDA_PURE_PYTHON=1` in the environment chooses the twins. Knows nothing of the rest of the broker; runs wherever a
twin does. What has a part in C: the walk over records, their readers, rings, the receipt of requests and the sending of
responses in processors, and in handlers the common Produce and the repeated responses.
"""

import importlib
import os
from types import ModuleType
from typing import Final

PURE_PYTHON_VARIABLE: Final = "ROTUNDA_PURE_PYTHON"

#: What this code expects of the module; one that was built from other sources has another (`module.c`).
_INTERFACE: Final = 12


def _load() -> ModuleType | None:
    if os.environ.get(PURE_PYTHON_VARIABLE, "") not in ("", "0"):
        return None
    try:
        module = importlib.import_module("rotunda.broker.native.compiled")
    except ImportError:
        return None
    return module if module.INTERFACE == _INTERFACE else None


compiled: ModuleType | None = _load()
"""The compiled module; None where the twins are used."""
