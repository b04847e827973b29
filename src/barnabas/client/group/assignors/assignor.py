"""The interface of assignors and its value types (Kafka's ConsumerPartitionAssignor).

A user's assignor extends `Assignor`. Only `name` and `assign` have no defaults:

    class EverythingToOne(Assignor):
        name = "everything-to-one"

        def assign(self, topics, members):
            first = min(members)
            partitions = [TopicPartition(t, p.number) for t in topics for p in topics[t]]
            return {each: Assignment(partitions if each == first else ()) for each in members}

Every member of the group gets it as `partition_assignment_strategy=[EverythingToOne]`.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple, Protocol, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Collection

    from barnabas.client.group.membership import GroupGeneration
    from barnabas.client.topic_partition import TopicPartition

__all__ = [
    "AssignablePartition",
    "Assignment",
    "Assignor",
    "AssignorError",
    "MemberSubscription",
    "RebalanceProtocol",
    "Topics",
]


class AssignorError(Exception):
    """An assignor violated a rule of its rebalance protocol."""


class RebalanceProtocol(enum.IntEnum):
    """How members handle their partitions during a rebalance (KIP-429)."""

    # Members give up all partitions before they join.
    EAGER = 0
    # Members keep their partitions and give up only those that move. A greater value means that
    # members keep more.
    COOPERATIVE = 1


class AssignablePartition(NamedTuple):
    """A partition that can be assigned."""

    number: int
    # Racks of the brokers that host the replicas, in replica order; None for a broker without a
    # rack.
    racks: tuple[str | None, ...] = ()


# All existing topics that a member subscribes to, with their partitions in ascending order.
Topics: TypeAlias = Mapping[str, Sequence[AssignablePartition]]


class MemberSubscription(NamedTuple):
    """The subscription of one member, from its JoinGroup."""

    topics: Sequence[str]
    owned_partitions: Sequence[TopicPartition] = ()
    user_data: bytes | None = None
    # The generation in which the member owned `owned_partitions`; -1 if unknown.
    generation_id: int = -1
    rack_id: str | None = None
    # Id of a static member (KIP-345).
    instance_id: str | None = None


class Assignment(NamedTuple):
    """The partitions of one member."""

    partitions: Sequence[TopicPartition]
    user_data: bytes | None = None


class Assignor(Protocol):
    """An assignment strategy. An object serves one consumer and may keep state."""

    # Name by which the members agree on the assignor; every member must support it.
    name: str
    # Supported protocols. A group uses the greatest one that all assignors of its members support.
    protocols: Sequence[RebalanceProtocol] = (RebalanceProtocol.EAGER,)

    def user_data(self, topics: Collection[str]) -> bytes | None:
        """Return bytes for the leader, sent with a subscription to `topics`; None for none."""
        del topics
        return None

    def assign(
        self, topics: Topics, members: Mapping[str, MemberSubscription]
    ) -> Mapping[str, Assignment]:
        """Assign partitions for the whole group; runs on the member that leads it.

        Args:
            topics: The partitions that can be assigned, by topic.
            members: The subscriptions, by member id.

        Returns:
            An assignment for every member.
        """
        ...

    def on_assignment(self, assignment: Assignment, generation: GroupGeneration) -> None:
        """Handle the assignment that this member received."""
        del assignment, generation
