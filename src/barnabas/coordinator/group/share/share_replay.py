"""The replay of the records of share groups; `share_records` encodes them."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from msgspec.structs import replace

from barnabas.coordinator.group.assignment import NOTHING, target_of
from barnabas.coordinator.group.records import (
    RecordReplay,
    put_epoch,
    put_target_epoch,
    remove_member,
    remove_target,
    remove_target_epoch,
)
from barnabas.coordinator.group.replayed_group import NO_EPOCH
from barnabas.coordinator.group.share.share_member import ShareMember
from barnabas.coordinator.group.share.state_topics import StateTopic, StateTopics
from barnabas.protocol.records.share_group_current_member_assignment import (
    ShareGroupCurrentMemberAssignmentKey,
    ShareGroupCurrentMemberAssignmentValue,
)
from barnabas.protocol.records.share_group_member_metadata import (
    ShareGroupMemberMetadataKey,
    ShareGroupMemberMetadataValue,
)
from barnabas.protocol.records.share_group_metadata import (
    ShareGroupMetadataKey,
    ShareGroupMetadataValue,
)
from barnabas.protocol.records.share_group_state_partition_metadata import (
    ShareGroupStatePartitionMetadataKey,
    ShareGroupStatePartitionMetadataValue,
)
from barnabas.protocol.records.share_group_target_assignment_member import (
    ShareGroupTargetAssignmentMemberKey,
    ShareGroupTargetAssignmentMemberValue,
)
from barnabas.protocol.records.share_group_target_assignment_metadata import (
    ShareGroupTargetAssignmentMetadataKey,
    ShareGroupTargetAssignmentMetadataValue,
)

if TYPE_CHECKING:
    from typing import Any

    from barnabas.coordinator.group.share.share_group import ShareGroup
    from barnabas.protocol.records.share_group_state_partition_metadata import TopicPartitionsInfo
    from barnabas.runtime.clock import Clock


def share_replays(clock: Clock) -> tuple[RecordReplay[ShareGroup, Any, Any], ...]:
    """Return the replays of all record types of share groups.

    Args:
        clock: tells when the initialization of a replayed topic began.
    """
    return (
        RecordReplay(ShareGroupMetadataKey, ShareGroupMetadataValue, put_epoch),
        RecordReplay(
            ShareGroupMemberMetadataKey, ShareGroupMemberMetadataValue, _put_member, remove_member
        ),
        RecordReplay(
            ShareGroupTargetAssignmentMetadataKey,
            ShareGroupTargetAssignmentMetadataValue,
            put_target_epoch,
            remove_target_epoch,
        ),
        RecordReplay(
            ShareGroupTargetAssignmentMemberKey,
            ShareGroupTargetAssignmentMemberValue,
            _put_target,
            remove_target,
        ),
        RecordReplay(
            ShareGroupCurrentMemberAssignmentKey,
            ShareGroupCurrentMemberAssignmentValue,
            _put_current,
            _remove_current,
        ),
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


def _put_target(
    group: ShareGroup,
    key: ShareGroupTargetAssignmentMemberKey,
    record: ShareGroupTargetAssignmentMemberValue,
) -> None:
    group.targets[key.member_id] = target_of(
        {each.topic_id: each.partitions for each in record.topic_partitions}
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
        _state_topics(record.initializing_topics, now_ms),
        _state_topics(record.initialized_topics, now_ms),
        frozenset(each.topic_id for each in record.deleting_topics),
    )


def _remove_state_topics(group: ShareGroup, _key: ShareGroupStatePartitionMetadataKey) -> None:
    group.state_topics = None


def _state_topics(topics: list[TopicPartitionsInfo], now_ms: int) -> dict[bytes, StateTopic]:
    return {
        each.topic_id: StateTopic(each.topic_name, frozenset(each.partitions), now_ms)
        for each in topics
    }
