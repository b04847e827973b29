"""Offsets of partitions from one broker, also from followers (ListOffsets; KIP-79, KIP-392).

A replica accepts a request of a debugging consumer (replica id -2) even if it is not the leader.
For "latest" it returns its log end offset instead of the high watermark.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.client.admin.call import AdminCall
from barnabas.client.errors import broker_error
from barnabas.client.fetch.offset_lookups import ListedOffset
from barnabas.client.topic_partition import TopicPartition, by_topic
from barnabas.protocol.api_keys import ApiKey
from barnabas.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from barnabas.client.errors import ClientError
    from barnabas.protocol.schema import Message

__all__ = ["CONSUMER", "DEBUGGING_CONSUMER", "list_offsets"]

CONSUMER = -1
DEBUGGING_CONSUMER = -2


def list_offsets(
    specs: Mapping[TopicPartition, int],
    timeout_ms: int,
    *,
    replica_id: int = CONSUMER,
    read_committed: bool = False,
) -> AdminCall[dict[TopicPartition, ListedOffset | ClientError]]:
    """List offsets by timestamp (ms) or special value; an offset or an error for each."""

    def build(_version: int) -> Message:
        entries = by_topic(
            (
                tp,
                ListOffsetsPartition(
                    partition_index=tp.partition, current_leader_epoch=-1, timestamp=spec
                ),
            )
            for tp, spec in specs.items()
        )
        return ListOffsetsRequest(
            replica_id=replica_id,
            isolation_level=int(read_committed),
            topics=[ListOffsetsTopic(name=n, partitions=p) for n, p in entries.items()],
            timeout_ms=timeout_ms,
        )

    def read(response: Message) -> dict[TopicPartition, ListedOffset | ClientError]:
        assert isinstance(response, ListOffsetsResponse)
        found: dict[TopicPartition, ListedOffset | ClientError] = {}
        for topic in response.topics:
            for p in topic.partitions:
                tp = TopicPartition(topic.name, p.partition_index)
                found[tp] = ListedOffset(p.offset, p.timestamp, p.leader_epoch)
                if p.error_code:
                    found[tp] = broker_error(p.error_code, f"offset of {tp}")
        return found

    return AdminCall(ApiKey.LIST_OFFSETS, build, read)
