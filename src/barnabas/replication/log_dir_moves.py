"""Moves replicas to other data directories (KIP-113; Kafka's ReplicaAlterLogDirsManager).

A move copies the log to a future replica (stage A, copying). Then it reports the new directory to
the controller (stage B, assigning). Then it copies the rest and swaps both logs in one turn of the
event loop (stage C, finishing). After a restart, a move continues from stage A. The log manager
recovers from a crash between the two renames of stage C.
"""

from __future__ import annotations

import logging
from enum import Enum, auto
from typing import TYPE_CHECKING, Protocol

from barnabas.protocol.errors import ErrorCode
from barnabas.storage.errors import StorageError
from barnabas.storage.log.log_copy import LogCopy
from barnabas.storage.topic_partition import DIRECTORY_NAME_MAX, TopicIdPartition

if TYPE_CHECKING:
    from collections.abc import Callable

    from barnabas.replication.partition.partition import Partition
    from barnabas.replication.partition.partition_registry import LeadershipChanges
    from barnabas.replication.replica_manager import ReplicaManager
    from barnabas.storage.files.log_directory import LogDirectory
    from barnabas.storage.log.log import Log
    from barnabas.storage.log_dependencies import LogDependencies
    from barnabas.storage.manager.log_manager import LogManager
    from barnabas.storage.topic_partition import TopicPartition

_log = logging.getLogger(__name__)

# Delay between retries while the controller does not accept the new directory.
_RETRY_MS = 1_000


class DirectoryAssigner(Protocol):
    """Reports replica directories to the controller."""

    def assign(
        self, where: TopicIdPartition, directory: bytes, on_done: Callable[[bool], None]
    ) -> None:
        """Report the directory of a replica. `on_done` gets whether the controller accepted it."""
        ...


class _Stage(Enum):
    COPYING = auto()
    ASSIGNING = auto()
    FINISHING = auto()


class _Move:
    __slots__ = ("copy", "directory", "partition", "stage")

    def __init__(self, partition: Partition, directory: LogDirectory) -> None:
        self.partition = partition
        self.directory = directory
        self.stage = _Stage.COPYING
        self.copy: LogCopy


class LogDirMoves:
    """The moves of this broker. Each partition has at most one."""

    __slots__ = ("_assigner", "_log_dependencies", "_logs", "_moves", "_replicas")

    def __init__(
        self,
        replicas: ReplicaManager,
        logs: LogManager,
        assigner: DirectoryAssigner,
        log_dependencies: LogDependencies,
    ) -> None:
        self._replicas = replicas
        self._logs = logs
        self._assigner = assigner
        self._log_dependencies = log_dependencies
        self._moves: dict[TopicPartition, _Move] = {}

    def alter(self, key: TopicPartition, path: str) -> ErrorCode:
        """Move the partition's replica to the data directory `path`, in the background.

        Returns:
            NONE if the move has started, is already in progress, or is not needed; else
            INVALID_TOPIC_EXCEPTION (the directory name is too long), LOG_DIR_NOT_FOUND,
            KAFKA_STORAGE_ERROR, INVALID_REPLICA_ASSIGNMENT (cordoned), UNKNOWN_TOPIC_OR_PARTITION,
            or REPLICA_NOT_AVAILABLE (the directory is remembered until the replica exists).
        """
        if len(key.future_directory_name(bytes(16)).encode()) > DIRECTORY_NAME_MAX:
            return ErrorCode.INVALID_TOPIC_EXCEPTION
        directory = self._logs.directory_at(path)
        if directory is None or not directory.is_online:
            known = path in self._logs.offline_paths
            return ErrorCode.KAFKA_STORAGE_ERROR if known else ErrorCode.LOG_DIR_NOT_FOUND
        if directory.is_cordoned and self._logs.directory_of(key) is not directory:
            return ErrorCode.INVALID_REPLICA_ASSIGNMENT
        partition = self._replicas.partition(key)
        if isinstance(partition, ErrorCode):
            self._logs.prefer(key, directory)
            is_elsewhere = partition is ErrorCode.NOT_LEADER_OR_FOLLOWER
            return ErrorCode.REPLICA_NOT_AVAILABLE if is_elsewhere else partition
        try:
            return self._begin(partition, directory)
        except StorageError as error:
            _log.error(
                "Move between directories cannot start: partition=%s directory=%s error=%s",
                key,
                path,
                error,
            )
            return error.error_code

    def _begin(self, partition: Partition, directory: LogDirectory) -> ErrorCode:
        key = partition.topic_partition
        future_directory = self._logs.future_directory_of(key)
        if future_directory is directory:
            return ErrorCode.NONE
        if future_directory is not None:
            self._give_up(key)
        if self._logs.directory_of(key) is directory:
            return ErrorCode.NONE
        if self._logs.has_offline_directories:
            # An offline directory may already hold a future replica of the partition.
            return ErrorCode.KAFKA_STORAGE_ERROR
        self._logs.create_future(key, directory)
        self._start(partition)
        return ErrorCode.NONE

    def on_changes(self, changes: LeadershipChanges) -> None:
        """Continue moves that a restart interrupted. Stop the moves of deleted partitions."""
        for key in changes.deleted:
            self._forget(key)
        for partition in (*changes.leaders, *changes.followers):
            key = partition.topic_partition
            move = self._moves.get(key)
            if move is not None and move.partition is not partition:
                self._forget(key)
            if key in self._logs.futures and key not in self._moves:
                self._start(partition)

    def on_directory_failed(self) -> None:
        """Stop the moves whose source or future log was in the failed directory."""
        for key, move in list(self._moves.items()):
            if self._logs.futures.get(key) is not move.copy.future or (
                self._logs.logs.get(key) is not move.copy.source
            ):
                self._forget(key)

    def _start(self, partition: Partition) -> None:
        key = partition.topic_partition
        directory = self._logs.future_directory_of(key)
        assert directory is not None
        move = self._moves[key] = _Move(partition, directory)
        move.copy = LogCopy(
            partition.log,
            self._logs.futures[key],
            self._log_dependencies,
            self._replicas.throttles.moves,
            lambda: self._on_caught_up(move),
            lambda error: self._on_failed(move, error),
        )
        move.copy.start()

    def _forget(self, key: TopicPartition) -> None:
        move = self._moves.pop(key, None)
        if move is not None:
            move.copy.cancel()

    def _give_up(self, key: TopicPartition) -> None:
        """Abandon a move because of a new target directory.

        This deletes the copy and reports the current directory to the controller again.
        """
        move = self._moves.get(key)
        self._forget(key)
        self._logs.delete_future(key)
        current = self._logs.directory_of(key)
        if move is not None and move.stage is not _Stage.COPYING and current is not None:
            where = TopicIdPartition(move.partition.topic_id, *key)
            self._assigner.assign(where, current.id, lambda _: None)

    def _is_current(self, move: _Move) -> bool:
        return self._moves.get(move.partition.topic_partition) is move

    def _on_failed(self, move: _Move, error: StorageError) -> None:
        if self._is_current(move):
            key = move.partition.topic_partition
            _log.error(
                "Move between directories failed: partition=%s directory=%s error=%s",
                key,
                move.directory.path,
                error,
            )
            self._forget(key)

    def _on_caught_up(self, move: _Move) -> None:
        if not self._is_current(move):
            return
        if move.stage is _Stage.FINISHING:
            self._finish(move)
            return
        move.stage = _Stage.ASSIGNING
        # Sync first, so that the turn of the swap has little left to sync.
        move.copy.future.sync.flush_async(lambda _: self._assign(move))

    def _assign(self, move: _Move) -> None:
        if not self._is_current(move):
            return
        partition = move.partition
        where = TopicIdPartition(partition.topic_id, *partition.topic_partition)

        def done(accepted: bool) -> None:
            if not self._is_current(move):
                return
            if accepted:
                move.stage = _Stage.FINISHING
                move.copy.start()
            else:
                self._log_dependencies.timer.call_later(_RETRY_MS, lambda: self._assign(move))

        self._assigner.assign(where, move.directory.id, done)

    def _finish(self, move: _Move) -> None:
        """Swap the logs. Both end at the same offset in this turn."""
        key = move.partition.topic_partition
        try:
            log: Log = self._logs.replace_with_future(key)
        except StorageError as error:
            self._on_failed(move, error)
            return
        self._forget(key)
        move.partition.on_moved(log)
        self._replicas.wake(key)
