"""The groups and offsets of one partition of `__consumer_offsets` (Kafka's GroupCoordinatorShard).

It has classic, consumer, share and streams groups and committed offsets. Requests call the parts of
the shard directly: `classic`, `consumers`, `shares` and `streams` for members,
`offset_changes` for commits and deletions, `share_state` and `share_offsets` for the state of share
partitions. Committed offsets, consumer, share and streams groups change by replay only. Classic
groups change at once, as in Kafka: their requests set `is_replayed` to False, and their records
are replayed when another broker loads them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from barnabas.coordinator.group.all_groups import AllGroups
from barnabas.coordinator.group.classic.classic_groups import ClassicGroups
from barnabas.coordinator.group.classic.classic_membership import ClassicMembership
from barnabas.coordinator.group.classic.group_record import group_of
from barnabas.coordinator.group.classic.rebalance import Rebalance
from barnabas.coordinator.group.consumer.classic_members import ClassicMembers
from barnabas.coordinator.group.consumer.consumer_membership import ConsumerMembership
from barnabas.coordinator.group.consumer.consumer_shard import ConsumerShard
from barnabas.coordinator.group.consumer.conversion.downgrade import Downgrade
from barnabas.coordinator.group.consumer.conversion.upgrade import Upgrade
from barnabas.coordinator.group.offsets.committed_offset import CommittedOffset
from barnabas.coordinator.group.offsets.offset_changes import OffsetChanges
from barnabas.coordinator.group.offsets.offset_cleaner import OffsetCleaner
from barnabas.coordinator.group.offsets.offset_store import OffsetStore
from barnabas.coordinator.group.share.share_membership import ShareMembership
from barnabas.coordinator.group.share.share_offsets import ShareOffsets
from barnabas.coordinator.group.share.share_shard import ShareShard, ShareSurroundings
from barnabas.coordinator.group.share.state_changes import StateChanges
from barnabas.coordinator.group.streams.streams_membership import StreamsMembership
from barnabas.coordinator.group.streams.streams_shard import (
    OtherGroups,
    StreamsShard,
    StreamsSurroundings,
)
from barnabas.coordinator.group.tombstones import tombstones_of
from barnabas.coordinator.runtime.coordinator_result import CoordinatorResult
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.protocol_error import ProtocolError
from barnabas.protocol.record_frame import decode_coordinator_key, read_prefix
from barnabas.protocol.records.group_metadata import GroupMetadataKey
from barnabas.protocol.records.offset_commit import OffsetCommitKey
from barnabas.record.batch import NO_PRODUCER_ID

if TYPE_CHECKING:
    from collections.abc import Mapping

    from barnabas.coordinator.group.classic.group_memory import GroupMemory
    from barnabas.coordinator.group.classic.joining import Joining
    from barnabas.coordinator.group.configs.config import GroupCoordinatorConfig
    from barnabas.coordinator.group.configs.group_type_settings import GroupTypeSettings
    from barnabas.coordinator.group.configs.share_config import ShareGroupConfig
    from barnabas.coordinator.group.configs.streams_config import StreamsGroupConfig
    from barnabas.coordinator.group.consumer.consumer_shard import ConsumerSurroundings
    from barnabas.coordinator.group.replayed.group_table import GroupTable
    from barnabas.coordinator.runtime.coordinator_record import CoordinatorRecord
    from barnabas.coordinator.runtime.responses.pending_response import PendingResponse
    from barnabas.protocol.messages.heartbeat import HeartbeatRequest
    from barnabas.protocol.messages.leave_group import LeaveGroupRequest, MemberResponse
    from barnabas.protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse

# Record types 0 and 1 both commit an offset. Type 0 is an older layout of the key.
_OFFSET_COMMIT_TYPES = frozenset({0, 1})
_GROUP_TYPE = 2


class GroupShard:
    """The groups and committed offsets of one partition."""

    __slots__ = (
        "_classic_members",
        "_cleaner",
        "_group_size_max",
        "_memory",
        "_rebalance",
        "_tables",
        "_timers",
        "classic",
        "consumer_groups",
        "consumers",
        "groups",
        "offset_changes",
        "offsets",
        "share_groups",
        "share_offsets",
        "share_state",
        "shares",
        "streams",
        "streams_groups",
    )

    def __init__(
        self,
        config: GroupCoordinatorConfig,
        surroundings: ConsumerSurroundings,
        shares: GroupTypeSettings[ShareGroupConfig],
        streams: GroupTypeSettings[StreamsGroupConfig],
        memory: GroupMemory,
    ) -> None:
        """Create the shard.

        Args:
            config: values of configuration keys that do not change.
            surroundings: dependencies of the groups.
            shares: the configuration of share groups.
            streams: the configuration of streams groups.
            memory: memory accounting of all groups of this broker.
        """
        timers, clock = surroundings.timers, surroundings.clock
        metrics = surroundings.metrics
        self._timers = timers
        self._memory = memory
        # group.max.size.
        self._group_size_max = config.group_max_size
        # All groups of this partition, including groups with only offsets.
        self.groups = ClassicGroups(clock, memory)
        self.offsets = OffsetStore()
        self._rebalance = Rebalance(config, timers, clock, metrics, self.groups)
        self.classic = ClassicMembership(
            self.groups, self._rebalance, surroundings.rng, config.group_max_size
        )
        self.consumer_groups = ConsumerShard(surroundings, self.groups, self.has_special_group)
        policy = config.migration_policy
        self.consumers = ConsumerMembership(
            self.consumer_groups,
            Upgrade(policy, self.consumer_groups),
            Downgrade(
                policy, config.group_max_size, self.consumer_groups, self.groups, self._rebalance
            ),
        )
        self._classic_members = ClassicMembers(policy, self.consumer_groups, self.consumers)
        self.share_groups = ShareShard(
            ShareSurroundings(
                shares,
                surroundings.topics,
                timers,
                clock,
                metrics,
                memory,
                self.consumer_groups.hashes,
                config.offsets_commit_timeout_ms,
            ),
            self._make_room_for_shares,
            self._has_member_group,
        )
        self.share_state = StateChanges(self.share_groups)
        self.shares = ShareMembership(self.share_groups, self.share_state)
        self.share_offsets = ShareOffsets(self.share_groups, self.share_state)
        self.streams_groups = self._streams_shard(surroundings, streams, memory)
        self.streams = StreamsMembership(self.streams_groups)
        # The table of groups by the type of its records.
        self._tables = self._tables_by_type()
        groups = self._all_groups()
        self.offset_changes = OffsetChanges(
            groups, self.offsets, self._rebalance, metrics, config.offset_metadata_max_bytes
        )
        self._cleaner = OffsetCleaner(config, timers, clock, metrics, groups, self.offsets)

    def _all_groups(self) -> AllGroups:
        return AllGroups(
            self.groups,
            self.consumer_groups.groups,
            self.streams_groups.groups,
            self.share_groups.groups.has,
        )

    def _tables_by_type(self) -> dict[int, GroupTable[Any]]:
        tables: list[GroupTable[Any]] = [
            self.consumer_groups.groups,
            self.share_groups.groups,
            self.streams_groups.groups,
        ]
        return {record_type: table for table in tables for record_type in table.record_types}

    def _streams_shard(
        self,
        surroundings: ConsumerSurroundings,
        settings: GroupTypeSettings[StreamsGroupConfig],
        memory: GroupMemory,
    ) -> StreamsShard:
        return StreamsShard(
            StreamsSurroundings(
                settings,
                surroundings.topics,
                surroundings.timers,
                surroundings.clock,
                surroundings.metrics,
                memory,
                self.consumer_groups.hashes,
            ),
            OtherGroups(
                self._make_room_for_streams, self._has_other_than_streams, self.groups.find
            ),
        )

    def has_special_group(self, group_id: str) -> bool:
        """Whether the id has a share or streams group."""
        return self.share_groups.groups.has(group_id) or self.streams_groups.groups.has(group_id)

    def _has_member_group(self, group_id: str) -> bool:
        """Whether the id has a classic, consumer or streams group."""
        return (
            self.groups.find(group_id) is not None
            or self.consumer_groups.groups.has(group_id)
            or self.streams_groups.groups.has(group_id)
        )

    def _has_other_than_streams(self, group_id: str) -> bool:
        """Whether the id has a consumer or share group."""
        return self.consumer_groups.groups.has(group_id) or self.share_groups.groups.has(group_id)

    def _make_room_for_shares(self, group_id: str) -> bool:
        """Remove a classic group that has only offsets. Return whether the id is free now."""
        if self.consumer_groups.groups.has(group_id) or self.streams_groups.groups.has(group_id):
            return False
        return self.consumer_groups.remove_offsets_only(group_id)

    def _make_room_for_streams(self, group_id: str) -> bool:
        """Remove a classic group that has only offsets. Return whether the id is free now."""
        if self._has_other_than_streams(group_id):
            return False
        return self.consumer_groups.remove_offsets_only(group_id)

    def join(self, joining: Joining) -> CoordinatorResult[None]:
        """Handle JoinGroup: a member of a classic or a consumer group joins.

        A consumer or streams group without members becomes a classic group.
        """
        group_id = joining.request.group_id
        group = self.consumer_groups.groups.find(group_id)
        streams = self.streams_groups.groups.find(group_id)
        if group is not None and group.members:
            return self._classic_members.join(group, joining)
        if self.share_groups.groups.has(group_id) or (streams is not None and streams.members):
            joining.refuse("", ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
            return CoordinatorResult(None)
        result = self.classic.join(joining)
        if not result.records:
            return result
        if streams is not None:
            tombstones = tombstones_of(streams)
            bring_back = self.streams_groups.discard(streams)
        elif group is not None:
            tombstones = tombstones_of(group)
            bring_back = self.consumer_groups.discard(group)
        else:
            return result

        def on_appended(error: ErrorCode) -> None:
            if result.on_appended is not None:
                result.on_appended(error)
            if error is not ErrorCode.NONE and self.groups.find(group_id) is None:
                bring_back()

        return CoordinatorResult(
            None, [*tombstones, *result.records], is_replayed=False, on_appended=on_appended
        )

    def sync(
        self, request: SyncGroupRequest, response: PendingResponse[SyncGroupResponse]
    ) -> CoordinatorResult[None]:
        """Handle SyncGroup of a member of a classic or a consumer group."""
        group = self.consumer_groups.groups.find(request.group_id)
        if group is None:
            return self.classic.sync(request, response)
        return self._classic_members.sync(group, request, response)

    def heartbeat(self, request: HeartbeatRequest) -> CoordinatorResult[ErrorCode]:
        """Handle Heartbeat of a member of a classic or a consumer group."""
        group = self.consumer_groups.groups.find(request.group_id)
        if group is None:
            return self.classic.heartbeat(request)
        return self._classic_members.heartbeat(group, request)

    def leave(self, request: LeaveGroupRequest) -> CoordinatorResult[list[MemberResponse]]:
        """Handle LeaveGroup for the members of a classic or a consumer group."""
        group = self.consumer_groups.groups.find(request.group_id)
        if group is None:
            return self.classic.leave(request)
        return self.consumers.leave(group, request)

    def delete_group(self, group_id: str) -> CoordinatorResult[ErrorCode]:
        """Handle DeleteGroups: remove a group without members, and its offsets."""
        group = (
            self.groups.find(group_id)
            or self.consumer_groups.groups.find(group_id)
            or self.share_groups.groups.find(group_id)
            or self.streams_groups.groups.find(group_id)
        )
        if group is None:
            return CoordinatorResult(ErrorCode.GROUP_ID_NOT_FOUND)
        if group.has_members:
            return CoordinatorResult(ErrorCode.NON_EMPTY_GROUP)
        self.streams.timers.end_delay(group_id)
        records = [*self.offset_changes.delete_all(group_id), *tombstones_of(group)]
        return CoordinatorResult(ErrorCode.NONE, records)

    def forget_topics(self, topics: Mapping[str, bytes]) -> None:
        """Remove the committed offsets and share state of deleted topics (ids by name)."""
        self._cleaner.forget_topics(topics)
        topic_ids = frozenset(topics.values())

        def forget() -> CoordinatorResult[None]:
            records: list[CoordinatorRecord] = self.share_state.forget_topics(topic_ids)
            return CoordinatorResult(None, records)

        self._timers.schedule(("share-topics", topic_ids), 0, forget)

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
                group_partition = (where.group, partition)
                self.offsets.put_transactional(offset, producer_id, group_partition, committed)
            if (
                committed is not None
                and self.groups.find(where.group) is None
                and not self.consumer_groups.groups.has(where.group)
                and not self.has_special_group(where.group)
            ):
                self.groups.create(where.group)
        elif record_type == _GROUP_TYPE:
            self._replay_group(decode_coordinator_key(GroupMetadataKey, key).group, value)
        else:
            table = self._tables.get(record_type)
            if table is not None:
                table.replay(record_type, key, value)

    def replay_written(
        self, offset: int, record: CoordinatorRecord, producer_id: int = NO_PRODUCER_ID
    ) -> None:
        """Apply one record that this broker has just written. Raises ProtocolError."""
        record_type = record.key_message.__record_type__
        table = self._tables.get(record_type)
        if table is None:
            self.replay(offset, record.key, record.value, producer_id)
        else:
            table.replay_decoded(record_type, record.key_message, record.value_message)

    def replay_end_marker(self, offset: int, producer_id: int, is_commit: bool) -> None:
        """Commit or discard the offsets of an ended transaction."""
        self.offsets.end_transaction(offset, producer_id, is_commit)

    def _replay_group(self, group_id: str, value: bytes | None) -> None:
        known = self.groups.find(group_id)
        if value is None:
            if known is not None:
                self.groups.remove(known, ErrorCode.UNKNOWN_MEMBER_ID)
            return
        self.consumer_groups.groups.remove(group_id)
        self.share_groups.groups.remove(group_id)
        self.streams_groups.groups.remove(group_id)
        try:
            group = group_of(group_id, value, self._memory)
        except ProtocolError:
            # The members of the generation are unknown. Keep the group without members and with its
            # offsets, so that live members can rejoin.
            if known is not None:
                self.groups.remove(known, ErrorCode.UNKNOWN_MEMBER_ID)
            self.groups.create(group_id)
            raise
        self.groups.replace(group)

    def commit(self, end_offset: int) -> None:
        """Make all records below `end_offset` visible to reads."""
        self.offsets.commit(end_offset)

    def on_loaded(self) -> None:
        """Start the members' sessions. Rebalance groups that exceed group.max.size."""
        for group in self.groups.all():
            for member in group.members.values():
                self._rebalance.restart_session(group, member)
            if len(group.members) > self._group_size_max:
                result = self._rebalance.prepare(group, "loaded, and larger than group.max.size")
                # No member has joined since the group was loaded.
                assert not result.records, f"group={group.group_id} records={result.records}"
        self.consumer_groups.start_timers(self.consumers.timers)
        self.shares.start_timers()
        self.streams.start_timers()
        self._cleaner.start()

    def on_unloaded(self) -> None:
        """Fail all pending requests with NOT_COORDINATOR."""
        for group in list(self.groups.all()):
            self.groups.remove(group, ErrorCode.NOT_COORDINATOR)
        self.consumer_groups.groups.clear()
        self.share_groups.groups.clear()
        self.streams_groups.groups.clear()
