"""Copied segments of one partition, by their end and their leader epochs."""

from __future__ import annotations

from barnabas.storage.remote.remote_storage import RemoteSegment, SegmentState
from unit.storage.remote.remote_log_stories import WHERE


def segment(end: int, *epochs: tuple[int, int]) -> RemoteSegment:
    return RemoteSegment(
        topic=WHERE.topic,
        topic_id=WHERE.topic_id,
        partition=WHERE.partition,
        id=bytes(16),
        start_offset=epochs[0][1],
        end_offset=end,
        size=1,
        max_timestamp=0,
        leader_epochs=epochs,
        has_transactions=False,
        broker_id=1,
        event_ms=0,
        state=SegmentState.COPY_SEGMENT_FINISHED,
    )
