"""Bytes that were made and wait for a slow reader: a few in memory, more in a temporary file.

The file has no name, so that it vanishes with the process. It is in the directory that `TMPDIR`
names.
"""

from __future__ import annotations

import tempfile

# Bytes in memory; with more, all are in the file.
_MEMORY_BYTES = 1024 * 1024
# Bytes of one read.
_PIECE_BYTES = 256 * 1024


class SpoolError(OSError):
    """The temporary file cannot be written; the text says why and what to do."""


class Spool:
    """Bytes that are written, then read to their end, then written again.

    Its methods block while they use the file. Two of them must not run at once.
    """

    def __init__(self) -> None:
        self._file = tempfile.SpooledTemporaryFile(_MEMORY_BYTES)  # noqa: SIM115 - closed by `close`
        # Bytes that were written since the last read reached the end.
        self.size = 0
        # Whether the reader has begun and has not reached the end.
        self._is_reading = False

    def write(self, data: bytes) -> None:
        """Add bytes at the end.

        Raises:
            SpoolError: They cannot be written, for example because the disk is full.
        """
        assert not self._is_reading, "the spool is read to its end before it is written again"
        try:
            self._file.write(data)
        except OSError as error:
            raise SpoolError(
                f"{len(data)} bytes cannot be kept in {tempfile.gettempdir()}: {error}; free space "
                f"there, or name another directory by TMPDIR"
            ) from error
        self.size += len(data)

    def read(self) -> bytes:
        """Return the next bytes; b"" at the end, after which the spool is empty."""
        if not self._is_reading:
            self._file.seek(0)
            self._is_reading = True
        data = self._file.read(_PIECE_BYTES)
        if not data:
            self._file.seek(0)
            self._file.truncate()
            self.size, self._is_reading = 0, False
        return data

    def close(self) -> None:
        """Forget the bytes."""
        self._file.close()
