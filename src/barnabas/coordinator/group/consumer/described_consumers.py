"""The response of ConsumerGroupDescribe for one group."""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.coordinator.group.assignment import NOTHING
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.consumer_group_describe import (
    Assignment,
    DescribedGroup,
    Member,
    TopicPartitions,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from barnabas.coordinator.group.consumer.consumer_group import ConsumerGroup
    from barnabas.coordinator.group.consumer.members.consumer_member import ConsumerMember
    from barnabas.coordinator.group.topics_view import TopicsView

# The types of members, by the protocol that they use.
_CLASSIC, _CONSUMER = 0, 1


def describe_consumers(
    group: ConsumerGroup, topics: TopicsView, default_assignor: str
) -> DescribedGroup:
    """Return epochs, state and members of a group."""
    return DescribedGroup(
        error_code=ErrorCode.NONE,
        group_id=group.group_id,
        group_state=group.state.value,
        group_epoch=group.group_epoch,
        assignment_epoch=group.assignment_epoch,
        assignor_name=group.preferred_assignor() or default_assignor,
        members=[_described(group, member, topics) for member in group.members.values()],
    )


def _described(group: ConsumerGroup, member: ConsumerMember, topics: TopicsView) -> Member:
    owned: dict[bytes, set[int]] = {}
    for partitions in (member.assigned, member.pending_revocation):
        for topic_id, indexes in partitions.items():
            owned.setdefault(topic_id, set()).update(indexes)
    return Member(
        member_id=member.member_id,
        instance_id=member.instance_id,
        rack_id=member.rack_id,
        member_epoch=member.member_epoch,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=sorted(member.subscribed_topic_names),
        subscribed_topic_regex=member.subscribed_topic_regex,
        assignment=_assignment(owned, topics),
        target_assignment=_assignment(group.targets.get(member.member_id, NOTHING), topics),
        member_type=_CLASSIC if member.uses_classic_protocol else _CONSUMER,
    )


def _assignment(partitions: Mapping[bytes, Iterable[int]], topics: TopicsView) -> Assignment:
    """Return the partitions of existing topics."""
    found = []
    for topic_id, indexes in sorted(partitions.items()):
        name = topics.topic_name(topic_id)
        if name is not None:
            found.append(
                TopicPartitions(topic_id=topic_id, topic_name=name, partitions=sorted(indexes))
            )
    return Assignment(topic_partitions=found)
