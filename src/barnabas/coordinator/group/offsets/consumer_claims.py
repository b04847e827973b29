"""Whether members of consumer groups may commit and fetch offsets now (KIP-848, KIP-1251)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from barnabas.coordinator.group.consumer.consumer_group import ConsumerGroup
    from barnabas.coordinator.group.consumer.members.consumer_member import ConsumerMember
    from barnabas.coordinator.group.offsets.offsets_to_commit import OffsetsToCommit

# The first version of OffsetCommit that can carry a member epoch.
_MEMBER_EPOCH_SINCE = 9


def check_consumer_commit(group: ConsumerGroup, request: OffsetsToCommit) -> ErrorCode:
    """Return whether the offsets may be committed.

    In an empty group, every client without a membership may commit. A member may also commit with
    an older epoch, if it has owned all of the partitions since then. The generation of a member of
    the classic protocol is its member epoch.
    """
    claim = request.claim
    if claim.generation_id < 0 and not group.members:
        return ErrorCode.NONE
    has_no_claim = claim.member_id == "" and claim.group_instance_id is None
    if request.is_transactional and claim.generation_id == -1 and has_no_claim:
        return ErrorCode.NONE
    member = group.members.get(claim.member_id)
    if member is None:
        return ErrorCode.UNKNOWN_MEMBER_ID
    needs_member_epoch = not (request.is_transactional or member.uses_classic_protocol)
    if needs_member_epoch and request.version < _MEMBER_EPOCH_SINCE:
        return ErrorCode.UNSUPPORTED_VERSION
    if claim.generation_id == member.member_epoch:
        return ErrorCode.NONE
    is_valid = claim.generation_id < member.member_epoch and all(
        _has_owned_since(member, claim.generation_id, committed.topic_id, partition)
        for (_, partition), committed in request.offsets
    )
    if is_valid:
        return ErrorCode.NONE
    return _stale_epoch(member) if request.knows_member_epochs else ErrorCode.ILLEGAL_GENERATION


def _stale_epoch(member: ConsumerMember) -> ErrorCode:
    """Return the error for another epoch than the member's, by its protocol."""
    if member.uses_classic_protocol:
        return ErrorCode.ILLEGAL_GENERATION
    return ErrorCode.STALE_MEMBER_EPOCH


def _has_owned_since(member: ConsumerMember, epoch: int, topic_id: bytes, partition: int) -> bool:
    """Whether the member got the partition in that epoch or before, and still owns it."""
    for partitions in (member.assigned, member.pending_revocation):
        assigned_epoch = partitions.get(topic_id, {}).get(partition)
        if assigned_epoch is not None:
            return assigned_epoch <= epoch
    return False


def check_consumer_fetch(
    group: ConsumerGroup, member_id: str | None, member_epoch: int
) -> ErrorCode:
    """Return whether the client may fetch offsets. Clients without a membership may."""
    if member_id is None and member_epoch < 0:
        return ErrorCode.NONE
    member = group.members.get(member_id or "")
    if member is None:
        return ErrorCode.UNKNOWN_MEMBER_ID
    return ErrorCode.NONE if member_epoch == member.member_epoch else _stale_epoch(member)
