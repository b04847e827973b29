"""ShareGroupHeartbeat and ShareGroupDescribe, and the state of share partitions (KIP-932)."""

from __future__ import annotations

import logging
from functools import partial
from typing import TYPE_CHECKING

from barnabas.coordinator.group.group_base import RefusalError
from barnabas.coordinator.group.requests.group_requests import describe_groups, failed_description
from barnabas.coordinator.group.share.share_membership import (
    ASSIGNOR,
    check_share_heartbeat,
    failed_share_heartbeat,
)
from barnabas.coordinator.runtime.coordinator_record import CoordinatorResult
from barnabas.coordinator.runtime.responses import client_error
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.share_groups import (
    Assignment,
    DescribedGroup,
    Member,
    TopicPartitions,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    from barnabas.coordinator.group.classic.classic_membership import ClientIdentity
    from barnabas.coordinator.group.group_shard import GroupShard
    from barnabas.coordinator.group.share.share_group import ShareGroup, ShareMember
    from barnabas.coordinator.group.share.share_membership import ShareHeartbeat
    from barnabas.coordinator.group.share.share_state import ShareStateStore
    from barnabas.coordinator.group.topics import TopicsView
    from barnabas.coordinator.runtime.coordinator_runtime import CoordinatorRuntime
    from barnabas.protocol.messages.delete_share_group_state import (
        DeleteShareGroupStateRequest,
        DeleteShareGroupStateResponse,
    )
    from barnabas.protocol.messages.initialize_share_group_state import (
        InitializeShareGroupStateRequest,
        InitializeShareGroupStateResponse,
    )
    from barnabas.protocol.messages.share_consumers import (
        ShareGroupHeartbeatRequest,
        ShareGroupHeartbeatResponse,
    )


def describe_share_group(group: ShareGroup, topics: TopicsView) -> DescribedGroup:
    """Return epochs, state and members of a group."""
    return DescribedGroup(
        error_code=ErrorCode.NONE,
        group_id=group.group_id,
        group_state=group.state.value,
        group_epoch=group.group_epoch,
        assignment_epoch=group.assignment_epoch,
        assignor_name=ASSIGNOR,
        members=[_described(member, topics) for member in group.members.values()],
    )


def _described(member: ShareMember, topics: TopicsView) -> Member:
    assigned = []
    for topic_id, indexes in sorted(member.assigned.items()):
        name = topics.topic_name(topic_id)
        if name is not None:
            assigned.append(
                TopicPartitions(topic_id=topic_id, topic_name=name, partitions=sorted(indexes))
            )
    return Member(
        member_id=member.member_id,
        rack_id=member.rack_id,
        member_epoch=member.member_epoch,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=sorted(member.subscribed_topic_names),
        assignment=Assignment(topic_partitions=assigned),
    )


_log = logging.getLogger(__name__)


class ShareInitializer:
    """Sends the initializations of all shards of this broker."""

    __slots__ = ("_runtime", "_store")

    def __init__(self, runtime: CoordinatorRuntime[GroupShard], store: ShareStateStore) -> None:
        self._runtime = runtime
        self._store = store

    def initialize(self, request: InitializeShareGroupStateRequest) -> None:
        """Initialize the partitions that a heartbeat requests.

        If one of them fails, all are given up, and a later heartbeat requests them again.
        """
        self._store.initialize(
            request, lambda response: self._record(request.group_id, response, is_altered=False)
        )

    def alter(
        self,
        request: InitializeShareGroupStateRequest,
        on_response: Callable[[InitializeShareGroupStateResponse], None],
    ) -> None:
        """Set the offsets of partitions. The response does not wait for the record of the result.

        Args:
            request: the partitions and their offsets.
            on_response: gets the response of the share coordinators.
        """

        def respond(response: InitializeShareGroupStateResponse) -> None:
            self._record(request.group_id, response, is_altered=True)
            on_response(response)

        self._store.initialize(request, respond)

    def _record(
        self, group_id: str, response: InitializeShareGroupStateResponse, *, is_altered: bool
    ) -> None:
        """Record that partitions are initialized.

        If the offsets are altered, this does not wait for other writes of the turn: the response
        follows, and the client's next request must see the result.
        """
        partitions = {
            topic.topic_id: frozenset(each.partition for each in topic.partitions)
            for topic in response.results
        }
        error = first_error(response)
        if error is not ErrorCode.NONE:
            _log.warning(
                "Cannot initialize share partitions: group=%s error=%s", group_id, error.name
            )
            if not is_altered:
                self._give_up(group_id, partitions)
            return

        def on_written(_: None, error: ErrorCode) -> None:
            if error is not ErrorCode.NONE:
                _log.warning(
                    "Cannot record initialized share partitions: group=%s error=%s",
                    group_id,
                    error.name,
                )
                self._give_up(group_id, partitions)

        write = self._runtime.write if is_altered else self._runtime.write_jointly
        write(group_id, lambda shard: shard.share_state.complete(group_id, partitions), on_written)

    def _give_up(self, group_id: str, partitions: dict[bytes, frozenset[int]]) -> None:
        def on_written(_: None, error: ErrorCode) -> None:
            if error is not ErrorCode.NONE:
                # The initialization is repeated after group.share.initialize.retry.interval.ms.
                _log.warning(
                    "Cannot give up share partitions: group=%s error=%s", group_id, error.name
                )

        self._runtime.write(
            group_id, lambda shard: shard.share_state.give_up(group_id, partitions), on_written
        )


def first_error(response: InitializeShareGroupStateResponse) -> ErrorCode:
    """Return the error of the first partition that has one, or NONE."""
    codes = (each.error_code for topic in response.results for each in topic.partitions)
    return ErrorCode.of(next((code for code in codes if code != ErrorCode.NONE), ErrorCode.NONE))


class ShareRequests:
    """Requests for share groups."""

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

    def heartbeat(
        self,
        request: ShareGroupHeartbeatRequest,
        client: ClientIdentity,
        on_done: Callable[[ShareGroupHeartbeatResponse], None],
    ) -> None:
        """Handle ShareGroupHeartbeat, version 1.

        Args:
            request: the request.
            client: the client that sent it.
            on_done: gets the response when its records are committed.
        """

        def respond(found: ShareHeartbeat | None, error: ErrorCode) -> None:
            if found is None:
                on_done(failed_share_heartbeat(client_error(error), None))
                return
            on_done(found.response)
            if found.initialization is not None:
                self._initializer.initialize(found.initialization)

        try:
            check_share_heartbeat(request)
        except RefusalError as error:
            on_done(failed_share_heartbeat(error.error, error.message))
            return
        self._runtime.write_jointly(
            request.group_id, lambda shard: shard.shares.heartbeat(request, client), respond
        )

    def describe(
        self, group_ids: list[str], on_done: Callable[[list[DescribedGroup]], None]
    ) -> Generator[None, None, None]:
        """Describe share groups (version 1), as `describe_groups`."""

        def describe(shard: GroupShard, group_id: str) -> DescribedGroup:
            return describe_share_group(shard.share_groups.groups.require(group_id), self._topics)

        return describe_groups(self._runtime, group_ids, describe, failed_share_group, on_done)

    def delete_state(self, group_id: str, on_done: Callable[[ErrorCode], None]) -> None:
        """Delete the state of a share group that will be deleted. Do nothing for other groups.

        Args:
            group_id: the group.
            on_done: gets NONE if the group may be deleted now; called once.
        """

        def on_deleted(response: DeleteShareGroupStateResponse) -> None:
            codes = (each.error_code for topic in response.results for each in topic.partitions)
            on_done(ErrorCode.of(next((code for code in codes if code), 0)))

        def on_begun(
            request: DeleteShareGroupStateRequest | ErrorCode | None, error: ErrorCode
        ) -> None:
            if error is not ErrorCode.NONE:
                on_done(client_error(error))
            elif isinstance(request, ErrorCode):
                on_done(request)
            elif request is None:
                on_done(ErrorCode.NONE)
            else:
                self._store.delete(request, on_deleted)

        self._runtime.write(group_id, partial(_begin_deletion, group_id), on_begun)


def _begin_deletion(
    group_id: str, shard: GroupShard
) -> CoordinatorResult[DeleteShareGroupStateRequest | ErrorCode | None]:
    """Return the request that deletes the state of a group without members, if it has any."""
    group = shard.share_groups.groups.find(group_id)
    if group is None:
        return CoordinatorResult(None)
    if group.members:
        return CoordinatorResult(ErrorCode.NON_EMPTY_GROUP)
    records, request = shard.share_state.delete_all(group)
    return CoordinatorResult(request, records)


failed_share_group = partial(failed_description, DescribedGroup, assignor_name="")
