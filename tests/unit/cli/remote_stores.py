"""Stores of remote segments with real batches, for tests of `barnabas remote`."""

from __future__ import annotations

from pathlib import Path

from msgspec.structs import replace

from barnabas.record.builder import BatchBuilder
from barnabas.runtime.disk import RealDisk
from barnabas.storage.producers.producer_entry import encode_snapshot
from barnabas.storage.remote.directory_storage import DirectoryStorage
from barnabas.storage.remote.remote_storage import RemoteSegment, SegmentFiles, SegmentState
from barnabas.storage.remote.segment_objects import segment_name

CLUSTER = "cluster"
TOPIC_ID = b"flights-topic-id"
# Records of a batch, and batches of a segment.
RECORDS, BATCHES = 5, 2


class MadeStore:
    """A directory with segments of 10 offsets each."""

    def __init__(self, path: Path) -> None:
        self.path = path / "tier"
        self.path.mkdir()
        self.url = f"file://{self.path}"
        self.root = self.path / CLUSTER
        self.storage = DirectoryStorage(RealDisk(), str(self.path), CLUSTER)
        self._local = path / "segment.log"

    def add(
        self,
        start: int,
        *,
        topic: str = "flights",
        partition: int = 0,
        epoch: int = 0,
        topic_id: bytes = TOPIC_ID,
    ) -> RemoteSegment:
        """Copy a segment into the store, and return it as the metadata has it."""
        content = b"".join(_batch(start + number * RECORDS, epoch) for number in range(BATCHES))
        self._local.write_bytes(content)
        segment = RemoteSegment(
            topic=topic,
            topic_id=topic_id,
            partition=partition,
            id=start.to_bytes(8) + partition.to_bytes(4) + epoch.to_bytes(4),
            start_offset=start,
            end_offset=start + RECORDS * BATCHES - 1,
            size=len(content),
            max_timestamp=1_000,
            leader_epochs=((epoch, start),),
            has_transactions=False,
            broker_id=1,
            event_ms=1_700_000_000_000,
            state=SegmentState.COPY_SEGMENT_FINISHED,
        )
        files = SegmentFiles(
            log_path=str(self._local),
            log_size=len(content),
            offset_index=b"",
            time_index=b"",
            transaction_index=None,
            producer_snapshot=encode_snapshot([]),
            leader_epochs=b"0\n1\n0 0\n",
        )
        return replace(segment, custom=self.storage.copy_segment(segment, files))

    def object(self, segment: RemoteSegment, suffix: str) -> Path:
        """Return the path of an object."""
        return self.root / (segment_name(segment) + suffix)

    def flip(self, segment: RemoteSegment, suffix: str, position: int) -> None:
        """Flip the bits of one byte of an object."""
        path = self.object(segment, suffix)
        content = bytearray(path.read_bytes())
        content[position] ^= 0xFF
        path.write_bytes(content)


def _batch(base_offset: int, epoch: int) -> bytes:
    builder = BatchBuilder(base_offset=base_offset, leader_epoch=epoch)
    for number in range(RECORDS):
        builder.append(1_000, None, b"record %d" % (base_offset + number))
    return bytes(builder.build())
