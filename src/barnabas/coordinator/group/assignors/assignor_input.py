"""The input of the server-side assignors (Kafka: GroupSpec and SubscribedTopicDescriber)."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

import msgspec

from barnabas.coordinator.group.assignment import NOTHING, Target

if TYPE_CHECKING:
    from collections.abc import Generator, Mapping


# An assignor in progress: it yields after each step, and returns the target of each member. A step
# takes at most some tenths of a millisecond.
Assigning: TypeAlias = "Generator[None, None, dict[str, Target]]"

# Members or partitions that an assignor handles in one step.
STEP = 64


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
    # Whether all members have the same subscription. Subscriptions that differ only by topics that
    # do not exist are different, as in Kafka.
    is_homogeneous: bool
    # The partitions that may be assigned, by topic id; None if all may be. For share groups.
    assignable: Mapping[bytes, frozenset[int]] | None = None
