"""Name of a share partition."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from barnabas.storage.topic_partition import TopicIdPartition


class SharePartitionKey(NamedTuple):
    """A partition as one share group reads it."""

    group_id: str
    where: TopicIdPartition

    def __str__(self) -> str:
        return f"{self.group_id}:{self.where.topic}-{self.where.partition}"
