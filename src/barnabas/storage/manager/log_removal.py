"""Removal of deleted logs' files after `file.delete.delay.ms`, off the loop."""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.runtime.disk import is_out_of_descriptors
from barnabas.storage.log.flusher import RETRY_MS

if TYPE_CHECKING:
    from barnabas.storage.config import LogConfig
    from barnabas.storage.doors import LogDoors
    from barnabas.storage.log.log import Log


class LogRemoval:
    """Removes directories of logs."""

    __slots__ = ("_doors",)

    def __init__(self, doors: LogDoors) -> None:
        self._doors = doors

    def delete_later(self, log: Log) -> None:
        """Close a log now, and remove its files later."""
        log.rename_to_delete()
        self.remove_later(log.directory, log.config, log)

    def remove_later(self, path: str, config: LogConfig, log: Log | None = None) -> None:
        """Remove a directory after the delay; `log` closes its files before."""
        doors = self._doors

        def done(_: None, error: BaseException | None) -> None:
            if is_out_of_descriptors(error):
                doors.on_descriptor_shortage()
                doors.timer.call_later(RETRY_MS, remove)
            elif isinstance(error, OSError):
                doors.on_disk_failure(path, error)

        def remove() -> None:
            if log is not None:
                log.close_files()
            doors.executor.submit(lambda: doors.disk.remove_tree(path), done)

        doors.timer.call_later(config.file_delete_delay_ms, remove)
