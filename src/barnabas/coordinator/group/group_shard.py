"""The groups of one partition of `__consumer_offsets` (Kafka's GroupCoordinatorShard).

It supports classic groups and committed offsets, and ignores records of other types.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from barnabas.coordinator.group.classic.classic_group import (
    NO_MEMBER_ID,
    ClassicGroup,
    failed_join,
    failed_sync,
)
from barnabas.coordinator.group.classic.group_record import (
    group_of,
    group_tombstone,
    new_group_record,
)
from barnabas.coordinator.group.classic.group_state import GroupState
from barnabas.coordinator.group.classic.membership import Membership
from barnabas.coordinator.group.classic.rebalance import Rebalance, append_error, nothing
from barnabas.coordinator.group.offsets.committed_offset import CommittedOffset, offset_tombstone
from barnabas.coordinator.group.offsets.offset_cleaner import OffsetCleaner
from barnabas.coordinator.group.offsets.offset_store import OffsetStore
from barnabas.coordinator.runtime.coordinator_result import CoordinatorResult
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.leave_group import MemberResponse
from barnabas.protocol.protocol_error import ProtocolError
from barnabas.protocol.record_frame import decode_coordinator_key, read_prefix
from barnabas.protocol.records.group_metadata import GroupMetadataKey
from barnabas.protocol.records.offset_commit import OffsetCommitKey
from barnabas.record.batch import NO_PRODUCER_ID

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from barnabas.coordinator.group.classic.group_memory import GroupMemory
    from barnabas.coordinator.group.classic.membership import Joining
    from barnabas.coordinator.group.classic.rebalance import Written
    from barnabas.coordinator.group.config import GroupCoordinatorConfig
    from barnabas.coordinator.group.group_metrics import GroupMetrics
    from barnabas.coordinator.group.offsets.offset_store import PartitionKey
    from barnabas.coordinator.runtime.coordinator_record import CoordinatorRecord
    from barnabas.coordinator.runtime.shard_timers import ShardTimers
    from barnabas.protocol.messages.heartbeat import HeartbeatRequest
    from barnabas.protocol.messages.leave_group import LeaveGroupRequest
    from barnabas.protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse
    from barnabas.runtime.clock import Clock
    from barnabas.runtime.rng import Rng

# Record types 0 and 1 both commit an offset. Type 0 is an older layout of the key.
_OFFSET_COMMIT_TYPES = frozenset({0, 1})
_GROUP_TYPE = 2


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
    # The version of the OffsetCommit request.
    version: int


class GroupShard:
    """The groups and committed offsets of one partition."""

    __slots__ = (
        "_cleaner",
        "_clock",
        "_config",
        "_membership",
        "_memory",
        "_metrics",
        "_rebalance",
        "groups",
        "offsets",
    )

    def __init__(
        self,
        config: GroupCoordinatorConfig,
        timers: ShardTimers,
        clock: Clock,
        rng: Rng,
        metrics: GroupMetrics,
        memory: GroupMemory,
    ) -> None:
        self._config = config
        self._clock = clock
        self._metrics = metrics
        self._memory = memory
        # All groups of this partition, including groups with only offsets.
        self.groups: dict[str, ClassicGroup] = {}
        self.offsets = OffsetStore()
        self._rebalance = Rebalance(config, timers, clock, metrics, self.groups.get)
        self._membership = Membership(self._rebalance, rng, config.group_max_size)
        self._cleaner = OffsetCleaner(config, timers, clock, metrics, self.groups, self.offsets)

    # Members.

    def join(self, joining: Joining) -> Written:
        """Handle JoinGroup. A request without a member id may create the group."""
        request = joining.request
        group = self.groups.get(request.group_id)
        if group is not None:
            return self._membership.join(group, joining)
        if request.member_id != NO_MEMBER_ID:
            joining.refuse(request.member_id, ErrorCode.UNKNOWN_MEMBER_ID)
            return nothing()
        group = self._new_group(request.group_id)
        result = self._membership.join(group, joining)
        assert not result.records, "a group begins without a generation"
        return CoordinatorResult(
            None,
            [new_group_record(group)],
            is_replayed=False,
            on_appended=lambda error: self._on_new_group_written(group, error),
        )

    def _new_group(self, group_id: str) -> ClassicGroup:
        group = ClassicGroup(group_id, GroupState.EMPTY, self._clock.wall_ms(), self._memory)
        self.groups[group_id] = group
        return group

    def _on_new_group_written(self, group: ClassicGroup, error: ErrorCode) -> None:
        """Remove a new group whose record could not be written."""
        if error is not ErrorCode.NONE and self.groups.get(group.group_id) is group:
            self._bury(group, append_error(error))

    def sync(
        self, request: SyncGroupRequest, respond: Callable[[SyncGroupResponse], None]
    ) -> Written:
        """Handle SyncGroup."""
        group = self.groups.get(request.group_id)
        if group is None:
            respond(failed_sync(ErrorCode.UNKNOWN_MEMBER_ID))
            return nothing()
        return self._membership.sync(group, request, respond)

    def heartbeat(self, request: HeartbeatRequest) -> CoordinatorResult[ErrorCode]:
        """Handle Heartbeat."""
        group = self.groups.get(request.group_id)
        if group is None:
            return CoordinatorResult(ErrorCode.UNKNOWN_MEMBER_ID)
        return CoordinatorResult(self._membership.heartbeat(group, request))

    def leave(self, request: LeaveGroupRequest) -> CoordinatorResult[list[MemberResponse]]:
        """Handle LeaveGroup."""
        group = self.groups.get(request.group_id)
        if group is not None:
            return self._membership.leave(group, request.members)
        return CoordinatorResult(
            [
                MemberResponse(
                    member_id=each.member_id,
                    group_instance_id=each.group_instance_id,
                    error_code=ErrorCode.UNKNOWN_MEMBER_ID,
                )
                for each in request.members
            ]
        )

    # Offsets.

    def commit_offsets(self, request: OffsetsToCommit) -> CoordinatorResult[list[ErrorCode]]:
        """Return the records of the valid offsets, and one error code for each offset."""
        error = self._check_claim(request.claim, request.version)
        if error is not ErrorCode.NONE:
            return CoordinatorResult([error] * len(request.offsets))
        errors: list[ErrorCode] = []
        records: list[CoordinatorRecord] = []
        for key, committed in request.offsets:
            if java_length(committed.metadata) > self._config.offset_metadata_max_bytes:
                errors.append(ErrorCode.OFFSET_METADATA_TOO_LARGE)
                continue
            errors.append(ErrorCode.NONE)
            records.append(committed.to_record(request.claim.group_id, *key))
        self._metrics.offset_commits += len(records)
        return CoordinatorResult(errors, records)

    def _check_claim(self, claim: MemberClaim, version: int) -> ErrorCode:
        """Return whether the member may commit now.

        In an empty group, every client without a membership may commit.
        """
        group = self.groups.get(claim.group_id)
        if group is None:
            if claim.generation_id < 0:
                return ErrorCode.NONE
            # GROUP_ID_NOT_FOUND exists since version 9.
            return ErrorCode.GROUP_ID_NOT_FOUND if version >= 9 else ErrorCode.ILLEGAL_GENERATION
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

    def delete_offsets(
        self, group_id: str, keys: list[PartitionKey]
    ) -> CoordinatorResult[dict[PartitionKey, ErrorCode] | ErrorCode]:
        """Handle OffsetDelete. Offsets of subscribed topics are kept.

        Returns:
            An error code per partition, or one for all.
        """
        group = self.groups.get(group_id)
        if group is None:
            return CoordinatorResult(ErrorCode.GROUP_ID_NOT_FOUND)
        if group.has_members and not group.is_of_consumers:
            # The subscriptions of other protocols are unknown.
            return CoordinatorResult(ErrorCode.NON_EMPTY_GROUP)
        committed = self.offsets.latest(group_id)
        errors: dict[PartitionKey, ErrorCode] = {}
        records: list[CoordinatorRecord] = []
        for key in keys:
            if group.is_subscribed_to(key[0]):
                errors[key] = ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC
            else:
                if key in committed and key not in errors:
                    records.append(offset_tombstone(group_id, *key))
                errors[key] = ErrorCode.NONE
        self._metrics.offset_deletions += len(records)
        return CoordinatorResult(errors, records)

    def delete_group(self, group_id: str) -> CoordinatorResult[ErrorCode]:
        """Handle DeleteGroups: remove a group without members, and its offsets."""
        group = self.groups.get(group_id)
        if group is None:
            return CoordinatorResult(ErrorCode.GROUP_ID_NOT_FOUND)
        if group.has_members:
            return CoordinatorResult(ErrorCode.NON_EMPTY_GROUP)
        records = [offset_tombstone(group_id, *key) for key in self.offsets.latest(group_id)]
        self._metrics.offset_deletions += len(records)
        return CoordinatorResult(ErrorCode.NONE, [*records, group_tombstone(group_id)])

    def forget_topics(self, topics: Mapping[str, bytes]) -> None:
        """Remove the committed offsets of deleted topics (ids by name)."""
        self._cleaner.forget_topics(topics)

    # Replay and lifecycle.

    def replay(
        self, offset: int, key: bytes, value: bytes | None, producer_id: int = NO_PRODUCER_ID
    ) -> None:
        """Apply one record. Raises ProtocolError."""
        record_type = read_prefix(key)
        if record_type in _OFFSET_COMMIT_TYPES:
            where = decode_coordinator_key(OffsetCommitKey, key)
            committed = None if value is None else CommittedOffset.decode(value)
            partition = (where.topic, where.partition)
            if producer_id == NO_PRODUCER_ID:
                self.offsets.put(offset, where.group, partition, committed)
            elif committed is not None:
                place = (where.group, partition)
                self.offsets.put_transactional(offset, producer_id, place, committed)
            if committed is not None and where.group not in self.groups:
                self._new_group(where.group)
        elif record_type == _GROUP_TYPE:
            self._replay_group(decode_coordinator_key(GroupMetadataKey, key).group, value)

    def replay_end_marker(self, offset: int, producer_id: int, is_commit: bool) -> None:
        """Commit or discard the offsets of an ended transaction."""
        self.offsets.end_transaction(offset, producer_id, is_commit)

    def _replay_group(self, group_id: str, value: bytes | None) -> None:
        if value is None:
            if group_id in self.groups:
                self._bury(self.groups[group_id], ErrorCode.UNKNOWN_MEMBER_ID)
            return
        try:
            group = group_of(group_id, value, self._memory)
        except ProtocolError:
            # The members of the generation are unknown. Keep the group without members and with its
            # offsets, so that live members can rejoin.
            if group_id in self.groups:
                self._bury(self.groups[group_id], ErrorCode.UNKNOWN_MEMBER_ID)
            self._new_group(group_id)
            raise
        known = self.groups.get(group_id)
        if known is not None:
            known.release()
        self.groups[group_id] = group

    def commit(self, end_offset: int) -> None:
        """Make all records below `end_offset` visible to reads."""
        self.offsets.commit(end_offset)

    def on_loaded(self) -> None:
        """Start the members' sessions. Rebalance groups that exceed group.max.size."""
        for group in self.groups.values():
            for member in group.members.values():
                self._rebalance.restart_session(group, member)
            if len(group.members) > self._config.group_max_size:
                result = self._rebalance.prepare(group, "loaded, and larger than group.max.size")
                assert not result.records, "nobody has joined a group that was just loaded"
        self._cleaner.start()

    def on_unloaded(self) -> None:
        """Fail all pending requests with NOT_COORDINATOR."""
        for group in list(self.groups.values()):
            self._bury(group, ErrorCode.NOT_COORDINATOR)

    def _bury(self, group: ClassicGroup, error: ErrorCode) -> None:
        group.transition_to(GroupState.DEAD, self._clock.wall_ms())
        del self.groups[group.group_id]
        group.release()
        for member in group.members.values():
            group.complete_join(member, failed_join(NO_MEMBER_ID, error))
            group.complete_sync(member, error)


def java_length(text: str) -> int:
    """Return the length in UTF-16 code units, as Java counts."""
    if text.isascii():
        return len(text)
    return len(text.encode("utf-16-be", "surrogatepass")) // 2
