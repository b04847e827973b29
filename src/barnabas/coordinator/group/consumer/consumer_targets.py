"""Target assignments of consumer groups, and how a member moves towards its own (KIP-848).

Kafka: TargetAssignmentBuilder and CurrentAssignmentBuilder. A partition changes its owner in three
steps. The old owner gets an assignment without it and stays in its epoch (UNREVOKED_PARTITIONS). It
confirms the revocation with the partitions that it still owns. Only then can the new owner get the
partition; until then it waits in its target epoch (UNRELEASED_PARTITIONS). So a partition never has
two owners.

| state | condition | next step |
|---|---|---|
| STABLE | the target has another epoch | compute the next assignment |
| STABLE | the subscription has changed | revoke topics that are not subscribed |
| UNREVOKED_PARTITIONS | the client has revoked | compute the next assignment |
| UNREVOKED_PARTITIONS | the subscription has changed | revoke topics that are not subscribed |
| UNRELEASED_PARTITIONS | always | compute the next assignment |
| UNKNOWN | the client owns nothing | compute the next assignment, in the target epoch |
| UNKNOWN | the client owns partitions | fence the member |
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import msgspec

from barnabas.coordinator.group.consumer.consumer_assignors import assign_ranges, assign_uniformly
from barnabas.coordinator.group.consumer.consumer_group import (
    ConsumerGroup,
    ConsumerMember,
    MemberState,
)
from barnabas.coordinator.group.consumer.consumer_records import target_epoch_record, target_record
from barnabas.coordinator.group.replayed_group import advanced
from barnabas.coordinator.group.targets import (
    STEP,
    AssignorInput,
    MemberInput,
    SlicedTargets,
    differing,
    is_large,
)
from barnabas.coordinator.group.topics import NOTHING, NOTHING_OWNED, Owned, Target, target_of
from barnabas.waiting.steps import run_to_end

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Mapping, Set as AbstractSet
    from typing import TypeAlias

    from barnabas.coordinator.group.consumer.consumer_shard import ConsumerShard
    from barnabas.coordinator.group.targets import Assigning, GroupCopy
    from barnabas.coordinator.group.topics import TopicsView

    _Copy: TypeAlias = GroupCopy[ConsumerGroup, ConsumerMember, Target]


# Kafka's assignors; the first one is the default.
ASSIGNORS: Mapping[str, Callable[[AssignorInput], Assigning]] = {
    "uniform": assign_uniformly,
    "range": assign_ranges,
}


class TargetInput(msgspec.Struct, frozen=True):
    """The state of a group from which its target assignment is computed."""

    group: ConsumerGroup
    members: Mapping[str, ConsumerMember]
    # The current target assignment by member id.
    known: Mapping[str, Target]
    is_homogeneous: bool

    @classmethod
    def of(cls, group: ConsumerGroup, changed: ConsumerMember) -> TargetInput:
        """Return a copy of the current state, in which one member has changed.

        Args:
            group: the group.
            changed: a member that is new or has changed. It may replace a static member.
        """
        members, known = dict(group.members), dict(group.targets)
        former = group.static_members.get(changed.instance_id or "")
        if former is not None and former != changed.member_id:
            before = members.pop(former, None)
            if former in known:
                known[changed.member_id] = known.pop(former)
        else:
            before = members.get(changed.member_id)
        members[changed.member_id] = changed
        is_homogeneous = len(members) == 1 or group.is_homogeneous_with(before, changed)
        return cls(group, members, known, is_homogeneous)

    def assign(self, assignor: str, topics: TopicsView) -> Assigning:
        """Return the new target assignment of all members. Yields.

        Args:
            assignor: the name of the assignor.
            topics: the topics of the cluster.
        """
        if len(self.members) == 1:
            return self._assign_all(topics)
        given = yield from self._given(topics)
        return (yield from ASSIGNORS[assignor](given))

    def _assign_all(self, topics: TopicsView) -> dict[str, Target]:
        """Return the target assignment of the only member, the same with all assignors."""
        ((member_id, member),) = self.members.items()
        counts: dict[bytes, int] = {}
        _existing(self.group, member, topics, counts)
        return {member_id: target_of({each: range(count) for each, count in counts.items()})}

    def _given(self, topics: TopicsView) -> Generator[None, None, AssignorInput]:
        topic_ids: dict[tuple[frozenset[str], str], frozenset[bytes]] = {}
        counts: dict[bytes, int] = {}
        inputs: dict[str, MemberInput] = {}
        for position, (member_id, member) in enumerate(self.members.items()):
            subscription = (member.subscribed_topic_names, member.subscribed_topic_regex)
            if subscription not in topic_ids:
                topic_ids[subscription] = _existing(self.group, member, topics, counts)
            inputs[member_id] = MemberInput(
                topic_ids[subscription], self.known.get(member_id, NOTHING), member.instance_id
            )
            if position % STEP == STEP - 1:
                yield
        return AssignorInput(inputs, counts, self.is_homogeneous)


def compute_targets(
    group: ConsumerGroup, changed: ConsumerMember, assignor: str, topics: TopicsView
) -> tuple[dict[str, Target], dict[str, Target]]:
    """Return the new target assignment of all members, and of those for which it changed.

    Args:
        group: the group.
        changed: a member that is new or has changed. It may replace a static member.
        assignor: the name of the assignor.
        topics: the topics of the cluster.
    """
    before = TargetInput.of(group, changed)
    found = run_to_end(before.assign(assignor, topics))
    return found, differing(found, before.known)


def _existing(
    group: ConsumerGroup, member: ConsumerMember, topics: TopicsView, counts: dict[bytes, int]
) -> frozenset[bytes]:
    """Return the ids of the existing topics of a subscription. Add their partition counts."""
    found: set[bytes] = set()
    for name in group.topics_of(member):
        topic_id = topics.topic_id(name)
        if topic_id is not None:
            found.add(topic_id)
            counts[topic_id] = topics.partition_count(name)
    return frozenset(found)


# A heartbeat computes the assignment of a group below this limit at once (see `is_large`). That
# takes a few milliseconds.
AT_ONCE_MAX = 1_000


class ConsumerTargets(SlicedTargets[ConsumerGroup, ConsumerMember, Target]):
    """The computations of the groups of one shard; at most one per group runs in slices."""

    __slots__ = ("_assignor_of", "_shard")

    def __init__(self, shard: ConsumerShard, assignor_of: Callable[[ConsumerGroup], str]) -> None:
        self._shard = shard
        # Returns the name of a group's assignor.
        self._assignor_of = assignor_of
        super().__init__(
            shard.groups, shard.timers, shard.clock, target_record, target_epoch_record
        )

    def is_large(self, group: ConsumerGroup, before: ConsumerMember, after: ConsumerMember) -> bool:
        """Whether the target assignment must be computed in slices.

        Args:
            group: the group.
            before: a member that changes or joins.
            after: the same member after the change.
        """
        names = partial(group.subscribed_names_with, before, after)
        return is_large(1 + len(group.members), names, self._shard.topics, AT_ONCE_MAX)

    def assign(self, copy: _Copy) -> Assigning:
        """Return the new targets. Yields."""
        group, assignor = copy.group, self._assignor_of(copy.group)
        is_homogeneous = group.is_homogeneous_with(None, None)
        before = TargetInput(group, copy.members, copy.known, is_homogeneous)
        yield
        return (yield from before.assign(assignor, self._shard.topics))


class Reconciliation(msgspec.Struct, frozen=True):
    """The target of a member, and the facts that decide its next step."""

    target_epoch: int
    target: Target
    # Ids of the existing topics to which the member subscribes, of those in its assignment and in
    # its target.
    subscribed_topic_ids: AbstractSet[bytes]
    has_subscription_changed: bool
    # Whether a member owns the partition (topic id, index).
    is_owned: Callable[[bytes, int], bool]
    # The partitions that the client reports as owned, or None if its request has none.
    reported: Mapping[bytes, AbstractSet[int]] | None


def reconcile(member: ConsumerMember, towards: Reconciliation) -> ConsumerMember | None:
    """Return the next state of a member, or None if the member must be fenced.

    The result is `member` itself if nothing changes.
    """
    match member.state:
        case MemberState.STABLE:
            if member.member_epoch != towards.target_epoch:
                return _next_assignment(member, member.member_epoch, towards)
            return _without_unsubscribed(member, towards)
        case MemberState.UNREVOKED_PARTITIONS:
            if _reports_any(member.pending_revocation, towards):
                return _without_unsubscribed(member, towards)
            return _next_assignment(member, member.member_epoch, towards)
        case MemberState.UNRELEASED_PARTITIONS:
            return _next_assignment(member, member.member_epoch, towards)
        case MemberState.UNKNOWN:
            if towards.reported is None or towards.reported:
                return None
            return _next_assignment(member, towards.target_epoch, towards)


def _reports_any(partitions: Owned, towards: Reconciliation) -> bool:
    """Whether the client still owns one of the partitions. Without a report, it does."""
    if towards.reported is None:
        return True
    return any(
        not partitions[topic_id].keys().isdisjoint(indexes)
        for topic_id, indexes in towards.reported.items()
        if topic_id in partitions
    )


def _without_unsubscribed(member: ConsumerMember, towards: Reconciliation) -> ConsumerMember:
    """Revoke topics that a changed subscription no longer contains."""
    if not towards.has_subscription_changed:
        return member
    subscribed = towards.subscribed_topic_ids
    dropped = {
        topic_id: indexes
        for topic_id, indexes in member.assigned.items()
        if topic_id not in subscribed
    }
    if not dropped:
        return member
    assigned = {
        topic_id: indexes for topic_id, indexes in member.assigned.items() if topic_id in subscribed
    }
    pending = dict(member.pending_revocation)
    for topic_id, indexes in dropped.items():
        pending[topic_id] = {**pending.get(topic_id, {}), **indexes}
    if _reports_any(pending, towards):
        return advanced(
            member, MemberState.UNREVOKED_PARTITIONS, member.member_epoch, assigned, pending
        )
    # The client has already revoked them.
    return advanced(member, member.state, member.member_epoch, assigned, member.pending_revocation)


def _next_assignment(member: ConsumerMember, epoch: int, towards: Reconciliation) -> ConsumerMember:
    """Return the member after the next step.

    Args:
        member: the member.
        epoch: the member's epoch if it must first revoke partitions.
        towards: the target.
    """
    kept: dict[bytes, dict[int, int]] = {}
    revoked: dict[bytes, dict[int, int]] = {}
    for topic_id, owned in member.assigned.items():
        target = _target_partitions(topic_id, towards)
        for partition, assigned_epoch in owned.items():
            chosen = kept if partition in target else revoked
            chosen.setdefault(topic_id, {})[partition] = assigned_epoch
    if revoked and _reports_any(revoked, towards):
        return advanced(member, MemberState.UNREVOKED_PARTITIONS, epoch, kept, revoked)
    has_unreleased = False
    for topic_id in towards.target:
        target = _target_partitions(topic_id, towards)
        own_pending = member.pending_revocation.get(topic_id, {})
        for partition in sorted(target - kept.get(topic_id, {}).keys()):
            # The member itself may still be the owner, if it has just revoked the partition.
            if towards.is_owned(topic_id, partition) and partition not in own_pending:
                has_unreleased = True
            else:
                kept.setdefault(topic_id, {})[partition] = towards.target_epoch
    state = MemberState.UNRELEASED_PARTITIONS if has_unreleased else MemberState.STABLE
    return advanced(member, state, towards.target_epoch, kept, NOTHING_OWNED)


def _target_partitions(topic_id: bytes, towards: Reconciliation) -> frozenset[int]:
    """Return the target partitions of a topic; none if the member does not subscribe to it."""
    if topic_id not in towards.subscribed_topic_ids:
        return frozenset()
    return towards.target.get(topic_id, frozenset())
