"""OffsetForLeaderEpoch (key 23, v0-4): find the end offset of an epoch (KIP-101, KIP-320)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.protocol.messages.log_offsets import (
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopicResult,
)
from barnabas.storage.topic_partition import TopicPartition
from barnabas.waiting.steps import gradually

if TYPE_CHECKING:
    from collections.abc import Generator

    from barnabas.server.dispatch.request import Handle, RequestContext
    from barnabas.server.handlers.dependencies import BrokerDependencies


def handler(dependencies: BrokerDependencies) -> Handle:
    """Return the handler that finds end offsets of leader epochs."""
    return OffsetForLeaderEpochHandler(dependencies).handle_offset_for_leader_epoch


class OffsetForLeaderEpochHandler:
    """Looks up leader epochs in the log of each partition."""

    __slots__ = ("_replicas",)

    def __init__(self, dependencies: BrokerDependencies) -> None:
        self._replicas = dependencies.replicas

    def handle_offset_for_leader_epoch(
        self,
        context: RequestContext,
        request: OffsetForLeaderEpochRequest,
    ) -> OffsetForLeaderEpochResponse | None:
        """Find the end offset of the requested epoch for each partition."""
        return context.in_slices(self._build_response(request))

    def _build_response(
        self, request: OffsetForLeaderEpochRequest
    ) -> Generator[None, None, OffsetForLeaderEpochResponse]:
        topics: list[OffsetForLeaderTopicResult] = []
        for topic in request.topics:
            ends = yield from gradually(
                self._end(topic.topic, requested) for requested in topic.partitions
            )
            topics.append(OffsetForLeaderTopicResult(topic=topic.topic, partitions=ends))
            yield
        return OffsetForLeaderEpochResponse(topics=topics)

    def _end(self, topic: str, requested: OffsetForLeaderPartition) -> EpochEndOffset:
        end = self._replicas.epoch_end_offset(
            TopicPartition(topic, requested.partition),
            requested.current_leader_epoch,
            requested.leader_epoch,
        )
        return EpochEndOffset(
            error_code=end.error,
            partition=requested.partition,
            leader_epoch=end.epoch,
            end_offset=end.end_offset,
        )
