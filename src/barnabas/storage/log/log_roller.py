"""Rolling of a log to a new segment (Kafka: UnifiedLog.roll)."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from barnabas.runtime.disk import is_out_of_descriptors
from barnabas.storage.errors import KafkaStorageError
from barnabas.storage.segment.roll_rules import must_roll, roll_jitter

if TYPE_CHECKING:
    from barnabas.storage.append_info import AppendInfo
    from barnabas.storage.log.disk_guard import DiskGuard
    from barnabas.storage.log.local_log import LocalLog
    from barnabas.storage.log.log_offsets import LogOffsets
    from barnabas.storage.log.log_sync import LogSync
    from barnabas.storage.log_dependencies import LogDependencies
    from barnabas.storage.producers.producer_state import ProducerState
    from barnabas.storage.segment.segment import Segment

_log = logging.getLogger(__name__)


class LogRoller:
    """Adds segments to a log."""

    __slots__ = ("_dependencies", "_guard", "_local", "_offsets", "_producers", "_sync")

    def __init__(
        self,
        local: LocalLog,
        offsets: LogOffsets,
        guard: DiskGuard,
        producers: ProducerState,
        sync: LogSync,
        dependencies: LogDependencies,
    ) -> None:
        self._local = local
        self._offsets = offsets
        self._guard = guard
        self._producers = producers
        self._sync = sync
        self._dependencies = dependencies

    def wall_ms(self) -> int:
        """Return the wall clock by which segments are rolled."""
        return self._dependencies.clock.wall_ms()

    def roll(self) -> None:
        """Roll to a new segment at the log end, unless the active segment is empty."""
        if self._local.segments.active.size:
            with self._guard:
                self.roll_now()

    def roll_now(self, now_ms: int | None = None) -> None:
        """Roll to a new segment, even if the active one is empty.

        Args:
            now_ms: creation time of the segment (wall clock); If None, the clock is read.

        Raises:
            OSError: the log has not changed.
        """
        # Recovery of the new segment starts from the producer state at its base offset.
        self._producers.map_end_offset = self._offsets.log_end_offset
        self._producers.take_snapshot()
        created_ms = self.wall_ms() if now_ms is None else now_ms
        self._local.roll(created_ms, roll_jitter(self._local.config, self._dependencies.rng))
        _log.debug(
            "Rolled to a new segment: directory=%s base_offset=%d",
            self._guard.directory,
            self._offsets.log_end_offset,
        )
        # Sealed segments are synced soon, which keeps recovery after a crash short.
        self._sync.flush_async(lambda _: None)

    def roll_for(self, info: AppendInfo, now_ms: int) -> Segment:
        """Roll for an append, and return the segment to append to.

        Raises:
            OSError: the disk failed.
            KafkaStorageError: the sync that the roll started has failed.
        """
        segment = self._local.segments.active
        try:
            self.roll_now(now_ms)
        except OSError as error:
            if not is_out_of_descriptors(error) or must_roll(segment, info):
                raise
            # A segment that is too large or too old is better than a rejected append.
            self._dependencies.on_descriptor_shortage()
            return segment
        if self._guard.has_failed:
            raise KafkaStorageError(f"{self._guard.directory} is offline")
        return self._local.segments.active
