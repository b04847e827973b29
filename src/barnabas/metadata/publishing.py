"""Turns committed records into images, passes them to listeners, and writes snapshots of them.

The publisher is Kafka's MetadataLoader. Records between BeginTransactionRecord and
EndTransactionRecord (KIP-868) are applied at the end of the transaction, or dropped if the
transaction is aborted.

A snapshot is written after enough records have been committed (KIP-630). Kafka starts a snapshot
after a number of bytes or hours. Barnabas also counts records. A broker with 10,000 partitions
writes 20,000 records when it is stopped and started, and the next start would replay them. A
snapshot has only 10,000.

Encoding 10,000 partitions would block the event loop for too long. The immutable image is therefore
written in slices, one per turn of the loop, and the sync runs outside the loop.
"""

from __future__ import annotations

import logging
from itertools import islice
from typing import TYPE_CHECKING

from barnabas.metadata.image import ClusterDelta, ClusterImage, Provenance
from barnabas.metadata.topics import MetadataReplayError
from barnabas.raft.listener import SnapshotId

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from barnabas.protocol.schema import Record
    from barnabas.raft.config import RaftConfig
    from barnabas.raft.driver.raft_driver import RaftDriver
    from barnabas.raft.listener import CommittedBatch, LeaderAndEpoch, LoadedSnapshot
    from barnabas.raft.log.snapshot import SnapshotWriter


_log = logging.getLogger(__name__)

_BEGIN_TRANSACTION = 23
_END_TRANSACTION = 24
_ABORT_TRANSACTION = 25


class MetadataPublisher:
    """Holds the latest committed image. It is a listener of the raft driver."""

    def __init__(self) -> None:
        # The cluster as of the last committed record outside an open transaction.
        self.image = ClusterImage()
        self._listeners: list[Callable[[ClusterDelta, ClusterImage], None]] = []
        # Records of the open metadata transaction; None if no transaction is open.
        self._open_transaction: list[Record] | None = None
        # Number of failed listener calls since the start.
        self.apply_errors = 0

    def add_listener(self, listener: Callable[[ClusterDelta, ClusterImage], None]) -> None:
        """Call `listener(delta, image)` after each new image, in the order of registration.

        One call may cover many committed batches; at the start it may cover the whole log.
        """
        self._listeners.append(listener)

    def on_commit(self, batches: Sequence[CommittedBatch]) -> None:
        """Apply committed batches: create one delta and one image, and call each listener once."""
        delta = ClusterDelta(self.image)
        provenance = self.image.provenance
        for batch in batches:
            for record, _ in batch.records:
                self._take(delta, record)
            if self._open_transaction is None:
                provenance = Provenance(batch.last_offset, batch.epoch, batch.timestamp)
        self._publish(delta, provenance)

    def on_snapshot(self, snapshot: LoadedSnapshot) -> None:
        """Replace the image by the content of a snapshot."""
        self._open_transaction = None
        delta = ClusterDelta(self.image)
        for record, _ in snapshot.records:
            delta.replay(record)
        delta.finish_snapshot()
        last = snapshot.id.end_offset - 1
        self._publish(delta, Provenance(last, snapshot.id.epoch, snapshot.timestamp))

    def on_leader_change(self, leader: LeaderAndEpoch) -> None:
        """Do nothing, because the quorum leader is not part of the image."""

    def _take(self, delta: ClusterDelta, record: Record) -> None:
        number = record.__record_type__
        transaction = self._open_transaction
        if number == _BEGIN_TRANSACTION:
            if transaction is not None:
                raise MetadataReplayError("a metadata transaction begins inside another")
            self._open_transaction = []
        elif number in (_END_TRANSACTION, _ABORT_TRANSACTION):
            if transaction is None:
                raise MetadataReplayError("a metadata transaction ends that did not begin")
            self._open_transaction = None
            if number == _END_TRANSACTION:
                for staged in transaction:
                    delta.replay(staged)
        elif transaction is None:
            delta.replay(record)
        else:
            transaction.append(record)

    def _publish(self, delta: ClusterDelta, provenance: Provenance) -> None:
        self.image = delta.apply(provenance)
        for listener in self._listeners:
            try:
                listener(delta, self.image)
            except AssertionError:
                raise
            except Exception:  # noqa: BLE001 - the other listeners still receive the image
                # As in Kafka's MetadataLoader: the image is correct, and only this listener misses
                # the change.
                _log.exception(
                    "Unexpected error while metadata is applied: offset=%d", provenance.offset
                )
                self.apply_errors += 1


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
