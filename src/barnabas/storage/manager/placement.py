"""Choice of the data directory for a new log (Kafka's LogManager.nextLogDirs)."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from barnabas.storage.errors import KafkaStorageError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from barnabas.storage.files.log_directory import LogDirectory


def emptiest(online: list[LogDirectory], owners: Iterable[LogDirectory]) -> LogDirectory:
    """Return the directory with the fewest logs; a cordoned one only if all are cordoned.

    Args:
        online: the usable directories, in the order of log.dirs.
        owners: the directory of each existing log.

    Raises:
        KafkaStorageError: no directory is online.
    """
    if not online:
        raise KafkaStorageError("no data directory is online")
    usable = [directory for directory in online if not directory.is_cordoned] or online
    if len(usable) == 1:
        return usable[0]
    counts = Counter(directory.path for directory in owners)
    return min(usable, key=lambda directory: counts[directory.path])
