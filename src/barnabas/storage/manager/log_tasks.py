"""Periodic tasks over all logs: retention, expiry of producers, flushes.

A task runs in slices, one per turn of the loop, so that ten thousand partitions do not block it.
"""

from __future__ import annotations

import contextlib
from collections import deque
from typing import TYPE_CHECKING

from barnabas.storage.errors import KafkaStorageError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from barnabas.runtime.timer import Cancellable
    from barnabas.storage.config import StorageConfig
    from barnabas.storage.log.log import Log
    from barnabas.storage.log_dependencies import LogDependencies
    from barnabas.storage.topic_partition import TopicPartition

# Logs processed per turn of the loop.
_SLICE = 32
# Longer intervals mean "never": flush.ms and similar keys default to 2**63 - 1.
_INTERVAL_MAX_MS = 10 * 365 * 86_400_000


class LogTasks:
    """Runs the tasks at their intervals."""

    __slots__ = ("_config", "_dependencies", "_logs", "_timers")

    def __init__(
        self,
        config: StorageConfig,
        dependencies: LogDependencies,
        logs: Mapping[TopicPartition, Log],
    ) -> None:
        self._config = config
        self._dependencies = dependencies
        # The log manager's own table, so each run sees its current logs.
        self._logs = logs
        self._timers: dict[str, Cancellable] = {}

    def start(self) -> None:
        """Start retention, expiry and, if configured, periodic flushes."""
        config = self._config
        self.repeat("retention", config.log_retention_check_interval_ms, self.apply_retention)
        self.repeat("flush", config.log_flush_scheduler_interval_ms, self.flush_dirty_logs)
        self.repeat(
            "producer-expiry",
            config.producer_id_expiration_check_interval_ms,
            self.expire_producers,
        )

    def repeat(self, name: str, interval_ms: int, task: Callable[[], None]) -> None:
        """Run `task` periodically; an interval of many years means never."""
        if interval_ms > _INTERVAL_MAX_MS:
            return

        def run() -> None:
            # Before the task: an exception must not end the repetition.
            self._timers[name] = self._dependencies.timer.call_later(interval_ms, run)
            task()

        delay_ms = self._config.log_initial_task_delay_ms
        self._timers[name] = self._dependencies.timer.call_later(delay_ms, run)

    def stop(self) -> None:
        """Cancel all tasks."""
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()

    def apply_retention(self) -> None:
        """Delete expired segments, and release descriptors and indexes of idle segments."""
        now_ms = self._dependencies.expiry_clock.wall_ms()

        def work(log: Log) -> None:
            if not log.config.is_compacted:
                # For compacted logs, the cleaner does this between two passes, never during one.
                log.delete_old_segments(now_ms)
            log.release_idle()

        self._in_slices(work)

    def close_idle_files(self) -> None:
        """Close the descriptors that were not used since the last call."""
        self._in_slices(lambda log: log.close_idle())

    def expire_producers(self) -> None:
        """Remove producers that are idle for producer.id.expiration.ms."""
        now_ms = self._dependencies.expiry_clock.wall_ms()
        self._in_slices(lambda log: log.producer_state.remove_expired(now_ms))

    def flush_dirty_logs(self) -> None:
        """Sync the logs whose last sync is at least flush.ms ago."""
        now = self._dependencies.clock.monotonic_ms()

        def work(log: Log) -> None:
            if now - log.sync.last_flush_ms >= log.config.flush_ms:
                log.flush_async(lambda _: None)

        self._in_slices(work)

    def _in_slices(self, work: Callable[[Log], object]) -> None:
        waiting = deque(self._logs)

        def run() -> None:
            try:
                for _ in range(min(_SLICE, len(waiting))):
                    log = self._logs.get(waiting.popleft())
                    if log is not None:
                        with contextlib.suppress(KafkaStorageError):
                            # The failure of the directory has already been reported.
                            work(log)
            finally:
                # After an exception, the work continues with the next log.
                if waiting:
                    self._dependencies.timer.call_soon(run)

        run()
