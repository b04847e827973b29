"""CRC-32C, the checksum of record batches and of snapshots.

The function is loaded from the compiled module of the package `crc32c`, without the package's
`__init__`. That file imports argparse and the mail parser, which takes a sixth of the broker's
startup time.
"""

from __future__ import annotations

import importlib
import importlib.machinery
import importlib.util
from typing import TYPE_CHECKING, cast

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import ModuleType

    Buffer = bytes | bytearray | memoryview

_PACKAGE = "crc32c"
_COMPILED = "crc32c._crc32c"


def _compiled_module() -> ModuleType | None:
    package = importlib.machinery.PathFinder.find_spec(_PACKAGE)
    if package is None:
        return None
    found = importlib.machinery.PathFinder.find_spec(_COMPILED, package.submodule_search_locations)
    if found is None or found.loader is None:
        return None
    module = importlib.util.module_from_spec(found)
    found.loader.exec_module(module)
    return module


def _function() -> Callable[[Buffer], int]:
    module = _compiled_module()
    if module is None:
        module = importlib.import_module(_PACKAGE)
    return cast("Callable[[Buffer], int]", module.crc32c)


# The function takes bytes and returns the checksum as an unsigned 32-bit number.
crc32c = _function()
