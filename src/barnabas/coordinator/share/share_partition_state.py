"""The state of a share partition that its records store (Kafka's ShareGroupOffset)."""

from __future__ import annotations

import msgspec

from barnabas.coordinator.share.state_batches import NO_START_OFFSET, StateBatch, combine

NO_LEADER_EPOCH = -1
NO_DELIVERY_COMPLETE_COUNT = -1
_EPOCH_MIN, _EPOCH_MAX = -(1 << 31), (1 << 31) - 1


class SharePartitionState(msgspec.Struct, frozen=True, kw_only=True):
    """The state after a snapshot and its updates. Timestamps are wall-clock ms."""

    # Number of the snapshot; each snapshot of the share partition raises it.
    snapshot_epoch: int
    # Raised by the group coordinator when it initializes the share partition again.
    state_epoch: int
    # Leader epoch of the topic's partition in the last write; 0 after initialization.
    leader_epoch: int
    # First offset that is not delivered completely; -1 if the leader must choose it.
    start_offset: int
    # Number of completely delivered offsets from the start offset on; -1 if unknown (KIP-1226).
    delivery_complete_count: int
    # Offsets that have a state of their own.
    state_batches: list[StateBatch]
    # When a request caused the last snapshot, and when the last snapshot was written. A later
    # snapshot of an unchanged share partition changes only the second one.
    create_timestamp_ms: int
    write_timestamp_ms: int

    @property
    def next_snapshot_epoch(self) -> int:
        """The number of the next snapshot. It wraps around, as Java's integers do."""
        return self.snapshot_epoch + 1 if self.snapshot_epoch < _EPOCH_MAX else _EPOCH_MIN

    def updated(self, update: SharePartitionUpdate) -> SharePartitionState:
        """Return the state after an update.

        Raises:
            InvalidBatchError: a state batch ends before it begins.
        """
        start_offset = update.start_offset
        if start_offset == NO_START_OFFSET:
            start_offset = self.start_offset
        leader_epoch = update.leader_epoch
        if leader_epoch == NO_LEADER_EPOCH:
            leader_epoch = self.leader_epoch
        return SharePartitionState(
            snapshot_epoch=self.snapshot_epoch,
            state_epoch=self.state_epoch,
            leader_epoch=leader_epoch,
            start_offset=start_offset,
            delivery_complete_count=update.delivery_complete_count,
            state_batches=combine(self.state_batches, update.state_batches, start_offset),
            create_timestamp_ms=self.create_timestamp_ms,
            write_timestamp_ms=self.write_timestamp_ms,
        )


class SharePartitionUpdate(msgspec.Struct, frozen=True, kw_only=True):
    """A change of the state of a share partition, which an update record stores."""

    # Number of the snapshot that the update follows.
    snapshot_epoch: int
    # -1 if the leader epoch does not change.
    leader_epoch: int
    # -1 if the start offset does not change.
    start_offset: int
    delivery_complete_count: int
    # The changed state batches.
    state_batches: list[StateBatch]

    def as_state(self) -> SharePartitionState:
        """Return the state of an update without a snapshot before it, as in Kafka."""
        return SharePartitionState(
            snapshot_epoch=self.snapshot_epoch,
            state_epoch=0,
            leader_epoch=self.leader_epoch,
            start_offset=self.start_offset,
            delivery_complete_count=self.delivery_complete_count,
            state_batches=self.state_batches,
            create_timestamp_ms=0,
            write_timestamp_ms=0,
        )
