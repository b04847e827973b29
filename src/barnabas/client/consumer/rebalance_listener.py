"""What a user may want to know of rebalances (Kafka's ConsumerRebalanceListener)."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection

    from barnabas.client.topic_partition import TopicPartition

__all__ = ["RebalanceListener"]


class RebalanceListener:
    """Override what is wanted. All run inside of `poll`, `unsubscribe` or `close`, on their thread.

    With `barnabas.aio.Consumer` the methods may be `async def`. They may call the consumer: to
    commit, to seek, to look at positions.
    """

    def on_partitions_revoked(self, revoked: Collection[TopicPartition]) -> object:
        """Called before these are given up: the last moment to commit their offsets."""

    def on_partitions_assigned(self, assigned: Collection[TopicPartition]) -> object:
        """Called when these were added, before anything is fetched of them."""

    def on_partitions_lost(self, lost: Collection[TopicPartition]) -> object:
        """Called when these may belong to others already; the same as revoked unless overridden."""
        return self.on_partitions_revoked(lost)
