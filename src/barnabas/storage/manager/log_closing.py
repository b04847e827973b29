"""Clean closing of all logs of a data directory, so that they need no recovery.

A log has several small files, and each sync waits for the device. Therefore many threads sync
concurrently, and the file system commits their requests together.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from barnabas.storage.errors import KafkaStorageError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from barnabas.storage.log.log import Log
    from barnabas.storage.log_dependencies import LogDependencies

# From this number of logs on, the file system first writes back everything in one operation.
# Otherwise each sync of a changed file waits for the device.
_MANY = 64

_log = logging.getLogger(__name__)


def close_logs(logs: Sequence[Log], directory: str, dependencies: LogDependencies) -> None:
    """Write buffered state of the logs, sync all changes, and close their files.

    Args:
        logs: the logs of one data directory.
        directory: path of the data directory. The caller's next writes to it, the checkpoints and
            the clean shutdown marker, also sync the names of its logs.
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
    if len(works) >= _MANY:
        dependencies.disk.write_back(directory)
    failures = dependencies.executor.run_all(works)
    for (log, end_offset), failure in zip(unsynced, failures, strict=True):
        if failure is not None:
            _log.error("Sync of a log failed: directory=%s error=%s", log.directory, failure)
            raise KafkaStorageError(f"{log.directory}: {failure}") from failure
        log.sync.on_flushed(end_offset)
    for log in logs:
        log.finish_close()
