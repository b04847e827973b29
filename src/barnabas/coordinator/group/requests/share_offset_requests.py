"""AlterShareGroupOffsets and DeleteShareGroupOffsets (KIP-932)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.coordinator.runtime.responses.append_errors import client_error
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.alter_share_group_offsets import (
    AlterShareGroupOffsetsResponse,
    AlterShareGroupOffsetsResponsePartition,
    AlterShareGroupOffsetsResponseTopic,
)
from barnabas.protocol.messages.delete_share_group_offsets import (
    DeleteShareGroupOffsetsResponse,
    DeleteShareGroupOffsetsResponseTopic,
)
from barnabas.protocol.primitives import ZERO_UUID

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    from barnabas.coordinator.group.group_shard import GroupShard
    from barnabas.coordinator.group.share.share_offsets import Alteration, Deletion
    from barnabas.coordinator.group.share.state_store import ShareStateStore
    from barnabas.coordinator.group.share_initializer import ShareInitializer
    from barnabas.coordinator.group.topics_view import TopicsView
    from barnabas.coordinator.runtime.coordinator_runtime import CoordinatorRuntime
    from barnabas.protocol.messages.alter_share_group_offsets import AlterShareGroupOffsetsRequest
    from barnabas.protocol.messages.delete_share_group_offsets import (
        DeleteShareGroupOffsetsRequest,
    )
    from barnabas.protocol.messages.delete_share_group_state import DeleteShareGroupStateResponse
    from barnabas.protocol.messages.initialize_share_group_state import (
        InitializeShareGroupStateResponse,
    )

    OnAltered = Callable[[Generator[None, None, AlterShareGroupOffsetsResponse]], None]
    OnDeleted = Callable[[DeleteShareGroupOffsetsResponse], None]

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
