"""The response of ShareGroupDescribe for one group."""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.coordinator.group.share.share_targets import ASSIGNOR
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.share_group_describe import (
    Assignment,
    DescribedGroup,
    Member,
    TopicPartitions,
)

if TYPE_CHECKING:
    from barnabas.coordinator.group.share.share_group import ShareGroup
    from barnabas.coordinator.group.share.share_member import ShareMember
    from barnabas.coordinator.group.topics_view import TopicsView


def describe_share_group(group: ShareGroup, topics: TopicsView) -> DescribedGroup:
    """Return epochs, state and members of a group."""
    return DescribedGroup(
        error_code=ErrorCode.NONE,
        group_id=group.group_id,
        group_state=group.state.value,
        group_epoch=group.group_epoch,
        assignment_epoch=group.assignment_epoch,
        assignor_name=ASSIGNOR,
        members=[_described(member, topics) for member in group.members.values()],
    )


def _described(member: ShareMember, topics: TopicsView) -> Member:
    assigned = []
    for topic_id, indexes in sorted(member.assigned.items()):
        name = topics.topic_name(topic_id)
        if name is not None:
            assigned.append(
                TopicPartitions(topic_id=topic_id, topic_name=name, partitions=sorted(indexes))
            )
    return Member(
        member_id=member.member_id,
        rack_id=member.rack_id,
        member_epoch=member.member_epoch,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=sorted(member.subscribed_topic_names),
        assignment=Assignment(topic_partitions=assigned),
    )
