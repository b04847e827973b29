"""Records of share groups: how they are encoded, and what their replay changes."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from msgspec.structs import replace

from barnabas.coordinator.group.replayed_group import (
    NO_EPOCH,
    KindRecords,
    RecordReplay,
    tombstones_without_members,
)
from barnabas.coordinator.group.share.share_group import ShareMember, StateTopic, StateTopics
from barnabas.coordinator.group.topics import NOTHING, target_of
from barnabas.coordinator.runtime.coordinator_record import CoordinatorRecord
from barnabas.protocol.records.share_groups import (
    ShareGroupCurrentMemberAssignmentKey,
    ShareGroupCurrentMemberAssignmentValue,
    ShareGroupMemberMetadataKey,
    ShareGroupMemberMetadataValue,
    ShareGroupMetadataKey,
    ShareGroupMetadataValue,
    ShareGroupStatePartitionMetadataKey,
    ShareGroupStatePartitionMetadataValue,
    ShareGroupTargetAssignmentMemberKey,
    ShareGroupTargetAssignmentMemberValue,
    ShareGroupTargetAssignmentMetadataKey,
    ShareGroupTargetAssignmentMetadataValue,
    TopicInfo,
    TopicPartition,
    TopicPartitions,
    TopicPartitionsInfo,
)

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from barnabas.coordinator.group.share.share_group import ShareGroup, StateTopicsById
    from barnabas.runtime.clock import Clock


# Kafka's MemberState.STABLE. Members of share groups have no other state.
_STABLE = 0

_RECORDS = KindRecords(
    epoch=(ShareGroupMetadataKey, ShareGroupMetadataValue),
    member=(ShareGroupMemberMetadataKey, ShareGroupMemberMetadataValue),
    target_epoch=(ShareGroupTargetAssignmentMetadataKey, ShareGroupTargetAssignmentMetadataValue),
    target=(ShareGroupTargetAssignmentMemberKey, ShareGroupTargetAssignmentMemberValue),
    current=(ShareGroupCurrentMemberAssignmentKey, ShareGroupCurrentMemberAssignmentValue),
    target_topic=TopicPartition,
)
epoch_record = _RECORDS.epoch_record
target_epoch_record = _RECORDS.target_epoch_record
target_record = _RECORDS.target_record
member_tombstones = _RECORDS.member_tombstones
_GROUP_KEYS = (
    ShareGroupTargetAssignmentMetadataKey,
    ShareGroupStatePartitionMetadataKey,
    ShareGroupMetadataKey,
)


def member_record(group_id: str, member: ShareMember) -> CoordinatorRecord:
    """Return the record of a member's identity and subscription."""
    key = ShareGroupMemberMetadataKey(group_id=group_id, member_id=member.member_id)
    value = ShareGroupMemberMetadataValue(
        rack_id=member.rack_id,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=sorted(member.subscribed_topic_names),
    )
    return CoordinatorRecord.of(key, value)


def current_record(group_id: str, member: ShareMember) -> CoordinatorRecord:
    """Return the record of a member's epoch and partitions."""
    key = ShareGroupCurrentMemberAssignmentKey(group_id=group_id, member_id=member.member_id)
    value = ShareGroupCurrentMemberAssignmentValue(
        member_epoch=member.member_epoch,
        previous_member_epoch=member.previous_member_epoch,
        state=_STABLE,
        assigned_partitions=[
            TopicPartitions(topic_id=topic_id, partitions=sorted(indexes))
            for topic_id, indexes in sorted(member.assigned.items())
        ],
    )
    return CoordinatorRecord.of(key, value)


def state_topics_record(
    group_id: str, topics: StateTopics, deleting_names: Mapping[bytes, str]
) -> CoordinatorRecord:
    """Return the record of the topics with state.

    Args:
        group_id: the group.
        topics: its topics.
        deleting_names: names of topics whose state is being deleted.
    """
    value = ShareGroupStatePartitionMetadataValue(
        initializing_topics=_state_topics(topics.initializing),
        initialized_topics=_state_topics(topics.initialized),
        deleting_topics=[
            TopicInfo(topic_id=topic_id, topic_name=deleting_names[topic_id])
            for topic_id in sorted(topics.deleting)
        ],
    )
    return CoordinatorRecord.of(ShareGroupStatePartitionMetadataKey(group_id=group_id), value)


def _state_topics(topics: StateTopicsById) -> list[TopicPartitionsInfo]:
    return [
        TopicPartitionsInfo(
            topic_id=topic_id, topic_name=topic.name, partitions=sorted(topic.partitions)
        )
        for topic_id, topic in sorted(topics.items())
    ]


group_tombstones = partial(tombstones_without_members, _GROUP_KEYS)


def share_replays(clock: Clock) -> tuple[RecordReplay[ShareGroup, Any, Any], ...]:
    """Return the replays of all record types of share groups.

    Args:
        clock: tells when the initialization of a replayed topic began.
    """
    return (
        *_RECORDS.replays(_put_member, _put_current, _remove_current),
        RecordReplay(
            ShareGroupStatePartitionMetadataKey,
            ShareGroupStatePartitionMetadataValue,
            partial(_put_state_topics, clock),
            _remove_state_topics,
        ),
    )


def _put_member(
    group: ShareGroup, key: ShareGroupMemberMetadataKey, record: ShareGroupMemberMetadataValue
) -> None:
    group.put(
        replace(
            group.members.get(key.member_id) or ShareMember(key.member_id),
            rack_id=record.rack_id,
            client_id=record.client_id,
            client_host=record.client_host,
            subscribed_topic_names=frozenset(record.subscribed_topic_names),
        )
    )


def _put_current(
    group: ShareGroup,
    key: ShareGroupCurrentMemberAssignmentKey,
    record: ShareGroupCurrentMemberAssignmentValue,
) -> None:
    group.put(
        replace(
            group.members.get(key.member_id) or ShareMember(key.member_id),
            member_epoch=record.member_epoch,
            previous_member_epoch=record.previous_member_epoch,
            assigned=target_of(
                {each.topic_id: each.partitions for each in record.assigned_partitions}
            ),
        )
    )


def _remove_current(group: ShareGroup, key: ShareGroupCurrentMemberAssignmentKey) -> None:
    known = group.members.get(key.member_id)
    if known is not None:
        group.put(
            replace(known, member_epoch=NO_EPOCH, previous_member_epoch=NO_EPOCH, assigned=NOTHING)
        )


def _put_state_topics(
    clock: Clock,
    group: ShareGroup,
    _key: ShareGroupStatePartitionMetadataKey,
    record: ShareGroupStatePartitionMetadataValue,
) -> None:
    now_ms = clock.wall_ms()
    group.state_topics = StateTopics(
        _read_state_topics(record.initializing_topics, now_ms),
        _read_state_topics(record.initialized_topics, now_ms),
        frozenset(each.topic_id for each in record.deleting_topics),
    )


def _remove_state_topics(group: ShareGroup, _key: ShareGroupStatePartitionMetadataKey) -> None:
    group.state_topics = None


def _read_state_topics(topics: list[TopicPartitionsInfo], now_ms: int) -> dict[bytes, StateTopic]:
    return {
        each.topic_id: StateTopic(each.topic_name, frozenset(each.partitions), now_ms)
        for each in topics
    }
