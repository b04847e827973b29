"""Logs on disk that must not be used; each one takes only its own partition offline."""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.storage.damage import DamageKind
from barnabas.storage.errors import KafkaStorageError
from barnabas.storage.file_names import PARTITION_METADATA
from barnabas.storage.files.partition_metadata import encode_topic_id

if TYPE_CHECKING:
    from barnabas.storage.damage import DamageRegister
    from barnabas.storage.log.log import Log
    from barnabas.storage.manager.loading.log_loading import AssignedLogs, FoundLog
    from barnabas.storage.topic_partition import TopicPartition


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
