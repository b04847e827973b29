"""Segments with contents, for tests of stores."""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from barnabas.runtime.disk import Disk
from barnabas.storage.remote.remote_storage import RemoteSegment, SegmentFiles, SegmentState

TOPIC_ID = bytes(range(16))


class LocalSegment(NamedTuple):
    """A segment on a local disk, and its content."""

    segment: RemoteSegment
    files: SegmentFiles
    content: bytes


def segment_at(
    start_offset: int = 100, topic: str = "orders", partition: int = 3, size: int = 1000
) -> RemoteSegment:
    """Return a segment of 50 offsets whose copy has started."""
    return RemoteSegment(
        topic=topic,
        topic_id=TOPIC_ID,
        partition=partition,
        id=start_offset.to_bytes(8) + partition.to_bytes(8),
        start_offset=start_offset,
        end_offset=start_offset + 49,
        size=size,
        max_timestamp=1_700_000_000_000,
        leader_epochs=((4, start_offset), (7, start_offset + 20)),
        has_transactions=False,
        broker_id=1,
        event_ms=1_700_000_000_500,
        state=SegmentState.COPY_SEGMENT_STARTED,
    )


def content_of(segment: RemoteSegment) -> bytes:
    """Return a content that differs between segments."""
    seed = segment.start_offset * 31 + segment.partition
    return bytes((seed + number * 7) % 251 for number in range(segment.size))


def files_of(segment: RemoteSegment, log_path: str) -> SegmentFiles:
    """Return the files of a segment, whose log is at that path."""
    mark = str(segment.start_offset).encode()
    return SegmentFiles(
        log_path=log_path,
        log_size=segment.size,
        offset_index=b"offsets " + mark,
        time_index=b"times " + mark,
        transaction_index=None,
        producer_snapshot=b"producers " + mark,
        leader_epochs=b"0\n2\n4 100\n7 120\n",
    )


def local_segment(disk: Disk, segment: RemoteSegment, directory: str) -> LocalSegment:
    """Write the log of a segment to a disk."""
    path = f"{directory}/{segment.topic[:9]}-{segment.partition}-{segment.start_offset:020d}.log"
    content = content_of(segment)
    # The file may have grown since the segment's size was taken.
    disk.write_atomically(path, content + b"later")
    return LocalSegment(segment, files_of(segment, path), content)


def finished(segment: RemoteSegment, custom: bytes) -> RemoteSegment:
    """Return the segment as its readers know it after the copy."""
    state = SegmentState.COPY_SEGMENT_FINISHED
    return msgspec.structs.replace(segment, state=state, custom=custom)
