"""Resolve contradictory claims of members about the partitions that they own.

A member that missed one or more generations still claims partitions that were assigned to others
meanwhile: the claim of the newer generation wins. Two claims of the same generation are both
invalid.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from barnabas.protocol.java_collections import JavaTable, string_hash

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from barnabas.client.group.assignors.assignor import MemberSubscription, Topics
    from barnabas.client.topic_partition import TopicPartition

__all__ = ["Claim", "Claims", "settle_claims"]


class Claim(NamedTuple):
    """The partitions that one member claims."""

    partitions: Sequence[TopicPartition]
    # The generation in which the member owned the partitions; -1 if unknown.
    generation_id: int = -1


class Claims(NamedTuple):
    """The resolved claims."""

    # Valid claims by member, in the order in which Kafka processes the members.
    owned: dict[str, list[TopicPartition]]
    # Partitions that two members of one generation claim.
    disputed: set[TopicPartition]
    # Former owners of partitions that they claim in an older generation: for each partition the
    # member and generation of the newest such claim.
    former: dict[TopicPartition, tuple[str, int]]


def settle_claims(
    topics: Topics, members: Mapping[str, MemberSubscription], claims: Mapping[str, Claim]
) -> Claims:
    """Resolve which member owns which partition.

    Args:
        topics: The existing topics; claims for other topics are ignored.
        members: The subscriptions, by member id.
        claims: The claims, by member id.
    """
    owned: dict[str, list[TopicPartition]] = {}
    disputed: set[TopicPartition] = set()
    owner: dict[TopicPartition, str] = {}
    for name in JavaTable(string_hash, members):
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
            # The generation in the other member's subscription, even if its user data contains
            # another one.
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
    members: Mapping[str, MemberSubscription], claims: Mapping[str, Claim]
) -> dict[TopicPartition, tuple[str, int]]:
    newest = max((claim.generation_id for claim in claims.values()), default=-1)
    former: dict[TopicPartition, tuple[str, int]] = {}
    for name in JavaTable(string_hash, members):
        partitions, generation_id = claims[name]
        if generation_id < newest:
            for tp in partitions:
                if tp not in former or generation_id > former[tp][1]:
                    former[tp] = name, generation_id
    return former
