"""Commits and deletions of offsets in one state partition (Kafka's OffsetMetadataManager)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.coordinator.group.classic.classic_group import ClassicGroup
from barnabas.coordinator.group.classic.group_state import GroupState
from barnabas.coordinator.group.consumer.consumer_group import ConsumerGroup
from barnabas.coordinator.group.offsets.committed_offset import offset_tombstone
from barnabas.coordinator.group.offsets.consumer_claims import check_consumer_commit
from barnabas.coordinator.group.offsets.streams_claims import check_streams_commit
from barnabas.coordinator.group.streams.streams_group import StreamsGroup
from barnabas.coordinator.runtime.coordinator_result import CoordinatorResult
from barnabas.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from barnabas.coordinator.group.classic.rebalance import Rebalance
    from barnabas.coordinator.group.group_map import GroupMap
    from barnabas.coordinator.group.group_metrics import GroupMetrics
    from barnabas.coordinator.group.offsets.offset_store import OffsetStore, PartitionKey
    from barnabas.coordinator.group.offsets.offsets_to_commit import OffsetsToCommit
    from barnabas.coordinator.runtime.coordinator_record import CoordinatorRecord

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
