"""State of one producer in a log (Kafka's ProducerStateEntry; KIP-98, KIP-360)."""

from __future__ import annotations

from typing import NamedTuple

NO_EPOCH = -1
NO_SEQUENCE = -1
NO_OFFSET = -1
REMEMBERED_BATCHES = 5


class RememberedBatch(NamedTuple):
    """A recent batch, kept because the producer retries it if the response is lost."""

    # Sequences of the first and the last record. They wrap around at 2**31.
    base_sequence: int
    last_sequence: int
    # Offsets of the first and the last record, inclusive.
    first_offset: int
    last_offset: int
    # Largest timestamp of the batch in ms.
    timestamp: int


class ProducerEntry(NamedTuple):
    """A producer's state; immutable, so that a failed append changes nothing."""

    producer_id: int
    # Epoch of the last batch or marker. Invariant: it only rises on a leader, which rejects a lower
    # epoch.
    producer_epoch: int = NO_EPOCH
    # The latest batches of this epoch, oldest first, at most REMEMBERED_BATCHES.
    batches: tuple[RememberedBatch, ...] = ()
    # Timestamp of the last batch or marker in ms; decides when the entry expires.
    last_timestamp: int = -1
    # Epoch of the coordinator that wrote the last marker. A leader rejects markers of a lower one.
    coordinator_epoch: int = -1
    # First offset of the open transaction, -1 without one. Its first batch sets it, its marker
    # resets it.
    txn_first_offset: int = NO_OFFSET

    @property
    def last_sequence(self) -> int:
        """Sequence of the last record, -1 without one."""
        return self.batches[-1].last_sequence if self.batches else NO_SEQUENCE

    @property
    def last_offset(self) -> int:
        """Offset of the last data record, -1 without one."""
        return self.batches[-1].last_offset if self.batches else NO_OFFSET

    def find_duplicate(
        self, epoch: int, base_sequence: int, last_sequence: int
    ) -> RememberedBatch | None:
        """Return the remembered batch with these sequences, or None."""
        if epoch == self.producer_epoch:
            for batch in self.batches:
                if batch.base_sequence == base_sequence and batch.last_sequence == last_sequence:
                    return batch
        return None

    def with_batch(
        self, epoch: int, batch: RememberedBatch, is_transactional: bool
    ) -> ProducerEntry:
        """Return the entry after a data batch; a new epoch drops the batches of the old one."""
        if epoch == self.producer_epoch:
            batches = (*self.batches[1 - REMEMBERED_BATCHES :], batch)
        else:
            batches = (batch,)
        first = self.txn_first_offset
        if is_transactional and first == NO_OFFSET:
            first = batch.first_offset
        return ProducerEntry(
            self.producer_id, epoch, batches, batch.timestamp, self.coordinator_epoch, first
        )

    def with_marker(self, epoch: int, coordinator_epoch: int, timestamp: int) -> ProducerEntry:
        """Return the entry after the marker that ends a transaction."""
        batches = self.batches if epoch == self.producer_epoch else ()
        return ProducerEntry(self.producer_id, epoch, batches, timestamp, coordinator_epoch)
