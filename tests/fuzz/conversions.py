"""Requests whose conversions need most of the broker's memory for conversions, several at once.

The topic of `CONVERTED` must exist.
"""

from __future__ import annotations

import random

from barnabas.protocol.messages.log_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from barnabas.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from barnabas.record.builder import BatchBuilder
from barnabas.record.compression import GZIP, ZSTD
from barnabas.record.legacy import write_message_set
from barnabas.record.record import Record
from fuzz.large_requests import LargeRequest

CONVERTED = "converted"
PARTITIONS = 4
TOPIC_CONFIG = {"compression.type": "lz4"}
_TIMEOUT_MS = 30_000


def conversion_requests() -> dict[str, LargeRequest]:
    """Return the requests by description."""
    return {
        "zstd batches that are compressed again": LargeRequest(_produce(_zstd_batch()), 9),
        "gzip batches of many records": LargeRequest(_produce(_gzip_batch()), 9),
        "old message sets": LargeRequest(_produce(_message_set()), 2),
        "offsets by time": LargeRequest(_offsets_by_time(), 6, 4),
    }


def _zstd_batch() -> bytes:
    # The broker cannot know that this batch decompresses to 2 MB only.
    builder = BatchBuilder(compression=ZSTD)
    builder.append(1000, b"k", random.Random(1).randbytes(130_000) + bytes(2 << 20))
    return bytes(builder.build())


def _gzip_batch() -> bytes:
    builder = BatchBuilder(compression=GZIP)
    for number in range(100_000):
        builder.append(1000 + number, b"k", b"value %d" % number)
    return bytes(builder.build())


def _message_set() -> bytes:
    value = random.Random(2).randbytes(100_000) + bytes(2 << 20)
    return bytes(write_message_set(1, [Record(0, 5, 0, b"k", value)], GZIP))


def _produce(records: bytes) -> ProduceRequest:
    partitions = [PartitionProduceData(index=each, records=records) for each in range(PARTITIONS)]
    return ProduceRequest(
        acks=1,
        timeout_ms=_TIMEOUT_MS,
        topic_data=[TopicProduceData(name=CONVERTED, partition_data=partitions)],
    )


def _offsets_by_time() -> ListOffsetsRequest:
    partitions = [
        ListOffsetsPartition(partition_index=each, timestamp=90_000) for each in range(PARTITIONS)
    ]
    return ListOffsetsRequest(
        replica_id=-1, topics=[ListOffsetsTopic(name=CONVERTED, partitions=partitions)]
    )
