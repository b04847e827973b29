"""The cooperative sticky assignor: members keep their partitions during a rebalance (KIP-429).

A partition that moves is first assigned to no member. After its owner has given it up, the group
rebalances again.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

from barnabas.client.group.assignors.assignor import Assignment, RebalanceProtocol
from barnabas.client.group.assignors.claims import Claim
from barnabas.client.group.assignors.sticky_assignor import StickyAssignor

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from barnabas.client.group.assignors.assignor import MemberSubscription, Topics
    from barnabas.client.group.membership import GroupGeneration
    from barnabas.client.topic_partition import TopicPartition

__all__ = ["CooperativeStickyAssignor"]

_GENERATION = struct.Struct(">i")


class CooperativeStickyAssignor(StickyAssignor):
    """Like `StickyAssignor`, but members report owned partitions in the subscription."""

    name = "cooperative-sticky"
    protocols = (RebalanceProtocol.COOPERATIVE, RebalanceProtocol.EAGER)

    def __init__(self) -> None:
        super().__init__()
        self._generation_id = -1

    def user_data(self, topics: Collection[str]) -> bytes | None:
        """Return the generation, for leaders that do not read it from the subscription."""
        del topics
        return _GENERATION.pack(self._generation_id)

    def on_assignment(self, assignment: Assignment, generation: GroupGeneration) -> None:
        """Store the generation."""
        del assignment
        self._generation_id = generation.generation_id

    def claim_of(self, subscription: MemberSubscription) -> Claim:
        """Return the partitions that a member claims to own."""
        generation_id = subscription.generation_id
        data = subscription.user_data
        if generation_id < 0 and data is not None and len(data) >= _GENERATION.size:
            generation_id = _GENERATION.unpack_from(data)[0]
        return Claim(subscription.owned_partitions, generation_id)

    def assign(
        self, topics: Topics, members: Mapping[str, MemberSubscription]
    ) -> Mapping[str, Assignment]:
        """Assign for the whole group; omit partitions that their owners must give up first."""
        decided, moving = self.decide(topics, members)
        if moving is None:
            moving = _moving_partitions(members, decided)
        return {
            name: Assignment([tp for tp in partitions if moving.get(tp) != name])
            for name, partitions in decided.items()
        }


def _moving_partitions(
    members: Mapping[str, MemberSubscription], decided: Mapping[str, list[TopicPartition]]
) -> dict[TopicPartition, str]:
    """Return the partitions that move from one member to another, with their new owners."""
    given_up = {
        tp
        for name, member in members.items()
        for tp in set(member.owned_partitions).difference(decided[name])
    }
    return {
        tp: name
        for name, partitions in decided.items()
        for tp in set(partitions).difference(members[name].owned_partitions)
        if tp in given_up
    }
