"""The groups of one state partition that may have committed offsets, whatever their type."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from barnabas.coordinator.group.classic.classic_group import ClassicGroup
    from barnabas.coordinator.group.classic.classic_groups import ClassicGroups
    from barnabas.coordinator.group.consumer.consumer_group import ConsumerGroup
    from barnabas.coordinator.group.replayed.group_table import GroupTable
    from barnabas.coordinator.group.streams.streams_group import StreamsGroup


class AllGroups:
    """Classic, consumer and streams groups. A group id belongs to at most one group."""

    __slots__ = ("classic", "consumer", "is_share_group", "streams")

    def __init__(
        self,
        classic: ClassicGroups,
        consumer: GroupTable[ConsumerGroup],
        streams: GroupTable[StreamsGroup],
        is_share_group: Callable[[str], bool],
    ) -> None:
        self.classic = classic
        self.consumer = consumer
        self.streams = streams
        # Whether an id has a share group, for which no offsets are committed.
        self.is_share_group = is_share_group

    def find(self, group_id: str) -> ClassicGroup | ConsumerGroup | StreamsGroup | None:
        """Return the group, or None if it does not exist."""
        return (
            self.classic.find(group_id)
            or self.consumer.find(group_id)
            or self.streams.find(group_id)
        )

    def ids(self) -> list[str]:
        """Return the ids of all groups."""
        return [*self.classic.ids(), *self.consumer.ids(), *self.streams.ids()]
