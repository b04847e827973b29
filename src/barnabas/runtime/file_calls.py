"""Operations on files and directories by path. Each opens and closes its own descriptors."""

from __future__ import annotations

import os

from barnabas.runtime import system_calls

# Only the user of the broker may read records and credentials. Apache Kafka leaves this to umask.
FILE_MODE = 0o600
_READ_BYTES = 1 << 20


def read_file(path: str, start: int, size: int | None) -> bytes:
    """Return bytes of a file, with half the system calls of Python's file objects.

    Args:
        path: the path of the file; without `start` and `size`, it may be a pipe.
        start: position of the first byte.
        size: number of bytes, fewer at the end of the file; None for all.
    """
    # Parts are read of objects that others may have replaced, such as by a pipe without a writer.
    waiting = 0 if size is None else system_calls.NO_WAIT
    descriptor = os.open(path, os.O_RDONLY | system_calls.BINARY | waiting)
    try:
        if start:
            os.lseek(descriptor, start, os.SEEK_SET)
        if size is not None:
            return _read_part(descriptor, size)
        left = max(0, os.fstat(descriptor).st_size - start)
        # A file that grows meanwhile, or is longer than one read, is read to its end.
        content = os.read(descriptor, left + 1)
        if len(content) == left:
            return content
        parts = [content]
        while part := os.read(descriptor, _READ_BYTES):
            parts.append(part)
        return b"".join(parts)
    finally:
        os.close(descriptor)


def _read_part(descriptor: int, size: int) -> bytes:
    content = os.read(descriptor, size)
    if len(content) == size:
        return content
    parts, left = [content], size - len(content)
    while left and (part := os.read(descriptor, left)):
        parts.append(part)
        left -= len(part)
    return b"".join(parts)


def copy_file(source: str, target: str, size: int) -> int:
    """Replace the content of `target` by the first `size` bytes of `source`, and sync it.

    A symbolic link at `target` is not followed.

    Returns:
        The number of bytes copied, which is smaller if the source is shorter.
    """
    reading = os.open(source, os.O_RDONLY | system_calls.BINARY)
    try:
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | system_calls.NEW_FILE
        writing = os.open(target, flags, FILE_MODE)
        try:
            copied = system_calls.copy_data(reading, writing, size)
            system_calls.sync_data(writing)
            return copied
        finally:
            os.close(writing)
    finally:
        os.close(reading)


def open_directory(path: str) -> int:
    """Return a descriptor of a directory."""
    return os.open(path, os.O_RDONLY | os.O_DIRECTORY)


def sync_directory(path: str) -> None:
    """Flush a directory's entries to the device, where directories can be opened."""
    if not system_calls.HAS_OPEN_DIRECTORIES:
        return
    descriptor = open_directory(path)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
