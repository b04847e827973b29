"""What the members of a group own by their own words, of which not all can be true.

A member that was away for a generation or more still claims what others were given meanwhile: the
newer generation is right. Two claims of one generation are both wrong.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from barnabas.client.group.assignors.java_order import java_ordered

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from barnabas.client.group.assignors.assignor import Subscription, Topics
    from barnabas.client.topic_partition import TopicPartition

__all__ = ["Claim", "Claims", "settle_claims"]


class Claim(NamedTuple):
    """What one member says."""

    partitions: Sequence[TopicPartition]
    # In which it owned them, -1 if it does not say.
    generation_id: int = -1


class Claims(NamedTuple):
    """What is left of the claims."""

    # By member, in the order in which Kafka serves them.
    owned: dict[str, list[TopicPartition]]
    # Claimed by two members of one generation.
    disputed: set[TopicPartition]
    # Whose partitions were taken back for a newer claim, or are of an older generation: by
    # partition, the member of the newest generation that is not the newest of all.
    former: dict[TopicPartition, tuple[str, int]]


def settle_claims(
    topics: Topics, members: Mapping[str, Subscription], claims: Mapping[str, Claim]
) -> Claims:
    """Find out who owns what.

    Args:
        topics: partitions of other ones are no longer there.
        members: the group.
        claims: by member.
    """
    owned: dict[str, list[TopicPartition]] = {}
    disputed: set[TopicPartition] = set()
    owner: dict[TopicPartition, str] = {}
    for name in java_ordered(members):
        mine = owned[name] = []
        claim = claims[name]
        for tp in claim.partitions:
            if tp.topic not in topics:
                continue
            other = owner.get(tp)
            if other is None:
                mine.append(tp)
                owner[tp] = name
                continue
            # The generation that the group knows the other by, whatever its own record says.
            theirs = members[other].generation_id
            if claim.generation_id < theirs:
                continue
            if claim.generation_id == theirs:
                disputed.add(tp)
            else:
                mine.append(tp)
            if tp in owned[other]:
                owned[other].remove(tp)
            owner[tp] = name
    return Claims(owned, disputed, _former(members, claims))


def _former(
    members: Mapping[str, Subscription], claims: Mapping[str, Claim]
) -> dict[TopicPartition, tuple[str, int]]:
    newest = max((claim.generation_id for claim in claims.values()), default=-1)
    former: dict[TopicPartition, tuple[str, int]] = {}
    for name in java_ordered(members):
        partitions, generation_id = claims[name]
        if generation_id < newest:
            for tp in partitions:
                if tp not in former or generation_id > former[tp][1]:
                    former[tp] = name, generation_id
    return former
