"""Conversion of groups from the classic to the consumer protocol, and back (KIP-848).

`Upgrade` (Kafka: ConsumerGroup.fromClassicGroup): the first ConsumerGroupHeartbeat that joins
converts a classic group with members. The members keep their partitions, and continue with
JoinGroup, SyncGroup and Heartbeat (`classic_members`). The generation becomes the group epoch and
the epoch of each member.

`Downgrade` (Kafka: ClassicGroup.fromConsumerGroup): a consumer group is converted when the last
member of the consumer protocol leaves, or when a static member of the classic protocol replaces it.
The group changes at once, before its records are committed, since its rebalance starts at once. If
the log rejects the records, the consumer group comes back.
"""

from __future__ import annotations

import logging
from functools import partial
from typing import TYPE_CHECKING

import msgspec

from barnabas.coordinator.group.classic.classic_group import (
    CONSUMER_PROTOCOL_TYPE,
    ClassicGroup,
    GroupState,
    failed_join,
)
from barnabas.coordinator.group.classic.classic_member import (
    ClassicMember,
    MemberIdentity,
    MemberTimes,
    decode_assignment,
    decode_subscription,
    encode_assignment,
    read_version,
)
from barnabas.coordinator.group.classic.group_record import group_record, group_tombstone
from barnabas.coordinator.group.consumer.consumer_group import (
    ClassicMetadata,
    ConsumerGroup,
    ConsumerMember,
)
from barnabas.coordinator.group.consumer.consumer_records import group_records, group_tombstones
from barnabas.coordinator.group.group_base import GroupMemory, RefusalError
from barnabas.coordinator.group.topics import NOTHING, target_of
from barnabas.coordinator.runtime.responses import client_error
from barnabas.protocol.errors import ErrorCode, ProtocolError

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping

    from barnabas.coordinator.group.classic.rebalance import Rebalance
    from barnabas.coordinator.group.consumer.consumer_shard import ConsumerShard
    from barnabas.coordinator.group.group_config import MigrationPolicy
    from barnabas.coordinator.group.group_map import GroupMap
    from barnabas.coordinator.group.topics import Target, TopicsView
    from barnabas.coordinator.runtime.coordinator_record import CoordinatorRecord
    from barnabas.protocol.records.classic_groups import ConsumerProtocolSubscription


# Default limit of a batch of `__consumer_offsets`. The log rejects a larger conversion, which would
# take a long turn of the event loop.
CONVERSION_BYTES_MAX = 1 << 20
# Records of a member, and their bytes besides group id, member id and subscriptions.
_RECORDS, _RECORD_BYTES = 3, 20


def fits(group_id: str, members: Iterable[tuple[str, int]]) -> bool:
    """Whether the records of a conversion fit, by a lower estimate.

    Args:
        group_id: the group.
        members: the member ids, and the bytes of the subscriptions of each member.
    """
    total = 0
    for member_id, subscription_bytes in members:
        total += _RECORDS * (len(group_id) + len(member_id) + _RECORD_BYTES) + subscription_bytes
    return total <= CONVERSION_BYTES_MAX


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
        if len(group.members) > self._shard.size_max:
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


# After these errors the records are in the log, and they may still be committed.
_MAYBE_COMMITTED = frozenset(
    {ErrorCode.REQUEST_TIMED_OUT, ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND}
)


class LeavingMembers(msgspec.Struct, frozen=True):
    """The members of the consumer protocol that leave, and the state after them."""

    leaving: Collection[ConsumerMember] = ()
    # A static member of the classic protocol that replaces the last member of the consumer
    # protocol, with the same instance id. Earlier records of the batch have replaced it.
    joining: ConsumerMember | None = None
    # Whether the members must rejoin, since the target assignment is older than the group epoch.
    is_stale: bool = True


class Downgrade:
    """Converts the consumer groups of one shard."""

    __slots__ = ("_group_size_max", "_groups", "_policy", "_rebalance", "_shard")

    def __init__(
        self,
        policy: MigrationPolicy,
        group_size_max: int,
        shard: ConsumerShard,
        groups: GroupMap,
        rebalance: Rebalance,
    ) -> None:
        self._policy = policy
        # group.max.size.
        self._group_size_max = group_size_max
        self._shard = shard
        self._groups = groups
        self._rebalance = rebalance

    def is_due(self, group: ConsumerGroup, departure: LeavingMembers) -> bool:
        """Whether the group becomes a classic group when these members leave or are replaced."""
        joining = departure.joining
        if joining is None:
            leaving = departure.leaving
        else:
            replaced = group.static_member(joining.instance_id)
            if replaced is None or replaced.uses_classic_protocol:
                return False
            leaving = [replaced]
        if not group.has_only_classic_members_without(leaving):
            return False
        size = len(group.members) - len(leaving) + (joining is not None)
        return (
            self._policy.allows_downgrade
            and 0 < size <= self._group_size_max
            and _is_convertible(group, _members_after(group, departure))
        )

    def convert(
        self, group: ConsumerGroup, records: list[CoordinatorRecord], departure: LeavingMembers
    ) -> Callable[[ErrorCode], None]:
        """Replace the group, and append the records of the conversion, which are not replayed.

        Returns:
            A function to call with the result of the append.
        """
        joining = departure.joining
        replaced = None if joining is None else group.static_member(joining.instance_id)
        replacements = {}
        if joining is not None and replaced is not None:
            replacements[replaced.member_id] = joining.member_id
        converted = self._converted(group, departure, replacements)
        records += group_tombstones(group, replacements)
        assignments = {each.id: each.assignment for each in converted.members.values()}
        records.append(group_record(converted, assignments))
        bring_back = self._groups.replace(converted)
        for member in converted.members.values():
            self._rebalance.restart_session(converted, member)
        _log.info(
            "A group changes to the classic protocol: group=%s generation=%d members=%d",
            group.group_id,
            converted.generation_id,
            len(converted.members),
        )
        if departure.is_stale:
            result = self._rebalance.prepare(converted, "changed to the classic protocol")
            # No member has joined since the conversion.
            assert not result.records, f"group={group.group_id} records={result.records}"
        return partial(self._on_appended, converted, bring_back)

    def _converted(
        self, group: ConsumerGroup, departure: LeavingMembers, replacements: dict[str, str]
    ) -> ClassicGroup:
        now_ms = self._shard.clock.wall_ms()
        converted = ClassicGroup(group.group_id, GroupState.STABLE, now_ms, group.memory)
        converted.generation_id = group.group_epoch
        for member in _members_after(group, departure):
            converted.add(_classic_member(member))
        protocol = converted.protocol_name = converted.select_protocol()
        converted.compute_subscribed_topics()
        targets = {new: group.targets.get(old, NOTHING) for old, new in replacements.items()}
        for each in converted.members.values():
            target = targets.get(each.id, group.targets.get(each.id, NOTHING))
            version = read_version(each.protocols[protocol])
            each.assignment = encode_assignment(_by_name(target, self._shard.topics), version)
        return converted

    def _on_appended(
        self, converted: ClassicGroup, bring_back: Callable[[], None], error: ErrorCode
    ) -> None:
        if error is ErrorCode.NONE or error in _MAYBE_COMMITTED:
            return
        if self._groups.find(converted.group_id) is converted:
            self._groups.remove(converted, client_error(error))
            bring_back()


def _members_after(group: ConsumerGroup, departure: LeavingMembers) -> list[ConsumerMember]:
    """Return the members of the classic group."""
    gone = {each.member_id for each in departure.leaving}
    joining = departure.joining
    if joining is None:
        return [each for member_id, each in group.members.items() if member_id not in gone]
    gone |= {joining.member_id, group.static_members.get(joining.instance_id or "", "")}
    kept = [each for member_id, each in group.members.items() if member_id not in gone]
    return [*kept, joining]


def _is_convertible(group: ConsumerGroup, members: list[ConsumerMember]) -> bool:
    """Whether the members have a common protocol and readable subscriptions, and are not too many.

    JoinGroup checks the first of these. It reads only the subscription of the first protocol.
    """
    sizes = (
        (each.member_id, 0 if each.classic is None else each.classic.subscription_bytes)
        for each in members
    )
    if not fits(group.group_id, sizes):
        return False
    common: set[str] | None = None
    for member in members:
        if member.classic is None:
            return False
        names = {name for name, _ in member.classic.protocols}
        common = names if common is None else common & names
        try:
            for _, metadata in member.classic.protocols:
                read_version(metadata)
        except ProtocolError as error:
            _log.warning(
                "A group cannot change to the classic protocol: group=%s member=%s error=%s",
                group.group_id,
                member.member_id,
                error,
            )
            return False
    return bool(common)


def _classic_member(member: ConsumerMember) -> ClassicMember:
    assert member.classic is not None, f"member={member.member_id} uses the consumer protocol"
    return ClassicMember(
        MemberIdentity(
            member.member_id,
            member.instance_id,
            member.client_id,
            member.client_host,
            CONSUMER_PROTOCOL_TYPE,
        ),
        MemberTimes(member.classic.session_timeout_ms, member.rebalance_timeout_ms),
        dict(member.classic.protocols),
    )


def _by_name(target: Target, topics: TopicsView) -> dict[str, frozenset[int]]:
    """Return the partitions of existing topics, by topic name."""
    named = {topics.topic_name(topic_id): indexes for topic_id, indexes in target.items()}
    return {name: indexes for name, indexes in named.items() if name is not None}
