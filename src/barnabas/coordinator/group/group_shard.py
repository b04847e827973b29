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

from barnabas.coordinator.group.classic.classic_group import ClassicGroup
from barnabas.coordinator.group.classic.classic_membership import ClassicMembership
from barnabas.coordinator.group.classic.group_record import empty_group, replay_classic
from barnabas.coordinator.group.classic.rebalance import Rebalance
from barnabas.coordinator.group.consumer.classic_members import ClassicMembers
from barnabas.coordinator.group.consumer.consumer_group import ConsumerGroup
from barnabas.coordinator.group.consumer.consumer_membership import ConsumerMembership
from barnabas.coordinator.group.consumer.consumer_shard import ConsumerShard
from barnabas.coordinator.group.consumer.conversion import Downgrade, Upgrade
from barnabas.coordinator.group.kinds import tombstones_of
from barnabas.coordinator.group.offset_changes import OffsetChanges
from barnabas.coordinator.group.offset_cleaner import OffsetCleaner
from barnabas.coordinator.group.offset_store import CommittedOffset, OffsetStore
from barnabas.coordinator.group.share.share_group import ShareGroup, ShareShard
from barnabas.coordinator.group.share.share_membership import ShareMembership
from barnabas.coordinator.group.share.share_state import ShareOffsets, StateChanges
from barnabas.coordinator.group.streams.group_epochs import delay_key
from barnabas.coordinator.group.streams.streams_group import StreamsShard
from barnabas.coordinator.group.streams.streams_membership import StreamsMembership
from barnabas.coordinator.runtime.coordinator_record import CoordinatorResult
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.record_frame import decode_coordinator_key, read_prefix
from barnabas.protocol.records.classic_groups import GroupMetadataKey, OffsetCommitKey
from barnabas.record.batch import NO_PRODUCER_ID

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from barnabas.coordinator.group.classic.classic_member import PendingResponse
    from barnabas.coordinator.group.classic.classic_membership import JoinRequest
    from barnabas.coordinator.group.group_config import GroupCoordinatorConfig, GroupSettings
    from barnabas.coordinator.group.group_kind import GroupDependencies
    from barnabas.coordinator.group.group_map import GroupsOfKind
    from barnabas.coordinator.runtime.coordinator_record import CoordinatorRecord
    from barnabas.protocol.messages.groups import (
        HeartbeatRequest,
        LeaveGroupRequest,
        MemberResponse,
        SyncGroupRequest,
        SyncGroupResponse,
    )


# Record types 0 and 1 both commit an offset. Type 0 is an older layout of the key.
_OFFSET_COMMIT_TYPES = frozenset({0, 1})


class GroupShard:
    """The groups and committed offsets of one partition."""

    __slots__ = (
        "_classic_members",
        "_cleaner",
        "_group_size_max",
        "_hashes",
        "_rebalance",
        "_timers",
        "classic",
        "classic_groups",
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
        settings: GroupSettings,
        dependencies: GroupDependencies,
    ) -> None:
        """Create the shard.

        Args:
            config: values of configuration keys that do not change.
            settings: the configuration of consumer, share and streams groups.
            dependencies: the groups, which are none yet, and what they use.
        """
        timers, clock, metrics = dependencies.timers, dependencies.clock, dependencies.metrics
        self._timers = timers
        self._hashes = dependencies.hashes
        # group.max.size.
        self._group_size_max = config.group_max_size
        self.groups = dependencies.groups
        self.classic_groups = self.groups.of(ClassicGroup)
        self.offsets = OffsetStore()
        self._rebalance = Rebalance(config, timers, clock, metrics, self.classic_groups)
        self.classic = ClassicMembership(
            self.groups, self._rebalance, dependencies.rng, config.group_max_size
        )
        self.consumer_groups = ConsumerShard(settings, dependencies)
        policy = config.migration_policy
        self.consumers = ConsumerMembership(
            self.consumer_groups,
            Upgrade(policy, self.consumer_groups),
            Downgrade(
                policy, config.group_max_size, self.consumer_groups, self.groups, self._rebalance
            ),
        )
        self._classic_members = ClassicMembers(policy, self.consumer_groups, self.consumers)
        self.share_groups = ShareShard(settings, dependencies, config.offsets_commit_timeout_ms)
        self.share_state = StateChanges(self.share_groups)
        self.shares = ShareMembership(self.share_groups, self.share_state)
        self.share_offsets = ShareOffsets(self.share_groups, self.share_state)
        self.streams_groups = StreamsShard(settings, dependencies)
        self.streams = StreamsMembership(self.streams_groups)
        self.offset_changes = OffsetChanges(
            self.groups, self.offsets, self._rebalance, metrics, config.offset_metadata_max_bytes
        )
        self._cleaner = OffsetCleaner(config, timers, clock, metrics, self.groups, self.offsets)

    def kinds(self) -> list[GroupsOfKind[Any]]:
        """Return the groups by kind: classic, consumer, share and streams groups."""
        modern = (self.consumer_groups, self.share_groups, self.streams_groups)
        return [self.classic_groups, *(each.groups for each in modern)]

    def join(self, joining: JoinRequest) -> CoordinatorResult[None]:
        """Handle JoinGroup: a member of a classic or a consumer group joins.

        A consumer or streams group without members becomes a classic group.
        """
        group_id = joining.request.group_id
        group = self.groups.find(group_id)
        if group is None or type(group) is ClassicGroup:
            return self.classic.join(joining)
        if isinstance(group, ConsumerGroup) and group.has_members:
            return self._classic_members.join(group, joining)
        if isinstance(group, ShareGroup) or group.has_members:
            joining.refuse("", ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
            return CoordinatorResult(None)
        tombstones = tombstones_of(group)
        bring_back = self.groups.discard(group_id)
        result = self.classic.join(joining)
        if not result.records:
            bring_back()
            return result

        def on_appended(error: ErrorCode) -> None:
            if result.on_appended is not None:
                result.on_appended(error)
            if error is not ErrorCode.NONE:
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
        group = self.groups.find(request.group_id)
        if type(group) is ClassicGroup:
            return CoordinatorResult(self.classic.heartbeat(group, request))
        if type(group) is ConsumerGroup:
            return self._classic_members.heartbeat(group, request)
        return CoordinatorResult(ErrorCode.UNKNOWN_MEMBER_ID)

    def leave(self, request: LeaveGroupRequest) -> CoordinatorResult[list[MemberResponse]]:
        """Handle LeaveGroup for the members of a classic or a consumer group."""
        group = self.consumer_groups.groups.find(request.group_id)
        if group is None:
            return self.classic.leave(request)
        return self.consumers.leave(group, request)

    def delete_group(self, group_id: str) -> CoordinatorResult[ErrorCode]:
        """Handle DeleteGroups: remove a group without members, and its offsets."""
        group = self.groups.find(group_id)
        if group is None:
            return CoordinatorResult(ErrorCode.GROUP_ID_NOT_FOUND)
        if group.has_members:
            return CoordinatorResult(ErrorCode.NON_EMPTY_GROUP)
        self._timers.cancel(delay_key(group_id))
        records = [*self.offset_changes.delete_all(group_id), *tombstones_of(group)]
        return CoordinatorResult(ErrorCode.NONE, records)

    def on_topics_changed(self, names: Collection[str], *, has_new: bool) -> None:
        """Let groups compare topics that were created, changed or deleted.

        Args:
            names: the names of the topics.
            has_new: whether there are new topics, which regular expressions may match.
        """
        self._hashes.forget(names)
        self.consumer_groups.forget_matches(has_new=has_new)
        for shard in (self.consumer_groups, self.share_groups, self.streams_groups):
            shard.on_topics_changed(names)

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
            if committed is not None and self.groups.find(where.group) is None:
                self.groups.add(empty_group(where.group, self.groups))
        elif record_type == GroupMetadataKey.__record_type__:
            replay_classic(self.groups, key, value)
        elif record_type in self.groups.record_types:
            self.groups.replay(record_type, key, value)

    def replay_written(
        self, offset: int, record: CoordinatorRecord, producer_id: int = NO_PRODUCER_ID
    ) -> None:
        """Apply one record that this broker has just written. Raises ProtocolError."""
        record_type = record.key_message.__record_type__
        if record_type in self.groups.record_types:
            self.groups.replay_decoded(record_type, record.key_message, record.value_message)
        else:
            self.replay(offset, record.key, record.value, producer_id)

    def replay_end_marker(self, offset: int, producer_id: int, is_commit: bool) -> None:
        """Commit or discard the offsets of an ended transaction."""
        self.offsets.end_transaction(offset, producer_id, is_commit)

    def commit(self, end_offset: int) -> None:
        """Make all records below `end_offset` visible to reads."""
        self.offsets.commit(end_offset)

    def on_loaded(self) -> None:
        """Start the members' sessions. Rebalance groups that exceed group.max.size."""
        for group in self.classic_groups.all():
            for member in group.members.values():
                self._rebalance.restart_session(group, member)
            if len(group.members) > self._group_size_max:
                result = self._rebalance.prepare(group, "loaded, and larger than group.max.size")
                # No member has joined since the group was loaded.
                assert not result.records, f"group={group.group_id} records={result.records}"
        self.consumers.start_timers()
        self.shares.start_timers()
        self.streams.start_timers()
        self._cleaner.start()

    def on_unloaded(self) -> None:
        """Fail all pending requests with NOT_COORDINATOR."""
        self.groups.clear()
