"""The cooperative sticky assignor: for members that keep their partitions meanwhile (KIP-429).

What changes hands goes to nobody at first. Once its owner gave it up the group is assigned anew.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

from barnabas.client.group.assignors.assignor import Assignment, RebalanceProtocol
from barnabas.client.group.assignors.claims import Claim
from barnabas.client.group.assignors.sticky_assignor import StickyAssignor

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from barnabas.client.group.assignors.assignor import Subscription, Topics
    from barnabas.client.group.membership import GroupGeneration
    from barnabas.client.topic_partition import TopicPartition

__all__ = ["CooperativeStickyAssignor"]

_GENERATION = struct.Struct(">i")


class CooperativeStickyAssignor(StickyAssignor):
    """Members say what they own in the protocol's own fields."""

    name = "cooperative-sticky"
    protocols = (RebalanceProtocol.COOPERATIVE, RebalanceProtocol.EAGER)

    def __init__(self) -> None:
        super().__init__()
        self._generation_id = -1

    def user_data(self, topics: Collection[str]) -> bytes | None:
        """The generation, for leaders that do not know it from the subscription itself."""
        del topics
        return _GENERATION.pack(self._generation_id)

    def on_assignment(self, assignment: Assignment, generation: GroupGeneration) -> None:
        """Remember the generation."""
        del assignment
        self._generation_id = generation.generation_id

    def claim_of(self, subscription: Subscription) -> Claim:
        """What a member owns, by its own words."""
        generation_id = subscription.generation_id
        data = subscription.user_data
        if generation_id < 0 and data is not None and len(data) >= _GENERATION.size:
            generation_id = _GENERATION.unpack_from(data)[0]
        return Claim(subscription.owned_partitions, generation_id)

    def assign(
        self, topics: Topics, members: Mapping[str, Subscription]
    ) -> Mapping[str, Assignment]:
        """Decide for the whole group, without what its owner must give up first."""
        decided, moving = self.decide(topics, members)
        if moving is None:
            moving = _changing_hands(members, decided)
        return {
            name: Assignment([tp for tp in partitions if moving.get(tp) != name])
            for name, partitions in decided.items()
        }


def _changing_hands(
    members: Mapping[str, Subscription], decided: Mapping[str, list[TopicPartition]]
) -> dict[TopicPartition, str]:
    """Partitions that one member owns and another one gets."""
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
