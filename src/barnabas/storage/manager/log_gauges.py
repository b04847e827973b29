"""Metrics of the log manager and of the log cleaner; values are read at collection time."""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.metrics import names
from barnabas.metrics.registry import MetricFamily

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from barnabas.storage.cleaner.log_cleaner import LogCleaner
    from barnabas.storage.files.log_directory import LogDirectory
    from barnabas.storage.manager.log_manager import LogManager


def log_families(logs: LogManager) -> Iterator[MetricFamily]:
    """Yield all metric families of the log manager."""
    held_back_ms = logs.trusted_clock.held_back_ms
    yield MetricFamily(names.CLOCK_HELD_BACK, [((), held_back_ms / 1000)])
    yield MetricFamily(names.DESCRIPTOR_SHORTAGES, [((), logs.descriptor_relief.shortages)])


_PERCENT = 100
_MS_PER_S = 1000


def cleaner_families(
    cleaner: LogCleaner, directories: Iterable[LogDirectory]
) -> Iterator[MetricFamily]:
    """Yield all metric families of the cleaner."""
    statistics = cleaner.statistics
    for name, value in (
        (names.CLEANER_RECOPY_PERCENT, int(statistics.kept_ratio * _PERCENT)),
        (names.CLEANER_TIME_MAX, int(statistics.duration_ms / _MS_PER_S)),
        (names.CLEANER_BUFFER_UTILIZATION, int(statistics.map_utilization * _PERCENT)),
        (names.CLEANER_COMPACTION_DELAY, statistics.compaction_delay_ms_max // _MS_PER_S),
        (names.CLEANER_DIRTY_PERCENT, int(statistics.dirty_ratio_max * _PERCENT)),
        (names.CLEANER_IDLE_TIME, int(cleaner.idle_ms)),
    ):
        yield MetricFamily(name, [((), value)])
    uncleanable = {
        each.path: cleaner.uncleanable_in(each) for each in directories if each.is_online
    }
    yield MetricFamily(
        names.UNCLEANABLE_PARTITIONS,
        [((("logDirectory", path),), len(found)) for path, found in uncleanable.items()],
    )
    yield MetricFamily(
        names.UNCLEANABLE_BYTES,
        [((("logDirectory", path),), sum(found)) for path, found in uncleanable.items()],
    )
