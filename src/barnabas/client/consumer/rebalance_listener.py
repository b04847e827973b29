"""Callbacks for rebalances (Kafka's ConsumerRebalanceListener)."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection

    from barnabas.client.topic_partition import TopicPartition

__all__ = ["RebalanceListener"]


class RebalanceListener:
    """Base class of rebalance callbacks; override the methods that you need.

    All methods run inside `poll`, `unsubscribe` or `close`, on the thread of that call. They may
    call the consumer, for example to commit, to seek or to read positions. With
    `barnabas.aio.Consumer` they may be `async def`.
    """

    def on_partitions_revoked(self, revoked: Collection[TopicPartition]) -> object:
        """Handle the revocation of partitions; the last chance to commit their offsets."""

    def on_partitions_assigned(self, assigned: Collection[TopicPartition]) -> object:
        """Handle newly assigned partitions, before any of their records are fetched."""

    def on_partitions_lost(self, lost: Collection[TopicPartition]) -> object:
        """Handle partitions that other members may already own.

        The default calls `on_partitions_revoked`.
        """
        return self.on_partitions_revoked(lost)
