"""OffsetFetch: key 9, v0-10. A group's committed offsets (v8 many groups, v10 topic ids).

v0 meant offsets in ZooKeeper: a broker without it says UNSUPPORTED_VERSION for each partition, as
Kafka 3.9 does.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchResponse,
    OffsetFetchResponsePartition,
    OffsetFetchResponseTopic,
)

if TYPE_CHECKING:
    from barnabas.server.parts import ServerParts
    from barnabas.server.request import Handle, RequestContext


def handler(parts: ServerParts) -> Handle:
    """The handler of this API."""
    return OffsetFetchHandler(parts).handle_offset_fetch


class OffsetFetchHandler:
    """Asks the group coordinator."""

    __slots__ = ("_groups",)

    def __init__(self, parts: ServerParts) -> None:
        self._groups = parts.groups

    def handle_offset_fetch(
        self, context: RequestContext, request: OffsetFetchRequest
    ) -> OffsetFetchResponse | None:
        """What is committed, or why it cannot be told."""
        if context.version == 0:
            return _refused(request)
        return context.in_slices(self._groups.fetch_offsets(request, context.version))


def _refused(request: OffsetFetchRequest) -> OffsetFetchResponse:
    return OffsetFetchResponse(
        topics=[
            OffsetFetchResponseTopic(
                name=topic.name,
                partitions=[
                    OffsetFetchResponsePartition(
                        partition_index=index,
                        committed_offset=-1,
                        metadata="",
                        error_code=ErrorCode.UNSUPPORTED_VERSION,
                    )
                    for index in topic.partition_indexes
                ],
            )
            for topic in request.topics or ()
        ]
    )
