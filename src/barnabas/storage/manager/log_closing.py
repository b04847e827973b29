"""End of logs: clean closing at shutdown, deletion, and renaming of logs that nothing uses.

*Closing* leaves logs that need no recovery. A log has several small files, and each sync waits for
the device. Therefore one operation syncs all files, if the file system reports failed writes.
Otherwise many threads sync concurrently, and the file system commits their requests together.

*Deletion* removes the files after `file.delete.delay.ms`, off the loop.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from barnabas.runtime.disk import is_out_of_descriptors
from barnabas.storage.errors import KafkaStorageError
from barnabas.storage.log.flusher import RETRY_MS

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from barnabas.runtime.rng import Rng
    from barnabas.storage.config import LogConfig
    from barnabas.storage.files.log_directory import LogDirectory
    from barnabas.storage.log.log import Log
    from barnabas.storage.log_dependencies import LogDependencies


# From this number of logs on, the whole file system is synced first. Otherwise each sync of a
# changed file waits for the device.
_MANY = 64

_log = logging.getLogger(__name__)


def close_logs(logs: Sequence[Log], directory: LogDirectory, dependencies: LogDependencies) -> None:
    """Write buffered state of the logs, sync all changes, and close their files.

    Args:
        logs: the logs of one data directory.
        directory: the data directory. The caller's next writes to it, the checkpoints and the clean
            shutdown marker, also sync the names of its logs.
        dependencies: dependencies shared by the logs.

    Raises:
        KafkaStorageError: a log could not be synced; then no log counts as closed.
        OSError: writing buffered state failed.
    """
    unsynced: list[tuple[Log, int]] = []
    works = []
    for log in logs:
        work = log.prepare_close()
        if work is not None:
            unsynced.append((log, log.log_end_offset))
            works.append(work)
    failures = _sync([log for log, _ in unsynced], works, directory, dependencies)
    for (log, end_offset), failure in zip(unsynced, failures, strict=True):
        if failure is not None:
            _log.error("Sync of a log failed: directory=%s error=%s", log.directory, failure)
            raise KafkaStorageError(f"{log.directory}: {failure}") from failure
        log.sync.on_flushed(end_offset)
    for log in logs:
        log.finish_close()


def _sync(
    logs: Sequence[Log],
    works: Sequence[Callable[[], None]],
    directory: LogDirectory,
    dependencies: LogDependencies,
) -> Sequence[BaseException | None]:
    """Sync the logs, and return the failure of each."""
    if len(works) >= _MANY:
        if _sync_at_once(logs, directory):
            return [None] * len(works)
        dependencies.disk.write_back(directory.path)
    return dependencies.executor.run_all(works)


def _sync_at_once(logs: Sequence[Log], directory: LogDirectory) -> bool:
    """Sync the whole file system; return whether this is a sync of all the logs.

    A failed write may belong to a file of another program, so the syncs of the logs then decide.
    """
    system = directory.file_system
    try:
        if system is None or not all(system.holds(log.directory) for log in logs):
            return False
        system.sync()
    except OSError as error:
        _log.warning(
            "Sync of a file system failed, each log is synced: directory=%s error=%s",
            directory.path,
            error,
        )
        return False
    return True


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


def rename_to_stray(log: Log, rng: Rng, reason: str) -> None:
    """Rename a log's directory to a name that is never opened again."""
    log.close_files()
    parent, _, _ = log.directory.rpartition("/")
    name = log.topic_partition.stray_directory_name(rng.uuid())
    _log.warning("Log set aside: directory=%s new_name=%s reason=%s", log.directory, name, reason)
    log.rename(f"{parent}/{name}", is_last=True)
