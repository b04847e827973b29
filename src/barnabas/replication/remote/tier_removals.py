"""Removes the tier of topics that have switched it off (KIP-950).

A topic loses its tier by `remote.storage.enable=false` with `remote.log.delete.on.disable=true`.
Then the leader of each partition raises the log start offset to the start of its local log, because
the records below will be gone. It deletes all segments of the partition in the tier, whatever
their state, and forgets their metadata. Followers forget the metadata at once.

The configs of the topic remember the removal, so that a crash, a restart or an election does not
end it: each new leader of a partition with these configs looks for segments in the metadata, once
in its leadership. Kafka leaves the rest in the store for ever.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from barnabas.replication.remote.tier_dependencies import Leadership
from barnabas.storage.errors import StorageError
from barnabas.storage.topic_partition import TopicIdPartition

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from barnabas.replication.partition.partition import Partition
    from barnabas.replication.remote.deleted_topics import DeletedTopics
    from barnabas.replication.remote.interfaces import RemoteMetadata
    from barnabas.storage.topic_partition import TopicPartition

_log = logging.getLogger(__name__)


class TierRemovals:
    """The partitions without a tier that this broker leads, and whose former tier it deletes."""

    __slots__ = ("_deleted_topics", "_leaderships", "_metadata", "_wake")

    def __init__(self, metadata: RemoteMetadata, deleted_topics: DeletedTopics) -> None:
        """Create without partitions. Nothing is deleted before `start`.

        Args:
            metadata: the metadata of the segments.
            deleted_topics: deletes the segments.
        """
        self._metadata = metadata
        self._deleted_topics = deleted_topics
        # The leadership in which the segments are or were deleted. It stays afterwards, so that
        # other changes of the partition do not begin again.
        self._leaderships: dict[TopicPartition, Leadership] = {}
        # Checks the operations that wait for a partition. None before `start`: none waits then.
        self._wake: Callable[[TopicPartition], None] | None = None

    def start(self, wake: Callable[[TopicPartition], None]) -> None:
        """Begin to delete: the broker serves requests.

        Args:
            wake: checks the operations that wait for a partition whose log start has moved.
        """
        self._wake = wake
        for leadership in list(self._leaderships.values()):
            self._delete(leadership)

    def update(self, partitions: Iterable[Partition]) -> None:
        """Handle the roles, or the new configs, of partitions without a tier."""
        for partition in partitions:
            if partition.leader is None:
                self.end(partition.topic_partition)
            else:
                self._lead(partition)

    def forget(self, key: TopicPartition) -> None:
        """Forget a partition whose topic is deleted. Its removal goes on to its end."""
        self._leaderships.pop(key, None)

    def end(self, key: TopicPartition) -> None:
        """Stop a removal: another broker leads, the log has failed, or the topic is tiered again.

        If the topic is tiered again, the expiration deletes what is left below the log start.
        """
        leadership = self._leaderships.pop(key, None)
        if leadership is not None:
            leadership.end()
            self._deleted_topics.stop(leadership.where)

    def _lead(self, partition: Partition) -> None:
        key, log = partition.topic_partition, partition.log
        if log.log_start_offset < log.local_log_start_offset:
            self._begin_at_local_start(partition)
        known = self._leaderships.get(key)
        if known is not None and known.partition is partition and known.holds:
            return
        if not log.config.remote_delete_on_disable:
            return
        where = TopicIdPartition(partition.topic_id, *key)
        leadership = self._leaderships[key] = Leadership(where, partition)
        if self._wake is not None:
            self._delete(leadership)

    def _begin_at_local_start(self, partition: Partition) -> None:
        """Raise the log start offset: only the tier had the records below."""
        log = partition.log
        try:
            log.maybe_increment_log_start_offset(log.local_log_start_offset, "removal of the tier")
        except StorageError as error:
            # The partition goes offline soon.
            _log.warning(
                "Log start of a partition without a tier cannot be raised: partition=%s error=%s",
                partition.topic_partition,
                error,
            )
        else:
            if self._wake is not None:
                self._wake(partition.topic_partition)

    def _delete(self, leadership: Leadership) -> None:
        def is_wanted() -> bool:
            return leadership.holds and not leadership.partition.log.config.is_remote

        self._metadata.assign([leadership.where])
        self._deleted_topics.delete(leadership.where, is_wanted)
