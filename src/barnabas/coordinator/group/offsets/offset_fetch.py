"""OffsetFetch, versions 0 to 10: one or several groups, topics by name or id (KIP-709)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.committed_offsets import (
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopic,
    OffsetFetchResponseTopics,
)
from barnabas.protocol.schema import ZERO_UUID

if TYPE_CHECKING:
    from collections.abc import Generator, Mapping, Set as AbstractSet

    from barnabas.coordinator.group.offsets.offset_store import CommittedOffset, PartitionKey
    from barnabas.coordinator.group.topics import TopicsView
    from barnabas.protocol.messages.committed_offsets import OffsetFetchRequest

_FIRST_VERSION_WITH_GROUPS = 8
_FIRST_VERSION_WITH_TOPIC_IDS = 10
_FIRST_VERSION_WITH_GROUP_ERROR = 2
_NO_OFFSET = -1
_NO_EPOCH = -1


class GroupOffsets(msgspec.Struct, frozen=True):
    """The committed offsets of one group."""

    committed: Mapping[PartitionKey, CommittedOffset]
    # Partitions whose result is UNSTABLE_OFFSET_COMMIT.
    unstable: AbstractSet[PartitionKey]


def groups_of(request: OffsetFetchRequest, version: int) -> list[OffsetFetchRequestGroup]:
    """Return the groups of a request in the format of version 8. Older versions have one group."""
    if version >= _FIRST_VERSION_WITH_GROUPS:
        return request.groups
    topics = None
    if request.topics is not None:
        topics = [
            OffsetFetchRequestTopics(name=each.name, partition_indexes=each.partition_indexes)
            for each in request.topics
        ]
    return [OffsetFetchRequestGroup(group_id=request.group_id, topics=topics)]


def response_of(groups: list[OffsetFetchResponseGroup], version: int) -> OffsetFetchResponse:
    """Return the response in the format of `version`."""
    if version >= _FIRST_VERSION_WITH_GROUPS:
        return OffsetFetchResponse(groups=groups)
    (group,) = groups
    topics = [
        OffsetFetchResponseTopic(
            name=topic.name,
            partitions=[
                OffsetFetchResponsePartition(
                    partition_index=each.partition_index,
                    committed_offset=each.committed_offset,
                    committed_leader_epoch=each.committed_leader_epoch,
                    metadata=each.metadata,
                    error_code=each.error_code,
                )
                for each in topic.partitions
            ],
        )
        for topic in group.topics
    ]
    return OffsetFetchResponse(topics=topics, error_code=group.error_code)


def fetch_group(
    offsets: GroupOffsets | ErrorCode,
    topics: TopicsView,
    group: OffsetFetchRequestGroup,
    version: int,
) -> Generator[None, None, OffsetFetchResponseGroup]:
    """Return the result for one group. Yields after each partition.

    A partition without a committed offset has offset -1, epoch -1, empty metadata and no error.
    From version 2 on, an error of the group is returned once. In older versions it is repeated in
    every partition.

    Args:
        offsets: the group's offsets, or an error.
        topics: the topics of the cluster.
        group: the group in the request.
        version: the version of the request.
    """
    if isinstance(offsets, ErrorCode):
        return group_error(group, offsets, version)
    uses_ids = version >= _FIRST_VERSION_WITH_TOPIC_IDS
    if group.topics is None:
        found = yield from _all_topics(offsets, topics, uses_ids)
    else:
        found = []
        for each in group.topics:
            answered = yield from _topic(each, offsets, topics, uses_ids)
            found.append(answered)
            yield
    return OffsetFetchResponseGroup(group_id=group.group_id, topics=found)


def group_error(
    group: OffsetFetchRequestGroup, error: ErrorCode, version: int
) -> OffsetFetchResponseGroup:
    """Return the result of a group with an error."""
    if version >= _FIRST_VERSION_WITH_GROUP_ERROR:
        return OffsetFetchResponseGroup(group_id=group.group_id, topics=[], error_code=error)
    return OffsetFetchResponseGroup(
        group_id=group.group_id,
        topics=[
            OffsetFetchResponseTopics(
                name=topic.name,
                topic_id=topic.topic_id,
                partitions=[_without_offset(index, error) for index in topic.partition_indexes],
            )
            for topic in group.topics or ()
        ],
        error_code=error,
    )


def _topic(
    requested: OffsetFetchRequestTopics,
    offsets: GroupOffsets,
    topics: TopicsView,
    uses_ids: bool,
) -> Generator[None, None, OffsetFetchResponseTopics]:
    name = topics.topic_name(requested.topic_id) if uses_ids else requested.name
    topic_id = requested.topic_id if uses_ids else topics.topic_id(requested.name)
    partitions: list[OffsetFetchResponsePartitions] = []
    for index in requested.partition_indexes:
        yield
        if name is None:
            partitions.append(_without_offset(index, ErrorCode.UNKNOWN_TOPIC_ID))
            continue
        key = (name, index)
        committed = offsets.committed.get(key)
        if key in offsets.unstable:
            partitions.append(_without_offset(index, ErrorCode.UNSTABLE_OFFSET_COMMIT))
        elif committed is None or _is_of_another_topic(committed, topic_id):
            partitions.append(_without_offset(index, ErrorCode.NONE))
        else:
            partitions.append(_found(index, committed))
    return OffsetFetchResponseTopics(
        name=requested.name, topic_id=requested.topic_id, partitions=partitions
    )


def _all_topics(
    offsets: GroupOffsets, topics: TopicsView, uses_ids: bool
) -> Generator[None, None, list[OffsetFetchResponseTopics]]:
    """Return all topics with an offset. If topics have ids, only existing topics."""
    found: dict[str, OffsetFetchResponseTopics] = {}
    for key, committed in offsets.committed.items():
        yield
        name, index = key
        topic_id = topics.topic_id(name)
        if uses_ids and (topic_id is None or _is_of_another_topic(committed, topic_id)):
            continue
        if name not in found:
            shown_id = topic_id if uses_ids and topic_id is not None else ZERO_UUID
            found[name] = OffsetFetchResponseTopics(name=name, topic_id=shown_id, partitions=[])
        is_unstable = key in offsets.unstable
        found[name].partitions.append(
            _without_offset(index, ErrorCode.UNSTABLE_OFFSET_COMMIT)
            if is_unstable
            else _found(index, committed)
        )
    return list(found.values())


def _is_of_another_topic(committed: CommittedOffset, topic_id: bytes | None) -> bool:
    """Whether the offset belongs to a deleted topic with the same name."""
    return topic_id is not None and committed.topic_id not in (ZERO_UUID, topic_id)


def _found(index: int, committed: CommittedOffset) -> OffsetFetchResponsePartitions:
    return OffsetFetchResponsePartitions(
        partition_index=index,
        committed_offset=committed.offset,
        committed_leader_epoch=committed.leader_epoch,
        metadata=committed.metadata,
        error_code=ErrorCode.NONE,
    )


def _without_offset(index: int, error: ErrorCode) -> OffsetFetchResponsePartitions:
    return OffsetFetchResponsePartitions(
        partition_index=index,
        committed_offset=_NO_OFFSET,
        committed_leader_epoch=_NO_EPOCH,
        metadata="",
        error_code=error,
    )
