"""Requests for groups of any kind: describe, list and delete."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, TypeVar

from barnabas.coordinator.group.classic.classic_group import ClassicGroup, GroupState
from barnabas.coordinator.group.group_base import RefusalError
from barnabas.coordinator.group.streams.streams_group import StreamsGroupState
from barnabas.coordinator.runtime.coordinator_record import CoordinatorResult
from barnabas.coordinator.runtime.responses import client_error
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.committed_offsets import (
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)
from barnabas.protocol.messages.groups import (
    DeletableGroupResult,
    DeleteGroupsResponse,
    DescribedGroup,
    DescribedGroupMember,
    ListedGroup,
    ListGroupsResponse,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Generator
    from enum import Enum

    from barnabas.coordinator.group.group_shard import GroupShard
    from barnabas.coordinator.group.offset_store import PartitionKey
    from barnabas.coordinator.group.topics import TopicsView
    from barnabas.coordinator.runtime.coordinator_runtime import CoordinatorRuntime
    from barnabas.protocol.messages.committed_offsets import OffsetDeleteRequest
    from barnabas.protocol.messages.groups import ListGroupsRequest


D = TypeVar("D")


def describe_groups(
    runtime: CoordinatorRuntime[GroupShard],
    group_ids: list[str],
    describe: Callable[[GroupShard, str], D],
    failed: Callable[[str, ErrorCode, str | None], D],
    on_done: Callable[[list[D]], None],
) -> Generator[None, None, None]:
    """Describe groups. Yields after each group.

    A response waits for the commit of the records that it shows.

    Args:
        runtime: the shards.
        group_ids: the groups.
        describe: returns the description of a group in its shard. Raises RefusalError.
        failed: returns the description of a group with an error and perhaps a message.
        on_done: gets the descriptions in the order of `group_ids`; called once.
    """
    found: dict[int, D] = {}

    def on_described(index: int, described: D | None, error: ErrorCode) -> None:
        if described is None:
            described = failed(group_ids[index], client_error(error), None)
        found[index] = described
        if len(found) == len(group_ids):
            on_done([found[each] for each in range(len(group_ids))])

    def operation(group_id: str, shard: GroupShard) -> CoordinatorResult[D]:
        try:
            return CoordinatorResult(describe(shard, group_id))
        except RefusalError as error:
            return CoordinatorResult(failed(group_id, error.error, error.message))

    if not group_ids:
        on_done([])
    for index, group_id in enumerate(group_ids):
        if not group_id:
            on_described(index, None, ErrorCode.INVALID_GROUP_ID)
        else:
            runtime.write(group_id, partial(operation, group_id), partial(on_described, index))
        yield


def failed_description(
    kind: Callable[..., D],
    group_id: str,
    error: ErrorCode,
    message: str | None = None,
    **more: str,
) -> D:
    """Return the description of a group with an error.

    Args:
        kind: the class of the description.
        group_id: the group.
        error: the error.
        message: the error message.
        more: fields that only some kinds have.
    """
    return kind(
        error_code=error,
        error_message=message,
        group_id=group_id,
        group_state="",
        group_epoch=0,
        assignment_epoch=0,
        members=[],
        **more,
    )


_NOT_FOUND_IS_AN_ERROR_SINCE = 6


class GroupRequests:
    """Requests of administrators about groups."""

    def __init__(
        self,
        runtime: CoordinatorRuntime[GroupShard],
        topics: TopicsView,
        delete_share_state: Callable[[str, Callable[[ErrorCode], None]], None],
    ) -> None:
        self._runtime = runtime
        self._topics = topics
        # Deletes the state of a share group, before the group is deleted.
        self._delete_share_state = delete_share_state

    # DescribeGroups.

    def describe(self, group_id: str, version: int) -> DescribedGroup:
        """Return one group for DescribeGroups (versions 0 to 6), or an error.

        A group that does not exist has the state Dead. From version 6 on it also has an error.
        """
        found = self._runtime.read(group_id, lambda shard: _describe(shard, group_id))
        if isinstance(found, ErrorCode):
            return failed_classic_group(group_id, found)
        if isinstance(found, DescribedGroup):
            return found
        dead = failed_classic_group(group_id, ErrorCode.NONE)
        dead.group_state = GroupState.DEAD.value
        if version >= _NOT_FOUND_IS_AN_ERROR_SINCE:
            dead.error_code = ErrorCode.GROUP_ID_NOT_FOUND
            dead.error_message = found
        return dead

    # ListGroups.

    def list_groups(self, request: ListGroupsRequest) -> Generator[None, None, ListGroupsResponse]:
        """Return the groups of this broker (versions 0 to 5), filtered by state and type.

        It returns an error until all shards are loaded. Yields before each group.
        """
        if self._runtime.is_loading:
            error = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
            return ListGroupsResponse(error_code=error, groups=[])
        states = {each.lower() for each in request.states_filter}
        types = {each.lower() for each in request.types_filter}
        listed: list[ListedGroup] = []
        for shard in self._runtime.active_shards():
            for kind in shard.kinds():
                for group in kind.all():
                    yield
                    if (states and _filter_name(group.state) not in states) or (
                        types and kind.kind not in types
                    ):
                        continue
                    protocol_type: str | None = kind.kind
                    if isinstance(group, ClassicGroup):
                        protocol_type = group.protocol_type
                    listed.append(
                        ListedGroup(
                            group_id=group.group_id,
                            protocol_type=protocol_type or "",
                            group_state=group.state.value,
                            group_type=kind.kind,
                        )
                    )
        return ListGroupsResponse(error_code=ErrorCode.NONE, groups=listed)

    # DeleteGroups.

    def delete(
        self, group_ids: list[str], on_done: Callable[[DeleteGroupsResponse], None]
    ) -> Generator[None, None, None]:
        """Delete groups without members (versions 0 to 3). Yields after each group.

        Args:
            group_ids: the groups.
            on_done: gets the response after all deletions are done.
        """
        results: dict[str, DeletableGroupResult] = {}
        for group_id in group_ids:
            results[group_id] = DeletableGroupResult(group_id=group_id, error_code=ErrorCode.NONE)
            yield
        left = set(results)

        def on_deleted(group_id: str, found: ErrorCode | None, error: ErrorCode) -> None:
            results[group_id].error_code = error if found is None else found
            left.remove(group_id)
            if not left:
                on_done(DeleteGroupsResponse(results=list(results.values())))

        if not results:
            on_done(DeleteGroupsResponse(results=[]))
        for group_id in list(results):
            yield
            self._delete(group_id, partial(on_deleted, group_id))

    def _delete(
        self, group_id: str, on_done: Callable[[ErrorCode | None, ErrorCode], None]
    ) -> None:
        def on_state_deleted(error: ErrorCode) -> None:
            if error is not ErrorCode.NONE:
                on_done(None, error)
            else:
                self._runtime.write(group_id, lambda shard: shard.delete_group(group_id), on_done)

        self._delete_share_state(group_id, on_state_deleted)

    # OffsetDelete.

    def delete_offsets(
        self,
        request: OffsetDeleteRequest,
        on_done: Callable[[Generator[None, None, OffsetDeleteResponse]], None],
    ) -> Generator[None, None, None]:
        """Delete offsets of topics without subscribers (version 0). Yields after each partition.

        Args:
            request: the request.
            on_done: gets a generator that builds the response.
        """
        known: list[PartitionKey] = []
        # Errors of topics and partitions that do not exist now. They may exist when the response is
        # built.
        unknown: dict[str, OffsetDeleteResponseTopic] = {}
        for topic in request.topics:
            yield
            if self._topics.topic_id(topic.name) is None:
                # The topic appears in the response even if the request has no partitions for it.
                made = OffsetDeleteResponseTopic(name=topic.name, partitions=[])
                unknown.setdefault(topic.name, made)
            for each in topic.partitions:
                key = (topic.name, each.partition_index)
                if self._topics.has_partition(*key):
                    known.append(key)
                else:
                    _add(unknown, key, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
                yield

        def on_deleted(
            found: dict[PartitionKey, ErrorCode] | ErrorCode | None, error: ErrorCode
        ) -> None:
            outcome = found if isinstance(found, dict) else found or error
            on_done(_deleted_offsets(request, outcome, unknown))

        if not request.group_id:
            on_deleted(None, ErrorCode.INVALID_GROUP_ID)
        else:
            self._runtime.write(
                request.group_id,
                lambda shard: shard.offset_changes.delete(request.group_id, known),
                on_deleted,
            )


def _deleted_offsets(
    request: OffsetDeleteRequest,
    found: dict[PartitionKey, ErrorCode] | ErrorCode,
    unknown: dict[str, OffsetDeleteResponseTopic],
) -> Generator[None, None, OffsetDeleteResponse]:
    """Return the response. Yields after each partition.

    Args:
        request: the request.
        found: the result of each existing partition, or one error for all.
        unknown: response topics that do not exist. They come first, as in Kafka.
    """
    if not isinstance(found, dict):
        return OffsetDeleteResponse(error_code=found, topics=[])
    topics: list[OffsetDeleteResponseTopic] = []
    for topic in request.topics:
        # If all partitions exist, a topic that the request has twice is in the response twice.
        responses = unknown or {}
        for each in topic.partitions:
            key = (topic.name, each.partition_index)
            if key in found:
                _add(responses, key, found[key])
            yield
        if not unknown:
            topics += responses.values()
        yield
    return OffsetDeleteResponse(
        error_code=ErrorCode.NONE, topics=list(unknown.values()) if unknown else topics
    )


def _add(topics: dict[str, OffsetDeleteResponseTopic], key: PartitionKey, error: ErrorCode) -> None:
    name, index = key
    topic = topics.setdefault(name, OffsetDeleteResponseTopic(name=name, partitions=[]))
    topic.partitions.append(OffsetDeleteResponsePartition(partition_index=index, error_code=error))


def _filter_name(state: Enum) -> str:
    """Return the name of a group's state in filters."""
    return state.filter_name if isinstance(state, StreamsGroupState) else state.value.lower()


def _describe(shard: GroupShard, group_id: str) -> DescribedGroup | str:
    """Return the description of a classic group, or why there is none."""
    try:
        group = shard.classic_groups.require(group_id)
    except RefusalError as error:
        return error.message
    # Between generations, members have no common protocol. Show their last assignment.
    is_stable = group.is_in(GroupState.STABLE)
    return DescribedGroup(
        error_code=ErrorCode.NONE,
        group_id=group_id,
        group_state=group.state.value,
        protocol_type=group.protocol_type or "",
        protocol_data=(group.protocol_name or "") if is_stable else "",
        members=_members(group, group.protocol_name if is_stable else None),
    )


def _members(group: ClassicGroup, protocol: str | None) -> list[DescribedGroupMember]:
    return [
        DescribedGroupMember(
            member_id=member.id,
            group_instance_id=member.identity.group_instance_id,
            client_id=member.identity.client_id,
            client_host=member.identity.client_host,
            member_metadata=b"" if protocol is None else member.protocols[protocol],
            member_assignment=member.assignment,
        )
        for member in group.members.values()
    ]


def failed_classic_group(group_id: str, error: ErrorCode) -> DescribedGroup:
    """Return the description of a classic group with an error."""
    return DescribedGroup(
        error_code=error,
        group_id=group_id,
        group_state="",
        protocol_type="",
        protocol_data="",
        members=[],
    )
