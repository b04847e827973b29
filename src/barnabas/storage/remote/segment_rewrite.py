"""Remote segments of a lost topic, as segments of the topic that replaces it.

A new topic begins with leader epoch 0. Clients refuse a leader whose epoch is below that of a batch
that they have read, so all batches get epoch 0. It is outside of their checksums. Offsets, time
stamps and all else stay.

The new cluster gives producer ids again, from 0. A new producer must not meet the sequences of a
former one with its id: the leader would take its records for duplicates. So the snapshots forget
the producers, and of those with an open transaction all but its beginning.

The id of a rewritten segment follows from the old id and the new topic. So a restore that was
interrupted finds the segments that it has stored already.
"""

from __future__ import annotations

from hashlib import sha256
from typing import TYPE_CHECKING

from msgspec.structs import replace

from barnabas.record.batch import set_offset_and_epoch
from barnabas.storage.files.leader_epoch_cache import EpochEntry, encode_epochs
from barnabas.storage.producers.producer_entry import (
    NO_OFFSET,
    CorruptSnapshotError,
    decode_snapshot,
    encode_snapshot,
)
from barnabas.storage.remote.remote_storage import (
    RemoteDamagedError,
    SegmentFiles,
    SegmentState,
)
from barnabas.storage.remote.whole_log import checked_pieces

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from barnabas.storage.remote.remote_storage import RemoteSegment, SegmentIndexes

# Leader epoch of all restored records: the first one of a new topic.
RESTORED_EPOCH = 0


def restored_id(topic_id: bytes, segment_id: bytes) -> bytes:
    """Return the id of a segment's copy in the topic that replaces its own."""
    return sha256(topic_id + segment_id).digest()[:16]


def restored_segment(
    segment: RemoteSegment, topic: str, topic_id: bytes, writer: tuple[int, int]
) -> RemoteSegment:
    """Return a segment as its copy in another topic begins.

    Args:
        segment: the segment.
        topic: the name of the other topic.
        topic_id: its id.
        writer: broker id and time, in ms, of the event.
    """
    return replace(
        segment,
        topic=topic,
        topic_id=topic_id,
        id=restored_id(topic_id, segment.id),
        leader_epochs=((RESTORED_EPOCH, segment.start_offset),),
        broker_id=writer[0],
        event_ms=writer[1],
        state=SegmentState.COPY_SEGMENT_STARTED,
        custom=None,
    )


def restored_files(
    indexes: SegmentIndexes, log_path: str, log_size: int, log_start_offset: int
) -> SegmentFiles:
    """Return what is stored of a restored segment.

    Args:
        indexes: of the old segment.
        log_path: a file with the rewritten log.
        log_size: its size.
        log_start_offset: the first restored offset of the partition.

    Raises:
        RemoteDamagedError: the producer snapshot is damaged.
    """
    return SegmentFiles(
        log_path=log_path,
        log_size=log_size,
        offset_index=indexes.offset_index,
        time_index=indexes.time_index,
        transaction_index=indexes.transaction_index or None,
        producer_snapshot=restored_snapshot(indexes.producer_snapshot),
        leader_epochs=encode_epochs([EpochEntry(RESTORED_EPOCH, log_start_offset)]),
    )


def restored_snapshot(content: bytes) -> bytes:
    """Return a producer snapshot that knows only the open transactions.

    Raises:
        RemoteDamagedError: the snapshot is damaged.
    """
    try:
        entries = decode_snapshot(content)
    except CorruptSnapshotError as error:
        raise RemoteDamagedError(
            f"the producer snapshot of a segment is damaged: {error}"
        ) from error
    return encode_snapshot(
        each._replace(producer_epoch=0, batches=(), coordinator_epoch=-1)
        for each in entries
        if each.txn_first_offset != NO_OFFSET
    )


def rewritten_log(
    segment: RemoteSegment, read: Callable[[int, int], bytes | memoryview]
) -> Iterator[bytearray]:
    """Yield the batches of a segment's log with the epoch of restored records, in pieces.

    All headers and checksums are checked.

    Args:
        segment: the segment.
        read: returns the bytes [start, end) of its log.

    Raises:
        RemoteDamagedError: the log does not consist of whole, undamaged batches of the segment.
    """
    for piece in checked_pieces(segment, read):
        for at, header in piece.batches:
            set_offset_and_epoch(piece.content, at, header.base_offset, RESTORED_EPOCH)
        yield piece.content
