"""All logs of a broker (Kafka's LogManager): opening, creating, deleting, checkpoints, retention.

Work over many logs runs in slices, one per turn of the loop, so that ten thousand partitions never
hold it; files are written and removed off the loop.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from barnabas.storage.checkpoint import CheckpointError, OffsetCheckpoint
from barnabas.storage.clean_shutdown import NO_BROKER_EPOCH, take_marker, write_marker
from barnabas.storage.doors import LogOpening
from barnabas.storage.errors import KafkaStorageError
from barnabas.storage.log import Log
from barnabas.storage.topic_partition import DELETE_SUFFIX, TopicPartition, parse_directory_name

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from barnabas.runtime.timer import Cancellable
    from barnabas.storage.config import LogConfig, StorageConfig
    from barnabas.storage.doors import LogDoors
    from barnabas.storage.log_directory import LogDirectory

# The metadata log lies among the others and belongs to the raft driver.
CLUSTER_METADATA = TopicPartition("__cluster_metadata", 0)
# Logs looked at per turn of the loop.
_SLICE = 32
# Intervals longer than this stand for "never": flush.ms and its kin default to 2**63 - 1.
_INTERVAL_MAX_MS = 10 * 365 * 86_400_000


class LogManager:
    """The logs of all data directories of one broker."""

    __slots__ = (
        "_config",
        "_directory_of",
        "_doors",
        "_on_directory_failure",
        "_timers",
        "directories",
        "logs",
        "previous_broker_epoch",
    )

    def __init__(
        self,
        directories: Sequence[LogDirectory],
        config: StorageConfig,
        doors: LogDoors,
        on_directory_failure: Callable[[LogDirectory, OSError], None] = lambda _, __: None,
    ) -> None:
        """Args:
        directories: opened, so locked; the manager closes them at shutdown.
        doors: their `on_disk_failure` is not used.
        on_directory_failure: told once per directory when it goes offline.
        """
        self._config = config
        self._doors = replace(doors, on_disk_failure=self._on_disk_failure)
        self._on_directory_failure = on_directory_failure
        self.directories = list(directories)
        # Every log that is open.
        self.logs: dict[TopicPartition, Log] = {}
        self._directory_of: dict[TopicPartition, LogDirectory] = {}
        self._timers: dict[str, Cancellable] = {}
        # Broker epoch at the last clean stop, -1 if unknown (for the broker's registration).
        self.previous_broker_epoch = NO_BROKER_EPOCH

    # -- starting and stopping ---------------------------------------------------------------

    def startup(self, config_of: Callable[[str], LogConfig]) -> None:
        """Open every log that the directories hold.

        Args:
            config_of: the configuration of a topic, the defaults for an unknown one.
        """
        for directory in self.directories:
            try:
                self._open_all(directory, config_of)
            except OSError as error:
                self._take_offline(directory, error)
            except KafkaStorageError:
                # The directory went offline, which was told already; the others go on.
                continue

    def start_tasks(self) -> None:
        """Begin with retention, checkpoints, expiry and, if set, periodic flushes."""
        config = self._config
        self._repeat("retention", config.log_retention_check_interval_ms, self.apply_retention)
        self._repeat(
            "recovery-points",
            config.log_flush_offset_checkpoint_interval_ms,
            self.checkpoint_recovery_points,
        )
        self._repeat(
            "log-starts",
            config.log_flush_start_offset_checkpoint_interval_ms,
            self.checkpoint_log_start_offsets,
        )
        self._repeat("flush", config.log_flush_scheduler_interval_ms, self.flush_dirty_logs)
        self._repeat(
            "producer-expiry",
            config.producer_id_expiration_check_interval_ms,
            self.expire_producers,
        )

    @property
    def is_writing_checkpoints(self) -> bool:
        """Whether checkpoints are being written off the loop; `shutdown` has to wait for them."""
        return any(
            checkpoint.is_writing
            for directory in self.directories
            for checkpoint in (
                directory.recovery_points,
                directory.log_start_offsets,
                directory.high_watermarks,
            )
        )

    def shutdown(self, broker_epoch: int = NO_BROKER_EPOCH) -> None:
        """Close every log, write the checkpoints and the marker of a clean stop, unlock.

        Work handed to the executor must be done before: nothing may write behind the marker.
        """
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()
        for directory in self.directories:
            if directory.is_online:
                try:
                    self._close_all(directory, broker_epoch)
                except (OSError, KafkaStorageError):
                    directory.is_online = False
            directory.close()
        self.logs.clear()
        self._directory_of.clear()

    def _open_all(self, directory: LogDirectory, config_of: Callable[[str], LogConfig]) -> None:
        disk = self._doors.disk
        names = disk.list(directory.path)
        broker_epoch = take_marker(disk, directory.path)
        if broker_epoch is not None:
            self.previous_broker_epoch = max(self.previous_broker_epoch, broker_epoch)
        recovery_points = _read(directory.recovery_points)
        log_starts = _read(directory.log_start_offsets)
        high_watermarks = _read(directory.high_watermarks)
        for name in names:
            if name.endswith(DELETE_SUFFIX):
                self._remove_later(f"{directory.path}/{name}", self._config.log_defaults)
                continue
            partition = parse_directory_name(name)
            path = f"{directory.path}/{name}"
            if partition is None or partition == CLUSTER_METADATA or not disk.is_directory(path):
                continue
            opening = LogOpening(
                partition,
                None,
                recovery_points.get(partition, 0),
                log_starts.get(partition, 0),
                high_watermarks.get(partition, 0),
                broker_epoch is not None,
                self._config.producer_id_expiration_ms,
            )
            log = Log.open(path, config_of(partition.topic), self._doors, opening)
            self.logs[partition] = log
            self._directory_of[partition] = directory

    def _close_all(self, directory: LogDirectory, broker_epoch: int) -> None:
        for partition, log in self.logs.items():
            if self._directory_of[partition] is directory:
                log.close()
        directory.recovery_points.write(self._recovery_points(directory))
        directory.log_start_offsets.write(self._log_start_offsets(directory))
        directory.high_watermarks.write(self._high_watermarks(directory))
        write_marker(self._doors.disk, directory.path, broker_epoch)

    # -- logs --------------------------------------------------------------------------------

    def get(self, partition: TopicPartition) -> Log | None:
        """The log of a partition, if there is one."""
        return self.logs.get(partition)

    def get_or_create(
        self, partition: TopicPartition, topic_id: bytes | None, config: LogConfig
    ) -> Log:
        """The log of a partition, made in the directory with the fewest logs if it is new.

        Raises:
            InconsistentTopicIdError: there is one of another topic of the same name.
            KafkaStorageError: no directory is online, or it failed.
        """
        log = self.logs.get(partition)
        if log is not None:
            if topic_id is not None:
                log.assign_topic_id(topic_id)
            return log
        directory = self._emptiest()
        opening = LogOpening(
            partition,
            topic_id,
            producer_id_expiration_ms=self._config.producer_id_expiration_ms,
        )
        path = f"{directory.path}/{partition.directory_name}"
        log = Log.open(path, config, self._doors, opening)
        self.logs[partition] = log
        self._directory_of[partition] = directory
        return log

    def delete_async(self, partition: TopicPartition) -> bool:
        """Forget a log at once, delete its files later; returns whether there was one."""
        log = self.logs.pop(partition, None)
        if log is None:
            return False
        del self._directory_of[partition]
        log.rename_to_delete()
        self._remove_later(log.directory, log.config, log)
        return True

    def truncate_to(self, partition: TopicPartition, offset: int) -> bool:
        """Cut a log, and let the recovery points on disk follow; returns whether it was cut."""
        if not self.logs[partition].truncate_to(offset):
            return False
        self.checkpoint_recovery_points()
        return True

    def truncate_fully_and_start_at(self, partition: TopicPartition, offset: int) -> None:
        """Begin a log anew at `offset`, and let the recovery points on disk follow."""
        self.logs[partition].truncate_fully_and_start_at(offset)
        self.checkpoint_recovery_points()

    def update_config(self, topic: str, config: LogConfig) -> None:
        """The configuration of a topic has changed."""
        for partition, log in self.logs.items():
            if partition.topic == topic:
                log.update_config(config)

    def directory_of(self, partition: TopicPartition) -> LogDirectory | None:
        """The data directory in which a partition's log lies."""
        return self._directory_of.get(partition)

    def _emptiest(self) -> LogDirectory:
        online = [directory for directory in self.directories if directory.is_online]
        if not online:
            raise KafkaStorageError("no data directory is online")
        if len(online) == 1:
            return online[0]
        counts = {directory.path: 0 for directory in online}
        for directory in self._directory_of.values():
            if directory.path in counts:
                counts[directory.path] += 1
        return min(online, key=lambda directory: counts[directory.path])

    def _remove_later(self, path: str, config: LogConfig, log: Log | None = None) -> None:
        disk = self._doors.disk

        def done(_: None, error: BaseException | None) -> None:
            if isinstance(error, OSError):
                self._on_disk_failure(path, error)

        def remove() -> None:
            if log is not None:
                log.close_files()
            self._doors.executor.submit(lambda: disk.remove_tree(path), done)

        self._doors.timer.call_later(config.file_delete_delay_ms, remove)

    # -- checkpoints -------------------------------------------------------------------------

    def checkpoint_recovery_points(self) -> None:
        """Write the recovery points, off the loop."""
        for directory in self._online():
            self._write(directory, directory.recovery_points, self._recovery_points)

    def checkpoint_log_start_offsets(self) -> None:
        """Write the log start offsets that are not simply where the first segment begins."""
        for directory in self._online():
            self._write(directory, directory.log_start_offsets, self._log_start_offsets)

    def checkpoint_high_watermarks(self) -> None:
        """Write the high watermarks, off the loop."""
        for directory in self._online():
            self._write(directory, directory.high_watermarks, self._high_watermarks)

    def _online(self) -> list[LogDirectory]:
        return [directory for directory in self.directories if directory.is_online]

    def _write(
        self,
        directory: LogDirectory,
        checkpoint: OffsetCheckpoint,
        collect: Callable[[LogDirectory], dict[TopicPartition, int]],
    ) -> None:
        checkpoint.write_async(
            self._doors.executor,
            lambda: collect(directory),
            lambda error: self._take_offline(directory, error),
        )

    def _logs_in(self, directory: LogDirectory) -> list[tuple[TopicPartition, Log]]:
        owner = self._directory_of
        return [item for item in self.logs.items() if owner[item[0]] is directory]

    def _recovery_points(self, directory: LogDirectory) -> dict[TopicPartition, int]:
        return {tp: log.recovery_point for tp, log in self._logs_in(directory)}

    def _log_start_offsets(self, directory: LogDirectory) -> dict[TopicPartition, int]:
        return {
            tp: log.log_start_offset
            for tp, log in self._logs_in(directory)
            if log.log_start_offset > log.segments[0].base_offset
        }

    def _high_watermarks(self, directory: LogDirectory) -> dict[TopicPartition, int]:
        return {tp: log.high_watermark for tp, log in self._logs_in(directory)}

    # -- tasks over all logs -----------------------------------------------------------------

    def apply_retention(self) -> None:
        """Delete what retention lets go, and give back what idle segments hold."""
        now_ms = self._doors.clock.wall_ms()

        def work(log: Log) -> None:
            log.delete_old_segments(now_ms)
            log.release_idle()

        self._in_slices(work)

    def expire_producers(self) -> None:
        """Forget producers that have been silent for producer.id.expiration.ms."""
        now_ms = self._doors.clock.wall_ms()
        self._in_slices(lambda log: log.producer_state.remove_expired(now_ms))

    def flush_dirty_logs(self) -> None:
        """Sync the logs whose flush.ms is over."""
        now = self._doors.clock.monotonic_ms()

        def work(log: Log) -> None:
            if now - log.last_flush_ms >= log.config.flush_ms:
                log.flush_async(lambda _: None)

        self._in_slices(work)

    def _in_slices(self, work: Callable[[Log], object]) -> None:
        waiting = list(self.logs)

        def run() -> None:
            for partition in waiting[:_SLICE]:
                log = self.logs.get(partition)
                if log is not None:
                    try:
                        work(log)
                    except KafkaStorageError:
                        # Its directory went offline, which was told already.
                        continue
            del waiting[:_SLICE]
            if waiting:
                self._doors.timer.call_soon(run)

        run()

    def _repeat(self, name: str, interval_ms: int, task: Callable[[], None]) -> None:
        if interval_ms > _INTERVAL_MAX_MS:
            return

        def run() -> None:
            task()
            self._timers[name] = self._doors.timer.call_later(interval_ms, run)

        delay_ms = self._config.log_initial_task_delay_ms
        self._timers[name] = self._doors.timer.call_later(delay_ms, run)

    # -- failure -----------------------------------------------------------------------------

    def _on_disk_failure(self, path: str, error: OSError) -> None:
        for directory in self.directories:
            if path == directory.path or path.startswith(directory.path + "/"):
                self._take_offline(directory, error)

    def _take_offline(self, directory: LogDirectory, error: OSError) -> None:
        """Forget the logs of a directory that has failed; nothing is retried."""
        if not directory.is_online:
            return
        directory.is_online = False
        for partition in [tp for tp, owner in self._directory_of.items() if owner is directory]:
            del self._directory_of[partition]
            self.logs.pop(partition).close_files()
        self._on_directory_failure(directory, error)


def _read(checkpoint: OffsetCheckpoint) -> dict[TopicPartition, int]:
    """The offsets; none from a damaged file, which costs a longer recovery and nothing else."""
    try:
        return checkpoint.read()
    except CheckpointError:
        return {}
