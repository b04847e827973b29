"""Classic groups with members become consumer groups (Kafka: ConsumerGroup.fromClassicGroup).

The first ConsumerGroupHeartbeat that joins converts the group. The members keep their partitions,
and go on with JoinGroup, SyncGroup and Heartbeat (`classic_members`). The generation becomes the
group epoch and the epoch of each member.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from barnabas.coordinator.group.classic.classic_group import failed_join
from barnabas.coordinator.group.classic.embedded_protocol import (
    decode_assignment,
    decode_subscription,
)
from barnabas.coordinator.group.classic.group_memory import GroupMemory
from barnabas.coordinator.group.classic.group_record import group_tombstone
from barnabas.coordinator.group.consumer.classic_metadata import ClassicMetadata
from barnabas.coordinator.group.consumer.consumer_group import ConsumerGroup
from barnabas.coordinator.group.consumer.consumer_member import ConsumerMember
from barnabas.coordinator.group.consumer.consumer_records import group_records
from barnabas.coordinator.group.consumer.refusal import RefusalError
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.protocol_error import ProtocolError

if TYPE_CHECKING:
    from barnabas.coordinator.group.classic.classic_group import ClassicGroup
    from barnabas.coordinator.group.classic.classic_member import ClassicMember
    from barnabas.coordinator.group.consumer.assignment import Target
    from barnabas.coordinator.group.consumer.consumer_shard import ConsumerShard
    from barnabas.coordinator.group.migration_policy import MigrationPolicy
    from barnabas.coordinator.group.topics_view import TopicsView
    from barnabas.coordinator.runtime.coordinator_record import CoordinatorRecord

_log = logging.getLogger(__name__)


class Upgrade:
    """Converts the classic groups of one shard."""

    __slots__ = ("_policy", "_shard")

    def __init__(self, policy: MigrationPolicy, shard: ConsumerShard) -> None:
        self._policy = policy
        self._shard = shard

    def convert(self, group: ClassicGroup, records: list[CoordinatorRecord]) -> ConsumerGroup:
        """Return the consumer group of a classic group, and append the records of the conversion.

        Their replay replaces the group. Members that wait for a response rejoin.

        Raises:
            RefusalError: the group stays a classic group.
        """
        self._check(group)
        for member in group.members.values():
            error = ErrorCode.REBALANCE_IN_PROGRESS
            group.complete_join(member, failed_join(member.id, error))
            group.complete_sync(member, error)
        try:
            converted = self._converted(group)
        except ProtocolError as error:
            _log.warning(
                "A group cannot change to the consumer protocol: group=%s error=%s",
                group.group_id,
                error,
            )
            raise _refused(group, "the embedded consumer protocol is malformed.") from None
        records.append(group_tombstone(group.group_id))
        records += group_records(converted)
        _log.info(
            "A group changes to the consumer protocol: group=%s generation=%d members=%d",
            group.group_id,
            group.generation_id,
            len(group.members),
        )
        return converted

    def _check(self, group: ClassicGroup) -> None:
        if not self._policy.allows_upgrade:
            raise _refused(group, "online upgrade is disabled.")
        if not group.is_of_consumers:
            raise _refused(group, "the group does not use the consumer embedded protocol.")
        if len(group.members) > self._shard.config.group_consumer_max_size:
            raise _refused(group, "the group size exceeds the consumer group maximum size.")

    def _converted(self, group: ClassicGroup) -> ConsumerGroup:
        # The group in the shard is made by the replay of the records, which counts its memory.
        converted = ConsumerGroup(group.group_id, GroupMemory())
        converted.group_epoch = converted.assignment_epoch = group.generation_id
        for member in group.members.values():
            target = _target_of(group, member, self._shard.topics)
            converted.targets[member.id] = target
            converted.put(_member_of(group, member, target))
        names = converted.subscribed_names()
        converted.metadata_hash = self._shard.hashes.of_topics(names)
        return converted


def _member_of(group: ClassicGroup, member: ClassicMember, target: Target) -> ConsumerMember:
    """Return the member of the consumer group, which has its target. Raises ProtocolError."""
    epoch, identity = group.generation_id, member.identity
    protocols = tuple(member.protocols.items())
    # The first generation may not have started yet, so that no protocol is selected.
    protocol = group.protocol_name if group.protocol_name in member.protocols else None
    subscription = decode_subscription(
        protocols[0][1] if protocol is None else member.protocols[protocol]
    )
    return ConsumerMember(
        member_id=member.id,
        member_epoch=epoch,
        previous_member_epoch=epoch,
        instance_id=identity.group_instance_id,
        rack_id=subscription.rack_id or None,
        client_id=identity.client_id,
        client_host=identity.client_host,
        rebalance_timeout_ms=member.times.rebalance_timeout_ms,
        subscribed_topic_names=frozenset(subscription.topics),
        assigned={topic_id: dict.fromkeys(indexes, epoch) for topic_id, indexes in target.items()},
        classic=ClassicMetadata(member.times.session_timeout_ms, protocols),
    )


def _target_of(group: ClassicGroup, member: ClassicMember, topics: TopicsView) -> Target:
    """Return the existing partitions of a member's assignment. Raises ProtocolError.

    Raises RefusalError if the assignor has added data: the broker's assignors would lose it.
    """
    if not member.assignment:
        return {}
    assignment = decode_assignment(member.assignment)
    if assignment.user_data:
        raise _refused(
            group,
            "an unsupported custom assignor is in use. Please refer to the documentation or switch "
            "to a default assignor before re-attempting the upgrade.",
        )
    found: dict[bytes, frozenset[int]] = {}
    for each in assignment.assigned_partitions:
        topic_id, count = topics.topic_id(each.topic), topics.partition_count(each.topic)
        indexes = frozenset(index for index in each.partitions if 0 <= index < count)
        if topic_id is not None and indexes:
            found[topic_id] = found.get(topic_id, frozenset()) | indexes
    return found


def _refused(group: ClassicGroup, reason: str) -> RefusalError:
    return RefusalError(
        ErrorCode.GROUP_ID_NOT_FOUND,
        f"Cannot upgrade classic group {group.group_id} to consumer group because {reason}",
    )
