"""Writes a snapshot of the image after enough records have been committed (KIP-630).

Kafka starts a snapshot after a number of bytes or hours. Barnabas also counts records. A broker
with 10,000 partitions writes 20,000 records when it is stopped and started, and the next start
would replay them. A snapshot has only 10,000.

Encoding 10,000 partitions would block the event loop for too long. The immutable image is therefore
written in slices, one per turn of the loop, and the sync runs outside the loop.
"""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING

from barnabas.raft.listener import SnapshotId

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from barnabas.metadata.publishing.publisher import MetadataPublisher
    from barnabas.protocol.schema import Record
    from barnabas.raft.config import RaftConfig
    from barnabas.raft.driver.raft_driver import RaftDriver
    from barnabas.raft.listener import CommittedBatch, LeaderAndEpoch, LoadedSnapshot
    from barnabas.raft.log.snapshot import SnapshotWriter

_SLICE_RECORDS = 200
# Maximum number of records to replay after a snapshot: absolute, and per partition.
_REPLAYED_RECORDS_MAX = 20_000
_REPLAYED_PER_PARTITION_MAX = 4


class SnapshotGenerator:
    """A listener of the raft driver, registered after the publisher."""

    def __init__(
        self, driver: RaftDriver, publisher: MetadataPublisher, config: RaftConfig
    ) -> None:
        self._driver = driver
        self._publisher = publisher
        self._config = config
        # Bytes committed since the last snapshot.
        self._bytes = 0
        # Records committed since the last snapshot, which a start would replay.
        self._records = 0
        self._last_ms = driver.log_dependencies.clock.monotonic_ms()
        self._writer: SnapshotWriter | None = None

    def on_commit(self, batches: Sequence[CommittedBatch]) -> None:
        """Count the batches, and start a snapshot if it is due."""
        self._bytes += sum(batch.size for batch in batches)
        self._records += sum(len(batch.records) for batch in batches)
        interval = self._config.snapshot_interval_ms
        age = self._driver.log_dependencies.clock.monotonic_ms() - self._last_ms
        if (
            self._bytes >= self._config.snapshot_record_bytes
            or 0 < interval <= age
            or self._is_long_to_replay()
        ):
            self.maybe_begin()

    def _is_long_to_replay(self) -> bool:
        partitions = self._publisher.image.topics.partition_count
        return self._records >= max(_REPLAYED_RECORDS_MAX, _REPLAYED_PER_PARTITION_MAX * partitions)

    def on_snapshot(self, snapshot: LoadedSnapshot) -> None:
        """Reset the counters."""
        self._bytes = self._records = 0

    def on_leader_change(self, leader: LeaderAndEpoch) -> None:
        """Do nothing, because every replica writes its own snapshots."""

    def maybe_begin(self) -> bool:
        """Start a snapshot of the latest image, and return whether one was started.

        No snapshot is started if the image has one already, or while one is being written.
        """
        image = self._publisher.image
        if self._writer is not None or image.provenance.offset < 0:
            return False
        snapshot_id = SnapshotId(image.provenance.offset + 1, image.provenance.epoch)
        latest = self._driver.latest_snapshot
        if latest is not None and latest >= snapshot_id:
            return False
        self._bytes = self._records = 0
        log_dependencies = self._driver.log_dependencies
        self._last_ms = log_dependencies.clock.monotonic_ms()
        self._writer = self._driver.snapshot_writer(snapshot_id, image.provenance.timestamp)
        self._write_slice(self._writer, image.to_records())
        return True

    def _write_slice(self, writer: SnapshotWriter, records: Iterator[tuple[Record, int]]) -> None:
        batch = list(islice(records, _SLICE_RECORDS))
        log_dependencies = self._driver.log_dependencies
        if batch:
            writer.append(batch)
            log_dependencies.timer.call_soon(lambda: self._write_slice(writer, records))
        else:
            log_dependencies.executor.submit(
                writer.freeze, lambda _, error: self._on_frozen(writer, error)
            )

    def _on_frozen(self, writer: SnapshotWriter, error: BaseException | None) -> None:
        self._writer = None
        if error is not None:
            self._driver.fail(error)
            return
        self._driver.note_snapshot(writer.id)
