"""The classic and the consumer groups of one state partition, for what treats both alike."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from barnabas.coordinator.group.classic.classic_group import ClassicGroup
    from barnabas.coordinator.group.classic.classic_groups import ClassicGroups
    from barnabas.coordinator.group.consumer.consumer_group import ConsumerGroup
    from barnabas.coordinator.group.consumer.consumer_groups import ConsumerGroups


class AllGroups:
    """Both kinds of groups. A group id belongs to at most one group."""

    __slots__ = ("classic", "consumer")

    def __init__(self, classic: ClassicGroups, consumer: ConsumerGroups) -> None:
        self.classic = classic
        self.consumer = consumer

    def find(self, group_id: str) -> ClassicGroup | ConsumerGroup | None:
        """Return the group, or None if it does not exist."""
        return self.classic.find(group_id) or self.consumer.find(group_id)

    def ids(self) -> list[str]:
        """Return the ids of all groups."""
        return [*self.classic.ids(), *self.consumer.ids()]
