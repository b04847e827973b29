"""The replay of the records of consumer groups; `consumer_records` encodes them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from barnabas.coordinator.group.assignment import NOTHING_OWNED, Owned, target_of
from barnabas.coordinator.group.consumer.members.classic_metadata import ClassicMetadata
from barnabas.coordinator.group.consumer.members.consumer_member import ConsumerMember
from barnabas.coordinator.group.consumer.members.member_state import MemberState
from barnabas.coordinator.group.consumer.resolved_regex import ResolvedRegex
from barnabas.coordinator.group.records import (
    RecordReplay,
    put_epoch,
    put_target_epoch,
    remove_member,
    remove_target,
    remove_target_epoch,
)
from barnabas.coordinator.group.replayed_group import NO_EPOCH
from barnabas.protocol.protocol_error import ProtocolError
from barnabas.protocol.records.consumer_group_current_member_assignment import (
    ConsumerGroupCurrentMemberAssignmentKey,
    ConsumerGroupCurrentMemberAssignmentValue,
)
from barnabas.protocol.records.consumer_group_member_metadata import (
    ConsumerGroupMemberMetadataKey,
    ConsumerGroupMemberMetadataValue,
)
from barnabas.protocol.records.consumer_group_metadata import (
    ConsumerGroupMetadataKey,
    ConsumerGroupMetadataValue,
)
from barnabas.protocol.records.consumer_group_partition_metadata import (
    ConsumerGroupPartitionMetadataKey,
    ConsumerGroupPartitionMetadataValue,
)
from barnabas.protocol.records.consumer_group_regular_expression import (
    ConsumerGroupRegularExpressionKey,
    ConsumerGroupRegularExpressionValue,
)
from barnabas.protocol.records.consumer_group_target_assignment_member import (
    ConsumerGroupTargetAssignmentMemberKey,
    ConsumerGroupTargetAssignmentMemberValue,
)
from barnabas.protocol.records.consumer_group_target_assignment_metadata import (
    ConsumerGroupTargetAssignmentMetadataKey,
    ConsumerGroupTargetAssignmentMetadataValue,
)

if TYPE_CHECKING:
    from typing import Any

    from barnabas.coordinator.group.consumer.consumer_group import ConsumerGroup
    from barnabas.protocol.records.consumer_group_current_member_assignment import TopicPartitions
    from barnabas.protocol.records.consumer_group_member_metadata import ClassicMemberMetadata


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


def _put_target(
    group: ConsumerGroup,
    key: ConsumerGroupTargetAssignmentMemberKey,
    record: ConsumerGroupTargetAssignmentMemberValue,
) -> None:
    group.targets[key.member_id] = target_of(
        {each.topic_id: each.partitions for each in record.topic_partitions}
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
            assigned=_owned(record.assigned_partitions, epoch),
            pending_revocation=_owned(record.partitions_pending_revocation, epoch),
        )
    )


def _remove_current(group: ConsumerGroup, key: ConsumerGroupCurrentMemberAssignmentKey) -> None:
    known = group.members.get(key.member_id)
    if known is not None:
        group.put(
            replace(
                known,
                member_epoch=NO_EPOCH,
                previous_member_epoch=NO_EPOCH,
                assigned=NOTHING_OWNED,
                pending_revocation=NOTHING_OWNED,
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


def _owned(partitions: list[TopicPartitions], member_epoch: int) -> Owned:
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
    RecordReplay(ConsumerGroupMetadataKey, ConsumerGroupMetadataValue, put_epoch),
    RecordReplay(
        ConsumerGroupPartitionMetadataKey,
        ConsumerGroupPartitionMetadataValue,
        _put_partition_metadata,
        _remove_partition_metadata,
    ),
    RecordReplay(
        ConsumerGroupMemberMetadataKey, ConsumerGroupMemberMetadataValue, _put_member, remove_member
    ),
    RecordReplay(
        ConsumerGroupTargetAssignmentMetadataKey,
        ConsumerGroupTargetAssignmentMetadataValue,
        put_target_epoch,
        remove_target_epoch,
    ),
    RecordReplay(
        ConsumerGroupTargetAssignmentMemberKey,
        ConsumerGroupTargetAssignmentMemberValue,
        _put_target,
        remove_target,
    ),
    RecordReplay(
        ConsumerGroupCurrentMemberAssignmentKey,
        ConsumerGroupCurrentMemberAssignmentValue,
        _put_current,
        _remove_current,
    ),
    RecordReplay(
        ConsumerGroupRegularExpressionKey,
        ConsumerGroupRegularExpressionValue,
        _put_regex,
        _remove_regex,
    ),
)
