"""Computes the target assignment of a group (Kafka: TargetAssignmentBuilder)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.coordinator.group.consumer.assignment import NOTHING, Target
from barnabas.coordinator.group.consumer.assignors.assignor_input import AssignorInput, MemberInput
from barnabas.coordinator.group.consumer.assignors.range_assignor import assign_ranges
from barnabas.coordinator.group.consumer.assignors.uniform_assignor import assign_uniformly

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from barnabas.coordinator.group.consumer.consumer_group import ConsumerGroup
    from barnabas.coordinator.group.consumer.consumer_member import ConsumerMember
    from barnabas.coordinator.group.topics_view import TopicsView

# Kafka's assignors; the first one is the default.
ASSIGNORS: Mapping[str, Callable[[AssignorInput], dict[str, Target]]] = {
    "uniform": assign_uniformly,
    "range": assign_ranges,
}


def compute_targets(
    group: ConsumerGroup, changed: ConsumerMember, assignor: str, topics: TopicsView
) -> tuple[dict[str, Target], dict[str, Target]]:
    """Return the new target assignment of all members, and of those for which it changed.

    Args:
        group: the group.
        changed: a member that is new or has changed. It may replace a static member.
        assignor: the name of the assignor.
        topics: the topics of the cluster.
    """
    members, known = dict(group.members), dict(group.targets)
    former = group.static_members.get(changed.instance_id or "")
    if former is not None and former != changed.member_id:
        members.pop(former, None)
        if former in known:
            known[changed.member_id] = known.pop(former)
    members[changed.member_id] = changed
    topic_ids: dict[tuple[frozenset[str], str], frozenset[bytes]] = {}
    counts: dict[bytes, int] = {}
    inputs: dict[str, MemberInput] = {}
    for member_id, member in members.items():
        subscription = (member.subscribed_topic_names, member.subscribed_topic_regex)
        if subscription not in topic_ids:
            topic_ids[subscription] = _existing(group, member, topics, counts)
        inputs[member_id] = MemberInput(
            topic_ids[subscription], known.get(member_id, NOTHING), member.instance_id
        )
    found = ASSIGNORS[assignor](AssignorInput(inputs, counts))
    differing = {
        member_id: target
        for member_id, target in found.items()
        if member_id not in known or known[member_id] != target
    }
    return found, differing


def _existing(
    group: ConsumerGroup, member: ConsumerMember, topics: TopicsView, counts: dict[bytes, int]
) -> frozenset[bytes]:
    """Return the ids of the existing topics of a subscription. Add their partition counts."""
    found: set[bytes] = set()
    for name in group.topics_of(member):
        topic_id = topics.topic_id(name)
        if topic_id is not None:
            found.add(topic_id)
            counts[topic_id] = topics.partition_count(name)
    return frozenset(found)
