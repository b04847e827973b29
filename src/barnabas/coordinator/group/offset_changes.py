"""Commits and deletions of offsets in one state partition (Kafka: OffsetMetadataManager)."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

import msgspec

from barnabas.coordinator.group.classic.classic_group import ClassicGroup, GroupState
from barnabas.coordinator.group.consumer.consumer_group import ConsumerGroup, ConsumerMember
from barnabas.coordinator.group.offset_store import offset_tombstone
from barnabas.coordinator.group.streams.streams_group import StreamsGroup
from barnabas.coordinator.group.streams.task_reconciliation import StreamsMember
from barnabas.coordinator.runtime.coordinator_record import CoordinatorResult
from barnabas.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from barnabas.coordinator.group.classic.rebalance import Rebalance
    from barnabas.coordinator.group.group_base import GroupMetrics
    from barnabas.coordinator.group.group_map import GroupMap
    from barnabas.coordinator.group.offset_store import CommittedOffset, OffsetStore, PartitionKey
    from barnabas.coordinator.runtime.coordinator_record import CoordinatorRecord


# TxnOffsetCommit has the errors of groups with member epochs since its version 6.
_TRANSACTIONAL_SINCE = 10


class MemberClaim(msgspec.Struct, frozen=True):
    """The member that a request claims to come from."""

    group_id: str
    # Empty if the client is not a member.
    member_id: str = ""
    # Generation or member epoch. -1 if the client is not a member.
    generation_id: int = -1
    group_instance_id: str | None = None


class OffsetsToCommit(msgspec.Struct, frozen=True):
    """The offsets of one request for one group. All topics exist and have names."""

    claim: MemberClaim
    # A partition that the request has twice is in the list twice.
    offsets: list[tuple[PartitionKey, CommittedOffset]]
    # The version of the OffsetCommit request. TxnOffsetCommit has the one with the same topics: 10
    # from its version 6 on, or 9.
    version: int
    # Whether the offsets are committed with a transaction (TxnOffsetCommit).
    is_transactional: bool = False

    @property
    def knows_member_epochs(self) -> bool:
        """Whether the client knows the errors about groups with member epochs (KIP-1319)."""
        return not self.is_transactional or self.version >= _TRANSACTIONAL_SINCE


M = TypeVar("M", ConsumerMember, StreamsMember)

# The first version of OffsetCommit that can carry a member epoch.
_MEMBER_EPOCH_SINCE = 9


def check_consumer_commit(group: ConsumerGroup, request: OffsetsToCommit) -> ErrorCode:
    """Return whether the offsets may be committed to a consumer group, see `_check_commit`.

    The generation of a member of the classic protocol is its member epoch.
    """

    def has_owned_since(member: ConsumerMember, epoch: int) -> bool:
        held = (member.assigned, member.pending_revocation)
        return all(
            _is_assigned_since((each.get(committed.topic_id) for each in held), epoch, partition)
            for (_, partition), committed in request.offsets
        )

    return _check_commit(group.members, request, has_owned_since)


def check_streams_commit(group: StreamsGroup, request: OffsetsToCommit) -> ErrorCode:
    """Return whether the offsets may be committed to a streams group, see `_check_commit`."""
    subtopology_of = {} if group.topology is None else group.topology.subtopology_of

    def has_run_since(member: StreamsMember, epoch: int) -> bool:
        held = (member.assigned.active, member.pending_revocation.active)
        return all(
            topic in subtopology_of
            and _is_assigned_since(
                (each.get(subtopology_of[topic]) for each in held), epoch, partition
            )
            for (topic, partition), _ in request.offsets
        )

    return _check_commit(group.members, request, has_run_since)


def _check_commit(
    members: Mapping[str, M], request: OffsetsToCommit, has_held_since: Callable[[M, int], bool]
) -> ErrorCode:
    """Return whether the offsets may be committed.

    In an empty group, every client without a membership may commit. A member may also commit with
    an older epoch, if it has held all of the partitions or active tasks since then.
    """
    claim = request.claim
    if claim.generation_id < 0 and not members:
        return ErrorCode.NONE
    has_no_claim = claim.member_id == "" and claim.group_instance_id is None
    if request.is_transactional and claim.generation_id == -1 and has_no_claim:
        return ErrorCode.NONE
    member = members.get(claim.member_id)
    if member is None:
        return ErrorCode.UNKNOWN_MEMBER_ID
    needs_member_epoch = not (request.is_transactional or _uses_classic_protocol(member))
    if needs_member_epoch and request.version < _MEMBER_EPOCH_SINCE:
        return ErrorCode.UNSUPPORTED_VERSION
    if claim.generation_id == member.member_epoch:
        return ErrorCode.NONE
    if claim.generation_id < member.member_epoch and has_held_since(member, claim.generation_id):
        return ErrorCode.NONE
    return _stale_epoch(member) if request.knows_member_epochs else ErrorCode.ILLEGAL_GENERATION


def check_fetch(
    group: ConsumerGroup | StreamsGroup, member_id: str | None, member_epoch: int
) -> ErrorCode:
    """Return whether the client may fetch offsets. Clients without a membership may."""
    if member_id is None and member_epoch < 0:
        return ErrorCode.NONE
    member = group.members.get(member_id or "")
    if member is None:
        return ErrorCode.UNKNOWN_MEMBER_ID
    return ErrorCode.NONE if member_epoch == member.member_epoch else _stale_epoch(member)


def _is_assigned_since(
    held: Iterable[Mapping[int, int] | None], epoch: int, partition: int
) -> bool:
    """Whether the partition was assigned in that epoch or before, and has not been given up.

    Args:
        held: the epochs of assigned partitions and of those that the member must give up.
        epoch: the epoch.
        partition: the partition.
    """
    for epochs in held:
        assigned_epoch = None if epochs is None else epochs.get(partition)
        if assigned_epoch is not None:
            return assigned_epoch <= epoch
    return False


def _uses_classic_protocol(member: ConsumerMember | StreamsMember) -> bool:
    return isinstance(member, ConsumerMember) and member.uses_classic_protocol


def _stale_epoch(member: ConsumerMember | StreamsMember) -> ErrorCode:
    """Return the error for another epoch than the member's, by its protocol."""
    if _uses_classic_protocol(member):
        return ErrorCode.ILLEGAL_GENERATION
    return ErrorCode.STALE_MEMBER_EPOCH


# GROUP_ID_NOT_FOUND exists since this version of OffsetCommit.
_GROUP_ID_NOT_FOUND_SINCE = 9


class OffsetChanges:
    """Creates the records of OffsetCommit and OffsetDelete. Their replay changes the offsets."""

    __slots__ = ("_groups", "_metadata_length_max", "_metrics", "_offsets", "_rebalance")

    def __init__(
        self,
        groups: GroupMap,
        offsets: OffsetStore,
        rebalance: Rebalance,
        metrics: GroupMetrics,
        metadata_length_max: int,
    ) -> None:
        self._groups = groups
        self._offsets = offsets
        # Restarts the session of a member that commits.
        self._rebalance = rebalance
        self._metrics = metrics
        # offset.metadata.max.bytes, which Kafka compares with a number of UTF-16 code units.
        self._metadata_length_max = metadata_length_max

    def commit(self, request: OffsetsToCommit) -> CoordinatorResult[list[ErrorCode]]:
        """Return the records of the valid offsets, and one error code for each offset."""
        error = self._check(request)
        if error is not ErrorCode.NONE:
            return CoordinatorResult([error] * len(request.offsets))
        errors: list[ErrorCode] = []
        records: list[CoordinatorRecord] = []
        for key, committed in request.offsets:
            if java_length(committed.metadata) > self._metadata_length_max:
                errors.append(ErrorCode.OFFSET_METADATA_TOO_LARGE)
                continue
            errors.append(ErrorCode.NONE)
            records.append(committed.to_record(request.claim.group_id, *key))
        self._metrics.offset_commits += len(records)
        return CoordinatorResult(errors, records)

    def _check(self, request: OffsetsToCommit) -> ErrorCode:
        group = self._groups.find(request.claim.group_id)
        if isinstance(group, ConsumerGroup):
            return check_consumer_commit(group, request)
        if isinstance(group, StreamsGroup):
            return check_streams_commit(group, request)
        if group is not None and not isinstance(group, ClassicGroup):
            # Share groups commit no offsets.
            return ErrorCode.GROUP_ID_NOT_FOUND
        if request.is_transactional:
            return _check_transactional_claim(group, request)
        return self._check_claim(group, request)

    def _check_claim(self, group: ClassicGroup | None, request: OffsetsToCommit) -> ErrorCode:
        """Return whether the member may commit now.

        In an empty group, every client without a membership may commit.
        """
        claim = request.claim
        if group is None:
            if claim.generation_id < 0:
                return ErrorCode.NONE
            if request.version >= _GROUP_ID_NOT_FOUND_SINCE:
                return ErrorCode.GROUP_ID_NOT_FOUND
            return ErrorCode.ILLEGAL_GENERATION
        if claim.generation_id < 0 and group.is_in(GroupState.EMPTY):
            return ErrorCode.NONE
        error = group.check_member(claim.member_id, claim.group_instance_id)
        if error is not ErrorCode.NONE:
            return error
        if claim.generation_id != group.generation_id:
            return ErrorCode.ILLEGAL_GENERATION
        if group.is_in(GroupState.COMPLETING_REBALANCE):
            return ErrorCode.REBALANCE_IN_PROGRESS
        # A commit counts as a heartbeat.
        self._rebalance.restart_session(group, group.members[claim.member_id])
        return ErrorCode.NONE

    def delete(
        self, group_id: str, keys: list[PartitionKey]
    ) -> CoordinatorResult[dict[PartitionKey, ErrorCode] | ErrorCode]:
        """Handle OffsetDelete. Offsets of subscribed topics are kept; staged ones are removed too.

        Returns:
            An error code per partition, or one for all.
        """
        group = self._groups.find_with_offsets(group_id)
        if group is None:
            return CoordinatorResult(ErrorCode.GROUP_ID_NOT_FOUND)
        if isinstance(group, ClassicGroup) and group.has_members and not group.is_of_consumers:
            # The subscriptions of other protocols are unknown.
            return CoordinatorResult(ErrorCode.NON_EMPTY_GROUP)
        committed = self._offsets.latest(group_id)
        staged = self._offsets.staged(group_id)
        errors: dict[PartitionKey, ErrorCode] = {}
        records: list[CoordinatorRecord] = []
        for key in keys:
            if group.is_subscribed_to(key[0]):
                errors[key] = ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC
            else:
                if (key in committed or key in staged) and key not in errors:
                    records.append(offset_tombstone(group_id, *key))
                errors[key] = ErrorCode.NONE
        self._metrics.offset_deletions += len(records)
        return CoordinatorResult(errors, records)

    def delete_all(self, group_id: str) -> list[CoordinatorRecord]:
        """Return the records that remove all offsets of a deleted group, also staged ones."""
        keys = {**self._offsets.latest(group_id), **self._offsets.staged(group_id)}
        records = [offset_tombstone(group_id, *key) for key in keys]
        self._metrics.offset_deletions += len(records)
        return records


def _check_transactional_claim(group: ClassicGroup | None, request: OffsetsToCommit) -> ErrorCode:
    """Return whether the member may commit with a transaction now (KIP-447).

    A producer without group metadata may commit always.
    """
    claim = request.claim
    if group is None:
        if claim.generation_id < 0:
            return ErrorCode.NONE
        if request.knows_member_epochs:
            return ErrorCode.GROUP_ID_NOT_FOUND
        return ErrorCode.ILLEGAL_GENERATION
    names_member = claim.member_id != "" or claim.group_instance_id is not None
    if claim.generation_id < 0 and (not names_member or group.is_in(GroupState.EMPTY)):
        return ErrorCode.NONE
    error = group.check_member(claim.member_id, claim.group_instance_id)
    if error is not ErrorCode.NONE:
        return error
    if claim.generation_id != group.generation_id:
        return ErrorCode.ILLEGAL_GENERATION
    return ErrorCode.NONE


def java_length(text: str) -> int:
    """Return the length in UTF-16 code units, as Java counts."""
    if text.isascii():
        return len(text)
    return len(text.encode("utf-16-be", "surrogatepass")) // 2
