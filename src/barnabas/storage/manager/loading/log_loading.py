"""Loading of a data directory at startup, log by log (Kafka's LogManager.loadLogs)."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, NamedTuple, Protocol

from barnabas.storage.damage import DamageKind
from barnabas.storage.errors import KafkaStorageError
from barnabas.storage.files.checkpoint import CheckpointError, OffsetCheckpoint
from barnabas.storage.files.clean_shutdown import NO_BROKER_EPOCH, take_marker
from barnabas.storage.log.log import Log
from barnabas.storage.log_opening import LogOpening
from barnabas.storage.manager.loading.recreated_logs import is_recreated
from barnabas.storage.recovery.log_loader import LogLoader
from barnabas.storage.topic_partition import (
    DELETE_SUFFIX,
    STRAY_SUFFIX,
    TopicPartition,
    parse_directory_name,
    parse_future_directory_name,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    from barnabas.storage.config import LogConfig, StorageConfig
    from barnabas.storage.files.log_directory import LogDirectory
    from barnabas.storage.log_dependencies import LogDependencies

_log = logging.getLogger(__name__)

# The metadata log lies in the same directory but belongs to the raft driver.
CLUSTER_METADATA = TopicPartition("__cluster_metadata", 0)
# Interval between log lines about the progress of a long load, in ms.
_PROGRESS_MS = 5_000
# Time limit of a slice at startup, in ms. No client is connected yet, so it may be longer.
SLICE_MS = 20.0


class AssignedLogs(Protocol):
    """Facts from the metadata about this broker's logs."""

    def is_stray(self, partition: TopicPartition, topic_id: bytes | None) -> bool:
        """Return whether a log on disk is not assigned to this broker."""
        ...

    def directory_id_of(self, partition: TopicPartition) -> bytes | None:
        """Return the data directory assigned to a partition; None if unknown."""
        ...

    def topic_id_of(self, partition: TopicPartition) -> bytes | None:
        """Return the id of the topic of that name; None if unknown."""
        ...

    def has_other_in_sync(self, partition: TopicPartition) -> bool:
        """Return whether another broker's in-sync replica has all committed records."""
        ...


class EverythingAssigned:
    """Assignments without metadata: every log is kept, in any directory."""

    __slots__ = ()

    def is_stray(self, partition: TopicPartition, topic_id: bytes | None) -> bool:
        """Return False: no log is stray."""
        return False

    def directory_id_of(self, partition: TopicPartition) -> bytes | None:
        """Return None: the directory is unknown."""
        return None

    def topic_id_of(self, partition: TopicPartition) -> bytes | None:
        """Return None: the topic id is unknown."""
        return None

    def has_other_in_sync(self, partition: TopicPartition) -> bool:
        """Return False: other replicas are unknown."""
        return False


class FoundLog(NamedTuple):
    """A log that was opened; without a log, a directory that is pending deletion."""

    path: str
    log: Log | None
    # Partition and problem of a log that cannot be opened; the partition is offline.
    unreadable: tuple[TopicPartition, str] | None = None
    # Whether it is a future replica, moving to this directory from another one.
    is_future: bool = False
    # Whether the whole log was synced before the start, by a clean shutdown.
    was_synced: bool = False
    # Whether it is newer than its checkpoint entries.
    is_recreated: bool = False


class DirectoryLoading:
    """Opens the logs of one directory."""

    __slots__ = (
        "_config",
        "_config_of",
        "_dependencies",
        "_directory",
        "_high_watermarks",
        "_log_starts",
        "_recovery_points",
        "previous_broker_epoch",
    )

    def __init__(
        self,
        directory: LogDirectory,
        config: StorageConfig,
        dependencies: LogDependencies,
        config_of: Callable[[str], LogConfig],
    ) -> None:
        self._directory = directory
        self._config = config
        self._dependencies = dependencies
        # Returns the configuration of a topic.
        self._config_of = config_of
        # From the marker of the last clean shutdown, -1 without one.
        self.previous_broker_epoch = NO_BROKER_EPOCH

    def begin(self) -> None:
        """Remove the marker and read the checkpoints, before any log is opened."""
        directory = self._directory
        epoch = take_marker(self._dependencies.disk, directory.path)
        directory.was_stopped_cleanly = epoch is not None
        if epoch is not None:
            self.previous_broker_epoch = epoch
        self._recovery_points = self._read(directory.recovery_points)
        self._log_starts = self._read(directory.log_start_offsets)
        self._high_watermarks = self._read(directory.high_watermarks)

    def _read(self, checkpoint: OffsetCheckpoint) -> dict[TopicPartition, int]:
        """Return the offsets; an empty dict if the file is damaged, so that the logs are read."""
        try:
            return checkpoint.read()
        except CheckpointError as error:
            action = "the logs are read instead, and the file is rewritten; no action is needed"
            damage = self._dependencies.damage
            damage.report(DamageKind.CHECKPOINT, checkpoint.path, str(error), action)
            return {}

    def slices(self) -> Generator[FoundLog | None, None, None]:
        """Yield each opened log, and None after each bounded part of the work.

        Raises:
            OSError: the directory cannot be used.
            KafkaStorageError: the directory cannot be used.
        """
        disk, path = self._dependencies.disk, self._directory.path
        names = [name for name in disk.list(path) if "-" in name]
        progress = _Progress(self._directory, self._dependencies, len(names))
        for count, name in enumerate(names):
            progress.report(count)
            where = f"{path}/{name}"
            if name.endswith(DELETE_SUFFIX):
                yield FoundLog(where, None)
                continue
            if name.endswith(STRAY_SUFFIX):
                _log.warning("Stray log, not in the metadata, may be removed: directory=%s", where)
                continue
            future = parse_future_directory_name(name)
            partition = future or parse_directory_name(name)
            if partition is None or partition == CLUSTER_METADATA or not disk.is_directory(where):
                continue
            try:
                # The checkpoints have the offsets of an earlier log of the same name.
                is_newer = is_recreated(self._dependencies.disk, where)
                log = yield from self._open(where, partition, has_checkpoints=not is_newer)
            except (OSError, KafkaStorageError):
                raise
            except Exception as error:  # noqa: BLE001 - the other logs still load
                # Damage may cause any exception; it must affect only this log.
                yield FoundLog(where, None, (partition, self._report_unreadable(where, error)))
                continue
            was_synced = self._directory.was_stopped_cleanly
            yield FoundLog(where, log, None, future is not None, was_synced, is_newer)
        self._directory.is_loaded = True

    def _report_unreadable(self, path: str, error: Exception) -> str:
        """Report that a log cannot be opened, and return the problem."""
        problem = f"{type(error).__name__}: {error}"
        action = (
            "the partition is offline (KAFKA_STORAGE_ERROR); if other replicas exist, "
            "stop the broker, move the directory away and start the broker; otherwise "
            "run `barnabas log repair`"
        )
        self._dependencies.damage.report(DamageKind.LOG, path, problem, action)
        _log.debug("Log could not be opened: directory=%s", path, exc_info=error)
        return problem

    def _open(
        self, path: str, partition: TopicPartition, *, has_checkpoints: bool
    ) -> Generator[None, None, Log]:
        opening = LogOpening(
            partition,
            recovery_point=self._recovery_points.get(partition, 0) if has_checkpoints else 0,
            log_start_offset=self._log_starts.get(partition, 0) if has_checkpoints else 0,
            high_watermark=self._high_watermarks.get(partition, 0) if has_checkpoints else 0,
            clean_shutdown=self._directory.was_stopped_cleanly,
            producer_id_expiration_ms=self._config.producer_id_expiration_ms,
            verifies_transactions=self._config.transaction_partition_verification_enable,
        )
        config = self._config_of(partition.topic)
        loader = LogLoader(path, config, self._dependencies, opening)
        loaded = yield from loader.load_in_slices()
        log = Log(path, config, self._dependencies, opening, loaded)
        if log.sync.is_due:
            # With flush.messages: producers that retry get the recovered batch as a duplicate, and
            # consumers read it. So it must survive a power loss.
            log.flush()
        return log


class _Progress:
    """Logs the progress of a load at intervals."""

    __slots__ = ("_dependencies", "_directory", "_due_ms", "_total")

    def __init__(self, directory: LogDirectory, dependencies: LogDependencies, total: int) -> None:
        self._directory = directory
        self._dependencies = dependencies
        self._total = total
        self._due_ms = dependencies.clock.monotonic_ms() + _PROGRESS_MS

    def report(self, count: int) -> None:
        """Log the number of processed directories if a line is due."""
        now = self._dependencies.clock.monotonic_ms()
        if now < self._due_ms:
            return
        self._due_ms = now + _PROGRESS_MS
        how = "Opening" if self._directory.was_stopped_cleanly else "Recovering"
        path = self._directory.path
        _log.warning("%s logs: directory=%s done=%d total=%d", how, path, count, self._total)
