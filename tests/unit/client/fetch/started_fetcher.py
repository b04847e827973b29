"""A started fetcher of one partition, and the responses that it gets."""

from __future__ import annotations

from typing import Any

from barnabas.client.fetch.fetch_buffer import FetchState
from barnabas.client.fetch.fetcher import Fetcher, ReaderOptions
from barnabas.client.topic_partition import TopicPartition
from barnabas.protocol.messages.fetch import FetchableTopicResponse, FetchResponse, PartitionData
from barnabas.record.builder import BatchBuilder
from unit.client.scripted_cluster import TOPIC_ID, ScriptedCluster

TP = TopicPartition("t", 0)

VERSION = 17


def batch(base_offset: int, count: int) -> bytes:
    builder = BatchBuilder(base_offset=base_offset)
    for _ in range(count):
        builder.append(0, None, b"v")
    return bytes(builder.build())


def answer(data: bytes | memoryview = b"", code: int = 0, session_id: int = 7) -> FetchResponse:
    partition = PartitionData(
        partition_index=0, error_code=code, high_watermark=100, log_start_offset=3, records=data
    )
    topic = FetchableTopicResponse(topic_id=TOPIC_ID, partitions=[partition])
    return FetchResponse(session_id=session_id, responses=[topic])


def fetching(position: int = 0, end: int | None = None) -> tuple[ScriptedCluster, Fetcher]:
    cluster = ScriptedCluster()
    return cluster, started(cluster, position, end)


def started(
    cluster: ScriptedCluster,
    position: int = 0,
    end: int | None = None,
    options: ReaderOptions | None = None,
) -> Fetcher:
    """A fetcher that has sent its first request."""
    stand_in: Any = cluster
    state = FetchState(TP, end)
    fetcher = Fetcher(stand_in, {TP: state}, options=options or ReaderOptions())
    restart(fetcher, position)
    return fetcher


def restart(fetcher: Fetcher, position: int) -> None:
    fetcher.start(fetcher._partitions[TP], position)
    fetcher.send_fetches()
