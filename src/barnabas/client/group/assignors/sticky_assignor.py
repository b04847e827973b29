"""The sticky assignor: even shares, and members keep their partitions (KIP-54, KIP-341).

It uses the eager protocol, under which members own nothing during a rebalance. So members send
their previous partitions, and the generation, in the user data of the subscription.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.client.group.assignors.assignor import Assignment, Assignor
from barnabas.client.group.assignors.balanced_assignment import BalancedAssignment
from barnabas.client.group.assignors.claims import Claim, settle_claims
from barnabas.client.group.assignors.even_assignment import EvenAssignment
from barnabas.client.group.assignors.rack_match import RackMatch
from barnabas.client.group.assignors.sticky_user_data import read_sticky_user_data, sticky_user_data

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from barnabas.client.group.assignors.assignor import MemberSubscription, Topics
    from barnabas.client.group.membership import GroupGeneration
    from barnabas.client.topic_partition import TopicPartition

__all__ = ["StickyAssignor"]


class StickyAssignor(Assignor):
    """The sticky assignor; stores the last assignment of its member."""

    name = "sticky"

    def __init__(self) -> None:
        # The last assignment of this member; None before the first.
        self._assigned: Claim | None = None

    def user_data(self, topics: Collection[str]) -> bytes | None:
        """Return the last assignment and its generation, serialized."""
        del topics
        return None if self._assigned is None else sticky_user_data(self._assigned)

    def on_assignment(self, assignment: Assignment, generation: GroupGeneration) -> None:
        """Store the assignment."""
        self._assigned = Claim(tuple(assignment.partitions), generation.generation_id)

    def claim_of(self, subscription: MemberSubscription) -> Claim:
        """Return the partitions that a member claims to have had."""
        return read_sticky_user_data(subscription.user_data)

    def assign(
        self, topics: Topics, members: Mapping[str, MemberSubscription]
    ) -> Mapping[str, Assignment]:
        """Assign partitions for the whole group."""
        decided, _ = self.decide(topics, members)
        return {name: Assignment(partitions) for name, partitions in decided.items()}

    def decide(
        self, topics: Topics, members: Mapping[str, MemberSubscription]
    ) -> tuple[dict[str, list[TopicPartition]], dict[TopicPartition, str] | None]:
        """Return the partitions by member, and the new owners of moving partitions if known."""
        wanted = {topic for each in members.values() for topic in each.topics}
        there = {topic: topics[topic] for topic in topics if topic in wanted and topics[topic]}
        claims = {name: self.claim_of(each) for name, each in members.items()}
        settled = settle_claims(there, members, claims)
        racks = RackMatch(there, members)
        if len({frozenset(each.topics) for each in members.values()}) == 1:
            even = EvenAssignment(there, racks, settled)
            even.run()
            return even.decided, even.moving
        balanced = BalancedAssignment(there, members, racks, settled)
        balanced.run()
        return {name: list(each) for name, each in balanced.decided.items()}, None
