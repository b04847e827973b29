"""Encodes consumer groups as records of `__consumer_offsets` (GroupCoordinatorRecordHelpers)."""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING

from barnabas.coordinator.runtime.coordinator_record import CoordinatorRecord
from barnabas.protocol.records.consumer_group_current_member_assignment import (
    ConsumerGroupCurrentMemberAssignmentKey,
    ConsumerGroupCurrentMemberAssignmentValue,
    TopicPartitions,
)
from barnabas.protocol.records.consumer_group_member_metadata import (
    ClassicMemberMetadata,
    ClassicProtocol,
    ConsumerGroupMemberMetadataKey,
    ConsumerGroupMemberMetadataValue,
)
from barnabas.protocol.records.consumer_group_metadata import (
    ConsumerGroupMetadataKey,
    ConsumerGroupMetadataValue,
)
from barnabas.protocol.records.consumer_group_partition_metadata import (
    ConsumerGroupPartitionMetadataKey,
)
from barnabas.protocol.records.consumer_group_regular_expression import (
    ConsumerGroupRegularExpressionKey,
    ConsumerGroupRegularExpressionValue,
)
from barnabas.protocol.records.consumer_group_target_assignment_member import (
    ConsumerGroupTargetAssignmentMemberKey,
    ConsumerGroupTargetAssignmentMemberValue,
    TopicPartition,
)
from barnabas.protocol.records.consumer_group_target_assignment_metadata import (
    ConsumerGroupTargetAssignmentMetadataKey,
    ConsumerGroupTargetAssignmentMetadataValue,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from barnabas.coordinator.group.assignment import Owned, Target
    from barnabas.coordinator.group.consumer.consumer_group import ConsumerGroup
    from barnabas.coordinator.group.consumer.members.consumer_member import ConsumerMember
    from barnabas.coordinator.group.consumer.resolved_regex import ResolvedRegex

_MEMBER_KEYS = (
    ConsumerGroupCurrentMemberAssignmentKey,
    ConsumerGroupTargetAssignmentMemberKey,
    ConsumerGroupMemberMetadataKey,
)


def epoch_record(group_id: str, epoch: int, metadata_hash: int) -> CoordinatorRecord:
    """Return the record of the group epoch and the hash of the subscribed topics."""
    value = ConsumerGroupMetadataValue(epoch=epoch, metadata_hash=metadata_hash)
    return CoordinatorRecord.of(ConsumerGroupMetadataKey(group_id=group_id), value)


def member_record(group_id: str, member: ConsumerMember) -> CoordinatorRecord:
    """Return the record of a member's identity and subscription."""
    key = ConsumerGroupMemberMetadataKey(group_id=group_id, member_id=member.member_id)
    value = ConsumerGroupMemberMetadataValue(
        instance_id=member.instance_id,
        rack_id=member.rack_id,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=sorted(member.subscribed_topic_names),
        subscribed_topic_regex=member.subscribed_topic_regex,
        rebalance_timeout_ms=member.rebalance_timeout_ms,
        server_assignor=member.server_assignor,
        classic_member_metadata=_classic(member),
    )
    return CoordinatorRecord.of(key, value)


def _classic(member: ConsumerMember) -> ClassicMemberMetadata | None:
    if member.classic is None:
        return None
    return ClassicMemberMetadata(
        session_timeout_ms=member.classic.session_timeout_ms,
        supported_protocols=[
            ClassicProtocol(name=name, metadata=metadata)
            for name, metadata in member.classic.protocols
        ],
    )


def target_epoch_record(group_id: str, epoch: int, timestamp: int) -> CoordinatorRecord:
    """Return the record of the epoch of the target assignment, and when it was computed."""
    value = ConsumerGroupTargetAssignmentMetadataValue(
        assignment_epoch=epoch, assignment_timestamp=timestamp
    )
    return CoordinatorRecord.of(ConsumerGroupTargetAssignmentMetadataKey(group_id=group_id), value)


def target_record(group_id: str, member_id: str, target: Target) -> CoordinatorRecord:
    """Return the record of a member's target assignment."""
    key = ConsumerGroupTargetAssignmentMemberKey(group_id=group_id, member_id=member_id)
    partitions = [
        TopicPartition(topic_id=topic_id, partitions=sorted(indexes))
        for topic_id, indexes in sorted(target.items())
    ]
    return CoordinatorRecord.of(
        key, ConsumerGroupTargetAssignmentMemberValue(topic_partitions=partitions)
    )


def current_record(group_id: str, member: ConsumerMember) -> CoordinatorRecord:
    """Return the record of a member's epoch, state and partitions."""
    key = ConsumerGroupCurrentMemberAssignmentKey(group_id=group_id, member_id=member.member_id)
    value = ConsumerGroupCurrentMemberAssignmentValue(
        member_epoch=member.member_epoch,
        previous_member_epoch=member.previous_member_epoch,
        state=int(member.state),
        assigned_partitions=_owned(member.assigned),
        partitions_pending_revocation=_owned(member.pending_revocation),
    )
    return CoordinatorRecord.of(key, value)


def _owned(partitions: Owned) -> list[TopicPartitions]:
    return [
        TopicPartitions(
            topic_id=topic_id,
            partitions=sorted(epochs),
            assignment_epochs=[epochs[index] for index in sorted(epochs)],
        )
        for topic_id, epochs in sorted(partitions.items())
    ]


def regex_record(group_id: str, regex: str, found: ResolvedRegex) -> CoordinatorRecord:
    """Return the record of the topics that a regular expression matches."""
    key = ConsumerGroupRegularExpressionKey(group_id=group_id, regular_expression=regex)
    value = ConsumerGroupRegularExpressionValue(
        topics=sorted(found.topics), version=found.version, timestamp=found.timestamp
    )
    return CoordinatorRecord.of(key, value)


def regex_tombstone(group_id: str, regex: str) -> CoordinatorRecord:
    """Return the record that removes a regular expression."""
    key = ConsumerGroupRegularExpressionKey(group_id=group_id, regular_expression=regex)
    return CoordinatorRecord.of(key, None)


def partition_metadata_tombstone(group_id: str) -> CoordinatorRecord:
    """Return the tombstone of the topics that brokers before 4.1 stored."""
    return CoordinatorRecord.of(ConsumerGroupPartitionMetadataKey(group_id=group_id), None)


def member_tombstones(group_id: str, member_id: str) -> list[CoordinatorRecord]:
    """Return the records that remove a member, in the order that replay expects."""
    return CoordinatorRecord.tombstones(_MEMBER_KEYS, group_id=group_id, member_id=member_id)


def group_records(group: ConsumerGroup) -> list[CoordinatorRecord]:
    """Return the records of a group and all of its members, in Kafka's order."""
    group_id, members = group.group_id, group.members.values()
    return [
        *(member_record(group_id, member) for member in members),
        epoch_record(group_id, group.group_epoch, group.metadata_hash),
        *(
            target_record(group_id, member_id, target)
            for member_id, target in group.targets.items()
        ),
        target_epoch_record(group_id, group.assignment_epoch, group.assignment_timestamp),
        *(current_record(group_id, member) for member in members),
    ]


def group_tombstones(
    group: ConsumerGroup, replacements: Mapping[str, str] = MappingProxyType({})
) -> list[CoordinatorRecord]:
    """Return the records that remove a group and all of its members, in Kafka's order.

    Args:
        group: the group.
        replacements: new member ids of members that earlier records of the batch replace.
    """
    group_id = group.group_id
    ids = [replacements.get(member_id, member_id) for member_id in group.members]
    members = [member_tombstones(group_id, member_id) for member_id in ids]
    return [
        *(current for current, _, _ in members),
        *(target for _, target, _ in members),
        CoordinatorRecord.of(ConsumerGroupTargetAssignmentMetadataKey(group_id=group_id), None),
        *(metadata for _, _, metadata in members),
        *(regex_tombstone(group_id, regex) for regex in group.resolved),
        partition_metadata_tombstone(group_id),
        CoordinatorRecord.of(ConsumerGroupMetadataKey(group_id=group_id), None),
    ]
