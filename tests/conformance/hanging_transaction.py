"""A transaction without a coordinator, on a broker that does not verify transactions."""

from __future__ import annotations

import time

from barnabas.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from barnabas.record.builder import BatchBuilder
from conformance.raw_client import RawClient
from waiting import eventually_equal

# No coordinator has assigned this producer id.
UNASSIGNED_PRODUCER_ID = 987_654
_HOUR_MS = 3_600_000


def open_a_transaction_that_hangs(bootstrap: str, topic: str) -> None:
    """Write a transactional batch with a timestamp of two hours ago."""
    timestamp_ms = int(time.time() * 1000) - 2 * _HOUR_MS
    builder = BatchBuilder(
        producer_id=UNASSIGNED_PRODUCER_ID, producer_epoch=0, base_sequence=0, transactional=True
    )
    builder.append(timestamp_ms, None, b"never ended")
    data = PartitionProduceData(index=0, records=bytes(builder.build()))
    request = ProduceRequest(
        transactional_id="unused",
        acks=-1,
        timeout_ms=30_000,
        topic_data=[TopicProduceData(name=topic, partition_data=[data])],
    )
    raw = RawClient(bootstrap)

    def error() -> int:
        (topic_response,) = raw.ask(request, 9).responses
        (partition,) = topic_response.partition_responses
        return int(partition.error_code)

    # In Apache Kafka, a new partition has no leader until some time after its creation.
    eventually_equal(error, 0)
    raw.close()
