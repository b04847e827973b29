"""Classic groups with members become consumer groups (Kafka: ConsumerGroup.fromClassicGroup).

The first ConsumerGroupHeartbeat that joins converts the group. The members keep their partitions,
and continue with JoinGroup, SyncGroup and Heartbeat (`classic_members`). The generation becomes the
group epoch and the epoch of each member.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from barnabas.coordinator.group.assignment import target_of
from barnabas.coordinator.group.classic.classic_group import failed_join
from barnabas.coordinator.group.classic.embedded_protocol import (
    decode_assignment,
    decode_subscription,
)
from barnabas.coordinator.group.classic.group_record import group_tombstone
from barnabas.coordinator.group.consumer.consumer_group import ConsumerGroup
from barnabas.coordinator.group.consumer.consumer_records import group_records
from barnabas.coordinator.group.consumer.conversion.conversion_size import fits
from barnabas.coordinator.group.consumer.members.classic_metadata import ClassicMetadata
from barnabas.coordinator.group.consumer.members.consumer_member import ConsumerMember
from barnabas.coordinator.group.group_memory import GroupMemory
from barnabas.coordinator.group.refusal import RefusalError
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.protocol_error import ProtocolError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from barnabas.coordinator.group.assignment import Target
    from barnabas.coordinator.group.classic.classic_group import ClassicGroup
    from barnabas.coordinator.group.classic.classic_member import ClassicMember
    from barnabas.coordinator.group.consumer.consumer_shard import ConsumerShard
    from barnabas.coordinator.group.migration_policy import MigrationPolicy
    from barnabas.coordinator.group.topics_view import TopicsView
    from barnabas.coordinator.runtime.coordinator_record import CoordinatorRecord
    from barnabas.protocol.records.consumer_protocol_subscription import (
        ConsumerProtocolSubscription,
    )

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
            raise _refused(group, "a subscription or an assignment is malformed.") from None
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
            raise _refused(group, "group.consumer.migration.policy does not allow it.")
        if not group.is_of_consumers:
            raise _refused(group, "its members do not use the protocol of consumers.")
        if len(group.members) > self._shard.config.group_consumer_max_size:
            raise _refused(group, "it has more members than group.consumer.max.size.")
        sizes = (
            (member.id, sum(map(len, member.protocols.values())))
            for member in group.members.values()
        )
        if not fits(group.group_id, sizes):
            # The error that follows if the log rejects a batch for its size.
            raise RefusalError(
                ErrorCode.UNKNOWN_SERVER_ERROR,
                f"The records of group {group.group_id} do not fit into a batch.",
            )

    def _converted(self, group: ClassicGroup) -> ConsumerGroup:
        """Return the consumer group. Raises ProtocolError or RefusalError."""
        # The group in the shard is made by the replay of the records, which counts its memory.
        converted = ConsumerGroup(group.group_id, GroupMemory())
        converted.group_epoch = converted.assignment_epoch = group.generation_id
        subscriptions = {
            member.id: decode_subscription(_metadata(group, member))
            for member in group.members.values()
        }
        targets = _targets(group, subscriptions, self._shard.topics)
        for member in group.members.values():
            converted.targets[member.id] = targets[member.id]
            converted.put(_member_of(group, member, subscriptions[member.id], targets[member.id]))
        names = converted.subscribed_names()
        converted.metadata_hash = self._shard.hashes.of_topics(names)
        return converted


def _metadata(group: ClassicGroup, member: ClassicMember) -> bytes:
    """Return the subscription of the selected protocol.

    If the first generation has not started yet, no protocol is selected, and the member's first one
    counts.
    """
    found = member.protocols.get(group.protocol_name or "")
    return next(iter(member.protocols.values())) if found is None else found


def _member_of(
    group: ClassicGroup,
    member: ClassicMember,
    subscription: ConsumerProtocolSubscription,
    target: Target,
) -> ConsumerMember:
    """Return the member of the consumer group. It has reached its target."""
    epoch, identity = group.generation_id, member.identity
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
        classic=ClassicMetadata(member.times.session_timeout_ms, tuple(member.protocols.items())),
    )


def _targets(
    group: ClassicGroup,
    subscriptions: Mapping[str, ConsumerProtocolSubscription],
    topics: TopicsView,
) -> dict[str, Target]:
    """Return the partitions of each member: those of its assignment.

    A rebalance that starts before the last one has ended removes the assignments. Cooperative
    members still use the partitions that they have reported by JoinGroup, and keep them. Kafka
    gives these partitions to other members at once.

    Raises:
        ProtocolError: an assignment is unreadable.
        RefusalError: an assignor has added data, which the broker's assignors would lose.
    """
    found: dict[str, Target] = {}
    taken: set[tuple[bytes, int]] = set()
    for member in group.members.values():
        if member.assignment:
            assignment = decode_assignment(member.assignment)
            if assignment.user_data:
                raise _refused(
                    group,
                    "the assignment of a member has data of an assignor that the broker does not"
                    " have: use an assignor of Apache Kafka's clients first.",
                )
            named = [(each.topic, each.partitions) for each in assignment.assigned_partitions]
            found[member.id] = _existing(named, topics)
            taken |= _pairs(found[member.id])
    # Of two members that report a partition, the one with the newer generation has it.
    for member_id in sorted(subscriptions, key=lambda each: -subscriptions[each].generation_id):
        if member_id in found:
            continue
        named = [
            (each.topic, each.partitions) for each in subscriptions[member_id].owned_partitions
        ]
        owned: dict[bytes, set[int]] = {}
        for topic_id, index in _pairs(_existing(named, topics)) - taken:
            owned.setdefault(topic_id, set()).add(index)
        found[member_id] = target_of(owned)
        taken |= _pairs(found[member_id])
    return found


def _existing(named: Iterable[tuple[str, Iterable[int]]], topics: TopicsView) -> Target:
    """Return the partitions that exist, by topic id."""
    found: dict[bytes, set[int]] = {}
    for name, indexes in named:
        topic_id, count = topics.topic_id(name), topics.partition_count(name)
        if topic_id is not None:
            existing = (index for index in indexes if 0 <= index < count)
            found.setdefault(topic_id, set()).update(existing)
    return target_of(found)


def _pairs(target: Target) -> set[tuple[bytes, int]]:
    return {(topic_id, index) for topic_id, indexes in target.items() for index in indexes}


def _refused(group: ClassicGroup, reason: str) -> RefusalError:
    return RefusalError(
        ErrorCode.GROUP_ID_NOT_FOUND,
        f"Classic group {group.group_id} cannot become a consumer group: {reason}",
    )
