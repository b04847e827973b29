"""The requests of administrators for the offsets of share groups."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import msgspec

from barnabas.coordinator.runtime.responses import client_error
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.read_share_group_state_summary import (
    PartitionData,
    ReadShareGroupStateSummaryRequest,
    ReadStateSummaryData,
)
from barnabas.protocol.messages.share_groups import (
    AlterShareGroupOffsetsResponse,
    AlterShareGroupOffsetsResponsePartition,
    AlterShareGroupOffsetsResponseTopic,
    DeleteShareGroupOffsetsResponse,
    DeleteShareGroupOffsetsResponseTopic,
    DescribeShareGroupOffsetsResponseGroup,
    DescribeShareGroupOffsetsResponsePartition,
    DescribeShareGroupOffsetsResponseTopic,
)
from barnabas.protocol.schema import ZERO_UUID
from barnabas.storage.topic_partition import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Generator, Mapping

    from barnabas.coordinator.group.group_shard import GroupShard
    from barnabas.coordinator.group.requests.share_requests import ShareInitializer
    from barnabas.coordinator.group.share.share_state import Alteration, Deletion, ShareStateStore
    from barnabas.coordinator.group.topics import TopicsView
    from barnabas.coordinator.runtime.coordinator_runtime import CoordinatorRuntime
    from barnabas.protocol.messages.delete_share_group_state import DeleteShareGroupStateResponse
    from barnabas.protocol.messages.initialize_share_group_state import (
        InitializeShareGroupStateResponse,
    )
    from barnabas.protocol.messages.read_share_group_state_summary import (
        PartitionResult,
        ReadShareGroupStateSummaryResponse,
    )
    from barnabas.protocol.messages.share_groups import (
        AlterShareGroupOffsetsRequest,
        DeleteShareGroupOffsetsRequest,
        DescribeShareGroupOffsetsRequestGroup,
    )

    # Latest offset by partition, or the error that prevents it.
    LatestOffsets = Mapping[TopicPartition, int | ErrorCode]
    OnDescribed = Callable[[Generator[None, None, DescribeShareGroupOffsetsResponseGroup]], None]

    OnAltered = Callable[[Generator[None, None, AlterShareGroupOffsetsResponse]], None]
    OnDeleted = Callable[[DeleteShareGroupOffsetsResponse], None]


class _RequestedTopics(msgspec.Struct, frozen=True):
    """The topics of a request."""

    # Partitions of existing topics, in the order of the response.
    shown: dict[bytes, dict[int, None]]
    # Those of them that exist.
    existing: dict[bytes, list[PartitionData]]
    # Results of topics that do not exist.
    missing: list[DescribeShareGroupOffsetsResponseTopic]


_NO_OFFSET = -1
_NO_COUNT = -1
_INT64_HALF = 1 << 63


class LatestOffsetFinder(Protocol):
    """Finds the latest offsets of partitions at their leaders."""

    def find(
        self,
        partitions: Collection[TopicPartition],
        on_found: Callable[[LatestOffsets], None],
    ) -> None:
        """Find the offsets.

        Args:
            partitions: the partitions.
            on_found: gets an offset or an error for each partition; called once, perhaps before
                this returns.
        """
        ...


class ShareOffsetDescriptions:
    """Describes offsets of share groups."""

    def __init__(
        self,
        runtime: CoordinatorRuntime[GroupShard],
        topics: TopicsView,
        store: ShareStateStore,
        latest: LatestOffsetFinder,
    ) -> None:
        self._runtime = runtime
        self._topics = topics
        self._store = store
        self._latest = latest

    def describe(
        self, request: DescribeShareGroupOffsetsRequestGroup, on_done: OnDescribed
    ) -> Generator[None, None, None]:
        """Return start offsets and lags of one group (versions 0 and 1).

        Without topics in the request, all initialized partitions are described. The group need not
        exist, as in Kafka. Yields after each partition.

        Args:
            request: the group, and its topics or None.
            on_done: gets a generator that builds the result; called once.
        """
        group_id = request.group_id
        if request.topics is None:
            found = self._runtime.read(group_id, lambda shard: _initialized(shard, group_id))
            if isinstance(found, ErrorCode):
                on_done(_failed(group_id, client_error(found)))
                return
            known = [(self._topics.topic_name(each), found[each]) for each in found]
            named = [(name, sorted(indexes)) for name, indexes in known if name is not None]
        else:
            named = [(topic.topic_name, topic.partitions) for topic in request.topics]
        # Partitions of existing topics, each once; those that exist; results of missing topics.
        shown: dict[bytes, dict[int, None]] = {}
        existing: dict[bytes, list[PartitionData]] = {}
        missing: list[DescribeShareGroupOffsetsResponseTopic] = []
        for name, indexes in named:
            topic_id = self._topics.topic_id(name)
            if topic_id is None:
                missing.append((yield from _missing_topic(name, indexes)))
                continue
            is_failed = not group_id or not indexes
            partitions = shown.setdefault(topic_id, {})
            for index in indexes:
                is_failed |= index < 0
                if index not in partitions:
                    partitions[index] = None
                    if self._topics.has_partition(name, index):
                        own = existing.setdefault(topic_id, [])
                        own.append(PartitionData(partition=index, leader_epoch=0))
                yield
            if is_failed:
                # Kafka's persister fails in this way.
                on_done(_failed(group_id, ErrorCode.UNKNOWN_SERVER_ERROR))
                return
        self._read(group_id, _RequestedTopics(shown, existing, missing), on_done)

    def _read(self, group_id: str, requested: _RequestedTopics, on_done: OnDescribed) -> None:
        """Read the state of partitions that exist, and the latest offsets of those with a lag."""
        names = {each: self._topics.topic_name(each) or "" for each in requested.shown}
        request = ReadShareGroupStateSummaryRequest(
            group_id=group_id,
            topics=[
                ReadStateSummaryData(topic_id=topic_id, partitions=partitions)
                for topic_id, partitions in requested.existing.items()
            ],
        )
        if not request.topics:
            on_done(_build(group_id, names, requested, {}, {}))
            return

        def on_read(response: ReadShareGroupStateSummaryResponse) -> None:
            states = {
                TopicPartition(self._topics.topic_name(topic.topic_id) or "", each.partition): each
                for topic in response.results
                for each in topic.partitions
            }
            behind = [where for where, state in states.items() if _has_lag(state)]
            if behind:
                self._latest.find(
                    behind,
                    lambda offsets: on_done(_build(group_id, names, requested, states, offsets)),
                )
            else:
                on_done(_build(group_id, names, requested, states, {}))

        self._store.read_summary(request, on_read)


def _build(
    group_id: str,
    names: Mapping[bytes, str],
    requested: _RequestedTopics,
    states: Mapping[TopicPartition, PartitionResult],
    offsets: LatestOffsets,
) -> Generator[None, None, DescribeShareGroupOffsetsResponseGroup]:
    """Return the result. Missing topics come last, as in Kafka. Yields after each partition.

    Args:
        group_id: the group.
        names: names of the existing topics.
        requested: the topics and partitions.
        states: the state of partitions that the share coordinators know.
        offsets: the latest offsets of partitions that have a lag.
    """
    topics: list[DescribeShareGroupOffsetsResponseTopic] = []
    for topic_id, indexes in requested.shown.items():
        name = names[topic_id]
        topic = DescribeShareGroupOffsetsResponseTopic(
            topic_name=name, topic_id=topic_id, partitions=[]
        )
        topics.append(topic)
        for index in indexes:
            where = TopicPartition(name, index)
            topic.partitions.append(_described(index, states.get(where), offsets.get(where)))
            yield
    return DescribeShareGroupOffsetsResponseGroup(
        group_id=group_id, topics=[*topics, *requested.missing], error_code=ErrorCode.NONE
    )


def _missing_topic(
    name: str, indexes: list[int]
) -> Generator[None, None, DescribeShareGroupOffsetsResponseTopic]:
    topic = DescribeShareGroupOffsetsResponseTopic(
        topic_name=name, topic_id=ZERO_UUID, partitions=[]
    )
    for index in indexes:
        topic.partitions.append(_described(index, None, None))
        yield
    return topic


def _initialized(shard: GroupShard, group_id: str) -> dict[bytes, frozenset[int]]:
    """Return the initialized partitions of a group by topic id; none if it does not exist."""
    group = shard.share_groups.groups.find(group_id)
    if group is None or group.state_topics is None:
        return {}
    return {each: topic.partitions for each, topic in group.state_topics.initialized.items()}


def _has_lag(state: PartitionResult) -> bool:
    """Whether the state is known, reading has begun, and the deliveries were counted."""
    return (
        state.error_code == ErrorCode.NONE
        and state.start_offset != _NO_OFFSET
        and state.delivery_complete_count != _NO_COUNT
    )


def _described(
    index: int, state: PartitionResult | None, latest: int | ErrorCode | None
) -> DescribeShareGroupOffsetsResponsePartition:
    """Return offset and lag. Errors of the share coordinator are not shown, as in Kafka."""
    described = DescribeShareGroupOffsetsResponsePartition(
        partition_index=index, start_offset=_NO_OFFSET, leader_epoch=0, error_code=ErrorCode.NONE
    )
    if state is None or state.error_code != ErrorCode.NONE:
        return described
    if isinstance(latest, ErrorCode):
        described.start_offset = 0
        described.error_code, described.error_message = latest, latest.message
        return described
    described.start_offset, described.leader_epoch = state.start_offset, state.leader_epoch
    if latest is not None:
        lag = latest - state.start_offset - state.delivery_complete_count
        # An administrator may set any start offset. The lag wraps around, as Java's integers do.
        described.lag = (lag + _INT64_HALF) % (2 * _INT64_HALF) - _INT64_HALF
    return described


def _failed(
    group_id: str, error: ErrorCode
) -> Generator[None, None, DescribeShareGroupOffsetsResponseGroup]:
    yield from ()
    return failed_offsets(group_id, error, error.message)


def failed_offsets(
    group_id: str, error: ErrorCode, message: str | None
) -> DescribeShareGroupOffsetsResponseGroup:
    """Return the description of a group's offsets with an error."""
    return DescribeShareGroupOffsetsResponseGroup(
        group_id=group_id, topics=[], error_code=error, error_message=message
    )


_UNKNOWN = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
_NO_OFFSETS = "There is no offset information to delete."


class ShareOffsetRequests:
    """Requests of administrators that change the offsets of share groups."""

    def __init__(
        self,
        runtime: CoordinatorRuntime[GroupShard],
        topics: TopicsView,
        store: ShareStateStore,
        initializer: ShareInitializer,
    ) -> None:
        self._runtime = runtime
        self._topics = topics
        self._store = store
        self._initializer = initializer

    def alter(
        self, request: AlterShareGroupOffsetsRequest, on_done: OnAltered
    ) -> Generator[None, None, None]:
        """Set start offsets of a group without members (version 0). Yields after each partition.

        Args:
            request: the group, its partitions and their offsets. A repeated topic counts as one.
            on_done: gets a generator that builds the response, after the share coordinators have
                answered; called once.
        """
        if not request.group_id:
            on_done(_altered(failed_alteration(ErrorCode.INVALID_GROUP_ID)))
            return
        offsets: dict[bytes, dict[int, int]] = {}
        # Missing topics come first, as in Kafka.
        missing: dict[str, AlterShareGroupOffsetsResponseTopic] = {}
        existing: dict[str, AlterShareGroupOffsetsResponseTopic] = {}
        for topic in request.topics:
            name = topic.topic_name
            topic_id = self._topics.topic_id(name)
            count = self._topics.partition_count(name)
            if topic_id is None and not topic.partitions:
                yield
                continue
            found = (missing if topic_id is None else existing).setdefault(
                name,
                AlterShareGroupOffsetsResponseTopic(
                    topic_name=name, topic_id=topic_id or ZERO_UUID, partitions=[]
                ),
            )
            own = {} if topic_id is None else offsets.setdefault(topic_id, {})
            for each in topic.partitions:
                error = _UNKNOWN
                if topic_id is not None and each.partition_index < 0:
                    # Kafka sends this error too, but remembers the partition: the group can never
                    # be deleted then.
                    on_done(_altered(failed_alteration(ErrorCode.UNKNOWN_SERVER_ERROR)))
                    return
                if 0 <= each.partition_index < count:
                    error = ErrorCode.NONE
                    own[each.partition_index] = each.start_offset
                found.partitions.append(_altered_partition(each.partition_index, error))
                yield
            yield
        response = AlterShareGroupOffsetsResponse(
            error_code=ErrorCode.NONE, responses=[*missing.values(), *existing.values()]
        )

        def on_begun(found: Alteration | None, error: ErrorCode) -> None:
            if found is None:
                on_done(_altered(failed_alteration(client_error(error))))
            elif found.error is not ErrorCode.NONE:
                on_done(_altered(failed_alteration(found.error, found.message)))
            elif found.initialization is None:
                on_done(_altered(response))
            else:
                self._initializer.alter(
                    found.initialization, lambda stored: on_done(_altered(response, stored))
                )

        self._runtime.write(
            request.group_id,
            lambda shard: shard.share_offsets.alter(request.group_id, offsets),
            on_begun,
        )

    def delete(
        self, request: DeleteShareGroupOffsetsRequest, on_done: OnDeleted
    ) -> Generator[None, None, None]:
        """Delete the offsets of topics of a group without members (version 0).

        Yields after each topic.

        Args:
            request: the group and its topics.
            on_done: gets the response after the state is deleted; called once.
        """
        group_id = request.group_id
        if not group_id:
            on_done(failed_deletion(ErrorCode.INVALID_GROUP_ID))
            return
        names: dict[bytes, str] = {}
        errors: list[DeleteShareGroupOffsetsResponseTopic] = []
        for topic in request.topics:
            topic_id = self._topics.topic_id(topic.topic_name)
            if topic_id is None:
                errors.append(_deleted(topic.topic_name, ZERO_UUID, _UNKNOWN, _UNKNOWN.message))
            else:
                names[topic_id] = topic.topic_name
            yield

        def on_begun(found: Deletion | None, error: ErrorCode) -> None:
            if found is None:
                on_done(failed_deletion(client_error(error)))
                return
            if found.error is not ErrorCode.NONE:
                on_done(failed_deletion(found.error, found.message))
                return
            results = errors if found.has_topics else []
            results += [
                _deleted(names[each], ZERO_UUID, _UNKNOWN, _NO_OFFSETS)
                for each in names
                if each in found.missing
            ]
            if found.deletion is None:
                on_done(_deletion(results))
            else:
                self._store.delete(
                    found.deletion,
                    lambda stored: self._complete_deletion(group_id, stored, results, on_done),
                )

        self._runtime.write(
            group_id, lambda shard: shard.share_offsets.begin_deletion(group_id, names), on_begun
        )

    def _complete_deletion(
        self,
        group_id: str,
        response: DeleteShareGroupStateResponse,
        errors: list[DeleteShareGroupOffsetsResponseTopic],
        on_done: OnDeleted,
    ) -> None:
        deleted: dict[bytes, DeleteShareGroupOffsetsResponseTopic] = {}
        for topic in response.results:
            name = self._topics.topic_name(topic.topic_id) or ""
            error = ErrorCode.of(next((e.error_code for e in topic.partitions if e.error_code), 0))
            if error is ErrorCode.NONE:
                deleted[topic.topic_id] = _deleted(name, topic.topic_id, error, None)
            else:
                errors.append(_deleted(name, topic.topic_id, error, error.message))
        if not deleted:
            on_done(_deletion(errors))
            return

        def on_completed(has_group: bool | None, error: ErrorCode) -> None:
            if error is not ErrorCode.NONE:
                on_done(failed_deletion(client_error(error)))
            else:
                on_done(_deletion([*(deleted.values() if has_group else ()), *errors]))

        self._runtime.write(
            group_id,
            lambda shard: shard.share_offsets.complete_deletion(group_id, deleted),
            on_completed,
        )


def _altered_partition(index: int, error: ErrorCode) -> AlterShareGroupOffsetsResponsePartition:
    return AlterShareGroupOffsetsResponsePartition(
        partition_index=index,
        error_code=error,
        error_message=None if error is ErrorCode.NONE else error.message,
    )


def _altered(
    response: AlterShareGroupOffsetsResponse,
    stored: InitializeShareGroupStateResponse | None = None,
) -> Generator[None, None, AlterShareGroupOffsetsResponse]:
    """Return the response with the errors of the share coordinators. Yields after each partition.

    Args:
        response: the response without these errors.
        stored: the response of the share coordinators; None if no request was sent.
    """
    errors = {
        (topic.topic_id, each.partition): each
        for topic in (() if stored is None else stored.results)
        for each in topic.partitions
        if each.error_code
    }
    if errors:
        for topic in response.responses:
            for partition in topic.partitions:
                error = errors.get((topic.topic_id, partition.partition_index))
                if error is not None and not partition.error_code:
                    partition.error_code = error.error_code
                    partition.error_message = error.error_message
                yield
    return response


def _deleted(
    name: str, topic_id: bytes, error: ErrorCode, message: str | None
) -> DeleteShareGroupOffsetsResponseTopic:
    return DeleteShareGroupOffsetsResponseTopic(
        topic_name=name, topic_id=topic_id, error_code=error, error_message=message
    )


def _deletion(
    topics: list[DeleteShareGroupOffsetsResponseTopic],
) -> DeleteShareGroupOffsetsResponse:
    return DeleteShareGroupOffsetsResponse(error_code=ErrorCode.NONE, responses=topics)


def failed_alteration(
    error: ErrorCode, message: str | None = None
) -> AlterShareGroupOffsetsResponse:
    """Return the response of AlterShareGroupOffsets with an error for the whole request."""
    return AlterShareGroupOffsetsResponse(
        error_code=error, error_message=message or error.message, responses=[]
    )


def failed_deletion(
    error: ErrorCode, message: str | None = None
) -> DeleteShareGroupOffsetsResponse:
    """Return the response of DeleteShareGroupOffsets with an error for the whole request."""
    return DeleteShareGroupOffsetsResponse(
        error_code=error, error_message=message or error.message, responses=[]
    )
