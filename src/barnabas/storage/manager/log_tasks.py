"""Tasks over all logs: retention, expiry, flushes, checkpoints, idle files, closing and deletion.

A periodic task runs in slices, one per turn of the loop, so that ten thousand partitions do not
block it.

Logs keep files open after use. During a shortage of descriptors (EMFILE, ENFILE), all logs are
checked twice, some seconds apart. Files unused in between are closed; their next use opens them
again. A shortage does not indicate a disk failure, so no directory goes offline.

*Closing* leaves logs that need no recovery. A log has several small files, and each sync waits for
the device. Therefore one operation syncs all files, if the file system reports failed writes.
Otherwise many threads sync concurrently, and the file system commits their requests together.
*Deletion* removes the files after `file.delete.delay.ms`, off the loop.
"""

from __future__ import annotations

import contextlib
import logging
from collections import deque
from functools import partial
from typing import TYPE_CHECKING

from barnabas.runtime.disk import is_out_of_descriptors
from barnabas.storage.errors import KafkaStorageError
from barnabas.storage.files.checkpoint import Collection, countdown
from barnabas.storage.log.flusher import RETRY_MS
from barnabas.waiting.steps import SLICE_MS, in_parts, run_in_slices, run_to_end

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable, Mapping, Sequence

    from barnabas.runtime.clock import Cancellable
    from barnabas.runtime.rng import Rng
    from barnabas.storage.config import LogConfig, StorageConfig
    from barnabas.storage.files.checkpoint import OffsetCheckpoint
    from barnabas.storage.files.log_directory import LogDirectory
    from barnabas.storage.log.log import Log
    from barnabas.storage.log_dependencies import LogDependencies
    from barnabas.storage.topic_partition import TopicPartition

    Logs = dict[TopicPartition, Log]
    OffsetOf = Callable[[Log], int | None]

_log = logging.getLogger(__name__)


# Logs processed per turn of the loop. A turn has fewer if they take more time than SLICE_MS: a
# disk may let a single call wait.
_LOGS_AT_ONCE = 32
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
                log.sync.flush_async(lambda _: None)

        self._in_slices(work)

    def _in_slices(self, work: Callable[[Log], object]) -> None:
        waiting = deque(self._logs)
        monotonic_ms = self._dependencies.clock.monotonic_ms

        def run() -> None:
            ends_ms = monotonic_ms() + SLICE_MS
            try:
                for _ in range(min(_LOGS_AT_ONCE, len(waiting))):
                    log = self._logs.get(waiting.popleft())
                    if log is not None:
                        with contextlib.suppress(KafkaStorageError):
                            # The failure of the directory has already been reported.
                            work(log)
                    if monotonic_ms() > ends_ms:
                        break
            finally:
                # After an exception, the work continues with the next log.
                if waiting:
                    self._dependencies.timer.call_soon(run)

        run()


class LogCheckpoints:
    """Writes recovery points, log start offsets and high watermarks."""

    __slots__ = ("_dependencies", "_logs_in", "_on_failure", "_retrying")

    def __init__(
        self,
        dependencies: LogDependencies,
        logs_in: Callable[[LogDirectory], Logs],
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
            self._write(directory, directory.recovery_points, _recovery_point)

    def write_log_start_offsets(self, directories: Iterable[LogDirectory]) -> None:
        """Write each log start offset that the first segment's base offset does not show."""
        for directory in directories:
            self._write(directory, directory.log_start_offsets, _log_start_offset)

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
            self._write(directory, directory.high_watermarks, _high_watermark, done)

    def write_now(self, directory: LogDirectory) -> None:
        """Write all three checkpoints synchronously.

        Raises:
            OSError: a write failed.
        """
        logs = self._logs_in(directory)
        for checkpoint, offset_of in (
            (directory.recovery_points, _recovery_point),
            (directory.log_start_offsets, _log_start_offset),
            (directory.high_watermarks, _high_watermark),
        ):
            checkpoint.write(run_to_end(_offsets(logs, offset_of)))

    def _write(
        self,
        directory: LogDirectory,
        checkpoint: OffsetCheckpoint,
        offset_of: OffsetOf,
        on_done: Callable[[], None] | None = None,
    ) -> None:
        if not directory.is_loaded or not directory.is_online:
            return
        clock, timer = self._dependencies.clock, self._dependencies.timer

        def failed(error: OSError) -> None:
            self._on_failure(directory, error)
            if is_out_of_descriptors(error) and checkpoint.path not in self._retrying:
                # Retry, because an old recovery point may lie above the end of a truncated log.
                self._retrying.add(checkpoint.path)
                timer.call_later(RETRY_MS, retry)

        def retry() -> None:
            self._retrying.discard(checkpoint.path)
            self._write(directory, checkpoint, offset_of)

        def collect() -> Collection:
            logs = self._logs_in(directory)
            steps = _offsets(logs, offset_of)
            return Collection(logs, partial(run_in_slices, steps, clock, timer.call_soon))

        checkpoint.write_async(self._dependencies.executor, collect, failed, on_done)


def _offsets(logs: Logs, offset_of: OffsetOf) -> Generator[None, None, dict[TopicPartition, int]]:
    """Collect an offset of each log that has one to write."""
    found: dict[TopicPartition, int] = {}
    for part in in_parts(list(logs.items())):
        for partition, log in part:
            offset = offset_of(log)
            if offset is not None:
                found[partition] = offset
        yield
    return found


def _recovery_point(log: Log) -> int:
    return log.sync.safe_recovery_point


def _log_start_offset(log: Log) -> int | None:
    """Return the log start offset if the first segment does not show it."""
    if log.config.is_remote or log.log_start_offset > log.segments[0].base_offset:
        return log.log_start_offset
    return None


def _high_watermark(log: Log) -> int:
    return log.high_watermark


# Interval between two checks. A file that has been sent from for longer may be closed; the client
# then retries.
_LOOK_AGAIN_MS = 2_000
_WARN_AGAIN_MS = 60_000


class DescriptorRelief:
    """Closes idle files while operations lack descriptors, and one more time after that."""

    __slots__ = (
        "_close_idle",
        "_dependencies",
        "_is_running",
        "_is_short",
        "_warned_ms",
        "shortages",
    )

    def __init__(self, dependencies: LogDependencies, close_idle: Callable[[], None]) -> None:
        """Create the relief; `close_idle` closes files of all logs unused since its last call."""
        self._dependencies = dependencies
        self._close_idle = close_idle
        self._is_running = False
        # Whether a shortage was reported since the last check.
        self._is_short = False
        # Time of the last warning (monotonic clock); None before the first.
        self._warned_ms: float | None = None
        # Number of operations that found no descriptor.
        self.shortages = 0

    def on_shortage(self) -> None:
        """Handle an operation that found no free descriptor."""
        self.shortages += 1
        self._is_short = True
        self._maybe_warn()
        if not self._is_running:
            self._is_running = True
            # Do not close files in the middle of the failed operation.
            self._dependencies.timer.call_soon(self._check)

    def _check(self) -> None:
        self._is_running = self._is_short
        self._is_short = False
        self._close_idle()
        if self._is_running:
            self._dependencies.timer.call_later(_LOOK_AGAIN_MS, self._check)

    def _maybe_warn(self) -> None:
        now_ms = self._dependencies.clock.monotonic_ms()
        if self._warned_ms is not None and now_ms - self._warned_ms < _WARN_AGAIN_MS:
            return
        self._warned_ms = now_ms
        _log.warning(
            "Operations are rejected and can be retried, because no file descriptor is "
            "free: shortages=%d. Raise the limit (ulimit -n, or LimitNOFILE= of the "
            "service)",
            self.shortages,
        )


# From this number of logs on, the whole file system is synced first. Otherwise each sync of a
# changed file waits for the device.
_MANY = 64


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
