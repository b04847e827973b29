"""The objects that a shard gets from the runtime when it is created."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from barnabas.coordinator.runtime.shards.shard_timers import ShardTimers
    from barnabas.storage.topic_partition import TopicPartition


class ShardContext(msgspec.Struct, frozen=True):
    """The state partition of a shard, its leader epoch, and its timers."""

    topic_partition: TopicPartition
    # The epoch in which this broker leads the partition: the coordinator epoch.
    leader_epoch: int
    # Timers of this shard. They run once it is active, and end with it.
    timers: ShardTimers
