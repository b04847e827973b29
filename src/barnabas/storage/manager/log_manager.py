"""All logs of a broker (Kafka's LogManager): open, place, move, delete, checkpoint.

Logs are opened in slices, so that neither ten thousand logs nor one long recovery blocks the event
loop. Files are written and removed off the loop.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from msgspec.structs import replace

from barnabas.runtime.disk import is_out_of_descriptors
from barnabas.storage.cleaner.log_cleaner import LogCleaner
from barnabas.storage.errors import KafkaStorageError, TooManyOpenFilesError
from barnabas.storage.files.metadata_files import NO_BROKER_EPOCH, write_marker
from barnabas.storage.log.log import Log
from barnabas.storage.log_dependencies import LogOpening
from barnabas.storage.manager.log_loading import (
    SLICE_MS,
    AssignedLogs,
    DirectoryLoading,
    EverythingAssigned,
    FoundLog,
    RecreatedLogs,
    UnreadableLogs,
)
from barnabas.storage.manager.log_table import LogTable, emptiest
from barnabas.storage.manager.log_tasks import (
    DescriptorRelief,
    LogCheckpoints,
    LogRemoval,
    LogTasks,
    close_logs,
    rename_to_stray,
)
from barnabas.storage.manager.trusted_clock import TrustedClock, TrustedClockFile
from barnabas.waiting.steps import run_in_slices

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Mapping, Sequence

    from barnabas.storage.config import LogConfig, StorageConfig
    from barnabas.storage.files.log_directory import LogDirectory
    from barnabas.storage.log_dependencies import LogDependencies
    from barnabas.storage.topic_partition import TopicPartition

_log = logging.getLogger(__name__)

# Maximum number of preferred directories of logs that do not exist yet.
_PREFERRED_MAX = 10_000


class LogManager:
    """The logs of all data directories of one broker."""

    __slots__ = (
        "_checkpoints",
        "_clock_file",
        "_config",
        "_current",
        "_dependencies",
        "_future",
        "_is_stopped",
        "_offline_paths",
        "_on_directory_failure",
        "_preferred",
        "_recreated",
        "_removal",
        "_unreadable",
        "cleaner",
        "descriptor_relief",
        "directories",
        "previous_broker_epoch",
        "tasks",
        "trusted_clock",
    )

    def __init__(
        self,
        directories: Sequence[LogDirectory],
        config: StorageConfig,
        dependencies: LogDependencies,
        on_directory_failure: Callable[[LogDirectory, OSError], None] = lambda _, __: None,
        offline_paths: Sequence[str] = (),
    ) -> None:
        """Create the manager.

        Args:
            directories: opened and locked directories; `shutdown` closes them.
            dependencies: their `on_disk_failure` is not used.
            on_directory_failure: called once per directory when it goes offline.
            offline_paths: data directories that could not be opened at all.
        """
        self._config = config
        # The clock by which records, producers and offsets expire.
        self.trusted_clock = TrustedClock(dependencies.clock, config.barnabas_retention_hold_ms)
        self._dependencies = replace(
            dependencies,
            on_disk_failure=self._on_disk_failure,
            on_descriptor_shortage=self._on_descriptor_shortage,
            trusted_clock=self.trusted_clock,
        )
        self._clock_file = TrustedClockFile(self.trusted_clock, self._dependencies)
        self._on_directory_failure = on_directory_failure
        self.directories = list(directories)
        # Every open log.
        self._current = LogTable()
        # Future replicas, which copy the log of their partition to another directory.
        self._future = LogTable()
        self._unreadable = UnreadableLogs(dependencies.damage)
        # Preferred directory of logs that do not exist yet (AlterReplicaLogDirs).
        self._preferred: dict[TopicPartition, LogDirectory] = {}
        self._offline_paths = tuple(offline_paths)
        self._recreated = RecreatedLogs(dependencies.disk)
        self._is_stopped = False
        self.tasks = LogTasks(config, self._dependencies, self._current.logs)
        self._removal = LogRemoval(self._dependencies)
        self._checkpoints = LogCheckpoints(self._dependencies, self.logs_in, self._take_offline)
        self.descriptor_relief = DescriptorRelief(self._dependencies, self.tasks.close_idle_files)
        self.cleaner = LogCleaner(self, config.cleaner, self._dependencies)
        # Broker epoch at the last clean shutdown (for the registration); -1 if unknown.
        self.previous_broker_epoch = NO_BROKER_EPOCH

    # -- starting and stopping ---------------------------------------------------------------

    def startup(self, config_of: Callable[[str], LogConfig]) -> None:
        """Open every log of the directories in one turn. No log is stray."""
        for _ in self._load(config_of, EverythingAssigned()):
            pass

    def startup_in_slices(
        self,
        config_of: Callable[[str], LogConfig],
        assigned: AssignedLogs,
        on_done: Callable[[], None],
    ) -> None:
        """Open every log, a part per turn of the loop; `on_done` may run before this returns.

        Args:
            config_of: returns the configuration of a topic, the defaults for an unknown topic.
            assigned: the partitions in the metadata; other logs are renamed as stray.
            on_done: called when all logs are open.
        """

        def run_later(work: Callable[[], None]) -> None:
            self._dependencies.timer.call_soon(lambda: None if self._is_stopped else work())

        steps, clock = self._load(config_of, assigned), self._dependencies.clock
        run_in_slices(steps, clock, run_later, lambda _: on_done(), SLICE_MS)

    def start_tasks(self) -> None:
        """Start retention, checkpoints, expiry and, if configured, periodic flushes."""
        config, tasks = self._config, self.tasks
        tasks.start()
        tasks.repeat(
            "recovery-points",
            config.log_flush_offset_checkpoint_interval_ms,
            self.checkpoint_recovery_points,
        )
        tasks.repeat(
            "log-starts",
            config.log_flush_start_offset_checkpoint_interval_ms,
            self.checkpoint_log_start_offsets,
        )
        tasks.repeat(
            "trusted-clock",
            config.log_retention_check_interval_ms,
            lambda: self._clock_file.write(self._online(), self._take_offline),
        )
        if config.cleaner.log_cleaner_enable:
            self.cleaner.start()

    @property
    def is_writing_checkpoints(self) -> bool:
        """Whether checkpoints are being written off the loop; `shutdown` must wait for them."""
        return self._clock_file.is_writing or any(
            directory.is_writing_checkpoints for directory in self.directories
        )

    def shutdown(self, broker_epoch: int = NO_BROKER_EPOCH) -> None:
        """Close all logs, write the checkpoints and the clean shutdown marker, unlock.

        Work on the executor must be complete before: nothing may be written after the marker.
        """
        self._is_stopped = True
        self.tasks.stop()
        self.cleaner.stop()
        for directory in self.directories:
            if directory.is_online:
                try:
                    self._close_all(directory, broker_epoch)
                except (OSError, KafkaStorageError):
                    directory.is_online = False
            directory.close()
        self._current.clear()
        self._future.clear()

    def _load(
        self, config_of: Callable[[str], LogConfig], assigned: AssignedLogs
    ) -> Generator[None, None, None]:
        """Open all logs, in steps of bounded duration."""
        self._clock_file.resume(self._online())
        config, dependencies = self._config, self._dependencies
        loadings = [
            (each, DirectoryLoading(each, config, dependencies, config_of))
            for each in self._online()
        ]
        for directory, loading in loadings:
            try:
                loading.begin()
            except OSError as error:
                self._take_offline(directory, error)
        epochs = {loading.previous_broker_epoch for _, loading in loadings}
        # The epoch is known only if all directories agree.
        self.previous_broker_epoch = epochs.pop() if len(epochs) == 1 else NO_BROKER_EPOCH
        for directory, loading in loadings:
            if not directory.is_online:
                continue
            try:
                for found in loading.slices():
                    if found is not None:
                        self._register(directory, found, assigned)
                    yield
            except OSError as error:
                self._take_offline(directory, error)
            except TooManyOpenFilesError as shortage:
                # No log is open yet whose descriptors could be closed.
                cause = shortage.__cause__
                assert isinstance(cause, OSError), cause
                self._take_offline(directory, cause)
            except KafkaStorageError:
                # The directory's failure was already reported; the other directories continue.
                continue
        self._promote_abandoned(assigned)

    def _register(self, directory: LogDirectory, found: FoundLog, assigned: AssignedLogs) -> None:
        """Register an opened log, or rename it as stray if the metadata does not assign it."""
        log = found.log
        if self._unreadable.take(found, assigned):
            return
        if log is None:
            self._removal.remove_later(found.path, self._config.log_defaults)
            return
        partition = log.topic_partition
        table = self._future if found.is_future else self._current
        if assigned.is_stray(partition, log.topic_id):
            if log.log_end_offset == 0:
                # Created just before a power loss: there are no records to keep.
                self._removal.delete_later(log)
            else:
                self._rename_to_stray(log, "not in the metadata, or its topic id is lost")
            return
        other = table.logs.get(partition)
        if other is not None:
            # A move stopped between its two renames. The directory in the metadata was complete.
            if assigned.directory_id_of(partition) != directory.id:
                self._rename_to_stray(log, f"{other.directory} is the log of {partition}")
                return
            self._rename_to_stray(other, f"{log.directory} is the log of {partition}")
        table.put(partition, log, directory)
        if found.is_future:
            self.cleaner.abort_and_pause_cleaning(partition)
        if found.is_recreated:
            self._recreated.record(partition, directory)

    def _rename_to_stray(self, log: Log, reason: str) -> None:
        rename_to_stray(log, self._dependencies.rng, reason)

    def _promote_abandoned(self, assigned: AssignedLogs) -> None:
        """Promote each future replica whose source is missing, with the records it copied."""
        for partition in [key for key in self.futures if key not in self.logs]:
            directory = self._future.directory_of(partition)
            assert directory is not None, f"{partition} has no directory"
            if self.has_offline_directories and (
                assigned.directory_id_of(partition) != directory.id
            ):
                # Its log may be in a directory that comes back online.
                continue
            log = self._forget_future(partition)
            _log.warning(
                "The source of a move is missing, its copy becomes the log: partition=%s "
                "directory=%s log_end_offset=%d",
                partition,
                directory.path,
                log.log_end_offset,
            )
            log.rename(f"{directory.path}/{partition.directory_name}")
            self._current.put(partition, log, directory)

    def _close_all(self, directory: LogDirectory, broker_epoch: int) -> None:
        logs = list(self.logs_in(directory).values())
        if directory.is_loaded or directory.was_stopped_cleanly:
            close_logs(logs, directory, self._dependencies)
        else:
            for log in logs:
                log.close_files()
        if directory.is_loaded:
            self._checkpoints.write_now(directory)
            self._clock_file.write_now(directory)
            self._recreated.unmark(self._log_in)
            write_marker(self._dependencies.disk, directory.path, broker_epoch)
        elif directory.was_stopped_cleanly:
            # Shutdown during loading: logs that were not opened are as clean as before.
            write_marker(self._dependencies.disk, directory.path, self.previous_broker_epoch)

    # -- logs --------------------------------------------------------------------------------

    @property
    def logs(self) -> Mapping[TopicPartition, Log]:
        """Every open log."""
        return self._current.logs

    @property
    def futures(self) -> Mapping[TopicPartition, Log]:
        """Future replicas, which copy the log of their partition to another directory."""
        return self._future.logs

    def get(self, partition: TopicPartition) -> Log | None:
        """Return the log of a partition, or None."""
        return self._current.logs.get(partition)

    def get_or_create(
        self,
        partition: TopicPartition,
        topic_id: bytes | None,
        config: LogConfig,
        directory_id: bytes | None = None,
    ) -> Log:
        """Return the log of a partition; create it if it is new.

        Args:
            directory_id: the directory in the metadata; None selects the one with the fewest logs.

        Raises:
            InconsistentTopicIdError: the log belongs to another topic of the same name.
            KafkaStorageError: no directory is online, or it failed; or the log may be in an offline
                directory; or it exists and cannot be opened.
        """
        log = self._current.logs.get(partition)
        if log is not None:
            if topic_id is not None:
                log.identity.assign_topic_id(topic_id)
            return log
        self._unreadable.check(partition)
        directory = self._directory_for(partition, directory_id)
        path = f"{directory.path}/{partition.directory_name}"
        log = self._create(path, partition, topic_id, config)
        self._current.put(partition, log, directory)
        return log

    def delete_async(self, partition: TopicPartition) -> bool:
        """Remove a log now and delete its files later; return whether it existed."""
        self.delete_future(partition)
        if (path := self._unreadable.forget(partition)) is not None:
            self._removal.remove_later(path, self._config.log_defaults)
        if partition not in self.logs:
            return path is not None
        log, directory = self._current.pop(partition)
        self.cleaner.on_deleted(partition, directory)
        self._removal.delete_later(log)
        return True

    def _create(
        self, path: str, partition: TopicPartition, topic_id: bytes | None, config: LogConfig
    ) -> Log:
        opening = LogOpening(
            partition,
            topic_id,
            producer_id_expiration_ms=self._config.producer_id_expiration_ms,
            verifies_transactions=self._config.transaction_partition_verification_enable,
        )
        directory = next(each for each in self.directories if each.holds(path))
        try:
            self._recreated.mark(partition, path, directory)
        except OSError as error:
            self._take_offline(directory, error)
            kind = TooManyOpenFilesError if is_out_of_descriptors(error) else KafkaStorageError
            raise kind(f"{path}: {error}") from error
        return Log.open(path, config, self._dependencies, opening)

    def _log_in(self, partition: TopicPartition, directory: LogDirectory) -> Log | None:
        """Return the log, or the future replica, of a partition in that directory."""
        log = self._current.find_in(partition, directory)
        return self._future.find_in(partition, directory) if log is None else log

    def truncate_to(self, partition: TopicPartition, offset: int) -> bool:
        """Truncate a log and write the recovery points; return whether batches were removed."""
        self.cleaner.before_truncation(partition, offset)
        if not self.logs[partition].truncate_to(offset):
            return False
        self.cleaner.on_truncated(partition)
        self.checkpoint_recovery_points()
        return True

    def restart_log(self, partition: TopicPartition, restart: Callable[[Log], None]) -> None:
        """Empty a log and start it anew by `restart`, and write recovery points and log starts."""
        self.cleaner.abort_cleaning(partition)
        restart(self.logs[partition])
        self.cleaner.on_truncated(partition)
        self.checkpoint_recovery_points()
        self.checkpoint_log_start_offsets()

    def update_config(self, topic: str, config: LogConfig) -> None:
        """Apply a changed topic configuration to its logs."""
        for partition, log in (*self.logs.items(), *self.futures.items()):
            if partition.topic == topic:
                log.update_config(config)
                if not config.is_compacted:
                    self.cleaner.abort_cleaning(partition)

    def update_configs(self, config_of: Callable[[str], LogConfig]) -> None:
        """Apply changed broker defaults; `config_of` returns the configuration of a topic."""
        known = {topic: config_of(topic) for topic in {each.topic for each in self.logs}}
        for partition, log in self.logs.items():
            log.update_config(known[partition.topic])

    def set_producer_expiration(self, expiration_ms: int) -> None:
        """Set how long a producer may be idle before it expires, for all logs."""
        self._config = replace(self._config, producer_id_expiration_ms=expiration_ms)
        for log in self.logs.values():
            log.producer_state.expiration_ms = expiration_ms

    def set_transaction_verification(self, is_required: bool) -> None:
        """Set whether the coordinator must confirm transactions, for all logs."""
        self._config = replace(self._config, transaction_partition_verification_enable=is_required)
        for log in self.logs.values():
            log.producer_state.requires_verification = is_required

    def directory_of(self, partition: TopicPartition) -> LogDirectory | None:
        """Return the data directory of a partition's log."""
        return self._current.directory_of(partition)

    @property
    def has_offline_directories(self) -> bool:
        """Whether a data directory failed, or could not be opened at all."""
        return bool(self._offline_paths) or not all(each.is_online for each in self.directories)

    @property
    def cordoned_directory_ids(self) -> list[bytes]:
        """Ids of the directories that accept no new logs."""
        return [each.id for each in self.directories if each.is_cordoned]

    @property
    def offline_paths(self) -> list[str]:
        """Paths of the data directories that are offline."""
        return [*self._offline_paths, *(d.path for d in self.directories if not d.is_online)]

    @property
    def offline_directory_ids(self) -> list[bytes]:
        """Ids of the directories that have failed since startup."""
        return [each.id for each in self.directories if not each.is_online]

    def _directory_for(self, partition: TopicPartition, directory_id: bytes | None) -> LogDirectory:
        if directory_id is not None:
            for directory in self.directories:
                if directory.id == directory_id:
                    if directory.is_online:
                        return directory
                    raise KafkaStorageError(f"{directory.path} is offline")
            if self.has_offline_directories:
                raise KafkaStorageError(f"{partition} may be in an offline directory")
        preferred = self._preferred.pop(partition, None)
        if preferred is not None and preferred.is_online:
            return preferred
        owners = (*self._current.directories, *self._future.directories)
        return emptiest(self._online(), owners)

    # -- moving between directories ------------------------------------------------------------

    def directory_at(self, path: str) -> LogDirectory | None:
        """Return the data directory at that path; None if unknown or not opened."""
        return next((each for each in self.directories if each.path == path), None)

    def prefer(self, partition: TopicPartition, directory: LogDirectory) -> None:
        """Remember the directory in which a future log of the partition is created."""
        if partition not in self.logs and len(self._preferred) < _PREFERRED_MAX:
            self._preferred[partition] = directory
        count = len(self._preferred)
        assert count <= _PREFERRED_MAX, f"Bounded: {count} preferred directories"

    def future_directory_of(self, partition: TopicPartition) -> LogDirectory | None:
        """Return the directory to which the partition's log is being moved."""
        return self._future.directory_of(partition)

    def create_future(self, partition: TopicPartition, directory: LogDirectory) -> Log:
        """Create an empty replica in another directory, to be filled from the log.

        Raises:
            KafkaStorageError: the directory failed.
        """
        log = self.logs[partition]
        assert partition not in self.futures, f"{partition} already has a future replica"
        name = partition.future_directory_name(self._dependencies.rng.uuid())
        future = self._create(f"{directory.path}/{name}", partition, log.topic_id, log.config)
        self._future.put(partition, future, directory)
        # As in Kafka, cleaning pauses until the move is complete, because the replica is a copy.
        self.cleaner.abort_and_pause_cleaning(partition)
        return future

    def delete_future(self, partition: TopicPartition) -> bool:
        """Cancel a move; return whether there was one."""
        if partition not in self.futures:
            return False
        self._removal.delete_later(self._forget_future(partition))
        return True

    def replace_with_future(self, partition: TopicPartition) -> Log:
        """Replace the log by its future replica, which has all of its records.

        Each step is on disk before the next. After a power loss there is one of the two, or both,
        and the metadata names the valid one.

        Raises:
            KafkaStorageError: a directory failed.
        """
        log, future = self.logs[partition], self.futures[partition]
        source = self._current.directory_of(partition)
        target = self._future.directory_of(partition)
        assert source is not None, f"{partition} has no directory"
        assert target is not None, f"{partition} has no future directory"
        assert future.log_end_offset == log.log_end_offset, (
            f"{partition}: future end {future.log_end_offset}, current end {log.log_end_offset}"
        )
        future.take_over_from(log)
        future.rename(f"{target.path}/{partition.directory_name}")
        future.sync_name()
        self._forget_future(partition)
        self._current.put(partition, future, target)
        self.cleaner.checkpoints.move(partition, source, target)
        self._removal.delete_later(log)
        log.sync_name()
        self.checkpoint_recovery_points()
        self.checkpoint_log_start_offsets()
        self.checkpoint_high_watermarks()
        return future

    def _forget_future(self, partition: TopicPartition) -> Log:
        log, _ = self._future.pop(partition)
        self.cleaner.resume_cleaning(partition)
        return log

    # -- checkpoints -------------------------------------------------------------------------

    def checkpoint_recovery_points(self) -> None:
        """Write the recovery points off the loop."""
        self._checkpoints.write_recovery_points(self._online())

    def checkpoint_log_start_offsets(self) -> None:
        """Write each log start offset that differs from the first segment's base offset."""
        try:
            self._recreated.unmark(self._log_in)
        except OSError as error:
            self._on_disk_failure(error.filename or "", error)
        self._checkpoints.write_log_start_offsets(self._online())

    def checkpoint_high_watermarks(self, on_done: Callable[[], None] = lambda: None) -> None:
        """Write the high watermarks off the loop, then call `on_done`."""
        self._checkpoints.write_high_watermarks(self._online(), on_done)

    def _online(self) -> list[LogDirectory]:
        return [directory for directory in self.directories if directory.is_online]

    def logs_in(self, directory: LogDirectory) -> dict[TopicPartition, Log]:
        """Return the logs of a directory as they are now, including future replicas."""
        # Both have the same key, as in Kafka: a directory has only one of them per partition.
        return self._current.logs_in(directory) | self._future.logs_in(directory)

    # -- failure -----------------------------------------------------------------------------

    def _on_descriptor_shortage(self) -> None:
        self.descriptor_relief.on_shortage()

    def _on_disk_failure(self, path: str, error: OSError) -> None:
        for directory in self.directories:
            if directory.holds(path):
                self._take_offline(directory, error)

    def _take_offline(self, directory: LogDirectory, error: OSError) -> None:
        """Remove the logs of a failed directory; nothing is retried.

        A descriptor shortage is not a failure: the operation is rejected or retried.
        """
        if not directory.is_online:
            return
        if is_out_of_descriptors(error) and directory.is_loaded:
            self.descriptor_relief.on_shortage()
            return
        directory.is_online = False
        for partition, log in self._current.logs_in(directory).items():
            self._current.pop(partition)
            self.cleaner.on_deleted(partition, directory)
            log.take_offline()
        for partition, log in self._future.logs_in(directory).items():
            self._forget_future(partition)
            log.take_offline()
        self._on_directory_failure(directory, error)
