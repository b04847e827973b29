"""Replacements for missing system calls have the same effect."""

from __future__ import annotations

import ctypes
import errno
import fcntl
import importlib.util
import os
import resource
import select
import signal
import socket
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from barnabas.runtime import system_calls
from waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import ModuleType

OFD = ("F_OFD_SETLK", "F_OFD_GETLK")


def load() -> ModuleType:
    """Load the module again, with the functions that `os` and `fcntl` have now."""
    spec = importlib.util.spec_from_file_location("door", str(system_calls.__file__))
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(params=["Linux", "without"])
def calls_module(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The module with all calls, and without those that only Linux has."""
    if request.param == "without":
        for name in ("copy_file_range", "fdatasync", "pwritev", "sendfile"):
            monkeypatch.delattr(os, name, raising=False)
        for name in OFD:
            monkeypatch.delattr(fcntl, name, raising=False)
        monkeypatch.setattr(ctypes, "CDLL", lambda *_, **__: object())
    return load()


@pytest.fixture
def on_windows(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The module without what Windows lacks."""
    for name in ("fcntl", "resource"):
        monkeypatch.setitem(sys.modules, name, None)
    for name in ("pread", "O_DIRECTORY", "sysconf"):
        monkeypatch.delattr(os, name)
    for name in ("poll", "POLLRDHUP", "kqueue"):
        monkeypatch.delattr(select, name, raising=False)
    return load()


@pytest.fixture
def descriptor(tmp_path: Path) -> Iterator[int]:
    opened = os.open(tmp_path / "file", os.O_RDWR | os.O_CREAT)
    yield opened
    os.close(opened)


def test_several_buffers_are_written_at_a_position(calls_module: Any, descriptor: int) -> None:
    assert (
        calls_module.write_vector(descriptor, [b"ab", bytearray(b"cd"), memoryview(b"e")], 3) == 5
    )
    assert os.pread(descriptor, 10, 0) == b"\0\0\0abcde"


def test_data_is_synced(calls_module: Any, descriptor: int) -> None:
    os.write(descriptor, b"x")
    calls_module.sync_data(descriptor)
    with pytest.raises(OSError, match="Bad file descriptor"):
        calls_module.sync_data(1 << 20)


@pytest.mark.parametrize("error", [errno.EXDEV, errno.EINVAL, None])
def test_data_is_copied_when_the_kernel_cannot_copy_between_two_files(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, error: int | None
) -> None:
    """Some file systems return 0 instead of an error, here for `None`."""

    def refuse(_source: int, _target: int, _size: int) -> int:
        if error is not None:
            raise OSError(error, os.strerror(error))
        return 0

    monkeypatch.setattr(os, "copy_file_range", refuse, raising=False)
    check_copies(load(), tmp_path)


def test_data_is_copied_between_files(calls_module: Any, tmp_path: Path) -> None:
    check_copies(calls_module, tmp_path)


def check_copies(calls_module: Any, directory: Path) -> None:
    content = os.urandom(3 << 20)
    (directory / "source").write_bytes(content)
    for size in (0, 1, len(content) - 1, len(content), len(content) + 5):
        with (directory / "source").open("rb") as source, (directory / "to").open("wb") as target:
            copied = calls_module.copy_data(source.fileno(), target.fileno(), size)
        assert copied == min(size, len(content))
        assert (directory / "to").read_bytes() == content[:size]


def test_an_error_of_a_copy_is_raised(calls_module: Any, tmp_path: Path) -> None:
    (tmp_path / "source").write_bytes(b"x")
    with (tmp_path / "source").open("rb") as source, pytest.raises(OSError, match=r".") as caught:
        calls_module.copy_data(source.fileno(), source.fileno(), 1)
    assert caught.value.errno == errno.EBADF


def test_macos_flushes_the_cache_of_the_drive(
    monkeypatch: pytest.MonkeyPatch, descriptor: int
) -> None:
    monkeypatch.delattr(os, "fdatasync", raising=False)
    monkeypatch.setattr(fcntl, "F_FULLFSYNC", 51, raising=False)
    called: list[tuple[int, int]] = []
    refused: list[int] = []

    def control(file: int, command: int) -> int:
        called.append((file, command))
        if refused:
            raise OSError(refused[0], os.strerror(refused[0]))
        return 0

    monkeypatch.setattr(fcntl, "fcntl", control)
    calls_module = load()
    calls_module.sync_data(descriptor)
    assert called == [(descriptor, 51)]
    refused.append(errno.ENOTSUP)
    calls_module.sync_data(descriptor)
    refused[0] = errno.EIO
    with pytest.raises(OSError, match="Input/output error"):
        calls_module.sync_data(descriptor)


def test_a_lock_excludes_another_description_of_this_process(
    calls_module: Any, tmp_path: Path
) -> None:
    path = tmp_path / "lock"
    first, second = (os.open(path, os.O_RDWR | os.O_CREAT) for _ in range(2))
    assert not calls_module.is_locked(second)
    assert calls_module.try_lock(first)
    assert calls_module.is_locked(second)
    assert not calls_module.try_lock(second)
    os.close(first)
    assert not calls_module.is_locked(second)
    assert calls_module.try_lock(second)
    os.close(second)


@pytest.mark.skipif(sys.platform != "linux", reason="the numbers are those of Linux")
def test_locks_with_the_fields_of_linux_are_not_used_on_macos(
    monkeypatch: pytest.MonkeyPatch, descriptor: int
) -> None:
    monkeypatch.setattr(sys, "platform", "darwin")
    # Numbers of macOS, which has another order of fields.
    monkeypatch.setattr(fcntl, "F_OFD_SETLK", 90)
    monkeypatch.setattr(fcntl, "F_OFD_GETLK", 92)
    calls_module = load()
    assert calls_module.try_lock(descriptor)
    assert not calls_module.is_locked(descriptor)


def test_windows_has_no_locks_and_no_brokers(on_windows: Any, descriptor: int) -> None:
    assert not on_windows.CAN_RUN_BROKER
    assert not on_windows.is_locked(descriptor)
    with pytest.raises(OSError, match="no such locks") as refused:
        on_windows.try_lock(descriptor)
    assert refused.value.errno == errno.ENOTSUP


def test_windows_has_no_limit_of_open_files(on_windows: Any) -> None:
    assert on_windows.open_files_limits() == (None, None)
    assert on_windows.raise_open_files_limit() == (None, None)


def test_bytes_are_read_at_a_position_without_pread(on_windows: Any, descriptor: int) -> None:
    os.write(descriptor, b"abcdef")
    assert on_windows.read_at(descriptor, 3, 2) == b"cde"
    assert on_windows.read_at(descriptor, 9, 0) == b"abcdef"


def test_windows_does_not_wait_for_the_input_of_a_pipe(on_windows: Any) -> None:
    reader, writer = os.pipe()
    assert not on_windows.has_input(reader, 60)
    assert not on_windows.has_reader_ended(writer)
    os.close(reader)
    os.close(writer)


def test_the_input_and_the_end_of_a_pipe_are_detected(calls_module: Any) -> None:
    reader, writer = os.pipe()
    assert not calls_module.has_input(reader, 0)
    os.write(writer, b"x")
    assert calls_module.has_input(reader, 60)
    assert not calls_module.has_reader_ended(writer)
    os.close(reader)
    assert calls_module.has_reader_ended(writer)
    os.close(writer)


@pytest.mark.parametrize("is_portable", [False, True])
def test_the_end_of_a_peer_is_detected(is_portable: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if is_portable:
        for name in ("POLLRDHUP", "kqueue"):
            monkeypatch.delattr(select, name, raising=False)
    calls_module = load()
    with socket.create_server(("127.0.0.1", 0)) as server:
        near = socket.create_connection(server.getsockname())
        far, _ = server.accept()
        with far:
            assert not calls_module.has_peer_ended(far.fileno())
            near.sendall(b"unread")
            assert not calls_module.has_peer_ended(far.fileno())
            assert far.recv(6) == b"unread"
            near.close()
            eventually(lambda: calls_module.has_peer_ended(far.fileno()))


def test_the_file_system_is_synced(calls_module: Any, tmp_path: Path) -> None:
    directory = os.open(tmp_path, os.O_RDONLY)
    calls_module.sync_file_system(directory)
    os.close(directory)


def test_the_presence_of_sendfile_is_reported(calls_module: Any) -> None:
    assert calls_module.HAS_SENDFILE is hasattr(os, "sendfile")


def test_the_presence_of_parent_death_signals_is_reported(
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
def test_the_hard_limit_is_used_and_never_exceeded(
    soft: int, hard: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken: list[tuple[int, int]] = []
    monkeypatch.setattr(resource, "getrlimit", lambda _: (soft, hard))
    monkeypatch.setattr(resource, "setrlimit", lambda _, limits: taken.append(limits))
    assert load().raise_open_files_limit() == (hard, None)
    assert taken == ([] if soft == hard else [(hard, hard)])


def test_untouched_memory_is_zero_and_writable() -> None:
    memory = system_calls.untouched_memory(100_000)
    assert bytes(memory) == bytes(100_000)
    memory[99_999] = 7
    assert (len(memory), memory[99_999]) == (100_000, 7)


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux shows the number in a file")
def test_preemptions_are_those_that_the_kernel_shows() -> None:
    def shown() -> int:
        lines = Path("/proc/thread-self/status").read_text().splitlines()
        name = "nonvoluntary_ctxt_switches:"
        return next(int(line.removeprefix(name)) for line in lines if line.startswith(name))

    before = shown()
    counted = system_calls.count_preemptions()
    assert before <= counted <= shown()
