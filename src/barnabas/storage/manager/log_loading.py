"""Loading of a data directory at startup, log by log (Kafka's LogManager.loadLogs).

A log that must not be used takes only its own partition offline (`UnreadableLogs`).

If a topic is deleted and created again, the checkpoints have offsets of the old log until they are
next written. After a kill or a power loss, applying these offsets to the new log would hide its
first records, or leave them unchecked. So a file in the log's directory marks the log until the
checkpoints are written (`RecreatedLogs`). Kafka instead writes its checkpoints during the deletion.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, NamedTuple, Protocol

from barnabas.storage.errors import DamageKind, KafkaStorageError
from barnabas.storage.files.checkpoint import CheckpointError, OffsetCheckpoint
from barnabas.storage.files.metadata_files import NO_BROKER_EPOCH, encode_topic_id, take_marker
from barnabas.storage.log.log import Log
from barnabas.storage.log.log_loader import LogLoader
from barnabas.storage.log_dependencies import LogOpening
from barnabas.storage.topic_partition import (
    CLUSTER_METADATA,
    DELETE_SUFFIX,
    PARTITION_METADATA,
    STRAY_SUFFIX,
    TopicPartition,
    parse_directory_name,
    parse_future_directory_name,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    from barnabas.runtime.disk import Disk
    from barnabas.storage.config import LogConfig, StorageConfig
    from barnabas.storage.errors import DamageRegister
    from barnabas.storage.files.log_directory import LogDirectory
    from barnabas.storage.log_dependencies import LogDependencies


FILE_NAME = "younger-than-checkpoints"


class RecreatedLogs:
    """Sets and removes the marks of logs newer than the checkpoints."""

    __slots__ = ("_disk", "_marked")

    def __init__(self, disk: Disk) -> None:
        self._disk = disk
        # Values: number of started writes of each checkpoint when the mark was set.
        self._marked: dict[tuple[TopicPartition, LogDirectory], tuple[int, ...]] = {}

    def mark(self, partition: TopicPartition, path: str, directory: LogDirectory) -> None:
        """Mark a log before it is created in `path`, if a checkpoint has an entry of its name."""
        if any(each.may_name(partition) for each in directory.checkpoints):
            self._disk.make_directory(path)
            self._disk.open(f"{path}/{FILE_NAME}", briefly=True).close()
            self.record(partition, directory)

    def record(self, partition: TopicPartition, directory: LogDirectory) -> None:
        """Record that a log is marked."""
        started = tuple(each.started for each in directory.checkpoints)
        self._marked[partition, directory] = started

    def unmark(self, find: Callable[[TopicPartition, LogDirectory], Log | None]) -> None:
        """Remove the marks of logs for which every checkpoint was started and written since.

        Args:
            find: returns the log of a partition, or its future replica, in a directory.
        """
        for (partition, directory), started in list(self._marked.items()):
            log = find(partition, directory)
            if log is None:
                del self._marked[partition, directory]
            elif all(
                each.written > before
                for each, before in zip(directory.checkpoints, started, strict=True)
            ):
                del self._marked[partition, directory]
                path = f"{log.directory}/{FILE_NAME}"
                if self._disk.exists(path):
                    self._disk.remove(path)


def is_recreated(disk: Disk, path: str) -> bool:
    """Return whether the log in `path` is newer than its checkpoint entries."""
    return disk.exists(f"{path}/{FILE_NAME}")


_log = logging.getLogger(__name__)

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
            log.sync.flush()
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


class UnreadableLogs:
    """Logs that could not be opened, or that may belong to another topic."""

    __slots__ = ("_damage", "_found")

    def __init__(self, damage: DamageRegister) -> None:
        self._damage = damage
        # Directory of each log, and the reason why it must not be used.
        self._found: dict[TopicPartition, tuple[str, str]] = {}

    def take(self, found: FoundLog, assigned: AssignedLogs) -> bool:
        """Register a found log if it must not be used; return whether it was registered."""
        if found.unreadable is not None:
            partition, reason = found.unreadable
            self._found[partition] = (found.path, reason)
            return True
        log = found.log
        if log is None:
            return False
        problem = _resolve_identity(log, assigned, self._damage, was_synced=found.was_synced)
        if problem is None:
            return False
        log.close_files()
        self._found[log.topic_partition] = (log.directory, problem)
        return True

    def check(self, partition: TopicPartition) -> None:
        """Reject a partition whose log is registered here.

        Raises:
            KafkaStorageError: its log must not be used.
        """
        if partition in self._found:
            path, problem = self._found[partition]
            raise KafkaStorageError(f"{path} cannot be opened: {problem}")

    def forget(self, partition: TopicPartition) -> str | None:
        """Remove a deleted partition; return its directory, None if it was not registered."""
        return self._found.pop(partition, ("", ""))[0] or None


def _resolve_identity(
    log: Log, assigned: AssignedLogs, damage: DamageRegister, *, was_synced: bool
) -> str | None:
    """Repair a damaged `partition.metadata`, if the metadata identifies the log's topic.

    Args:
        was_synced: whether the log, and so the file, had been synced.

    Returns:
        Why the log must not be used although it may belong to the topic; None otherwise. Then its
            topic id shows whether it belongs to the topic or is a stray.
    """
    expected = assigned.topic_id_of(log.topic_partition)
    if expected is None or log.topic_id == expected:
        return None
    path = f"{log.directory}/{PARTITION_METADATA}"
    if log.identity.is_damaged(expected):
        problem, action = (
            "its topic id is damaged",
            "replaced by the topic id in the metadata; no action is needed",
        )
        damage.report(DamageKind.IDENTITY, path, problem, action)
        log.identity.repair_topic_id(expected)
        return None
    if log.topic_id is not None or not log.log_end_offset:
        # The log belongs to another topic, or is empty.
        return None
    if not was_synced:
        # A power loss may have torn the file, or it may belong to an older topic of the same name.
        action = (
            "the directory gets the suffix -stray and is kept; if it belongs to the topic, "
            "stop the broker, move it back and repair the file"
        )
        problem = "the file is missing or unreadable"
        damage.report(DamageKind.IDENTITY, path, problem, action)
        return None
    problem = "the file is missing or unreadable, although the log was closed cleanly"
    if assigned.has_other_in_sync(log.topic_partition):
        action = "the directory gets the suffix -stray, and the records are fetched from the leader"
        damage.report(DamageKind.IDENTITY, path, problem, action)
        return None
    content = encode_topic_id(expected).decode()
    action = (
        f"the partition is offline; stop the broker, and if the directory belongs to the topic, "
        f"write {content!r} into the file; if not, move the directory away"
    )
    damage.report(DamageKind.IDENTITY, path, problem, action)
    return problem
