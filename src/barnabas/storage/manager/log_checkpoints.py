"""Offset checkpoints of the data directories, with offsets from their logs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.runtime.disk import is_out_of_descriptors
from barnabas.storage.files.checkpoint import countdown
from barnabas.storage.log.flusher import RETRY_MS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from barnabas.storage.files.checkpoint import OffsetCheckpoint
    from barnabas.storage.files.log_directory import LogDirectory
    from barnabas.storage.log.log import Log
    from barnabas.storage.log_dependencies import LogDependencies
    from barnabas.storage.topic_partition import TopicPartition

    LogsIn = Callable[[LogDirectory], list[tuple[TopicPartition, Log]]]
    Offsets = dict[TopicPartition, int]


class LogCheckpoints:
    """Writes recovery points, log start offsets and high watermarks."""

    __slots__ = ("_dependencies", "_logs_in", "_on_failure", "_retrying")

    def __init__(
        self,
        dependencies: LogDependencies,
        logs_in: LogsIn,
        on_failure: Callable[[LogDirectory, OSError], None],
    ) -> None:
        self._dependencies = dependencies
        # Returns the logs of a directory, including future replicas.
        self._logs_in = logs_in
        self._on_failure = on_failure
        # Paths of checkpoints that found no descriptor and will be written again.
        self._retrying: set[str] = set()

    def write_recovery_points(self, directories: Iterable[LogDirectory]) -> None:
        """Write the recovery points off the loop."""
        for directory in directories:
            self._write(directory, directory.recovery_points, self._recovery_points)

    def write_log_start_offsets(self, directories: Iterable[LogDirectory]) -> None:
        """Write each log start offset that differs from the first segment's base offset."""
        for directory in directories:
            self._write(directory, directory.log_start_offsets, self._log_start_offsets)

    def write_high_watermarks(
        self, directories: Iterable[LogDirectory], on_done: Callable[[], None]
    ) -> None:
        """Write the high watermarks off the loop.

        Args:
            on_done: called when the current values are on disk, except in failed directories; may
                run before this returns.
        """
        written = [each for each in directories if each.is_loaded and each.is_online]
        done = countdown(len(written), on_done)
        for directory in written:
            self._write(directory, directory.high_watermarks, self._high_watermarks, done)

    def write_now(self, directory: LogDirectory) -> None:
        """Write all three checkpoints synchronously.

        Raises:
            OSError: a write failed.
        """
        directory.recovery_points.write(self._recovery_points(directory))
        directory.log_start_offsets.write(self._log_start_offsets(directory))
        directory.high_watermarks.write(self._high_watermarks(directory))

    def _write(
        self,
        directory: LogDirectory,
        checkpoint: OffsetCheckpoint,
        collect: Callable[[LogDirectory], Offsets],
        on_done: Callable[[], None] | None = None,
    ) -> None:
        if not directory.is_loaded or not directory.is_online:
            return

        def failed(error: OSError) -> None:
            self._on_failure(directory, error)
            if is_out_of_descriptors(error) and checkpoint.path not in self._retrying:
                # Retry, because an old recovery point may lie above the end of a truncated log.
                self._retrying.add(checkpoint.path)
                self._dependencies.timer.call_later(RETRY_MS, retry)

        def retry() -> None:
            self._retrying.discard(checkpoint.path)
            self._write(directory, checkpoint, collect)

        checkpoint.write_async(
            self._dependencies.executor, lambda: collect(directory), failed, on_done
        )

    def _recovery_points(self, directory: LogDirectory) -> Offsets:
        return {tp: log.sync.safe_recovery_point for tp, log in self._logs_in(directory)}

    def _log_start_offsets(self, directory: LogDirectory) -> Offsets:
        return {
            tp: log.log_start_offset
            for tp, log in self._logs_in(directory)
            if log.log_start_offset > log.segments[0].base_offset
        }

    def _high_watermarks(self, directory: LogDirectory) -> Offsets:
        return {tp: log.high_watermark for tp, log in self._logs_in(directory)}
