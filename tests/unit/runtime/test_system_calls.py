"""System calls that are not there: what takes their place does the same."""

from __future__ import annotations

import ctypes
import errno
import fcntl
import importlib.util
import os
import resource
import signal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from barnabas.runtime import system_calls

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import ModuleType

OFD = ("F_OFD_SETLK", "F_OFD_GETLK")


def load() -> ModuleType:
    """The door anew, as it is on a system that has what `os` and `fcntl` have now."""
    spec = importlib.util.spec_from_file_location("door", str(system_calls.__file__))
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(params=["Linux", "without"])
def door(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The door with all calls, and with none of those that only Linux has."""
    if request.param == "without":
        for name in ("fdatasync", "pwritev", "sendfile"):
            monkeypatch.delattr(os, name, raising=False)
        for name in OFD:
            monkeypatch.delattr(fcntl, name, raising=False)
        monkeypatch.setattr(ctypes, "CDLL", lambda *_, **__: object())
    return load()


@pytest.fixture
def descriptor(tmp_path: Path) -> Iterator[int]:
    opened = os.open(tmp_path / "file", os.O_RDWR | os.O_CREAT)
    yield opened
    os.close(opened)


def test_several_buffers_are_written_at_a_position(door: Any, descriptor: int) -> None:
    assert door.write_vector(descriptor, [b"ab", bytearray(b"cd"), memoryview(b"e")], 3) == 5
    assert os.pread(descriptor, 10, 0) == b"\0\0\0abcde"


def test_data_is_synced(door: Any, descriptor: int) -> None:
    os.write(descriptor, b"x")
    door.sync_data(descriptor)
    with pytest.raises(OSError, match="Bad file descriptor"):
        door.sync_data(1 << 20)


def test_macos_flushes_the_cache_of_the_drive(
    monkeypatch: pytest.MonkeyPatch, descriptor: int
) -> None:
    monkeypatch.delattr(os, "fdatasync")
    monkeypatch.setattr(fcntl, "F_FULLFSYNC", 51, raising=False)
    called: list[tuple[int, int]] = []
    refused: list[int] = []

    def control(file: int, command: int) -> int:
        called.append((file, command))
        if refused:
            raise OSError(refused[0], os.strerror(refused[0]))
        return 0

    monkeypatch.setattr(fcntl, "fcntl", control)
    door = load()
    door.sync_data(descriptor)
    assert called == [(descriptor, 51)]
    refused.append(errno.ENOTSUP)
    door.sync_data(descriptor)
    refused[0] = errno.EIO
    with pytest.raises(OSError, match="Input/output error"):
        door.sync_data(descriptor)


def test_a_lock_excludes_another_description_of_this_process(door: Any, tmp_path: Path) -> None:
    path = tmp_path / "lock"
    first, second = (os.open(path, os.O_RDWR | os.O_CREAT) for _ in range(2))
    assert not door.is_locked(second)
    door.lock(first)
    assert door.is_locked(second)
    with pytest.raises(OSError, match=r"temporarily unavailable|Permission denied") as refused:
        door.lock(second)
    assert refused.value.errno in (errno.EAGAIN, errno.EACCES)
    os.close(first)
    assert not door.is_locked(second)
    door.lock(second)
    os.close(second)


def test_the_file_system_is_synced(door: Any, tmp_path: Path) -> None:
    directory = os.open(tmp_path, os.O_RDONLY)
    door.sync_file_system(directory)
    os.close(directory)


def test_sendfile_is_there_or_is_said_to_be_missing(door: Any) -> None:
    assert door.HAS_SENDFILE is hasattr(os, "sendfile")


def test_a_process_knows_whether_the_kernel_ends_it_with_its_parent(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Library:
        def prctl(self, *words: int) -> int:
            return 0 if words[:2] == (1, 9) else -1

    monkeypatch.setattr(ctypes, "CDLL", lambda *_, **__: Library())
    assert load().request_parent_death_signal(signal.SIGKILL)
    monkeypatch.setattr(ctypes, "CDLL", lambda *_, **__: object())
    assert not load().request_parent_death_signal(signal.SIGKILL)


def test_a_rejected_infinite_limit_is_raised_to_the_largest_accepted_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    infinite = resource.RLIM_INFINITY
    taken: list[int] = []

    def take(_: int, limits: tuple[int, int]) -> None:
        if limits[0] == infinite or limits[0] > 10_240:
            raise ValueError("not allowed to raise maximum limit")
        taken.append(limits[0])

    monkeypatch.setattr(resource, "getrlimit", lambda _: (256, infinite))
    monkeypatch.setattr(resource, "setrlimit", take)
    limit, reason = load().raise_open_files_limit()
    assert limit == 10_240
    assert isinstance(reason, ValueError)
    assert taken == [10_240]


@pytest.mark.parametrize(("soft", "hard"), [(1024, 4096), (4096, 4096), (100, 20_000)])
def test_a_hard_limit_is_taken_and_never_passed(
    soft: int, hard: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken: list[tuple[int, int]] = []
    monkeypatch.setattr(resource, "getrlimit", lambda _: (soft, hard))
    monkeypatch.setattr(resource, "setrlimit", lambda _, limits: taken.append(limits))
    assert load().raise_open_files_limit() == (hard, None)
    assert taken == ([] if soft == hard else [(hard, hard)])
