"""The topics with state of a share group, and requests to the share coordinators (KIP-932).

A topic is `initializing` when the coordinator has requested state for its partitions, and
`initialized` when all share coordinators have confirmed it. It is `deleting` until they have
deleted the state.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import msgspec
from msgspec.structs import replace

from barnabas.coordinator.group.group_base import RefusalError
from barnabas.coordinator.group.share.share_group import (
    NO_STATE_TOPICS,
    StateTopic,
    StateTopics,
    StateTopicsById,
    merge,
    subtract,
)
from barnabas.coordinator.group.share.share_records import state_topics_record
from barnabas.coordinator.runtime.coordinator_record import CoordinatorResult
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.delete_share_group_state import (
    DeleteShareGroupStateRequest,
    DeleteStateData,
    PartitionData as DeletedPartition,
)
from barnabas.protocol.messages.initialize_share_group_state import (
    InitializeShareGroupStateRequest,
    InitializeStateData,
    PartitionData,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping

    from barnabas.coordinator.group.share.share_group import ShareGroup, ShareShard
    from barnabas.coordinator.runtime.coordinator_record import CoordinatorRecord
    from barnabas.protocol.messages.delete_share_group_state import DeleteShareGroupStateResponse
    from barnabas.protocol.messages.initialize_share_group_state import (
        InitializeShareGroupStateResponse,
    )
    from barnabas.protocol.messages.read_share_group_state_summary import (
        ReadShareGroupStateSummaryRequest,
        ReadShareGroupStateSummaryResponse,
    )

    # New start offsets of existing partitions, by topic id and partition.
    NewOffsets = Mapping[bytes, Mapping[int, int]]


class ShareStateStore(Protocol):
    """The part of the persister that the coordinator uses (Kafka: Persister).

    Each method calls `on_response` exactly once, perhaps before it returns. Each partition of the
    request has its own error code in the response.
    """

    def initialize(
        self,
        request: InitializeShareGroupStateRequest,
        on_response: Callable[[InitializeShareGroupStateResponse], None],
    ) -> None:
        """Create the state of share partitions."""
        ...

    def delete(
        self,
        request: DeleteShareGroupStateRequest,
        on_response: Callable[[DeleteShareGroupStateResponse], None],
    ) -> None:
        """Delete the state of share partitions."""
        ...

    def read_summary(
        self,
        request: ReadShareGroupStateSummaryRequest,
        on_response: Callable[[ReadShareGroupStateSummaryResponse], None],
    ) -> None:
        """Read start offsets and delivery complete counts of share partitions."""
        ...


# Start offsets of new partitions. Of a new topic, `share.auto.offset.reset` decides at the first
# fetch. Partitions that are added to a known topic are read from their beginning.
_UNDECIDED, _BEGINNING = -1, 0


class StateChanges:
    """Creates the records of topics with state. Their replay changes the groups."""

    __slots__ = ("_shard",)

    def __init__(self, shard: ShareShard) -> None:
        self._shard = shard

    def initialize_missing(
        self, group: ShareGroup, group_epoch: int, names: Iterable[str] | None
    ) -> tuple[list[CoordinatorRecord], InitializeShareGroupStateRequest | None]:
        """Return the record and the request for partitions of subscribed topics without state.

        Args:
            group: the group.
            group_epoch: the epoch of the group after the request, which is the state epoch.
            names: the subscribed topics; None if they are those of the group.
        """
        if names is None and group.has_all_state():
            return [], None
        known = group.state_topics or NO_STATE_TOPICS
        missing = self._missing(group, group.subscribed_names() if names is None else names)
        if not missing:
            if names is None and not known.initializing:
                group.note_all_state()
            return [], None
        known_ids = known.topic_ids()
        request = InitializeShareGroupStateRequest(
            group_id=group.group_id,
            topics=[
                InitializeStateData(
                    topic_id=topic_id,
                    partitions=[
                        PartitionData(
                            partition=index,
                            state_epoch=group_epoch,
                            start_offset=_BEGINNING if topic_id in known_ids else _UNDECIDED,
                        )
                        for index in sorted(topic.partitions)
                    ],
                )
                for topic_id, topic in missing.items()
            ],
        )
        return [self.begin(group, missing)], request

    def _missing(self, group: ShareGroup, names: Iterable[str]) -> dict[bytes, StateTopic]:
        """Return the partitions of existing topics without state.

        Initializations without a result are repeated after a while.
        """
        known = group.state_topics or NO_STATE_TOPICS
        missing: dict[bytes, StateTopic] = {}
        for name in names:
            topic_id = self._shard.topics.topic_id(name)
            if topic_id is None:
                continue
            count = self._shard.topics.partition_count(name)
            own: frozenset[int] = frozenset()
            initialized = known.initialized.get(topic_id)
            if initialized is not None:
                own = initialized.partitions
            if len(own) >= count:
                continue
            now_ms = self._shard.clock.wall_ms()
            initializing = known.initializing.get(topic_id)
            if (
                initializing is not None
                and initializing.timestamp > now_ms - self._shard.initialize_retry_ms
            ):
                own |= initializing.partitions
            if len(own) < count:
                missing[topic_id] = StateTopic(name, frozenset(range(count)) - own, now_ms)
        return missing

    def begin(self, group: ShareGroup, topics: StateTopicsById) -> CoordinatorRecord:
        """Return the record that makes these partitions initializing."""
        known = group.state_topics or NO_STATE_TOPICS
        initializing = merge(known.initializing, topics)
        deleting = known.deleting - initializing.keys()
        return self.record(group, replace(known, initializing=initializing, deleting=deleting))

    def complete(
        self, group_id: str, partitions: Mapping[bytes, frozenset[int]]
    ) -> CoordinatorResult[None]:
        """Make partitions initialized whose share coordinators have confirmed it."""
        group = self._shard.groups.find(group_id)
        if group is None or not partitions:
            return CoordinatorResult(None)
        known = group.state_topics or NO_STATE_TOPICS
        now_ms = self._shard.clock.wall_ms()
        names = self._shard.names_of(partitions)
        confirmed = {
            topic_id: StateTopic(names[topic_id], indexes, now_ms)
            for topic_id, indexes in partitions.items()
        }
        after = replace(
            known,
            initializing=subtract(known.initializing, partitions),
            initialized=merge(known.initialized, confirmed),
        )
        return CoordinatorResult(None, [self.record(group, after)])

    def give_up(
        self, group_id: str, partitions: Mapping[bytes, frozenset[int]]
    ) -> CoordinatorResult[None]:
        """Forget that partitions are initializing. The next heartbeat requests them again."""
        group = self._shard.groups.find(group_id)
        known = None if group is None else group.state_topics
        if group is None or known is None or not known.initializing or not partitions:
            return CoordinatorResult(None)
        after = replace(known, initializing=subtract(known.initializing, partitions))
        return CoordinatorResult(None, [self.record(group, after)])

    def delete_all(
        self, group: ShareGroup
    ) -> tuple[list[CoordinatorRecord], DeleteShareGroupStateRequest | None]:
        """Return the record and the request that delete the state of a group's topics.

        Deletions that failed before are repeated if their topics still exist.
        """
        known = group.state_topics
        if known is None:
            return [], None
        candidates = merge(known.initialized, known.initializing)
        names = {topic_id: topic.name for topic_id, topic in candidates.items()}
        partitions = {topic_id: topic.partitions for topic_id, topic in candidates.items()}
        for topic_id in known.deleting:
            name = self._shard.topics.topic_name(topic_id)
            if name is not None:
                every = frozenset(range(self._shard.topics.partition_count(name)))
                names[topic_id] = name
                partitions[topic_id] = partitions.get(topic_id, frozenset()) | every
        after = StateTopics(deleting=frozenset(partitions))
        records = [state_topics_record(group.group_id, after, names)]
        return records, delete_request(group.group_id, partitions) if partitions else None

    def forget_topics(self, topic_ids: frozenset[bytes]) -> list[CoordinatorRecord]:
        """Return the records that remove deleted topics from all groups."""
        records = []
        for group in self._shard.groups.all():
            known = group.state_topics
            if known is not None and not topic_ids.isdisjoint(known.topic_ids() | known.deleting):
                records.append(self.record(group, known.without(topic_ids)))
        return records

    def record(self, group: ShareGroup, topics: StateTopics) -> CoordinatorRecord:
        """Return the record of a group's topics."""
        names = self._shard.names_of(topics.deleting)
        return state_topics_record(group.group_id, topics, names)


def delete_request(
    group_id: str, partitions: Mapping[bytes, Iterable[int]]
) -> DeleteShareGroupStateRequest:
    """Return the request that deletes the state of partitions, by topic id."""
    return DeleteShareGroupStateRequest(
        group_id=group_id,
        topics=[
            DeleteStateData(
                topic_id=topic_id,
                partitions=[DeletedPartition(partition=index) for index in sorted(indexes)],
            )
            for topic_id, indexes in partitions.items()
        ],
    )


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
