"""The input of the server-side assignors (Kafka: GroupSpec and SubscribedTopicDescriber)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from barnabas.coordinator.group.consumer.assignment import NOTHING, Target

if TYPE_CHECKING:
    from collections.abc import Mapping


class MemberInput(msgspec.Struct, frozen=True):
    """One member, as an assignor sees it."""

    # Ids of existing topics only.
    subscribed_topic_ids: frozenset[bytes]
    # The member's current target assignment.
    target: Target = NOTHING
    instance_id: str | None = None


class AssignorInput(msgspec.Struct, frozen=True):
    """All members by id, and the number of partitions of all subscribed topics by topic id."""

    members: Mapping[str, MemberInput]
    partition_counts: Mapping[bytes, int]

    @property
    def is_homogeneous(self) -> bool:
        """Whether all members subscribe to the same topics."""
        return len({each.subscribed_topic_ids for each in self.members.values()}) <= 1
