"""The file that keeps the lines of a console over restarts.

Each minute adds one line with the values of all series. When the added lines are longer than the
part before them, the file is written anew from memory, where old values have longer steps. So the
file stays within twice the size of what the series hold: about 15 bytes for each of their points.
"""

from __future__ import annotations

import json
import math
import re
from itertools import groupby
from typing import TYPE_CHECKING, Any

from barnabas.console.history.series import COARSE_S, MINUTE_S
from barnabas.runtime.disk import RealDisk

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from barnabas.console.history.series import Series
    from barnabas.runtime.disk import Disk, FileLock

_FILE_BYTES_MAX = 64 * 1024 * 1024
# The file is not written anew for less than this.
_ADDED_BYTES_MIN = 256 * 1024
_NAME_CHARACTERS_MAX = 300


class HistoryFileError(Exception):
    """The file cannot be used; the message says why."""


def history_file(path: str, cluster: str, disk: Disk | None = None) -> HistoryFile:
    """Return the file for a cluster, locked.

    Args:
        path: The file, or a directory with a file for each cluster.
        cluster: Bootstrap servers of the cluster.
        disk: The files; None for those of the system.

    Raises:
        HistoryFileError: Another console uses the file, or it cannot be created.
    """
    disk = RealDisk() if disk is None else disk
    if disk.is_directory(path):
        path = f"{path}/{re.sub(r'[^A-Za-z0-9.-]+', '-', cluster)[:100]}.history"
    try:
        lock = disk.lock(path + ".lock")
    except OSError as error:
        raise HistoryFileError(f"{path}: {error.strerror or error}") from None
    if lock is None:
        raise HistoryFileError(f"{path} is used by another console; choose another file")
    return HistoryFile(path, disk, lock)


class HistoryFile:
    """A file with the values of series. All methods block; one thread at a time uses them."""

    def __init__(self, path: str, disk: Disk, lock: FileLock) -> None:
        self._path = path
        self._disk = disk
        self._lock = lock
        # Bytes at the last time the file was written anew, and those added since.
        self._base_bytes = 0
        self._added_bytes = 0

    def load(self, series_of: Callable[[str], Series | None]) -> None:
        """Add the values in the file to the series; ignore lines that cannot be read.

        Args:
            series_of: Returns the series of a name; None if there are too many.

        Raises:
            OSError: The file cannot be read.
        """
        if not self._disk.exists(self._path) or self._disk.size(self._path) > _FILE_BYTES_MAX:
            return
        data = self._disk.read(self._path)
        self._added_bytes = len(data)
        lines = [line for text in data.splitlines() if (line := _parsed(text)) is not None]
        # Longer steps come first: the minutes within them are then not counted twice.
        for step in (COARSE_S, MINUTE_S):
            for _, at, values in (each for each in lines if each[0] == step):
                for name, value in values.items():
                    series = series_of(name)
                    if series is not None:
                        add = series.add_coarse if step == COARSE_S else series.add_minute
                        add(at, value)

    def add(self, at: float, values: Mapping[str, float], series: Mapping[str, Series]) -> None:
        """Add the values of a minute; write the file anew if it has become long.

        Raises:
            OSError: The file cannot be written.
        """
        line = _line(MINUTE_S, at, values)
        if self._added_bytes + len(line) > max(_ADDED_BYTES_MIN, self._base_bytes):
            self.compact(series)
            return
        file = self._disk.open(self._path)
        try:
            self._added_bytes += file.append(line)
        finally:
            file.close()

    def compact(self, series: Mapping[str, Series]) -> None:
        """Write the file anew from the series.

        Raises:
            OSError: The file cannot be written.
        """
        data = b"".join(_lines(series))
        self._disk.write_atomically(self._path, data, sync=False)
        self._base_bytes, self._added_bytes = len(data), 0

    def close(self) -> None:
        """Release the file."""
        self._lock.release()


def _line(step: int, at: float, values: Mapping[str, float]) -> bytes:
    shown = {name: float(f"{value:.6g}") for name, value in values.items()}
    line = {"step": step, "at": int(at), "values": shown}
    return json.dumps(line, separators=(",", ":")).encode() + b"\n"


def _lines(series: Mapping[str, Series]) -> Iterator[bytes]:
    for index in range(2):
        points = []
        for name, each in list(series.items()):
            tier = each.tiers()[index]
            step = int(tier.step_s)
            points += [(at, name, value) for at, value in tier.points]
        points.sort()
        for at, found in groupby(points, key=lambda point: point[0]):
            yield _line(step, at, {name: value for _, name, value in found})


def _parsed(text: bytes) -> tuple[int, float, dict[str, float]] | None:
    """Return step, time and values of a line; None for a torn or foreign line."""
    try:
        line: Any = json.loads(text)
        step, at, values = line["step"], line["at"], line["values"]
        found = {
            name: float(value)
            for name, value in values.items()
            if len(name) <= _NAME_CHARACTERS_MAX and math.isfinite(float(value))
        }
        return int(step), float(at), found
    except (ValueError, KeyError, TypeError, AttributeError):
        return None
