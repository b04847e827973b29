"""Moves a member towards its target assignment (KIP-848; Kafka: CurrentAssignmentBuilder).

A partition changes its owner in three steps. The old owner gets an assignment without it and stays
in its epoch (UNREVOKED_PARTITIONS). It confirms the revocation with the partitions that it still
owns. Only then can the new owner get the partition; until then it waits in its target epoch
(UNRELEASED_PARTITIONS). So a partition never has two owners.

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

from typing import TYPE_CHECKING

import msgspec
from msgspec.structs import replace

from barnabas.coordinator.group.assignment import NOTHING_OWNED, Owned, Target
from barnabas.coordinator.group.consumer.consumer_group import MemberState

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Set as AbstractSet

    from barnabas.coordinator.group.consumer.consumer_group import ConsumerMember


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
        return _advanced(
            member, MemberState.UNREVOKED_PARTITIONS, member.member_epoch, assigned, pending
        )
    # The client has already revoked them.
    return _advanced(member, member.state, member.member_epoch, assigned, member.pending_revocation)


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
        return _advanced(member, MemberState.UNREVOKED_PARTITIONS, epoch, kept, revoked)
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
    return _advanced(member, state, towards.target_epoch, kept, NOTHING_OWNED)


def _target_partitions(topic_id: bytes, towards: Reconciliation) -> frozenset[int]:
    """Return the target partitions of a topic; none if the member does not subscribe to it."""
    if topic_id not in towards.subscribed_topic_ids:
        return frozenset()
    return towards.target.get(topic_id, frozenset())


def _advanced(
    member: ConsumerMember, state: MemberState, epoch: int, assigned: Owned, pending: Owned
) -> ConsumerMember:
    after = replace(
        member,
        state=state,
        member_epoch=epoch,
        previous_member_epoch=member.member_epoch,
        assigned=assigned,
        pending_revocation=pending,
    )
    return member if after == member else after
