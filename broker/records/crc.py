"""CRC-32C over records, by the package crc32c's own function in C.

That package looks up its own version when it is imported, for which Python loads a parser of e-mails: a tenth of the
broker's whole start-up time. So only the module in C is loaded.
"""

from collections.abc import Callable
from importlib.machinery import PathFinder
from importlib.util import find_spec, module_from_spec
from typing import Any


def _load() -> Any:
    package = find_spec("crc32c")
    places = package.submodule_search_locations if package else None
    found = PathFinder.find_spec("crc32c._crc32c", places) if places else None
    if found is None or found.loader is None:
        # A build of the package with another layout.
        import crc32c  # noqa: PLC0415

        return crc32c
    module = module_from_spec(found)
    found.loader.exec_module(module)
    return module


#: (bytes[, CRC of the bytes before them]) -> their CRC.
crc32c: Callable[..., int] = _load().crc32c
