"""ShareGroupHeartbeat and ShareGroupDescribe, and the deletion of share groups (KIP-932)."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from barnabas.coordinator.group.refusal import RefusalError
from barnabas.coordinator.group.requests.group_descriptions import describe_groups
from barnabas.coordinator.group.share.described_shares import describe_share_group
from barnabas.coordinator.group.share.share_membership import (
    check_share_heartbeat,
    failed_share_heartbeat,
)
from barnabas.coordinator.runtime.coordinator_result import CoordinatorResult
from barnabas.coordinator.runtime.responses.append_errors import client_error
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.share_group_describe import DescribedGroup

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    from barnabas.coordinator.group.classic.joining import ClientIdentity
    from barnabas.coordinator.group.group_shard import GroupShard
    from barnabas.coordinator.group.share.share_membership import ShareHeartbeat
    from barnabas.coordinator.group.share.state_store import ShareStateStore
    from barnabas.coordinator.group.share_initializer import ShareInitializer
    from barnabas.coordinator.group.topics_view import TopicsView
    from barnabas.coordinator.runtime.coordinator_runtime import CoordinatorRuntime
    from barnabas.protocol.messages.delete_share_group_state import (
        DeleteShareGroupStateRequest,
        DeleteShareGroupStateResponse,
    )
    from barnabas.protocol.messages.share_group_heartbeat import (
        ShareGroupHeartbeatRequest,
        ShareGroupHeartbeatResponse,
    )


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


def failed_share_group(group_id: str, error: ErrorCode, message: str | None) -> DescribedGroup:
    """Return the description of a group with an error."""
    return DescribedGroup(
        error_code=error,
        error_message=message,
        group_id=group_id,
        group_state="",
        group_epoch=0,
        assignment_epoch=0,
        assignor_name="",
        members=[],
    )
