"""Turns committed records into images, and passes them to listeners (Kafka's MetadataLoader).

Records between BeginTransactionRecord and EndTransactionRecord (KIP-868) are applied at the end of
the transaction, or dropped if the transaction is aborted.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from barnabas.metadata.delta import ClusterDelta
from barnabas.metadata.errors import MetadataReplayError
from barnabas.metadata.image import ClusterImage
from barnabas.metadata.provenance import Provenance

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from barnabas.protocol.schema import Record
    from barnabas.raft.listener import CommittedBatch, LeaderAndEpoch, LoadedSnapshot

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
        self._open_transaction: list[tuple[Record, int]] | None = None
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
            for record, version in batch.records:
                self._take(delta, record, version)
            if self._open_transaction is None:
                provenance = Provenance(batch.last_offset, batch.epoch, batch.timestamp)
        self._publish(delta, provenance)

    def on_snapshot(self, snapshot: LoadedSnapshot) -> None:
        """Replace the image by the content of a snapshot."""
        self._open_transaction = None
        delta = ClusterDelta(self.image)
        for record, version in snapshot.records:
            delta.replay(record, version)
        delta.finish_snapshot()
        last = snapshot.id.end_offset - 1
        self._publish(delta, Provenance(last, snapshot.id.epoch, snapshot.timestamp))

    def on_leader_change(self, leader: LeaderAndEpoch) -> None:
        """Do nothing, because the quorum leader is not part of the image."""

    def _take(self, delta: ClusterDelta, record: Record, version: int) -> None:
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
                for staged, staged_version in transaction:
                    delta.replay(staged, staged_version)
        elif transaction is None:
            delta.replay(record, version)
        else:
            transaction.append((record, version))

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
