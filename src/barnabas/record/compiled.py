"""Compiled modules of other packages, loaded without the packages around them.

`import aiokafka.record` runs the package's `__init__`, which imports the whole client and takes
longer than the record reader itself. Here the package is registered without running its `__init__`,
which runs when a missing name is first requested. Programs that use aiokafka need no change.

The function for CRC-32C is loaded without the `__init__` of `crc32c`, too. That file imports
argparse and the mail parser, which takes a sixth of the broker's startup time.
"""

from __future__ import annotations

import importlib
import importlib.machinery
import importlib.util
import sys
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Protocol, cast

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from importlib.machinery import ModuleSpec
    from types import ModuleType

    Buffer = bytes | bytearray | memoryview


_READER_PACKAGE = "aiokafka"

# Exceptions of the compiled reader besides its own error. One cause is a header key that is not
# UTF-8: it must not stop the read, because Java replaces the invalid bytes. The other causes are
# numbers longer than ten bytes (ValueError), and sizes whose sum overflows the bounds check.
UNREADABLE = (ValueError, OverflowError, MemoryError)


class CompiledRecord(Protocol):
    """Record of the compiled reader; it has the same attributes as `Record`."""

    @property
    def offset(self) -> int: ...
    @property
    def timestamp(self) -> int: ...
    @property
    def timestamp_type(self) -> int: ...
    @property
    def key(self) -> bytes | None: ...
    @property
    def value(self) -> bytes | None: ...
    @property
    def headers(self) -> Sequence[tuple[str, bytes | None]]: ...


class CompiledReader:
    """The compiled class that reads one v2 batch, and its exception class."""

    __slots__ = ("batch", "corrupt")

    def __init__(self) -> None:
        if _READER_PACKAGE not in sys.modules:
            _defer_package()
        from aiokafka.errors import CorruptRecordException
        from aiokafka.record.default_records import DefaultRecordBatch

        self.batch: Callable[[Buffer], Iterable[CompiledRecord]] = DefaultRecordBatch
        self.corrupt: type[Exception] = CorruptRecordException


@lru_cache(maxsize=1)
def compiled_reader() -> CompiledReader:
    """Return the reader, which is loaded at the first call."""
    return CompiledReader()


def _defer_package() -> None:
    spec = importlib.util.find_spec(_READER_PACKAGE)
    assert spec is not None, "aiokafka is a required dependency"
    module = importlib.util.module_from_spec(spec)
    module.__dict__["__getattr__"] = _load_on_miss(spec, module)
    sys.modules[_READER_PACKAGE] = module


def _load_on_miss(spec: ModuleSpec, module: ModuleType) -> Callable[[str], Any]:
    """Return a module `__getattr__` (PEP 562) that runs the module's code on a missing name."""

    def get(name: str) -> Any:
        if name.startswith("__") and name not in ("__version__", "__all__"):
            raise AttributeError(name)
        if module.__dict__.pop("__getattr__", None) is not None:
            assert spec.loader is not None
            spec.loader.exec_module(module)
        return getattr(module, name)

    return get


_CHECKSUM_PACKAGE = "crc32c"
_CHECKSUM_MODULE = "crc32c._crc32c"


def _checksum_module() -> ModuleType | None:
    package = importlib.machinery.PathFinder.find_spec(_CHECKSUM_PACKAGE)
    if package is None:
        return None
    found = importlib.machinery.PathFinder.find_spec(
        _CHECKSUM_MODULE, package.submodule_search_locations
    )
    if found is None or found.loader is None:
        return None
    module = importlib.util.module_from_spec(found)
    found.loader.exec_module(module)
    return module


def _checksum_function() -> Callable[[Buffer], int]:
    module = _checksum_module()
    if module is None:
        module = importlib.import_module(_CHECKSUM_PACKAGE)
    return cast("Callable[[Buffer], int]", module.crc32c)


# The checksum of record batches and of snapshots: takes bytes, returns an unsigned 32-bit number.
crc32c = _checksum_function()
