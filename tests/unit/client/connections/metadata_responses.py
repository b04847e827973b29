"""Metadata responses with topic ids."""

from __future__ import annotations

from barnabas.protocol.messages.metadata import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)

ID, OTHER_ID = b"i" * 16, b"o" * 16


def answer(leader: int, epoch: int, topic_id: bytes = ID, error: int = 0) -> MetadataResponse:
    partition = MetadataResponsePartition(
        error_code=0,
        partition_index=0,
        leader_id=leader,
        leader_epoch=epoch,
        replica_nodes=[1, 2],
        isr_nodes=[1, 2],
    )
    return MetadataResponse(
        brokers=[MetadataResponseBroker(node_id=n, host="h", port=9000 + n) for n in (1, 2)],
        topics=[
            MetadataResponseTopic(
                error_code=error,
                name="t",
                topic_id=topic_id,
                partitions=[] if error else [partition],
            )
        ],
    )
