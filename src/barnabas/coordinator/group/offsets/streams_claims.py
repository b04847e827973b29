"""Whether members of streams groups may commit and fetch offsets now (KIP-1071)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from barnabas.coordinator.group.offsets.offsets_to_commit import OffsetsToCommit
    from barnabas.coordinator.group.streams.members.streams_member import StreamsMember
    from barnabas.coordinator.group.streams.streams_group import StreamsGroup

# The first version of OffsetCommit that can carry a member epoch.
_MEMBER_EPOCH_SINCE = 9


def check_streams_commit(group: StreamsGroup, request: OffsetsToCommit) -> ErrorCode:
    """Return whether the offsets may be committed.

    In an empty group, every client without a membership may commit. A member may also commit with
    an older epoch, if it has had all of the active tasks since then.
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
    if not request.is_transactional and request.version < _MEMBER_EPOCH_SINCE:
        return ErrorCode.UNSUPPORTED_VERSION
    if claim.generation_id == member.member_epoch:
        return ErrorCode.NONE
    if claim.generation_id < member.member_epoch and all(
        _has_run_since(group, member, claim.generation_id, *key) for key, _ in request.offsets
    ):
        return ErrorCode.NONE
    is_known = request.knows_member_epochs
    return ErrorCode.STALE_MEMBER_EPOCH if is_known else ErrorCode.ILLEGAL_GENERATION


def _has_run_since(
    group: StreamsGroup, member: StreamsMember, epoch: int, topic: str, partition: int
) -> bool:
    """Whether the member got the task in that epoch or before, and has not released it."""
    topology = group.topology
    subtopology = None if topology is None else topology.subtopology_of.get(topic)
    if subtopology is None:
        return False
    for tasks in (member.assigned, member.pending_revocation):
        assigned_epoch = tasks.active.get(subtopology, {}).get(partition)
        if assigned_epoch is not None:
            return assigned_epoch <= epoch
    return False


def check_streams_fetch(group: StreamsGroup, member_id: str | None, member_epoch: int) -> ErrorCode:
    """Return whether the client may fetch offsets. Clients without a membership may."""
    if member_id is None and member_epoch < 0:
        return ErrorCode.NONE
    member = group.members.get(member_id or "")
    if member is None:
        return ErrorCode.UNKNOWN_MEMBER_ID
    is_current = member_epoch == member.member_epoch
    return ErrorCode.NONE if is_current else ErrorCode.STALE_MEMBER_EPOCH
