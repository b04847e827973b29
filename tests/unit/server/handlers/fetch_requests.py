"""Fetch requests to a simulated broker, and their results."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchTopic,
)
from barnabas.protocol.messages.topics import CreatableTopic, CreateTopicsRequest
from barnabas.record.builder import BatchBuilder
from unit.server.simulated_broker import produce_request
from unit.server.simulated_cluster import SimulatedCluster

if TYPE_CHECKING:
    from collections.abc import Iterable

WAIT_MS = 2_000


def fetch(topics: Iterable[FetchTopic], min_bytes: int = 1, max_wait_ms: int = WAIT_MS) -> Any:
    return FetchRequest(
        max_wait_ms=max_wait_ms,
        min_bytes=min_bytes,
        max_bytes=1 << 20,
        session_id=0,
        session_epoch=-1,
        topics=list(topics),
        forgotten_topics_data=[],
    )


def part(partition: int = 0, offset: int = 0) -> FetchPartition:
    return FetchPartition(
        partition=partition,
        fetch_offset=offset,
        partition_max_bytes=1 << 20,
        current_leader_epoch=-1,
    )


def named(topic: str, *partitions: FetchPartition) -> FetchTopic:
    return FetchTopic(topic=topic, partitions=list(partitions) or [part()])


def errors(answer: Any) -> list[tuple[str | bytes, int, int]]:
    """Return topic, partition and error, in the order of the response."""
    return [
        (topic.topic or topic.topic_id, each.partition_index, each.error_code)
        for topic in answer.responses
        for each in topic.partitions
    ]


RECORDS, SIZE = 40, 5_000


def replicated(cluster: SimulatedCluster) -> int:
    """A topic on all three, with records; its leader, once the followers have them all."""
    topic = CreatableTopic(
        name="t", num_partitions=1, replication_factor=3, assignments=[], configs=[]
    )
    request = CreateTopicsRequest(topics=[topic], timeout_ms=10_000)
    assert cluster.ask(1, request, 5).topics[0].error_code == ErrorCode.NONE
    cluster.until(lambda: cluster.image(1).topics.by_name("t") is not None)
    leader: int = cluster.image(1).topics.by_name("t").partitions[0].leader
    cluster.until(lambda: cluster.image(leader).topics.by_name("t") is not None)
    for _ in range(RECORDS):
        builder = BatchBuilder()
        builder.append(0, None, bytes(SIZE))
        answer = cluster.ask(leader, produce_request("t", bytes(builder.build())), 9)
        assert answer.responses[0].partition_responses[0].error_code == ErrorCode.NONE
    return leader
