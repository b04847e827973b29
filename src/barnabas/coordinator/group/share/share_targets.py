"""Computes the target assignment of a share group (Kafka: TargetAssignmentBuilder)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.coordinator.group.consumer.assignors.assignor_input import (
    AssignorInput,
    MemberInput,
)
from barnabas.coordinator.group.share.simple_assignor import assign_simply
from barnabas.waiting.steps import run_to_end

if TYPE_CHECKING:
    from collections.abc import Mapping

    from barnabas.coordinator.group.assignment import Target
    from barnabas.coordinator.group.share.share_group import ShareGroup
    from barnabas.coordinator.group.share.share_member import ShareMember
    from barnabas.coordinator.group.topics_view import TopicsView

# The name of the only assignor.
ASSIGNOR = "simple"


def compute_share_targets(
    group: ShareGroup, changed: ShareMember, topics: TopicsView
) -> tuple[Mapping[str, Target], Mapping[str, Target]]:
    """Return the new target assignment of all members, and of those for which it changed.

    Only partitions with initialized state are assigned.

    Args:
        group: the group.
        changed: a member that is new or has changed.
        topics: the topics of the cluster.
    """
    members = {**group.members, changed.member_id: changed}
    topic_ids: dict[frozenset[str], frozenset[bytes]] = {}
    counts: dict[bytes, int] = {}
    inputs: dict[str, MemberInput] = {}
    for member_id, member in members.items():
        names = member.subscribed_topic_names
        if names not in topic_ids:
            found = {topics.topic_id(name): name for name in names}
            existing = {each: name for each, name in found.items() if each is not None}
            counts.update((each, topics.partition_count(name)) for each, name in existing.items())
            topic_ids[names] = frozenset(existing)
        inputs[member_id] = MemberInput(topic_ids[names], group.target_of(member_id))
    initialized = {} if group.state_topics is None else group.state_topics.initialized
    given = AssignorInput(
        inputs,
        counts,
        len(topic_ids) <= 1,
        {each: topic.partitions for each, topic in initialized.items()},
    )
    targets = run_to_end(assign_simply(given))
    differing = {
        member_id: target
        for member_id, target in targets.items()
        if group.targets.get(member_id) != target
    }
    return targets, differing
