"""A directory as a store, with the faults of `buckets.faults`, for brokers in other processes.

A broker opens it as `python:buckets.faulty_directory:open_store`. The test writes the faults into a
file, which each call of the broker reads; the broker writes down which of them it has met.
"""

from __future__ import annotations

import errno
import json
import os
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from barnabas.runtime.disk import RealDisk
from barnabas.storage.remote.directory_storage import DirectoryStorage
from buckets.faults import Fault, Kind, flipped

if TYPE_CHECKING:
    from collections.abc import Callable

    from barnabas.runtime.disk import Bytes

T = TypeVar("T")

# The variable of the environment with the directory.
VARIABLE = "BARNABAS_FAULTY_DIRECTORY"
URL = "python:buckets.faulty_directory:open_store"
_TESTS = Path(__file__).parents[1]
_OBJECTS, _FAULTS, _HITS = "objects", "faults.json", "hits"
_POLL_S = 0.02
_TEMPORARY_SUFFIX = ".tmp"
_ERRNOS = {
    "AccessDenied": errno.EACCES,
    "InsufficientStorage": errno.ENOSPC,
    "NoSuchKey": errno.ENOENT,
}


class FaultyDirectory:
    """The store, as the test sees it. Its interface is that of `buckets.bucket.Bucket`.

    Args:
        directory: for the objects and the faults.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self.root = directory / _OBJECTS
        self.root.mkdir(parents=True)
        # By their numbers; those that are healed too.
        self._made: list[Fault] = []
        self._healed = 0
        self._write()

    @property
    def environment(self) -> dict[str, str]:
        """Variables that brokers need."""
        paths = [str(_TESTS), *filter(None, [os.environ.get("PYTHONPATH")])]
        return {VARIABLE: str(self._directory), "PYTHONPATH": os.pathsep.join(paths)}

    def settings(self) -> dict[str, str]:
        """Return the broker keys of the store."""
        return {"barnabas.remote.storage": URL}

    def fail(self, fault: Fault) -> Fault:
        """Put a fault in force; return it."""
        self._made.append(fault)
        self._write()
        return fault

    def hits(self, fault: Fault) -> int:
        """Return how many calls a fault has met."""
        met = self._directory / _HITS
        lines = met.read_text().split() if met.exists() else []
        return lines.count(str(self._made.index(fault)))

    def heal(self) -> None:
        """Remove all faults, and release the calls that they hold."""
        self._healed = len(self._made)
        self._write()
        self.start()

    def stop(self) -> None:
        """Take the directory away, as a file system that is not mounted."""
        self.root.rename(self.root.with_suffix(".unmounted"))
        self.root.mkdir()

    def start(self) -> None:
        """Bring the directory back."""
        kept = self.root.with_suffix(".unmounted")
        if kept.exists():
            self.root.rmdir()
            kept.rename(self.root)

    def objects(self, prefix: str = "") -> dict[str, int]:
        """Return the sizes of all objects by their paths, sorted."""
        found: dict[str, int] = {}
        for directory, _, names in os.walk(self.root):
            for name in names:
                path = Path(directory) / name
                place = path.relative_to(self.root).as_posix()
                try:
                    size = path.stat().st_size
                except FileNotFoundError:
                    continue
                if place.startswith(prefix):
                    found[place] = size
        return dict(sorted(found.items()))

    def read(self, path: str) -> bytes:
        """Return the content of an object."""
        return (self.root / path).read_bytes()

    def put(self, path: str, content: bytes) -> None:
        """Store an object."""
        (self.root / path).write_bytes(content)

    def remove(self, path: str) -> None:
        """Delete an object."""
        (self.root / path).unlink()

    def flip(self, path: str) -> None:
        """Flip a bit in the middle of an object."""
        self.put(path, flipped(self.read(path)))

    def truncate(self, path: str, size: int) -> None:
        """Shorten an object."""
        self.put(path, self.read(path)[:size])

    def close(self) -> None:
        """Release what is held."""
        self.heal()

    def _write(self) -> None:
        rules = {
            str(number): each.fields()
            for number, each in enumerate(self._made)
            if number >= self._healed
        }
        new = self._directory / f"{_FAULTS}.new"
        new.write_text(json.dumps(rules))
        new.rename(self._directory / _FAULTS)


def open_store(cluster_id: str) -> DirectoryStorage:
    """Open the store in the process of a broker."""
    directory = Path(os.environ[VARIABLE])
    return DirectoryStorage(FaultyDisk(directory), str(directory / _OBJECTS), cluster_id)


class FaultyDisk(RealDisk):
    """A disk whose calls meet faults, if they concern the objects of the store."""

    def __init__(self, directory: Path) -> None:
        super().__init__()
        self._root = f"{directory / _OBJECTS}/"
        self._directory = directory
        # By the names in the file.
        self._faults: dict[str, Fault] = {}

    def copy_range(self, source: str, target: str, size: int) -> int:
        """Store a log."""

        def lie() -> int:
            super(FaultyDisk, self).write_atomically(target, b"")
            return size

        def flip() -> int:
            content = super(FaultyDisk, self).read(source, 0, size)
            super(FaultyDisk, self).write_atomically(target, flipped(content))
            return len(content)

        call = super().copy_range
        return self._do("PUT", target, lambda: call(source, target, size), lie, flip)

    def write_atomically(self, path: str, data: Bytes, sync: bool = True) -> None:
        """Store another object."""
        call = super().write_atomically
        self._do(
            "PUT",
            path,
            lambda: call(path, data, sync),
            lambda: None,
            lambda: call(path, flipped(bytes(data)), sync),
        )

    def read(self, path: str, start: int = 0, size: int | None = None) -> bytes:
        """Read from an object."""
        call = super().read
        fault = self._fault("GET", path)
        if fault is not None and fault.kind is Kind.FLIP:
            found = call(path, start, size)
            return flipped(found) if found else found
        if fault is not None and fault.kind is Kind.TRUNCATE:
            return call(path, start, size)[: fault.size]
        return self._suffer(fault, path, lambda: call(path, start, size))

    def size(self, path: str) -> int:
        """Return the size of an object."""
        call = super().size
        return self._do("HEAD", path, lambda: call(path))

    def remove(self, path: str) -> None:
        """Delete an object."""
        call = super().remove
        self._do("DELETE", path, lambda: call(path), lambda: None)

    def _do(
        self,
        method: str,
        path: str,
        call: Callable[[], T],
        lie: Callable[[], T] | None = None,
        flip: Callable[[], T] | None = None,
    ) -> T:
        fault = self._fault(method, path)
        if fault is not None and fault.kind is Kind.LIE and lie is not None:
            return lie()
        if fault is not None and fault.kind is Kind.FLIP_UPLOAD and flip is not None:
            return flip()
        return self._suffer(fault, path, call)

    def _suffer(self, fault: Fault | None, path: str, call: Callable[[], T]) -> T:
        match None if fault is None else fault.kind:
            case Kind.DELAY:
                assert fault is not None
                time.sleep(fault.seconds)
                return call()
            case Kind.ANSWER:
                assert fault is not None
                number = _ERRNOS.get(fault.code, errno.EIO)
                raise OSError(number, os.strerror(number), path)
            case Kind.CUT:
                raise OSError(errno.EIO, os.strerror(errno.EIO), path)
            case Kind.CUT_AFTER:
                call()
                raise OSError(errno.EIO, os.strerror(errno.EIO), path)
            case Kind.HOLD:
                self._await_healing(fault)
                raise OSError(errno.EIO, os.strerror(errno.EIO), path)
            case Kind.HOLD_AFTER:
                found = call()
                self._await_healing(fault)
                return found
        return call()

    def _fault(self, method: str, path: str) -> Fault | None:
        """Return the fault that a call meets, and write down that it has met it."""
        if not path.startswith(self._root):
            return None
        place = path.removeprefix(self._root).removesuffix(_TEMPORARY_SUFFIX)
        for name, rule in self._rules().items():
            fault = self._faults.setdefault(name, _fault_of(rule))
            if fault.takes(method, place):
                with (self._directory / _HITS).open("a") as hits:
                    hits.write(f"{name}\n")
                return fault
        return None

    def _await_healing(self, fault: Fault | None) -> None:
        while fault in [self._faults.get(name) for name in self._rules()]:
            time.sleep(_POLL_S)

    def _rules(self) -> dict[str, dict[str, Any]]:
        found: dict[str, dict[str, Any]] = json.loads((self._directory / _FAULTS).read_text())
        return found


def _fault_of(rule: dict[str, Any]) -> Fault:
    return Fault(**(rule | {"kind": Kind(rule["kind"])}))
