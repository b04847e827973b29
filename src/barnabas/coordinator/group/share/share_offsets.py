"""AlterShareGroupOffsets and DeleteShareGroupOffsets in one state partition (KIP-932)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
from msgspec.structs import replace

from barnabas.coordinator.group.refusal import RefusalError
from barnabas.coordinator.group.share.state_changes import delete_request
from barnabas.coordinator.group.share.state_topics import StateTopic
from barnabas.coordinator.runtime.coordinator_result import CoordinatorResult
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.delete_share_group_state import (
    DeleteShareGroupStateRequest,  # noqa: TC001 - field type
)
from barnabas.protocol.messages.initialize_share_group_state import (
    InitializeShareGroupStateRequest,
    InitializeStateData,
    PartitionData,
)

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from barnabas.coordinator.group.share.share_group import ShareGroup
    from barnabas.coordinator.group.share.share_shard import ShareShard
    from barnabas.coordinator.group.share.state_changes import StateChanges

    # New start offsets of existing partitions, by topic id and partition.
    NewOffsets = Mapping[bytes, Mapping[int, int]]


class Alteration(msgspec.Struct):
    """The result of AlterShareGroupOffsets in the shard."""

    error: ErrorCode = ErrorCode.NONE
    message: str | None = None
    # The request that the coordinator sends before its response, or None.
    initialization: InitializeShareGroupStateRequest | None = None


class Deletion(msgspec.Struct):
    """The result of the first step of DeleteShareGroupOffsets in the shard."""

    error: ErrorCode = ErrorCode.NONE
    message: str | None = None
    # Whether the group has topics with state. If it has none, the response has no topics.
    has_topics: bool = False
    # Ids of the topics that have no state.
    missing: Collection[bytes] = ()
    # The request that the coordinator sends before its response, or None.
    deletion: DeleteShareGroupStateRequest | None = None


class ShareOffsets:
    """Changes of offsets in share groups without members."""

    __slots__ = ("_shard", "_state")

    def __init__(self, shard: ShareShard, state: StateChanges) -> None:
        self._shard = shard
        self._state = state

    def alter(self, group_id: str, offsets: NewOffsets) -> CoordinatorResult[Alteration]:
        """Set the start offsets of partitions. A missing group is created."""
        try:
            group = self._shard.find_or_create(group_id, [], is_joining=True)
            _check_empty(group)
        except RefusalError as error:
            return CoordinatorResult(Alteration(error.error, error.message))
        if not offsets:
            return CoordinatorResult(Alteration())
        now_ms = self._shard.clock.wall_ms()
        names = self._shard.names_of(offsets)
        changed = {
            topic_id: StateTopic(names[topic_id], frozenset(partitions), now_ms)
            for topic_id, partitions in offsets.items()
        }
        altered = Alteration(initialization=_initialization(group, offsets))
        return CoordinatorResult(altered, [self._state.begin(group, changed)])

    def begin_deletion(
        self, group_id: str, topic_ids: Collection[bytes]
    ) -> CoordinatorResult[Deletion]:
        """Begin to delete the offsets of topics, which become `deleting`."""
        try:
            group = self._shard.groups.require(group_id)
            _check_empty(group)
        except RefusalError as error:
            return CoordinatorResult(Deletion(error.error, error.message))
        known = group.state_topics
        if known is None:
            return CoordinatorResult(Deletion())
        initialized, deleting = dict(known.initialized), set(known.deleting)
        partitions: dict[bytes, frozenset[int]] = {}
        missing: set[bytes] = set()
        for topic_id in topic_ids:
            if topic_id in initialized:
                partitions[topic_id] = initialized.pop(topic_id).partitions
                deleting.add(topic_id)
            elif topic_id in deleting:
                name = self._shard.topics.topic_name(topic_id) or ""
                count = self._shard.topics.partition_count(name)
                partitions[topic_id] = frozenset(range(count))
            else:
                missing.add(topic_id)
        after = replace(known, initialized=initialized, deleting=frozenset(deleting))
        deletion = delete_request(group_id, partitions) if partitions else None
        begun = Deletion(has_topics=True, missing=missing, deletion=deletion)
        return CoordinatorResult(begun, [self._state.record(group, after)])

    def complete_deletion(
        self, group_id: str, topic_ids: Collection[bytes]
    ) -> CoordinatorResult[bool]:
        """Forget topics whose state is deleted. Return whether the group still exists."""
        group = self._shard.groups.find(group_id)
        known = None if group is None else group.state_topics
        if group is None or known is None:
            return CoordinatorResult(response=False)
        after = replace(known, deleting=known.deleting - set(topic_ids))
        return CoordinatorResult(response=True, records=[self._state.record(group, after)])


def _check_empty(group: ShareGroup) -> None:
    if group.members:
        raise RefusalError(ErrorCode.NON_EMPTY_GROUP, ErrorCode.NON_EMPTY_GROUP.message)


def _initialization(
    group: ShareGroup, offsets: NewOffsets
) -> InitializeShareGroupStateRequest | None:
    topics = [
        InitializeStateData(
            topic_id=topic_id,
            partitions=[
                PartitionData(partition=index, state_epoch=group.group_epoch, start_offset=offset)
                for index, offset in sorted(partitions.items())
            ],
        )
        for topic_id, partitions in offsets.items()
        if partitions
    ]
    if not topics:
        return None
    return InitializeShareGroupStateRequest(group_id=group.group_id, topics=topics)
