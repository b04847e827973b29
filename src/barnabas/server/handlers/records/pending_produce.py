"""A Produce request between its arrival and its response.

A request with thousands of partitions takes several turns of the event loop. Its steps are the same
as those of a small request, which are all done in one turn.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.produce import (
    BatchIndexAndErrorMessage,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceResponse,
)
from barnabas.replication.requests.delayed_writes import DelayedProduce
from barnabas.server.conversion.old_versions import PRODUCE_MAGIC_2_SINCE
from barnabas.server.conversion.produced_records import Refusal, checked_records
from barnabas.server.dispatch.slices import drained
from barnabas.waiting.steps import in_parts

if TYPE_CHECKING:
    from collections.abc import Generator

    from barnabas.replication.partition.results import ProduceResult
    from barnabas.replication.requests.delayed_writes import DeferredAppend
    from barnabas.server.cluster.cluster_view import ClusterView
    from barnabas.server.dispatch.request import RequestContext
    from barnabas.storage.topic_partition import TopicPartition

    Steps = Generator[None, None, None]


_LEADER_SINCE = 10
# Partitions in one step of a wide request.
_AT_ONCE = 200
# Cached member: access to an enum member costs 100 ns, as much as a function call.
_NONE = ErrorCode.NONE


class PendingProduce:
    """A pending produce request and its response."""

    __slots__ = (
        "_acks",
        "_cluster",
        "_is_working",
        "context",
        "has_failed",
        "has_transactional_id",
        "is_wide",
        "partition_responses",
        "refusal",
        "response",
    )

    def __init__(
        self,
        context: RequestContext,
        acks: int,
        cluster: ClusterView,
        *,
        has_transactional_id: bool,
    ) -> None:
        self.context = context
        # Whether the request is served in several turns of the loop. Its records are then copies.
        self.is_wide = False
        # Whether the request has a transactional id, without which no batch may be transactional.
        self.has_transactional_id = has_transactional_id
        self._acks = acks
        self._cluster = cluster
        # Results in the order of the request.
        self.response = ProduceResponse(responses=[])
        # Results of the partitions whose topic was found and may be written. The values are parts
        # of `response`, except for partitions whose result `overrule` has replaced.
        self.partition_responses: dict[TopicPartition, PartitionProduceResponse] = {}
        # Whether any partition has an error. Never reset.
        self.has_failed = False
        # First error that rejects the whole request: a batch of a transaction that the request does
        # not name, or bytes that are not a valid batch.
        self.refusal: Refusal | None = None
        # Whether reading from the connection is paused until the records are validated.
        self._is_working = False

    def run(self, steps: Steps) -> None:
        """Run steps that may send the response."""
        if self.is_wide:
            self.context.complete_in_slices(steps)
        else:
            for _ in steps:
                pass

    def merge_partitions(
        self, partitions: list[PartitionProduceData]
    ) -> Generator[None, None, tuple[list[PartitionProduceData], dict[int, Refusal]]]:
        """Merge repeated partitions. As in Kafka, the last valid records of a partition count.

        Returns:
            The data to append, and an error for each repeated partition that also has invalid
            records. The response has this error, although the valid records are appended.
        """
        merged = {data.index: data for data in partitions}
        refused: dict[int, Refusal] = {}
        if len(merged) < len(partitions) and self.context.version >= PRODUCE_MAGIC_2_SINCE:
            for number, data in enumerate(partitions, 1):
                if number % _AT_ONCE == 0:
                    yield
                refusal = self.validate(data)
                if refusal is None:
                    merged[data.index] = data
                else:
                    refused[data.index] = refusal
        return list(merged.values()), refused

    def overrule(self, key: TopicPartition, refusal: Refusal) -> None:
        """Report an error for a partition, regardless of the result of its append."""
        self.refuse_one(self.partition_responses[key], refusal)
        self.partition_responses[key] = PartitionProduceResponse(
            index=key.partition, error_code=_NONE, base_offset=-1
        )

    def validate(self, data: PartitionProduceData) -> Refusal | None:
        """Validate records that are not appended, because they may reject the whole request.

        Returns:
            The error of the records, or None.
        """
        checked = checked_records(data.records, self.context.version, self.has_transactional_id)
        if not isinstance(checked, tuple):
            return None
        self._note_request_refusal(checked)
        return checked

    def refuse_one(self, partition_response: PartitionProduceResponse, refusal: Refusal) -> None:
        """Set the error of a partition whose records are not appended."""
        self.has_failed = True
        partition_response.error_code = refusal.error
        self._note_request_refusal(refusal)

    def _note_request_refusal(self, refusal: Refusal) -> None:
        if refusal.of_request and self.refusal is None:
            self.refusal = refusal

    def refuse_all(self, refusal: Refusal) -> None:
        """Set the error of every partition: no records of the request are appended."""
        self.has_failed = True
        for topic in self.response.responses:
            for partition_response in topic.partition_responses:
                partition_response.error_code = refusal.error
                partition_response.error_message = refusal.message or None

    def fail(self, key: TopicPartition, error: ErrorCode, message: str | None) -> None:
        """Set the error of a partition whose transaction could not be verified."""
        partition_response = self.partition_responses[key]
        self.has_failed = True
        partition_response.error_code = error
        partition_response.error_message = message

    def begin_work(self) -> None:
        """Stop reading from the connection until the records are appended."""
        if not self._is_working:
            self._is_working = True
            self.context.connection.begin_work()

    def wait_for(self, operation: DelayedProduce | DeferredAppend) -> None:
        """Wait for an operation that completes later.

        While the records are validated, no later request of the connection is read, as in Kafka: a
        batch must not overtake an earlier one.
        """
        self.context.on_client_gone(operation.cancel)
        if not isinstance(operation, DelayedProduce):
            self.begin_work()

    def on_joint_append(self, now_ms: float, must_wait: bool) -> None:
        """Count the time until `now_ms`. `on_appended` follows, now or after the wait."""
        self.context.end_joint(now_ms, must_wait)

    def on_appended(self, results: dict[TopicPartition, ProduceResult]) -> None:
        """Send the response with the result of each partition."""
        try:
            if self.is_wide:
                self.context.complete_in_slices(self._complete_in_steps(results))
            else:
                self._fill(results)
                self._complete()
        except AssertionError:
            raise
        except Exception as error:  # noqa: BLE001 - other requests are completed by the same call
            self.context.give_up(error)

    def _complete_in_steps(self, results: dict[TopicPartition, ProduceResult]) -> Steps:
        for part in in_parts(list(results.items()), _AT_ONCE):
            self._fill(dict(part))
            yield
        # Each response has a second reference here. Drop it, so that `release` can free some of
        # them in each step.
        for number, _ in enumerate(drained(self.partition_responses), 1):
            if number % _AT_ONCE == 0:
                yield
        self._complete()

    def _fill(self, results: dict[TopicPartition, ProduceResult]) -> None:
        partition_responses = self.partition_responses
        for key, result in results.items():
            partition_response = partition_responses[key]
            partition_response.base_offset = result.base_offset
            partition_response.log_append_time_ms = result.log_append_time
            partition_response.log_start_offset = result.log_start_offset
            if result.error is not _NONE:
                self.has_failed = True
                _fill_error(partition_response, result)
                self._maybe_name_leader(key.topic, partition_response)

    def _complete(self) -> None:
        if self._is_working:
            self.context.connection.end_work()
        if self._acks != 0:
            self.context.respond(self.response, is_clean=not self.has_failed)
        elif self.has_failed:
            self.context.close_connection()
        else:
            self.context.respond_nothing()

    def _maybe_name_leader(self, topic: str, partition_response: PartitionProduceResponse) -> None:
        moved = partition_response.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        if not moved or self.context.version < _LEADER_SINCE:
            return
        partition = self._cluster.partition(topic, partition_response.index)
        if partition is None:
            return
        partition_response.current_leader = LeaderIdAndEpoch(
            leader_id=partition.leader, leader_epoch=partition.leader_epoch
        )
        endpoint = self._cluster.endpoint(partition.leader, self.context.listener_name)
        if endpoint is not None:
            self.response.node_endpoints.append(
                NodeEndpoint(node_id=partition.leader, host=endpoint.host, port=endpoint.port)
            )


def _fill_error(partition_response: PartitionProduceResponse, result: ProduceResult) -> None:
    partition_response.error_code = result.error
    partition_response.error_message = result.error_message
    partition_response.record_errors = [
        BatchIndexAndErrorMessage(batch_index=index, batch_index_error_message=message)
        for index, message in result.record_errors
    ]
