"""Closing all logs of a data directory, so that nothing needs recovery afterwards.

A log has several small files, and each sync of one waits for the device. Many threads sync at a
time: a file system commits what they have asked for together in one go.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from barnabas.storage.errors import KafkaStorageError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from barnabas.storage.doors import LogDoors
    from barnabas.storage.log import Log

# So many logs to be synced are worth asking the file system to write out everything first: it does
# so in one go, where each sync of a changed file waits for the device.
_MANY = 64

_log = logging.getLogger(__name__)


def close_logs(logs: Sequence[Log], directory: str, doors: LogDoors) -> None:
    """Write out what the logs have in memory, sync all that changed, and give descriptors back.

    Args:
        logs: of one data directory.
        directory: its path. The names of the logs in it are synced by what is written there
            next: checkpoints and the marker of a clean stop.
        doors: what the logs share.

    Raises:
        KafkaStorageError, OSError: a log could not be synced; no log counts as closed then.
    """
    unsynced: list[tuple[Log, int]] = []
    works = []
    for log in logs:
        work = log.prepare_close()
        if work is not None:
            unsynced.append((log, log.log_end_offset))
            works.append(work)
    if len(works) >= _MANY:
        doors.disk.write_back(directory)
    failures = doors.executor.run_all(works)
    for (log, end_offset), failure in zip(unsynced, failures, strict=True):
        if failure is not None:
            _log.error("%s could not be synced: %s", log.directory, failure)
            raise KafkaStorageError(f"{log.directory}: {failure}") from failure
        log.on_flushed(end_offset)
    for log in logs:
        log.finish_close()
