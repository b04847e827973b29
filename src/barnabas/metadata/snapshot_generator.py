"""Writes a snapshot of the image when enough was committed since the last one (KIP-630).

Kafka counts bytes and hours. We also count records: a broker with 10,000 partitions writes 20,000
when it is stopped and started, which the next start replays; a snapshot has 10,000.

Encoding 10,000 partitions takes longer than the loop may be held, so the image, which cannot
change, is written in slices, one per turn; the sync runs off the loop.
"""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING

from barnabas.raft.listener import SnapshotId

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from barnabas.metadata.publisher import MetadataPublisher
    from barnabas.protocol.schema import Record
    from barnabas.raft.config import RaftConfig
    from barnabas.raft.driver import RaftDriver
    from barnabas.raft.listener import CommittedBatch, LeaderAndEpoch, LoadedSnapshot
    from barnabas.raft.snapshot import SnapshotWriter

_SLICE_RECORDS = 200
# A start is not to replay more than so many records behind a snapshot, or so many per partition.
_REPLAYED_RECORDS_MAX = 20_000
_REPLAYED_PER_PARTITION_MAX = 4


class SnapshotGenerator:
    """A listener of the raft driver, added behind the publisher."""

    def __init__(
        self, driver: RaftDriver, publisher: MetadataPublisher, config: RaftConfig
    ) -> None:
        self._driver = driver
        self._publisher = publisher
        self._config = config
        # Bytes committed since the last snapshot.
        self._bytes = 0
        # Records likewise: what a start would replay.
        self._records = 0
        self._last_ms = driver.doors.clock.monotonic_ms()
        self._writer: SnapshotWriter | None = None

    def on_commit(self, batches: Sequence[CommittedBatch]) -> None:
        """Count, and begin a snapshot when it is time."""
        self._bytes += sum(batch.size for batch in batches)
        self._records += sum(len(batch.records) for batch in batches)
        interval = self._config.snapshot_interval_ms
        age = self._driver.doors.clock.monotonic_ms() - self._last_ms
        if (
            self._bytes >= self._config.snapshot_record_bytes
            or 0 < interval <= age
            or self._is_long_to_replay()
        ):
            self.maybe_begin()

    def _is_long_to_replay(self) -> bool:
        partitions = self._publisher.image.topics.partition_count
        return self._records >= max(_REPLAYED_RECORDS_MAX, _REPLAYED_PER_PARTITION_MAX * partitions)

    def on_snapshot(self, snapshot: LoadedSnapshot) -> None:  # noqa: ARG002
        """Counting starts anew."""
        self._bytes = self._records = 0

    def on_leader_change(self, leader: LeaderAndEpoch) -> None:
        """Every replica writes its own snapshots, whoever leads."""

    def maybe_begin(self) -> bool:
        """Begin a snapshot of the latest image unless it has one, or one is being written."""
        image = self._publisher.image
        if self._writer is not None or image.provenance.offset < 0:
            return False
        snapshot_id = SnapshotId(image.provenance.offset + 1, image.provenance.epoch)
        latest = self._driver.latest_snapshot
        if latest is not None and latest >= snapshot_id:
            return False
        self._bytes = self._records = 0
        doors = self._driver.doors
        self._last_ms = doors.clock.monotonic_ms()
        self._writer = self._driver.snapshot_writer(snapshot_id, image.provenance.timestamp)
        self._write_slice(self._writer, image.to_records())
        return True

    def _write_slice(self, writer: SnapshotWriter, records: Iterator[tuple[Record, int]]) -> None:
        batch = list(islice(records, _SLICE_RECORDS))
        doors = self._driver.doors
        if batch:
            writer.append(batch)
            doors.timer.call_soon(lambda: self._write_slice(writer, records))
        else:
            doors.executor.submit(writer.freeze, lambda _, error: self._on_frozen(writer, error))

    def _on_frozen(self, writer: SnapshotWriter, error: BaseException | None) -> None:
        self._writer = None
        if error is not None:
            self._driver.fail(error)
            return
        self._driver.note_snapshot(writer.id)
