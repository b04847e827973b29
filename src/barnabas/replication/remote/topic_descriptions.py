"""Keeps the descriptions of tiered topics in the store (`topic.json`), for restoring them.

The leader of partition 0 describes its topic: name, id, partitions, replication factor and configs.
It does so when the first segment of the partition is in the tier, and after changes. It compares
the topic with what it has stored at each sweep, so a failed write is repeated by the next one.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from barnabas.replication.remote.store_health import StoreHealth
    from barnabas.replication.remote.tier_dependencies import TierDependencies
    from barnabas.storage.remote.remote_storage import TopicDescription
    from barnabas.storage.topic_partition import TopicIdPartition

    OnDeleted = Callable[[bool], None]


class TopicDescriptions:
    """The descriptions that this broker keeps: one call to the store at a time for each topic."""

    __slots__ = ("_calling", "_deletions", "_describe", "_health", "_stored", "_tier")

    def __init__(
        self,
        tier: TierDependencies,
        health: StoreHealth,
        describe: Callable[[bytes], TopicDescription | None],
    ) -> None:
        """Create without descriptions.

        Args:
            tier: the parts of the tier.
            health: gets failures of the store.
            describe: returns a topic as it is in the latest metadata; None if it is deleted.
        """
        self._tier = tier
        self._health = health
        self._describe = describe
        # What this broker has stored, by topic id. Has topics only whose partition 0 it leads.
        self._stored: dict[bytes, TopicDescription] = {}
        # Ids of topics with a running or waiting call to the store.
        self._calling: set[bytes] = set()
        # Deletions that wait for the end of such a call, by topic id.
        self._deletions: dict[bytes, tuple[TopicIdPartition, OnDeleted]] = {}

    def check(self, where: TopicIdPartition) -> None:
        """Store the description of a topic if it differs from what this broker has stored.

        Args:
            where: a partition that this broker leads, and that has segments in the tier. Only
                partition 0 counts.
        """
        if where.partition != 0 or where.topic_id in self._calling:
            return
        topic = self._describe(where.topic_id)
        if topic is None or topic == self._stored.get(where.topic_id):
            return
        ticket = self._tier.deletes.submit(
            partial(self._tier.storage.write_topic, topic), partial(self._on_written, where, topic)
        )
        if ticket is not None:
            self._calling.add(where.topic_id)

    def forget(self, where: TopicIdPartition) -> None:
        """Forget what was stored: another broker leads the partition, or none."""
        if where.partition == 0:
            self._stored.pop(where.topic_id, None)

    def delete(self, where: TopicIdPartition, on_done: OnDeleted) -> None:
        """Delete the description of a topic that is deleted, or has no tier any more.

        Args:
            where: a partition of the topic.
            on_done: called with whether the description is gone, perhaps before this returns.
        """
        topic_id = where.topic_id
        self._stored.pop(topic_id, None)
        if topic_id in self._calling:
            # The running call may be a write, which must not come after the deletion.
            self._deletions[topic_id] = (where, on_done)
            return
        ticket = self._tier.deletes.submit(
            partial(self._tier.storage.delete_topic, where.topic, topic_id),
            partial(self._on_deleted, where, on_done),
        )
        if ticket is None:
            on_done(False)
        else:
            self._calling.add(topic_id)

    def _on_written(
        self,
        where: TopicIdPartition,
        topic: TopicDescription,
        _result: None,
        error: BaseException | None,
    ) -> None:
        self._calling.discard(where.topic_id)
        if error is not None:
            self._health.on_failure(f"description of topic {where.topic}", error)
        elif self._describe(where.topic_id) is not None:
            self._stored[where.topic_id] = topic
        self._start_deletion(where.topic_id)

    def _on_deleted(
        self,
        where: TopicIdPartition,
        on_done: OnDeleted,
        _result: None,
        error: BaseException | None,
    ) -> None:
        self._calling.discard(where.topic_id)
        if error is not None:
            self._health.on_failure(f"deletion of the description of topic {where.topic}", error)
        on_done(error is None)
        self._start_deletion(where.topic_id)

    def _start_deletion(self, topic_id: bytes) -> None:
        waiting = self._deletions.pop(topic_id, None)
        if waiting is not None:
            self.delete(*waiting)
