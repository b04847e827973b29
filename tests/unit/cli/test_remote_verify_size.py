"""The memory of `barnabas remote verify` does not grow with the number of segments."""

from __future__ import annotations

import tracemalloc
from collections.abc import Iterator

import pytest
from msgspec.structs import replace

from barnabas.cli.remote.cluster_segments import spooled_in_order
from barnabas.cli.remote.stores import OpenStore
from barnabas.cli.remote.verification import Verification, VerifyScope
from barnabas.storage.remote.remote_storage import RemoteSegment, SegmentState, StoredObject
from barnabas.storage.remote.segment_objects import SUFFIXES, segment_name
from barnabas.storage.remote.segment_states import RemoteLog, started_record, update_record
from barnabas.storage.topic_partition import TopicIdPartition

PARTITIONS, SEGMENTS = 10, 3_400
# 102,000 objects.
LIMIT_BYTES = 60 << 20


def segments(partition: int) -> Iterator[RemoteSegment]:
    for number in range(SEGMENTS):
        start = number * 10
        yield RemoteSegment(
            topic="flights",
            topic_id=b"flights-topic-id",
            partition=partition,
            id=start.to_bytes(8) + partition.to_bytes(8),
            start_offset=start,
            end_offset=start + 9,
            size=1_000,
            max_timestamp=1_000,
            leader_epochs=((0, start),),
            has_transactions=False,
            broker_id=1,
            event_ms=1_000,
            state=SegmentState.COPY_SEGMENT_FINISHED,
        )


class ListedStore:
    """A store of which only the list of objects is asked. It has only the logs of segments."""

    def list_objects(self, after: str = "") -> Iterator[StoredObject]:
        for partition in range(PARTITIONS):
            for segment in segments(partition):
                name = segment_name(segment)
                for suffix in sorted(SUFFIXES):
                    if suffix != ".json":
                        yield StoredObject(name + suffix, 1_000, 1_000)


@pytest.mark.nightly
def test_one_hundred_thousand_objects_are_compared_in_little_memory() -> None:
    logs = {}
    for partition in range(PARTITIONS):
        where = TopicIdPartition(b"flights-topic-id", "flights", partition)
        log = logs[where] = RemoteLog(where)
        for segment in segments(partition):
            log.apply(started_record(segment_started(segment)))
            log.apply(update_record(segment))
    tracemalloc.start()
    try:
        found = spooled_in_order([logs])
        store = OpenStore("file:///tier", "cluster", ListedStore())
        scope = VerifyScope(None, False, True, lambda _: True)
        done = Verification(store, scope, lambda _: None)
        done.run(found.segments)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert found.segment_count == done.segments == PARTITIONS * SEGMENTS
    # Every segment lacks its manifest: as many findings as possible.
    assert done.findings.count == PARTITIONS * SEGMENTS
    assert peak < LIMIT_BYTES, peak


def segment_started(segment: RemoteSegment) -> RemoteSegment:
    return replace(segment, state=SegmentState.COPY_SEGMENT_STARTED)
