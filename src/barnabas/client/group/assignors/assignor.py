"""What an assignor is, with the values it takes and gives (Kafka's ConsumerPartitionAssignor).

A class of one's own extends `Assignor`, whose members but `name` and `assign` have defaults:

    class EverythingToOne(Assignor):
        name = "everything-to-one"

        def assign(self, topics, members):
            first = min(members)
            partitions = [TopicPartition(t, p.number) for t in topics for p in topics[t]]
            return {each: Assignment(partitions if each == first else ()) for each in members}

and is given as `partition_assignment_strategy=[EverythingToOne]`, to every member of the group.
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
    "RebalanceProtocol",
    "Subscription",
    "Topics",
]


class AssignorError(Exception):
    """An assignor broke a rule of the protocol that it runs under."""


class RebalanceProtocol(enum.IntEnum):
    """What members do with their partitions while the group is assigned anew (KIP-429)."""

    # They give up all of them before they join.
    EAGER = 0
    # They keep them, and give up what moves once they know; the greater, the more is kept.
    COOPERATIVE = 1


class AssignablePartition(NamedTuple):
    """A partition that can be assigned."""

    number: int
    # Of its replicas' brokers, None for one without a rack, in the replicas' order.
    racks: tuple[str | None, ...] = ()


# Partitions by topic, ascending, of all topics that a member wants and the cluster has.
Topics: TypeAlias = Mapping[str, Sequence[AssignablePartition]]


class Subscription(NamedTuple):
    """What one member wants, as its JoinGroup said."""

    topics: Sequence[str]
    owned_partitions: Sequence[TopicPartition] = ()
    user_data: bytes | None = None
    # The generation in which it owned them, -1 if it does not tell.
    generation_id: int = -1
    rack_id: str | None = None
    # Of a static member (KIP-345).
    instance_id: str | None = None


class Assignment(NamedTuple):
    """What one member gets."""

    partitions: Sequence[TopicPartition]
    user_data: bytes | None = None


class Assignor(Protocol):
    """One way to assign. An object serves one consumer, and may remember what it was told."""

    # By which the members agree on it; the whole group must know it.
    name: str
    # A group runs under the greatest one that all assignors of its members' lists can do.
    protocols: Sequence[RebalanceProtocol] = (RebalanceProtocol.EAGER,)

    def user_data(self, topics: Collection[str]) -> bytes | None:
        """Bytes of its own for the leader, with a subscription to `topics`."""
        del topics
        return None

    def assign(
        self, topics: Topics, members: Mapping[str, Subscription]
    ) -> Mapping[str, Assignment]:
        """Decide for the whole group; runs on the member that leads it.

        Args:
            topics: what can be assigned.
            members: subscriptions by member id.

        Returns:
            An assignment for every member.
        """
        ...

    def on_assignment(self, assignment: Assignment, generation: GroupGeneration) -> None:
        """This member was assigned that."""
        del assignment, generation
