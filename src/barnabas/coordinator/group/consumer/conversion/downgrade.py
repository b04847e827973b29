"""Consumer groups become classic groups again (Kafka: ClassicGroup.fromConsumerGroup).

A group is converted when the last member of the consumer protocol leaves, or when a static member
of the classic protocol replaces it. The group changes at once, before its records are committed,
since its rebalance starts at once. If the log rejects the records, the consumer group comes back.
"""

from __future__ import annotations

import logging
from functools import partial
from typing import TYPE_CHECKING

import msgspec

from barnabas.coordinator.group.assignment import NOTHING
from barnabas.coordinator.group.classic.classic_group import CONSUMER_PROTOCOL_TYPE, ClassicGroup
from barnabas.coordinator.group.classic.classic_member import (
    ClassicMember,
    MemberIdentity,
    MemberTimes,
)
from barnabas.coordinator.group.classic.embedded_protocol import encode_assignment, read_version
from barnabas.coordinator.group.classic.group_record import group_record
from barnabas.coordinator.group.classic.group_state import GroupState
from barnabas.coordinator.group.consumer.consumer_records import group_tombstones
from barnabas.coordinator.group.consumer.conversion.conversion_size import fits
from barnabas.coordinator.runtime.responses.append_errors import client_error
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.protocol_error import ProtocolError

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from barnabas.coordinator.group.assignment import Target
    from barnabas.coordinator.group.classic.rebalance import Rebalance
    from barnabas.coordinator.group.consumer.consumer_group import ConsumerGroup
    from barnabas.coordinator.group.consumer.consumer_shard import ConsumerShard
    from barnabas.coordinator.group.consumer.members.consumer_member import ConsumerMember
    from barnabas.coordinator.group.group_map import GroupMap
    from barnabas.coordinator.group.migration_policy import MigrationPolicy
    from barnabas.coordinator.group.topics_view import TopicsView
    from barnabas.coordinator.runtime.coordinator_record import CoordinatorRecord

_log = logging.getLogger(__name__)

# After these errors the records are in the log, and they may still be committed.
_MAYBE_COMMITTED = frozenset(
    {ErrorCode.REQUEST_TIMED_OUT, ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND}
)


class Departure(msgspec.Struct, frozen=True):
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

    def is_due(self, group: ConsumerGroup, departure: Departure) -> bool:
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
        self, group: ConsumerGroup, records: list[CoordinatorRecord], departure: Departure
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
        self, group: ConsumerGroup, departure: Departure, replacements: dict[str, str]
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


def _members_after(group: ConsumerGroup, departure: Departure) -> list[ConsumerMember]:
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
