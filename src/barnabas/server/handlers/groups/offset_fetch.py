"""OffsetFetch (key 9, v0-10): read committed offsets (v8 has several groups, v10 topic ids).

v0 was for offsets in ZooKeeper. Like Kafka 3.9 without ZooKeeper, this broker responds
UNSUPPORTED_VERSION for each partition.

A client of transactions requests stable offsets (KIP-447). Before it gets them, this coordinator
checks that no other broker has become the coordinator. Apache Kafka does not check this.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.committed_offsets import (
    OffsetFetchRequest,
    OffsetFetchResponse,
    OffsetFetchResponsePartition,
    OffsetFetchResponseTopic,
)
from barnabas.waiting.steps import gradually

if TYPE_CHECKING:
    from collections.abc import Generator

    from barnabas.protocol.schema import Message
    from barnabas.server.dispatch.request import Handle, RequestContext
    from barnabas.server.handlers.dependencies import BrokerDependencies


def handler(dependencies: BrokerDependencies) -> Handle:
    """Return the handler that reads committed offsets."""
    return OffsetFetchHandler(dependencies).handle_offset_fetch


class OffsetFetchHandler:
    """Reads the offsets from the group coordinator."""

    __slots__ = ("_offsets",)

    def __init__(self, dependencies: BrokerDependencies) -> None:
        self._offsets = dependencies.groups.offsets

    def handle_offset_fetch(
        self, context: RequestContext, request: OffsetFetchRequest
    ) -> Message | None:
        """Return the committed offsets, or an error for each group."""
        version = context.version
        if version == 0:
            return context.in_slices(_refused(request))
        if not request.require_stable:
            return context.in_slices(self._offsets.fetch(request, version))

        def confirm(partitions: set[int]) -> None:
            self._offsets.confirm(
                partitions,
                lambda errors: context.respond_in_slices(
                    self._offsets.fetch(request, version, errors)
                ),
            )

        return context.after(self._offsets.partitions_of(request, version), confirm)


def _refused(request: OffsetFetchRequest) -> Generator[None, None, OffsetFetchResponse]:
    topics = []
    for topic in request.topics or ():
        partitions = yield from gradually(
            OffsetFetchResponsePartition(
                partition_index=index,
                committed_offset=-1,
                metadata="",
                error_code=ErrorCode.UNSUPPORTED_VERSION,
            )
            for index in topic.partition_indexes
        )
        topics.append(OffsetFetchResponseTopic(name=topic.name, partitions=partitions))
        yield
    return OffsetFetchResponse(topics=topics)
