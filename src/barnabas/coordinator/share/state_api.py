"""The APIs of share coordinators (keys 83 to 87, KIP-932): how requests and responses are made.

All have the same shape: one group, topics by id, and partitions, each with its own result.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from barnabas.coordinator.share.share_partition_state import (
    NO_DELIVERY_COMPLETE_COUNT,
    NO_START_OFFSET,
    StateChange,
    StateOutcome,
)
from barnabas.coordinator.share.share_record import batches_as, state_batches
from barnabas.coordinator.share.share_shard import STATE_BATCHES_MAX, ShareStateShard
from barnabas.protocol.api_table import ApiKey
from barnabas.protocol.messages import (
    delete_share_group_state as delete,
    initialize_share_group_state as initialize,
    read_share_group_state as read,
    read_share_group_state_summary as summary,
    write_share_group_state as write,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from barnabas.coordinator.runtime.coordinator_record import CoordinatorResult
    from barnabas.coordinator.share.share_partition_state import SharePartitionKey
    from barnabas.protocol.errors import ErrorCode
    from barnabas.protocol.schema import Message

    Operation = Callable[[ShareStateShard, SharePartitionKey, Any], CoordinatorResult[StateOutcome]]


class StateApi(msgspec.Struct, frozen=True):
    """One API: the classes of its messages, and its operation on a share partition."""

    key: ApiKey
    # Highest version.
    version: int
    # Name of the operation in error messages.
    action: str
    # Classes of the request, of its topics, of the response, and of its topics.
    request: type[Message]
    topic: Any
    response: type[Message]
    topic_result: Any
    # Applies the part of a request for one share partition.
    operation: Operation
    # Returns the result of a partition.
    result: Callable[[int, StateOutcome], Any]

    def make_request(self, group_id: str, topics: Mapping[bytes, list[Any]]) -> Message:
        """Return the request for these partitions of each topic id."""
        parts = [
            self.topic(topic_id=topic_id, partitions=partitions)
            for topic_id, partitions in topics.items()
        ]
        make: Any = self.request
        made: Message = make(group_id=group_id, topics=parts)
        return made

    def make_response(self, topics: Iterable[tuple[bytes, Iterable[Any]]]) -> Message:
        """Return the response with these topic ids and their results."""
        results = [
            self.topic_result(topic_id=topic_id, partitions=list(partitions))
            for topic_id, partitions in topics
        ]
        make: Any = self.response
        made: Message = make(results=results)
        return made

    def refuse(self, partition: int, error: ErrorCode, message: str | None = None) -> Any:
        """Return the result of a refused partition. Without a message, it has the error's own."""
        text = error.message if message is None else message
        return self.result(partition, StateOutcome(error, text))


def _write(
    shard: ShareStateShard, key: SharePartitionKey, requested: write.PartitionData
) -> CoordinatorResult[StateOutcome]:
    # Batches beyond the limit are not converted, since the shard refuses the change.
    batches = requested.state_batches[: STATE_BATCHES_MAX + 1]
    change = StateChange(
        state_epoch=requested.state_epoch,
        leader_epoch=requested.leader_epoch,
        start_offset=requested.start_offset,
        delivery_complete_count=requested.delivery_complete_count,
        state_batches=state_batches(batches),
    )
    return shard.write(key, change)


def _error_result(kind: Callable[..., Any]) -> Callable[[int, StateOutcome], Any]:
    """Return a function that makes the result of a partition with nothing but an error."""
    return lambda partition, outcome: kind(
        partition=partition, error_code=outcome.error, error_message=outcome.message
    )


def _read_result(partition: int, outcome: StateOutcome) -> read.PartitionResult:
    state = outcome.state
    return read.PartitionResult(
        partition=partition,
        error_code=outcome.error,
        error_message=outcome.message,
        state_epoch=0 if state is None else state.state_epoch,
        start_offset=0 if state is None else state.start_offset,
        state_batches=batches_as(read.StateBatch, [] if state is None else state.state_batches),
    )


def _summary_result(partition: int, outcome: StateOutcome) -> summary.PartitionResult:
    state = outcome.state
    if state is not None:
        return summary.PartitionResult(
            partition=partition,
            error_code=outcome.error,
            error_message=outcome.message,
            state_epoch=state.state_epoch,
            leader_epoch=state.leader_epoch,
            start_offset=state.start_offset,
            delivery_complete_count=state.delivery_complete_count,
        )
    return summary.PartitionResult(
        partition=partition,
        error_code=outcome.error,
        error_message=outcome.message,
        state_epoch=0,
        leader_epoch=0,
        # A share partition without state has no start offset.
        start_offset=0 if outcome.error else NO_START_OFFSET,
        delivery_complete_count=NO_DELIVERY_COMPLETE_COUNT,
    )


INITIALIZE = StateApi(
    key=ApiKey.INITIALIZE_SHARE_GROUP_STATE,
    version=0,
    action="initialize share group state",
    request=initialize.InitializeShareGroupStateRequest,
    topic=initialize.InitializeStateData,
    response=initialize.InitializeShareGroupStateResponse,
    topic_result=initialize.InitializeStateResult,
    operation=lambda shard, key, requested: shard.initialize(
        key, requested.state_epoch, requested.start_offset
    ),
    result=_error_result(initialize.PartitionResult),
)
READ = StateApi(
    key=ApiKey.READ_SHARE_GROUP_STATE,
    version=0,
    action="read share group state",
    request=read.ReadShareGroupStateRequest,
    topic=read.ReadStateData,
    response=read.ReadShareGroupStateResponse,
    topic_result=read.ReadStateResult,
    operation=lambda shard, key, requested: shard.read(key, requested.leader_epoch),
    result=_read_result,
)
WRITE = StateApi(
    key=ApiKey.WRITE_SHARE_GROUP_STATE,
    version=1,
    action="write share group state",
    request=write.WriteShareGroupStateRequest,
    topic=write.WriteStateData,
    response=write.WriteShareGroupStateResponse,
    topic_result=write.WriteStateResult,
    operation=_write,
    result=_error_result(write.PartitionResult),
)
DELETE = StateApi(
    key=ApiKey.DELETE_SHARE_GROUP_STATE,
    version=0,
    action="delete share group state",
    request=delete.DeleteShareGroupStateRequest,
    topic=delete.DeleteStateData,
    response=delete.DeleteShareGroupStateResponse,
    topic_result=delete.DeleteStateResult,
    operation=lambda shard, key, _requested: shard.delete(key),
    result=_error_result(delete.PartitionResult),
)
READ_SUMMARY = StateApi(
    key=ApiKey.READ_SHARE_GROUP_STATE_SUMMARY,
    version=1,
    action="read share group state summary",
    request=summary.ReadShareGroupStateSummaryRequest,
    topic=summary.ReadStateSummaryData,
    response=summary.ReadShareGroupStateSummaryResponse,
    topic_result=summary.ReadStateSummaryResult,
    operation=lambda shard, key, _requested: shard.read_summary(key),
    result=_summary_result,
)
ALL = (INITIALIZE, READ, WRITE, DELETE, READ_SUMMARY)
