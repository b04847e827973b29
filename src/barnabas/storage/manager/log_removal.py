"""Removal of deleted logs' files after `file.delete.delay.ms`, off the loop."""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.runtime.disk import is_out_of_descriptors
from barnabas.storage.log.flusher import RETRY_MS

if TYPE_CHECKING:
    from barnabas.storage.config import LogConfig
    from barnabas.storage.log.log import Log
    from barnabas.storage.log_dependencies import LogDependencies


class LogRemoval:
    """Removes directories of logs."""

    __slots__ = ("_dependencies",)

    def __init__(self, dependencies: LogDependencies) -> None:
        self._dependencies = dependencies

    def delete_later(self, log: Log) -> None:
        """Close a log now, and remove its files later."""
        log.rename_to_delete()
        self.remove_later(log.directory, log.config, log)

    def remove_later(self, path: str, config: LogConfig, log: Log | None = None) -> None:
        """Remove a directory after the delay; `log` closes its files before."""
        dependencies = self._dependencies

        def done(_: None, error: BaseException | None) -> None:
            if is_out_of_descriptors(error):
                dependencies.on_descriptor_shortage()
                dependencies.timer.call_later(RETRY_MS, remove)
            elif isinstance(error, OSError):
                dependencies.on_disk_failure(path, error)

        def remove() -> None:
            if log is not None:
                log.close_files()
            dependencies.executor.submit(lambda: dependencies.disk.remove_tree(path), done)

        dependencies.timer.call_later(config.file_delete_delay_ms, remove)
