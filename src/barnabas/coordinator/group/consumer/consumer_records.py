"""Records of consumer groups: how they are encoded, and what their replay changes."""

from __future__ import annotations

from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING

from msgspec.structs import replace

from barnabas.coordinator.group.consumer.consumer_group import (
    ClassicMetadata,
    ConsumerMember,
    MemberState,
    ResolvedRegex,
)
from barnabas.coordinator.group.replayed_group import (
    KindRecords,
    RecordReplay,
    remove_current,
)
from barnabas.coordinator.group.topics import NOTHING_OWNED, Owned
from barnabas.coordinator.runtime.coordinator_record import CoordinatorRecord
from barnabas.protocol.errors import ProtocolError
from barnabas.protocol.records.consumer_groups import (
    ClassicMemberMetadata,
    ClassicProtocol,
    ConsumerGroupCurrentMemberAssignmentKey,
    ConsumerGroupCurrentMemberAssignmentValue,
    ConsumerGroupMemberMetadataKey,
    ConsumerGroupMemberMetadataValue,
    ConsumerGroupMetadataKey,
    ConsumerGroupMetadataValue,
    ConsumerGroupPartitionMetadataKey,
    ConsumerGroupPartitionMetadataValue,
    ConsumerGroupRegularExpressionKey,
    ConsumerGroupRegularExpressionValue,
    ConsumerGroupTargetAssignmentMemberKey,
    ConsumerGroupTargetAssignmentMemberValue,
    ConsumerGroupTargetAssignmentMetadataKey,
    ConsumerGroupTargetAssignmentMetadataValue,
    TopicPartition,
    TopicPartitions,
)

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from barnabas.coordinator.group.consumer.consumer_group import ConsumerGroup


_RECORDS = KindRecords(
    epoch=(ConsumerGroupMetadataKey, ConsumerGroupMetadataValue),
    member=(ConsumerGroupMemberMetadataKey, ConsumerGroupMemberMetadataValue),
    target_epoch=(
        ConsumerGroupTargetAssignmentMetadataKey,
        ConsumerGroupTargetAssignmentMetadataValue,
    ),
    target=(ConsumerGroupTargetAssignmentMemberKey, ConsumerGroupTargetAssignmentMemberValue),
    current=(ConsumerGroupCurrentMemberAssignmentKey, ConsumerGroupCurrentMemberAssignmentValue),
    target_topic=TopicPartition,
)
epoch_record = _RECORDS.epoch_record
target_epoch_record = _RECORDS.target_epoch_record
target_record = _RECORDS.target_record
member_tombstones = _RECORDS.member_tombstones


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


def _put_partition_metadata(
    group: ConsumerGroup,
    _key: ConsumerGroupPartitionMetadataKey,
    _record: ConsumerGroupPartitionMetadataValue,
) -> None:
    group.has_partition_metadata = True


def _remove_partition_metadata(
    group: ConsumerGroup, _key: ConsumerGroupPartitionMetadataKey
) -> None:
    group.has_partition_metadata = False


def _put_member(
    group: ConsumerGroup,
    key: ConsumerGroupMemberMetadataKey,
    record: ConsumerGroupMemberMetadataValue,
) -> None:
    group.put(
        replace(
            group.members.get(key.member_id) or ConsumerMember(key.member_id),
            instance_id=record.instance_id,
            rack_id=record.rack_id,
            client_id=record.client_id,
            client_host=record.client_host,
            subscribed_topic_names=frozenset(record.subscribed_topic_names),
            subscribed_topic_regex=record.subscribed_topic_regex or "",
            rebalance_timeout_ms=record.rebalance_timeout_ms,
            server_assignor=record.server_assignor,
            classic=_classic_metadata(record.classic_member_metadata),
        )
    )


def _put_current(
    group: ConsumerGroup,
    key: ConsumerGroupCurrentMemberAssignmentKey,
    record: ConsumerGroupCurrentMemberAssignmentValue,
) -> None:
    epoch = record.member_epoch
    group.put(
        replace(
            group.members.get(key.member_id) or ConsumerMember(key.member_id),
            member_epoch=epoch,
            previous_member_epoch=record.previous_member_epoch,
            state=MemberState.of(record.state),
            assigned=_read_owned(record.assigned_partitions, epoch),
            pending_revocation=_read_owned(record.partitions_pending_revocation, epoch),
        )
    )


def _put_regex(
    group: ConsumerGroup,
    key: ConsumerGroupRegularExpressionKey,
    record: ConsumerGroupRegularExpressionValue,
) -> None:
    found = ResolvedRegex(frozenset(record.topics), record.version, record.timestamp)
    group.resolved[key.regular_expression] = found


def _remove_regex(group: ConsumerGroup, key: ConsumerGroupRegularExpressionKey) -> None:
    group.resolved.pop(key.regular_expression, None)


def _classic_metadata(record: ClassicMemberMetadata | None) -> ClassicMetadata | None:
    """Return the metadata of a member of the classic protocol. Raises ProtocolError."""
    if record is None:
        return None
    protocols = {each.name: each.metadata for each in record.supported_protocols}
    if not protocols:
        raise ProtocolError("a member of the classic protocol has no protocols")
    if len(protocols) < len(record.supported_protocols):
        raise ProtocolError("a member of the classic protocol has a protocol twice")
    if record.session_timeout_ms < 0:
        raise ProtocolError(f"a member has a session timeout of {record.session_timeout_ms} ms")
    return ClassicMetadata(record.session_timeout_ms, tuple(protocols.items()))


def _read_owned(partitions: list[TopicPartitions], member_epoch: int) -> Owned:
    """Return the partitions of a record.

    Brokers before 4.2 store no assignment epochs. The member's epoch is their upper limit.
    """
    found: dict[bytes, dict[int, int]] = {}
    for each in partitions:
        epochs = each.assignment_epochs or [member_epoch] * len(each.partitions)
        if len(epochs) != len(each.partitions):
            raise ProtocolError(
                f"{len(each.partitions)} partitions have {len(epochs)} assignment epochs"
            )
        if each.partitions:
            found[each.topic_id] = dict(zip(each.partitions, epochs, strict=True))
    return found


CONSUMER_REPLAYS: tuple[RecordReplay[ConsumerGroup, Any, Any], ...] = (
    *_RECORDS.replays(_put_member, _put_current, partial(remove_current, nothing=NOTHING_OWNED)),
    RecordReplay(
        ConsumerGroupPartitionMetadataKey,
        ConsumerGroupPartitionMetadataValue,
        _put_partition_metadata,
        _remove_partition_metadata,
    ),
    RecordReplay(
        ConsumerGroupRegularExpressionKey,
        ConsumerGroupRegularExpressionValue,
        _put_regex,
        _remove_regex,
    ),
)
